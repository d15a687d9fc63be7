"""Answers from the ledger what a table has of each stream: no file of the table is read.

Runs are read by stream, the few largest streams a range of positions at a time, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze_pipeline.ledger.ledger import Ledger
from bronze_pipeline.ledger.runs import NO_LEVEL, Runs, normal, of_tables
from bronze_pipeline.ledger.segments import ROWS_IN_GROUP, Wanted
from bronze_pipeline.ledger.store import Damaged, damage_is_named
from bronze_pipeline.positions import END_MARK, Report, StreamReport
from bronze_pipeline.tables.history import history_of
from bronze_pipeline.tables.tables import format_of

RUNS_AT_ONCE = 2_000_000
ATTEMPTS = 3
BEYOND = np.iinfo(np.int64).max


def examine_ledger(url: str, stream: str | None = None, expected: int | None = None) -> Report | None:
    """Return what the table at a place has, or one stream of it; None if it has no ledger.

    `expected` is how many messages that stream should have. Raise Damaged if the ledger cannot be used.
    """
    ledger = Ledger(url, history_of(url, format_of(url) or ""), writes=False)
    for attempt in range(ATTEMPTS):
        try:
            with damage_is_named():
                if not ledger.load():
                    return None
                ledger.advance()
                return _report(ledger, stream, expected)
        except Damaged:
            # A job may have replaced files that were about to be read.
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


@dataclass
class _Tally:
    """What is known of a stream while its runs come, in their order."""

    rows: int = 0
    ids: int = 0
    messages: int = 0
    last: int = -1
    missing: list[tuple[int, int]] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)

    def add(self, runs: Runs) -> None:
        self.ids += int(runs.events().sum())
        begins = np.ones(len(runs), np.bool_)
        begins[1:] = runs.first[1:] != runs.first[:-1]
        firsts, lasts = runs.first[begins], runs.last[begins]
        self.messages += int((lasts - firsts + 1).sum())
        before = np.concatenate([[self.last], lasts[:-1]])
        gaps = np.flatnonzero(firsts > before + 1)
        self.missing += zip((before[gaps] + 1).tolist(), (firsts[gaps] - 1).tolist(), strict=True)
        self.last = int(lasts[-1])
        alone = begins & np.append(begins[1:], True)
        whole = alone & ((runs.low == 0) | (runs.high == NO_LEVEL))
        for place in np.flatnonzero(begins & ~whole):
            self.cut += range(int(runs.first[place]), int(runs.last[place]) + 1)

    def report(self, name: str, ends: list[int]) -> StreamReport:
        end = max(ends, default=None)
        missing = list(self.missing)
        if end is not None and end > self.last + 1:
            missing.append((self.last + 1, end - 1))
        return StreamReport(
            name, self.rows, self.messages, self.last, missing, self.rows - self.ids, self.cut, end
        )


def _report(ledger: Ledger, stream: str | None, expected: int | None) -> Report:
    tallies: dict[str, _Tally] = {}
    for name, rows in _rows(ledger).items():
        if stream is None or name.removesuffix(END_MARK) == stream:
            tallies[name] = _Tally(rows)
    for name, runs in _by_stream(ledger, sorted(tallies)):
        tallies[name].add(runs)
    names = {stream} if stream is not None else {name.removesuffix(END_MARK) for name in tallies}
    reports = []
    for name in sorted(names):
        ends = [] if expected is None else [expected]
        if f"{name}{END_MARK}" in tallies:
            ends.append(tallies[f"{name}{END_MARK}"].last)
        reports.append(tallies.get(name, _Tally()).report(name, ends))
    return Report(reports, ledger.without_id if stream is None else 0)


def _summaries(ledger: Ledger) -> list[pa.Table]:
    settled = [segment.summary for segment in ledger.segments]
    return settled + [entry.summary for entry in ledger.entries.values()]


def _rows(ledger: Ledger) -> dict[str, int]:
    """Return how many rows each stream has."""
    return _sums(ledger, "rows")


def _sums(ledger: Ledger, column: str) -> dict[str, int]:
    tables = [each.select(["stream", column]) for each in _summaries(ledger)]
    if not tables:
        return {}
    found = pa.concat_tables(tables).group_by("stream").aggregate([(column, "sum")])
    return dict(zip(found["stream"].to_pylist(), found[f"{column}_sum"].to_pylist(), strict=True))


def _by_stream(ledger: Ledger, names: list[str]) -> Iterator[tuple[str, Runs]]:
    """Yield runs in normal form, each stream in its order; a large one comes in several parts."""
    counts = _sums(ledger, "runs")
    few: list[str] = []
    together = 0
    for name in names:
        if counts[name] > RUNS_AT_ONCE:
            yield from ((name, part) for part in _parts(ledger, name))
            continue
        if together + counts[name] > RUNS_AT_ONCE:
            yield from _whole(ledger, few)
            few, together = [], 0
        few.append(name)
        together += counts[name]
    yield from _whole(ledger, few)


def _whole(ledger: Ledger, names: list[str]) -> Iterator[tuple[str, Runs]]:
    if not names:
        return
    runs = _read(ledger, [Wanted(name, 0, BEYOND) for name in names])
    bounds = np.searchsorted(runs.stream, np.arange(len(runs.names) + 1))
    for place, name in enumerate(runs.names.to_pylist()):
        yield name, runs.take(slice(bounds[place], bounds[place + 1]))


def _parts(ledger: Ledger, name: str) -> Iterator[Runs]:
    starts = sorted({start for segment in ledger.segments for start in segment.starts(name)})
    step = max(1, RUNS_AT_ONCE // ROWS_IN_GROUP)
    edges = [0, *starts[step::step], BEYOND]
    for begin, end in pairwise(edges):
        part = _read(ledger, [Wanted(name, begin, end - 1)], begin, end - 1)
        if len(part):
            yield part


def _read(ledger: Ledger, wanted: list[Wanted], begin: int = 0, end: int = BEYOND) -> Runs:
    """Return the runs of some streams, cut to a range of positions."""
    tables = [segment.read(wanted) for segment in ledger.segments]
    streams = pa.array([each.stream for each in wanted], pa.string())
    for entry in ledger.entries.values():
        table = entry.runs.to_table()
        tables.append(table.filter(pc.is_in(table["stream"], value_set=streams)))
    runs = of_tables(tables)
    runs = runs.take((runs.first <= end) & (runs.last >= begin))
    clipped = Runs(
        runs.names,
        runs.stream,
        np.maximum(runs.first, begin),
        np.minimum(runs.last, end),
        runs.low,
        runs.high,
    )
    return normal(clipped)
