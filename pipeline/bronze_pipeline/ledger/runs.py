"""Sets of event ids as runs: a run has the same levels at each of its positions.

An id is a stream, a position and a level; an event without a level has the level -1. Messages without levels
that follow each other are one run, however many they are, and so are messages with equally many levels. A run
is a rectangle, so a set of ids is a set of rectangles. In `normal` form they do not overlap, the levels of a
position that follow each other are together, and neighbours that can be one run are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NO_LEVEL = -1
SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("low", pa.int32()),
        ("high", pa.int32()),
    ]
)

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
# Levels have at most nine digits; one more bit holds NO_LEVEL.
LEVEL_BITS = 31
BITS = 62


@dataclass(frozen=True)
class Runs:
    """Positions `first` to `last` of a stream, each with the levels `low` to `high`."""

    names: pa.StringArray
    """The streams, sorted."""
    stream: Numbers
    """Which of the names each run belongs to."""
    first: Numbers
    last: Numbers
    low: Numbers
    high: Numbers

    def __len__(self) -> int:
        return len(self.stream)

    def events(self) -> Numbers:
        """Return how many ids each run has."""
        return (self.last - self.first + 1) * (self.high - self.low + 1)

    def take(self, chosen: Numbers | Flags | slice) -> Runs:
        return Runs(
            self.names,
            *(each[chosen] for each in (self.stream, self.first, self.last, self.low, self.high)),
        )

    def to_table(self) -> pa.Table:
        return pa.table(
            [self.names.take(pa.array(self.stream)), self.first, self.last, self.low, self.high],
            schema=SCHEMA,
        )


def of_ids(streams: pa.ChunkedArray, positions: pa.ChunkedArray, levels: pa.ChunkedArray) -> Runs:
    """Return ids as runs of one id each, in the order of the rows."""
    names, numbers = _numbered(streams)
    places = positions.to_numpy()
    heights = levels.fill_null(NO_LEVEL).cast(pa.int64()).to_numpy()
    return Runs(names, numbers, places, places, heights, heights)


def of_tables(tables: Sequence[pa.Table]) -> Runs:
    """Return the runs of several tables, one after the other."""
    rows = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    names, numbers = _numbered(rows["stream"])
    columns = (rows[name].cast(pa.int64()).to_numpy() for name in SCHEMA.names[1:])
    return Runs(names, numbers, *columns)


def _numbered(streams: pa.ChunkedArray) -> tuple[pa.StringArray, Numbers]:
    coded = streams.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    codes = coded.indices.to_numpy().astype(np.int64)
    return coded.dictionary.take(pa.array(order)), places[codes] if len(order) else codes


def normal(runs: Runs) -> Runs:
    """Return the same ids in normal form."""
    if not len(runs):
        return runs
    runs = runs.take(np.lexsort((runs.low, runs.last, _keys(runs.stream, runs.first))))
    crossing = _crossing(runs)
    if crossing.any():
        pieces = _split(runs.take(crossing))
        runs = _concatenated(runs.take(~crossing), pieces)
        runs = runs.take(np.lexsort((runs.low, _keys(runs.stream, runs.first))))
    return _joined(_levels_united(runs))


def _keys(streams: Numbers, places: Numbers) -> Numbers:
    """Return numbers with the order of stream and position; the places must not be negative."""
    bits = int(places.max()).bit_length()
    if int(streams.max()).bit_length() + bits > BITS:
        values, places = np.unique(places, return_inverse=True)
        bits = len(values).bit_length()
    return (streams << bits) | places


def _crossing(runs: Runs) -> Flags:
    """Tell which runs overlap others that do not have the very same positions; runs are sorted."""
    if (runs.first == runs.last).all():
        return np.zeros(len(runs), np.bool_)
    keys = _keys(np.tile(runs.stream, 2), np.concatenate([runs.first, runs.last]))
    firsts, lasts = keys[: len(runs)], keys[len(runs) :]
    reach = np.maximum.accumulate(lasts)
    overlaps = firsts[1:] <= reach[:-1]
    differs = overlaps & ((firsts[1:] != firsts[:-1]) | (lasts[1:] != lasts[:-1]))
    clusters = np.cumsum(np.concatenate([[True], ~overlaps]))
    crossing = np.zeros(clusters[-1] + 1, np.bool_)
    crossing[clusters[1:][differs]] = True
    found: Flags = crossing[clusters]
    return found


def _split(runs: Runs) -> Runs:
    """Cut runs wherever one of their stream begins or ends."""
    count = len(runs)
    streams, edges = np.tile(runs.stream, 2), np.concatenate([runs.first, runs.last + 1])
    _, chosen, ranks = np.unique(_keys(streams, edges), return_index=True, return_inverse=True)
    starts, ends = ranks[:count], ranks[count:]
    pieces = ends - starts
    owners = np.repeat(np.arange(count), pieces)
    offsets = np.arange(len(owners)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    at = starts[owners] + offsets
    bounds = edges[chosen]
    return Runs(
        runs.names,
        runs.stream[owners],
        bounds[at],
        bounds[at + 1] - 1,
        runs.low[owners],
        runs.high[owners],
    )


def _concatenated(one: Runs, other: Runs) -> Runs:
    return Runs(
        one.names,
        *(
            np.concatenate([getattr(one, name), getattr(other, name)])
            for name in ("stream", "first", "last", "low", "high")
        ),
    )


def _levels_united(runs: Runs) -> Runs:
    """Join the levels of each position that overlap or follow each other."""
    is_new = _changes(runs.stream, runs.first)
    groups = np.cumsum(is_new)
    reach = np.maximum.accumulate((groups << LEVEL_BITS) | (runs.high + 1))
    highs = (reach & (1 << LEVEL_BITS) - 1) - 1
    begins = is_new.copy()
    begins[1:] |= runs.low[1:] > highs[:-1] + 1
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(runs)) - 1
    kept = runs.take(starts)
    return Runs(kept.names, kept.stream, kept.first, kept.last, kept.low, highs[ends])


def _joined(runs: Runs) -> Runs:
    """Make one run of neighbours with the same levels; runs are sorted, and do not overlap."""
    is_new = _changes(runs.stream, runs.first)
    # A position with several runs of levels stays by itself.
    alone = is_new & np.append(is_new[1:], True)
    follows = (
        alone[1:]
        & alone[:-1]
        & (runs.stream[1:] == runs.stream[:-1])
        & (runs.first[1:] == runs.last[:-1] + 1)
        & (runs.low[1:] == runs.low[:-1])
        & (runs.high[1:] == runs.high[:-1])
    )
    starts = np.flatnonzero(np.concatenate([[True], ~follows]))
    ends = np.append(starts[1:], len(runs)) - 1
    kept = runs.take(starts)
    return Runs(kept.names, kept.stream, kept.first, runs.last[ends], kept.low, kept.high)


def _changes(streams: Numbers, firsts: Numbers) -> Flags:
    is_new = np.ones(len(streams), np.bool_)
    is_new[1:] = (streams[1:] != streams[:-1]) | (firsts[1:] != firsts[:-1])
    return is_new


def contains(known: Runs, ids: Runs) -> Flags:
    """Tell of each id whether runs in normal form have it."""
    found = np.zeros(len(ids), np.bool_)
    if not len(known) or not len(ids):
        return found
    numbers = pc.index_in(ids.names, value_set=known.names).fill_null(-1).to_numpy()
    streams = numbers[ids.stream]
    maybe = np.flatnonzero(streams >= 0)
    if not len(maybe):
        return found
    keys = _keys(
        np.concatenate([known.stream, streams[maybe]]), np.concatenate([known.first, ids.first[maybe]])
    )
    firsts, wanted = keys[: len(known)], keys[len(known) :]
    at = np.searchsorted(firsts, wanted, side="right") - 1
    maybe, at = maybe[at >= 0], at[at >= 0]
    begin = firsts[at]
    # All runs of levels that begin at the same position.
    while len(maybe):
        found[maybe] |= (
            (known.stream[at] == streams[maybe])
            & (known.last[at] >= ids.first[maybe])
            & (known.low[at] <= ids.low[maybe])
            & (known.high[at] >= ids.low[maybe])
        )
        more = (at > 0) & (firsts[at - 1] == begin)
        maybe, at, begin = maybe[more], at[more] - 1, begin[more]
    return found
