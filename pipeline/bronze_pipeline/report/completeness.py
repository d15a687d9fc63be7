"""When the gaps of a table's streams were: positions have no times, but the messages beside a gap have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze_pipeline.positions import StreamReport
from bronze_pipeline.report.counts import files
from bronze_pipeline.tables.committed import CommittedTable

MOST_GAPS = 200
COLUMNS = ["stream_id", "position", "local_ts", "ingest_ts"]


@dataclass(frozen=True)
class Gap:
    """Messages that are missing, and the times of the messages before and behind them."""

    first: int
    last: int
    after: datetime | None
    before: datetime | None

    @property
    def messages(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class StreamLine:
    """A stream on the time line."""

    report: StreamReport
    began: datetime | None
    ended: datetime | None
    gaps: Sequence[Gap]
    """The largest, in the order of their positions."""


def worst_first(streams: Sequence[StreamReport]) -> list[StreamReport]:
    """Return the streams with those first that need a look."""
    return sorted(
        streams,
        key=lambda each: (each.is_complete, -each.missing_messages, -each.duplicates, -each.events),
    )


def lines(table: CommittedTable, streams: Sequence[StreamReport]) -> list[StreamLine]:
    """Place streams on a time line; only files that may hold a message in question are read."""
    gaps = {each.stream_id: _largest(each.missing) for each in streams}
    wanted = {each.stream_id: _edges(each, gaps[each.stream_id]) for each in streams}
    times = _times(table, wanted)

    def line(report: StreamReport) -> StreamLine:
        own = times.get(report.stream_id, {})
        first, last = _first(report), report.last
        return StreamLine(
            report,
            own.get(first),
            own.get(last),
            [Gap(*gap, own.get(gap[0] - 1), own.get(gap[1] + 1)) for gap in gaps[report.stream_id]],
        )

    return [line(report) for report in streams]


def _largest(gaps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST_GAPS])


def _first(report: StreamReport) -> int:
    """Return the lowest position that is there."""
    return report.missing[0][1] + 1 if report.missing and report.missing[0][0] == 0 else 0


def _edges(report: StreamReport, gaps: Sequence[tuple[int, int]]) -> Any:
    edges = [each for first, last in gaps for each in (first - 1, last + 1)]
    found = np.unique(np.array([_first(report), report.last, *edges], np.int64))
    return found[(found >= 0) & (found <= report.last)]


def _times(table: CommittedTable, wanted: dict[str, Any]) -> dict[str, dict[int, datetime]]:
    found: dict[str, dict[int, datetime]] = {name: {} for name in wanted}
    for path in _holding(table, wanted):
        file = table.open(path)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, COLUMNS)
            rows = rows.filter(pc.is_in(rows["stream_id"], pa.array(list(wanted), pa.string())))
            for name in pc.unique(rows["stream_id"]).to_pylist():
                own = rows.filter(pc.equal(rows["stream_id"], name))
                own = own.filter(pc.is_in(own["position"], pa.array(wanted[name])))
                moments = pc.coalesce(own["local_ts"], own["ingest_ts"])
                for position, moment in zip(own["position"].to_pylist(), moments.to_pylist(), strict=True):
                    if moment is not None:
                        found[name].setdefault(position, moment)
    return found


def _holding(table: CommittedTable, wanted: dict[str, Any]) -> Iterator[str]:
    """Yield the files that may hold one of these positions, by what the log says."""
    for file in files(table):
        stream = file["lowest_stream"]
        lowest, highest = file["lowest_position"], file["highest_position"]
        if stream is None or lowest is None or stream != file["highest_stream"]:
            yield file["path"]
        elif stream in wanted:
            low, high = np.searchsorted(wanted[stream], [lowest, highest + 1])
            if low < high:
                yield file["path"]
