"""What a producer learns about events that were not delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Failure:
    """An event that at least one back end did not get. Sending it again would not help."""

    position: int
    """Its position in the stream."""
    kind: Literal["rejected", "failed"]
    """`rejected`: it is malformed or cannot be addressed. `failed`: a back end refused it permanently."""
    reason: str
    """Why, in plain text."""
    backend: str = ""
    """The back end that refused it; empty if the event never reached one."""
    level: int | None = None
    """Index of the level, for one level of a JSON book change; otherwise None."""

    def __str__(self) -> str:
        level = "" if self.level is None else f".{self.level}"
        backend = f" by {self.backend}" if self.backend else ""
        return f"position {self.position}{level} {self.kind}{backend}: {self.reason}"


class PublishError(Exception):
    """Not every event since the last flush was delivered; the attributes say what happened to the others."""

    def __init__(
        self, *, unacknowledged: int, dropped: int, failed: int, failures: Sequence[Failure], reason: str
    ) -> None:
        self.unacknowledged = unacknowledged
        """Accepted events that are not acknowledged. They may or may not have been published."""
        self.dropped = dropped
        """Events dropped since the last flush; they were never sent."""
        self.failed = failed
        """Events rejected or permanently failed since the last flush."""
        self.failures = tuple(failures)
        """The first of those; `failed` counts all of them."""
        self.reason = reason
        """What prevents or last prevented delivery, such as the connection's last error; may be empty."""
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
