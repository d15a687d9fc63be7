"""Finds out of a bronze table's ids which positions of each stream are there, missing, or there twice.

No Spark: files are read one after the other, their id columns alone. A stream's positions are bits in
pages, so a hundred million need some 25 megabytes, and one that is far out needs no more than another. A
first pass notes the positions; a second looks at the events at each of them. Positions that are in more
than one file, of messages that a micro-batch cut in two and of real duplicates, are judged at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ["stream_id", "position", "level"]
END_MARK = "~end"
"""Follows a stream's name in the id of its end, whose position is how many messages the stream had."""
NO_LEVEL = -1
PAGE = 1 << 16

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Bits: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
Files: TypeAlias = Callable[[list[str]], Iterable[pa.Table]]
"""Reads some columns of the table, a file at a time."""


@dataclass(frozen=True)
class StreamReport:
    """What a table has of one stream."""

    stream_id: str
    events: int
    messages: int
    """Distinct positions."""
    last: int
    """The highest position."""
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Positions that are not there, from 0 to the last or the end: the first and last of each gap."""
    duplicates: int = 0
    """Events beyond the first with the same id."""
    cut: list[int] = field(default_factory=list)
    """Messages with levels missing before their last."""
    end: int | None = None
    """How many messages the stream had, as its end says, or who asks; None if neither does."""

    @property
    def has_end(self) -> bool:
        """Whether it is known where the stream ends: not if messages came behind what was its end once."""
        return self.end is not None and self.end > self.last

    @property
    def missing_messages(self) -> int:
        return sum(last - first + 1 for first, last in self.missing)

    @property
    def is_complete(self) -> bool:
        return not self.missing and not self.duplicates and not self.cut


@dataclass(frozen=True)
class Report:
    """What a table has."""

    streams: list[StreamReport]
    without_id: int
    """Events that have no id, or one that names no stream and position."""

    @property
    def is_complete(self) -> bool:
        return not self.without_id and all(stream.is_complete for stream in self.streams)


class Positions:
    """A set of positions, as bits in pages: what one costs does not depend on how far out it is."""

    def __init__(self) -> None:
        self._pages: dict[int, Bits] = {}

    def has(self, positions: Numbers) -> Flags:
        """Tell of each position whether it is in the set."""
        found = np.zeros(len(positions), np.bool_)
        for page, chosen in _pages(positions):
            if page in self._pages:
                places = positions[chosen] & PAGE - 1
                found[chosen] = self._pages[page][places >> 3] >> (places & 7).astype(np.uint8) & 1 > 0
        return found

    def add(self, positions: Numbers) -> None:
        for page, chosen in _pages(positions):
            if page not in self._pages:
                self._pages[page] = np.zeros(PAGE // 8, np.uint8)
            places = positions[chosen] & PAGE - 1
            np.bitwise_or.at(self._pages[page], places >> 3, (1 << (places & 7)).astype(np.uint8))

    def numbers(self) -> Numbers:
        """Return the positions in their order."""
        parts = [
            np.flatnonzero(np.unpackbits(bits, bitorder="little")) + page * PAGE
            for page, bits in sorted(self._pages.items())
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _pages(positions: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each page that positions are in, and the places of those."""
    pages = positions // PAGE
    order = np.argsort(pages, kind="stable")
    starts = np.flatnonzero(np.diff(pages[order], prepend=-1))
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else len(order)
        yield int(pages[order[start]]), order[start:end]


@dataclass
class Seen:
    """What is known of a stream while the files are read."""

    events: int = 0
    positions: Positions = field(default_factory=Positions)
    shared: Positions = field(default_factory=Positions)
    """Positions that more than one file has."""
    duplicates: int = 0
    cut: list[int] = field(default_factory=list)
    end: int | None = None

    def end_at(self, positions: Numbers) -> None:
        """Note where the stream ended; a replay that was cut short may have been sent again."""
        self.end = max(self.end or 0, int(positions.max()))

    def add(self, positions: Numbers) -> None:
        """Note the positions of a file."""
        self.events += len(positions)
        own = np.unique(positions)
        self.shared.add(own[self.positions.has(own)])
        self.positions.add(own)

    def judge(self, positions: Numbers, levels: Numbers) -> None:
        """Count duplicates, and messages with holes, of all the events at some positions."""
        if not len(positions):
            return
        ids, counts = np.unique(np.stack([positions, levels]), axis=1, return_counts=True)
        messages, starts, sizes = np.unique(ids[0], return_index=True, return_counts=True)
        self.duplicates += int(counts.sum() - len(counts))
        # Levels are in order: without a hole the last one's number says how many there are.
        ends = ids[1][starts + sizes - 1]
        self.cut += messages[np.where(ends == NO_LEVEL, 1, ends + 1) != sizes].tolist()

    def report(self, name: str, expected: int | None) -> StreamReport:
        there = self.positions.numbers()
        last = int(there[-1]) if len(there) else -1
        end = max((each for each in (expected, self.end) if each is not None), default=None)
        edges = np.concatenate([[-1], there, [max(last + 1, end or 0)]])
        gaps = np.flatnonzero(np.diff(edges) > 1)
        missing = [(int(edges[gap]) + 1, int(edges[gap + 1]) - 1) for gap in gaps]
        return StreamReport(
            name, self.events, len(there), last, missing, self.duplicates, sorted(self.cut), end
        )


def examine(files: Files, stream: str | None = None, expected: int | None = None) -> Report:
    """Look through a table, or at one stream of it; `expected` is how many messages that one should have."""
    streams: dict[str, Seen] = {} if stream is None else {stream: Seen()}
    without_id = 0
    for table in files(COLUMNS[:2]):
        without_id += table["position"].null_count if stream is None else 0
        for name, rows in _by_stream(table, stream):
            seen = streams.setdefault(name.removesuffix(END_MARK), Seen())
            note = seen.end_at if name.endswith(END_MARK) else seen.add
            note(rows["position"].to_numpy())
    shared: dict[str, list[tuple[Numbers, Numbers]]] = {}
    for table in files(COLUMNS):
        for name, rows in _by_stream(table, stream):
            if name.endswith(END_MARK):
                continue
            positions = rows["position"].to_numpy()
            levels = rows["level"].fill_null(NO_LEVEL).cast(pa.int64()).to_numpy()
            elsewhere = streams[name].shared.has(positions)
            streams[name].judge(positions[~elsewhere], levels[~elsewhere])
            shared.setdefault(name, []).append((positions[elsewhere], levels[elsewhere]))
    for name, parts in shared.items():
        positions, levels = (np.concatenate(each) for each in zip(*parts, strict=True))
        streams[name].judge(positions, levels)
    return Report([seen.report(name, expected) for name, seen in sorted(streams.items())], without_id)


def _by_stream(table: pa.Table, only: str | None) -> Iterator[tuple[str, pa.Table]]:
    rows = table.filter(pc.is_valid(table["position"]))
    for name in pc.unique(rows["stream_id"]).to_pylist():
        if only is None or name.removesuffix(END_MARK) == only:
            yield name, rows.filter(pc.equal(rows["stream_id"], name))
