"""How far Redis streams were read: positions, offsets, and what is missing between two of them.

No client is needed here, so both the driver and the workers can use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

UNKNOWN = -1


class EntryId(NamedTuple):
    """An entry's id; ids of a stream only grow."""

    ms: int
    number: int

    @classmethod
    def parse(cls, text: str | bytes) -> EntryId:
        plain = text.decode() if isinstance(text, bytes) else text
        ms, _, number = plain.partition("-")
        return cls(int(ms), int(number or 0))

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"


NOTHING = EntryId(0, 0)
"""Before every entry."""


@dataclass(frozen=True)
class StreamState:
    """What a server says about a stream. Counters are None before Redis 7."""

    last: EntryId
    """The newest id ever given, even if that entry is gone."""
    length: int
    first: EntryId | None
    """The oldest entry; None if there is none."""
    added: int | None
    """How many entries were ever added."""
    deleted: EntryId
    """The newest entry that was deleted individually."""

    @property
    def removed(self) -> int | None:
        return None if self.added is None else self.added - self.length


class Position(NamedTuple):
    """How far a stream was read, and how many entries that is; None if unknown."""

    id: EntryId
    added: int | None


Positions = Mapping[str, Position]


def to_offset(positions: Positions) -> dict[str, Any]:
    return {
        "keys": {
            key: {"id": str(place.id), "added": UNKNOWN if place.added is None else place.added}
            for key, place in sorted(positions.items())
        }
    }


def from_offset(offset: Mapping[str, Any]) -> dict[str, Position]:
    return {
        key: Position(EntryId.parse(place["id"]), None if place["added"] == UNKNOWN else place["added"])
        for key, place in offset["keys"].items()
    }


def newest(states: Mapping[str, StreamState]) -> dict[str, Position]:
    return {key: Position(state.last, state.added) for key, state in states.items()}


def entries_between(start: Position, end: Position, state: StreamState) -> int:
    """Return about how many entries are between two positions of a stream."""
    if start.id == end.id:
        return 0
    if start.added is not None and end.added is not None and end.added >= start.added:
        return end.added - start.added
    if state.first is None or state.first >= start.id or state.last <= state.first:
        return max(1, state.length)
    share = (end.id.ms - start.id.ms) / max(1, state.last.ms - state.first.ms)
    return max(1, round(state.length * min(1.0, max(0.0, share))))


def missing(key: str, start: Position, end: Position | None, state: StreamState | None) -> str | None:
    """Return what a stream should still have after a position, but does not."""
    if end is None or state is None:
        return f"the stream {key} was deleted; entries after {start.id} may be lost"
    counted_less = start.added is not None and state.added is not None and state.added < start.added
    if end.id < start.id or counted_less:
        return f"the stream {key} was deleted and recreated; entries after {start.id} may be lost"
    if state.first is not None and state.first <= start.id:
        # Trimming removes the oldest first, so it did not get here.
        if start.id < state.deleted <= end.id:
            return f"entries of the stream {key} after {start.id} and up to {state.deleted} were deleted"
        return None
    if state.removed == 0 or (state.removed is None and start.id.ms == 0):
        return None
    if start.added is None or state.removed is None:
        return f"an unknown number of entries of the stream {key} after {start.id} were trimmed"
    count = state.removed - start.added
    if end.added is not None:
        count = min(count, end.added - start.added)
    return f"{count} entries of the stream {key} after {start.id} were trimmed" if count > 0 else None
