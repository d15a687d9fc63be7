"""Finds which positions of each stream are present, missing or duplicated, from a bronze table's ids.

No Spark: files are read one after another, only their id columns. A stream's positions are bits, so a
hundred million need some 25 megabytes. A first pass records the positions; a second looks at the events at
each of them. Positions in more than one file, from messages split between micro-batches and from real
duplicates, are judged at the end of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = ["stream_id", "position", "level"]
NO_LEVEL = -1

Bits: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
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
    """Positions that are not there, from 0 to the last: the first and last of each gap."""
    duplicates: int = 0
    """Events beyond the first with the same id."""
    cut: list[int] = field(default_factory=list)
    """Messages with levels missing before their last."""

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
    """Events without an id, or whose id names no stream and position."""

    @property
    def is_complete(self) -> bool:
        return not self.without_id and all(stream.is_complete for stream in self.streams)


@dataclass
class Seen:
    """What is known about a stream while the files are read."""

    events: int = 0
    positions: Bits = field(default_factory=lambda: np.zeros(0, np.uint8))
    shared: Bits = field(default_factory=lambda: np.zeros(0, np.uint8))
    """Positions that more than one file has."""
    duplicates: int = 0
    cut: list[int] = field(default_factory=list)

    def add(self, positions: Numbers) -> None:
        """Record the positions of a file."""
        self.events += len(positions)
        own = np.unique(positions)
        self.positions, self.shared = _grown(self.positions, own[-1]), _grown(self.shared, own[-1])
        _set(self.shared, own[_has(self.positions, own)])
        _set(self.positions, own)

    def judge(self, positions: Numbers, levels: Numbers) -> None:
        """Count duplicates and messages with gaps, given all events at some positions."""
        if not len(positions):
            return
        ids, counts = np.unique(np.stack([positions, levels]), axis=1, return_counts=True)
        messages, starts, sizes = np.unique(ids[0], return_index=True, return_counts=True)
        self.duplicates += int(counts.sum() - len(counts))
        # Levels are in order: without a gap, the last one's number says how many there are.
        ends = ids[1][starts + sizes - 1]
        self.cut += messages[np.where(ends == NO_LEVEL, 1, ends + 1) != sizes].tolist()

    def report(self, name: str, expected: int | None) -> StreamReport:
        there = np.flatnonzero(np.unpackbits(self.positions, bitorder="little"))
        end = max(expected or 0, int(there[-1]) + 1 if len(there) else 0)
        edges = np.concatenate([[-1], there, [end]])
        gaps = np.flatnonzero(np.diff(edges) > 1)
        missing = [(int(edges[gap]) + 1, int(edges[gap + 1]) - 1) for gap in gaps]
        last = int(there[-1]) if len(there) else -1
        return StreamReport(name, self.events, len(there), last, missing, self.duplicates, sorted(self.cut))


def examine(files: Files, stream: str | None = None, expected: int | None = None) -> Report:
    """Examine a table, or one stream of it; `expected` is how many messages that stream should have."""
    streams: dict[str, Seen] = {} if stream is None else {stream: Seen()}
    without_id = 0
    for table in files(COLUMNS[:2]):
        without_id += table["position"].null_count if stream is None else 0
        for name, rows in _by_stream(table, stream):
            streams.setdefault(name, Seen()).add(rows["position"].to_numpy())
    shared: dict[str, list[tuple[Numbers, Numbers]]] = {}
    for table in files(COLUMNS):
        for name, rows in _by_stream(table, stream):
            positions = rows["position"].to_numpy()
            levels = rows["level"].fill_null(NO_LEVEL).cast(pa.int64()).to_numpy()
            elsewhere = _has(streams[name].shared, positions)
            streams[name].judge(positions[~elsewhere], levels[~elsewhere])
            shared.setdefault(name, []).append((positions[elsewhere], levels[elsewhere]))
    for name, parts in shared.items():
        positions, levels = (np.concatenate(each) for each in zip(*parts, strict=True))
        streams[name].judge(positions, levels)
    return Report([seen.report(name, expected) for name, seen in sorted(streams.items())], without_id)


def _by_stream(table: pa.Table, only: str | None) -> Iterator[tuple[str, pa.Table]]:
    rows = table.filter(pc.is_valid(table["position"]))
    for name in pc.unique(rows["stream_id"]).to_pylist():
        if only is None or name == only:
            yield name, rows.filter(pc.equal(rows["stream_id"], name))


def _grown(bits: Bits, top: int) -> Bits:
    size = top // 8 + 1
    # Double the size each time, so that growing is cheap.
    return bits if size <= len(bits) else np.pad(bits, (0, max(size, 2 * len(bits)) - len(bits)))


def _has(bits: Bits, positions: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        bits[positions >> 3] >> (positions & 7).astype(np.uint8) & 1 > 0
    )
    return found


def _set(bits: Bits, positions: Numbers) -> None:
    np.bitwise_or.at(bits, positions >> 3, (1 << (positions & 7)).astype(np.uint8))
