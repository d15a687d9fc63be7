"""What one who taps is shown: a sample that is bounded in rate and in size, and how much is left out."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bronze_client.schema import FailureKind, TappedEvent, TappedHeader, TapRequest, TapResponse

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record

EVENTS_EACH_SECOND = 300
"""More than anybody reads; encoding more would take time from the streams."""
FAILURES_EACH_SECOND = 100
"""With an allowance of their own, a few failures are seen among many events."""
MOST_BYTES = 1 << 20
"""That wait for one who does not read them; a single event may be larger."""


class Allowance:
    """So many a second; what is not used adds up to a second's worth."""

    def __init__(self, each_second: int) -> None:
        self._each_second = self._left = float(each_second)
        self._since = time.monotonic()

    def take(self, wanted: int) -> int:
        """Return how many of those wanted are allowed now."""
        now = time.monotonic()
        self._left = min(self._each_second, self._left + (now - self._since) * self._each_second)
        self._since = now
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken


class View:
    """Chooses what is shown, and holds it until it is fetched."""

    def __init__(self, request: TapRequest) -> None:
        self._exchanges = frozenset(request.exchanges)
        self._symbols = frozenset(request.symbols)
        self._cases = frozenset(request.payload_cases)
        self._backends = frozenset(request.backends)
        self._is_choosy = bool(self._exchanges or self._symbols or self._cases)
        self._failures_only = request.failures_only
        self._events = Allowance(EVENTS_EACH_SECOND)
        self._failures = Allowance(FAILURES_EACH_SECOND)
        self._waiting: list[TappedEvent] = []
        self._bytes = 0
        self._skipped = 0

    @property
    def has_news(self) -> bool:
        """Whether there is anything to fetch."""
        return bool(self._waiting or self._skipped)

    def stored(self, route: Route, backend: str, records: Sequence[Record]) -> None:
        """See records that a back end has confirmed."""
        if self._failures_only or (self._backends and backend not in self._backends):
            return
        if self._is_choosy:
            records = [record for record in records if self._wants(record.event)]
        count = len(records)
        allowed = self._events.take(count)
        self._skipped += count - allowed
        for number in range(allowed):
            # Spread over the write, for the events of a stream come together.
            record = records[number * count // allowed]
            event, address = record.event, record.address
            self._show(
                TappedEvent(
                    event_id=event.id,
                    envelope=event.envelope,
                    backend=backend,
                    destination=address.destination,
                    key=address.key,
                    headers=[
                        TappedHeader(name=name, value=value) for name, value in route.headers(event, address)
                    ],
                ),
                len(event.envelope),
            )

    def _wants(self, event: Event) -> bool:
        return (
            (not self._exchanges or event.exchange in self._exchanges)
            and (not self._symbols or event.symbol in self._symbols)
            and (not self._cases or event.payload_case in self._cases)
        )

    def failed(self, letter: DeadLetter) -> None:
        """See what was rejected or given up."""
        if self._backends and letter.backend not in self._backends:
            return
        if not self._failures.take(1):
            self._skipped += 1
            return
        is_rejected = letter.kind == "rejected"
        shown = TappedEvent(
            event_id=letter.event_id,
            backend=letter.backend,
            destination=letter.destination,
            failure=FailureKind.FAILURE_KIND_REJECTED if is_rejected else FailureKind.FAILURE_KIND_FAILED,
            reason=letter.reason,
        )
        if letter.form == "json":
            shown.json = letter.content
        else:
            shown.envelope = letter.content
        self._show(shown, len(letter.content))

    def _show(self, event: TappedEvent, size: int) -> None:
        if self._waiting and self._bytes + size > MOST_BYTES:
            self._skipped += 1
            return
        self._waiting.append(event)
        self._bytes += size

    def fetch(self) -> TapResponse:
        """Return what has come since the last time."""
        news = TapResponse(events=self._waiting, skipped=self._skipped)
        self._waiting, self._bytes, self._skipped = [], 0, 0
        return news
