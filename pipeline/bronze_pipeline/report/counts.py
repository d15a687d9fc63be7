"""Events by day, exchange and kind, and the files that hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bronze_pipeline.tables.committed import CommittedTable

NO_DAY = "no day"
NO_EXCHANGE = "no exchange"
CASE = "payload_case"
FILES_AT_ONCE = 1000


class Kind(NamedTuple):
    """What events are counted by."""

    day: str
    exchange: str
    case: str


@dataclass
class DayFiles:
    """The files of a day."""

    events: int = 0
    files: int = 0
    bytes: int = 0
    smallest: int | None = None

    def add(self, events: int, size: int) -> None:
        self.events += events
        self.files += 1
        self.bytes += size
        self.smallest = size if self.smallest is None else min(self.smallest, size)


@dataclass
class Counts:
    """What a table holds."""

    events: Counter[Kind] = field(default_factory=Counter)
    stored: dict[str, DayFiles] = field(default_factory=dict)
    """By day."""

    def by(self, *names: str) -> Counter[tuple[str, ...]]:
        """Return the events by some fields of `Kind`."""
        found: Counter[tuple[str, ...]] = Counter()
        for kind, events in self.events.items():
            found[tuple(getattr(kind, name) for name in names)] += events
        return found

    @property
    def days(self) -> list[str]:
        return sorted(self.stored)


def count(table: CommittedTable, on_file: Callable[[], None] = lambda: None) -> Counts:
    """Count a table's events; a file is opened only if the log does not say what kind of events it has."""
    found = Counts()
    for row in files(table):
        on_file()
        day, exchange = row["date"] or NO_DAY, row["exchange"] or NO_EXCHANGE
        rows = row["rows"]
        if rows is None or row["lowest_case"] is None or row["lowest_case"] != row["highest_case"]:
            cases = _cases(table.open(row["path"]))
            rows = cases.total()
        else:
            cases = Counter({row["lowest_case"]: rows})
        for case, events in cases.items():
            found.events[Kind(day, exchange, case)] += events
        found.stored.setdefault(day, DayFiles()).add(rows, row["size"])
    return found


def files(table: CommittedTable) -> Iterator[dict[str, Any]]:
    """Yield what the log says of each file, without a Python object for all of them at once."""
    for batch in table.files.to_batches(FILES_AT_ONCE):
        yield from batch.to_pylist()


def case_of(file: pq.ParquetFile, group: int) -> str | None:
    """Return the kind of all events of a row group; None if its statistics do not say."""
    column = file.schema_arrow.get_field_index(CASE)
    if column < 0:
        return None
    # Leaves are numbered, and columns before this one may have several.
    leaves = [file.schema.column(leaf).path for leaf in range(len(file.schema.names))]
    known = file.metadata.row_group(group).column(leaves.index(CASE)).statistics
    if known is None or not known.has_min_max or known.null_count or known.min != known.max:
        return None
    return str(known.min)


def _cases(file: pq.ParquetFile) -> Counter[str]:
    found: Counter[str] = Counter()
    for group in range(file.num_row_groups):
        case = case_of(file, group)
        if case is not None:
            found[case] += file.metadata.row_group(group).num_rows
            continue
        column: pa.ChunkedArray = file.read_row_group(group, [CASE])[CASE]
        for each in pc.value_counts(column).to_pylist():
            found[each["values"] or "none"] += each["counts"]
    return found
