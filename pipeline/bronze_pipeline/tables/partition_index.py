"""Which files a Delta table on a local disk has in some of its partitions, and what their rows span.

The log is read for the days that are asked for, and followed from then on, so that what a micro-batch costs
does not depend on how many files the other days have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bronze_pipeline.tables.delta_log import DeltaLog, actions_of, last_checkpoint

DAYS_KEPT = 32
# Sources round times differently.
MARGIN = timedelta(seconds=1)


class ValueSpan(NamedTuple):
    """The lowest and highest value of a column in a file; None if that is not known."""

    lowest: Any
    highest: Any

    def overlaps(self, other: ValueSpan) -> bool:
        """Tell whether both may have a value in common."""
        return not (
            (self.highest is not None and other.lowest is not None and self.highest < other.lowest)
            or (self.lowest is not None and other.highest is not None and self.lowest > other.highest)
        )


UNKNOWN = ValueSpan(None, None)


def span_of(values: pa.ChunkedArray) -> ValueSpan:
    """Return the span of numbers or times; that of files with the same values overlaps it."""
    if values.null_count or not len(values):
        return UNKNOWN
    found = pc.min_max(values).as_py()
    margin = MARGIN if pa.types.is_timestamp(values.type) else 0
    return ValueSpan(_moved(found["min"], -margin), _moved(found["max"], margin))


def _moved(value: Any, by: Any) -> Any:
    """Return a number or a time moved a little; None if there is no such time."""
    try:
        return value + by
    except OverflowError:
        # The first and the last year that a table may have: some programs write the first for "none".
        return None


class PartitionIndex:
    """The files of the partitions that were asked for; a partition's first column is its day."""

    def __init__(self, log: DeltaLog, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        """The columns whose spans are known."""
        self._log = log
        self._version = log.version
        self._days: dict[str, dict[str, tuple[ValueSpan, ...]]] = {}
        """The days that are followed, and what is known of each file in them."""

    def near(self, folders: Iterable[str], spans: Sequence[ValueSpan]) -> list[str]:
        """Return the files in some folders that may have rows with values within a span for each column."""
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
            if path.rpartition("/")[0] in wanted and all(map(ValueSpan.overlaps, known, spans))
        ]

    def _follow(self) -> None:
        try:
            for version in range(self._version + 1, self._log.version + 1):
                self._apply(version, self._days.keys())
        except FileNotFoundError:
            # The log was trimmed since the last question; the days are loaded again.
            self._days = {}
        self._version = self._log.version

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
        said = json.loads(add.get("stats") or "{}")
        known = [said.get(name, {}) for name in ("minValues", "maxValues", "nullCount")]
        self._days[_day(path)][path] = tuple(stated_span(name, *known) for name in self.columns)


def _day(path: str) -> str:
    return path.partition("/")[0]


def stated_span(
    column: str, lowest: Mapping[str, Any], highest: Mapping[str, Any], nulls: Mapping[str, int]
) -> ValueSpan:
    """Return the span of a column by what is noted of a file."""
    # Rows without a value may be anywhere.
    if nulls.get(column) != 0:
        return UNKNOWN
    return ValueSpan(_value(lowest.get(column)), _value(highest.get(column)))


def _value(said: Any) -> Any:
    """Return a number or a time."""
    return datetime.fromisoformat(said) if isinstance(said, str) else said
