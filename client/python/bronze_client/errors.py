"""What a producer is told about events that did not get through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Failure:
    """An event that at least one back end did not get. Sending it again is of no use."""

    position: int
    """Its position in the stream."""
    kind: Literal["rejected", "failed"]
    """`rejected`: the event is malformed or cannot be addressed. `failed`: a back end refused it for good."""
    reason: str
    """Why, in words."""
    backend: str = ""
    """The back end that refused it; empty if it never got that far."""
    level: int | None = None
    """Which of the events that one JSON book change became; None for all others."""

    def __str__(self) -> str:
        level = "" if self.level is None else f".{self.level}"
        backend = f" by {self.backend}" if self.backend else ""
        return f"position {self.position}{level} {self.kind}{backend}: {self.reason}"


class PublishError(Exception):
    """Not every event since the last flush was delivered; the attributes say what became of the others."""

    def __init__(
        self, *, unacknowledged: int, dropped: int, failed: int, failures: Sequence[Failure], reason: str
    ) -> None:
        self.unacknowledged = unacknowledged
        """Accepted events that are not acknowledged. They may or may not have been published."""
        self.dropped = dropped
        """Events that were never sent, since the last flush."""
        self.failed = failed
        """Events that were rejected or failed for good, since the last flush."""
        self.failures = tuple(failures)
        """The first of those; `failed` counts them all."""
        self.reason = reason
        """What stands or last stood in the way, such as the connection's last error; may be empty."""
        super().__init__(self._describe())

    def _describe(self) -> str:
        parts = []
        if self.unacknowledged:
            parts.append(f"{self.unacknowledged} not acknowledged")
        if self.dropped:
            parts.append(f"{self.dropped} dropped")
        if self.failed:
            first = f" (first: {self.failures[0]})" if self.failures else ""
            parts.append(f"{self.failed} failed{first}")
        text = "Events were not delivered: " + ", ".join(parts)
        return f"{text}. {self.reason}" if self.reason else f"{text}."
