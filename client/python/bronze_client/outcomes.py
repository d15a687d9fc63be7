"""The outcomes of events: counted, reported to the producer, and kept for the next flush."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bronze_client.errors import Failure

MOST_FAILURES = 100
"""At most this many are kept between two flushes; all are counted."""

log = logging.getLogger("bronze_client")


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of a publisher's counters since it was opened."""

    accepted: int = 0
    """Events that were accepted into the buffer."""
    acknowledged: int = 0
    """Accepted events that the sidecar is done with, whatever the outcome."""
    published: int = 0
    """Envelopes that every back end confirmed; one JSON book change becomes several."""
    filtered: int = 0
    """Envelopes that no back end is configured to take."""
    rejected: int = 0
    """Events that are malformed or cannot be addressed."""
    failed: int = 0
    """Events that a back end refused permanently."""
    dropped: int = 0
    """Events that were never sent."""
    reconnects: int = 0
    """Number of streams opened after the first one."""
    buffered_events: int = 0
    """Events that are accepted and not acknowledged."""
    buffered_bytes: int = 0


class Outcomes:
    """Counts outcomes and passes failures on."""

    def __init__(self, on_failure: Callable[[Failure], None] | None) -> None:
        self._on_failure = on_failure
        self.published = 0
        self.filtered = 0
        self.rejected = 0
        self.failed = 0
        self._since_flush = 0
        self._first: list[Failure] = []
        self._unreported = 0
        self._last: Failure | None = None

    def add(self, published: int, filtered: int, failures: Sequence[Failure]) -> None:
        """Count what is done, and tell the producer of failures."""
        self.published += published
        self.filtered += filtered
        if not failures:
            return
        rejected = sum(failure.kind == "rejected" for failure in failures)
        self.rejected += rejected
        self.failed += len(failures) - rejected
        self._since_flush += len(failures)
        self._first += failures[: MOST_FAILURES - len(self._first)]
        if self._on_failure is None:
            self._unreported += len(failures)
            self._last = failures[-1]
            return
        for failure in failures:
            call_back(self._on_failure, failure)

    def take_failures(self) -> tuple[int, list[Failure]]:
        """Return how many events failed since the last call, and the first of them."""
        taken = self._since_flush, self._first
        self._since_flush, self._first = 0, []
        return taken

    @property
    def is_unreported(self) -> bool:
        """Whether there are failures of which nobody was told."""
        return self._unreported > 0

    def report(self) -> None:
        """Log the failures of which nobody was told."""
        count, self._unreported = self._unreported, 0
        if count:
            log.warning("%d events failed; the last one: %s", count, self._last)


def call_back(function: Callable[..., None], *args: object) -> None:
    """Call what the producer gave us; its errors are its own, and must not stop the client."""
    try:
        function(*args)
    except Exception:
        log.exception("A callback failed.")
