"""Which files a Delta table on a local disk has in some of its partitions, and the times of their rows.

The log is read for the days that are asked for, and followed from then on, so that what a micro-batch costs
does not depend on how many files the other days have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bronze_pipeline.tables.delta_log import DeltaLog, actions_of, last_checkpoint

TIME = "event_ts"
DAYS_KEPT = 32
# Sources round times differently.
MARGIN = timedelta(seconds=1)


class TimeSpan(NamedTuple):
    """The earliest and latest time in a file; None if the log does not say."""

    earliest: datetime | None
    latest: datetime | None

    def overlaps(self, other: TimeSpan) -> bool:
        """Tell whether both may have a time in common."""
        return not (
            (self.latest is not None and other.earliest is not None and self.latest < other.earliest)
            or (self.earliest is not None and other.latest is not None and self.earliest > other.latest)
        )


UNKNOWN = TimeSpan(None, None)


def span_of(times: pa.ChunkedArray) -> TimeSpan:
    """Return the span of times; that of files with the same times overlaps it."""
    if times.null_count or not len(times):
        return UNKNOWN
    found = pc.min_max(times).as_py()
    return TimeSpan(found["min"] - MARGIN, found["max"] + MARGIN)


class PartitionIndex:
    """The files of the partitions that were asked for; a partition's first column is its day."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._version = log.version
        self._days: dict[str, dict[str, TimeSpan]] = {}
        """The days that are followed, and what is known of each file in them."""

    def near(self, folders: Iterable[str], span: TimeSpan) -> list[str]:
        """Return the files in some folders that may have rows within a span of time."""
        wanted = set(folders)
        days = {_day(folder) for folder in wanted}
        self._follow()
        missing = days - self._days.keys()
        if missing:
            self._load(missing, keep=days)
        return [
            path
            for day in sorted(days)
            for path, known in self._days[day].items()
            if path.rpartition("/")[0] in wanted and known.overlaps(span)
        ]

    def _follow(self) -> None:
        while self._version < self._log.version:
            self._version += 1
            self._apply(self._version, self._days.keys())

    def _load(self, days: set[str], keep: set[str]) -> None:
        if len(self._days) + len(days) > DAYS_KEPT:
            self._days = {day: files for day, files in self._days.items() if day in keep}
        self._days |= {day: {} for day in days}
        begin, parts, _ = last_checkpoint(self._log.folder)
        for part in parts:
            for batch in pq.ParquetFile(part).iter_batches(columns=["add.path", "add.stats"]):
                added = batch["add"].drop_null()
                found = pc.is_in(
                    pc.list_element(pc.split_pattern(pc.struct_field(added, "path"), "/", max_splits=1), 0),
                    value_set=pa.array(sorted(days)),
                )
                for add in added.filter(found).to_pylist():
                    self._add(add)
        for version in range(begin + 1, self._version + 1):
            self._apply(version, days)

    def _apply(self, version: int, days: Iterable[str]) -> None:
        followed = set(days)
        for action in actions_of(self._log.folder, version):
            for name in ("add", "remove"):
                if name in action and _day(action[name]["path"]) in followed:
                    path = unquote(action[name]["path"])
                    if name == "add":
                        self._add(action["add"])
                    else:
                        self._days[_day(path)].pop(path, None)

    def _add(self, add: dict[str, Any]) -> None:
        path = unquote(add["path"])
        self._days[_day(path)][path] = _span(add.get("stats"))


def _day(path: str) -> str:
    return path.partition("/")[0]


def _span(stats: str | None) -> TimeSpan:
    said = json.loads(stats) if stats else {}
    # Rows without a time may be anywhere.
    if said.get("nullCount", {}).get(TIME) != 0:
        return UNKNOWN
    lowest, highest = (said.get(name, {}).get(TIME) for name in ("minValues", "maxValues"))
    if lowest is None or highest is None:
        return UNKNOWN
    return TimeSpan(datetime.fromisoformat(lowest), datetime.fromisoformat(highest))
