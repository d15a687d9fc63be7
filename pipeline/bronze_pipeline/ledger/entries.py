"""What one version of the table added to the ledger: its ids as runs, and how many rows they are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.ledger.runs import Flags, Numbers, Runs, normal, of_ids, of_tables
from bronze_pipeline.ledger.segments import SUMMARY, summarized
from bronze_pipeline.tables.batch_duplicates import first_of_each

ID_COLUMNS = ["event_id", "stream_id", "position", "level"]
IDS = pa.schema([EVENTS.field(name) for name in ID_COLUMNS])
ABOUT = b"ledger"
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)


@dataclass(frozen=True)
class LedgerEntry:
    """The ids of some files."""

    runs: Runs
    """In normal form."""
    rows: Numbers
    """How many rows of the table each of the runs' names has."""
    without_id: int = 0
    """Rows that have no id of our form."""

    @cached_property
    def summary(self) -> pa.Table:
        """The streams, as rows of `SUMMARY`."""
        return summarized(self.runs, self.rows)

    def to_table(self) -> pa.Table:
        about = {"rows": self.rows.tolist(), "without_id": self.without_id}
        return self.runs.to_table().replace_schema_metadata({ABOUT: json.dumps(about).encode()})

    @classmethod
    def from_table(cls, table: pa.Table) -> LedgerEntry:
        about = json.loads(table.schema.metadata[ABOUT])
        return cls(of_tables([table]), np.array(about["rows"], np.int64), about["without_id"])


def is_ours(ids: pa.Table) -> pa.Array:
    """Tell which ids are written as the sidecar writes them, so that their parts are the whole of them.

    An id with leading zeros is another one than that without them, and has the same parts.
    """
    length = pc.add(pc.binary_length(ids["stream_id"]), 1 + _digits(ids["position"]))
    levels = pc.if_else(pc.is_valid(ids["level"]), 1 + _digits(ids["level"]), 0)
    return (
        pc.equal(pc.binary_length(ids["event_id"]), pc.add(length, levels)).fill_null(False).combine_chunks()
    )


def first_of_each_event(ids: pa.Table) -> pa.Array | None:
    """Return which rows with `ID_COLUMNS` have an id for the first time; None if all do."""
    # To compare numbers takes a fraction of what it takes to compare texts.
    if pc.all(is_ours(ids)).as_py():
        runs = of_ids(ids["stream_id"], ids["position"], ids["level"])
        if normal(runs).events().sum() == len(ids):
            return None
    return first_of_each(ids["event_id"])


def _digits(column: pa.ChunkedArray) -> pa.Array:
    numbers = column.fill_null(0).cast(pa.int64()).to_numpy()
    return np.searchsorted(_POWERS, numbers, side="right").astype(np.int32) + 1


def entry_of(tables: Iterable[pa.Table]) -> LedgerEntry:
    """Return the ids of rows with `ID_COLUMNS`."""
    parts = [_entry_of(table) for table in tables]
    return parts[0] if len(parts) == 1 else united(parts)


def _entry_of(ids: pa.Table) -> LedgerEntry:
    ours = ids.filter(is_ours(ids))
    runs = of_ids(ours["stream_id"], ours["position"], ours["level"])
    rows = np.bincount(runs.stream, minlength=len(runs.names)).astype(np.int64)
    return LedgerEntry(normal(runs), rows, len(ids) - len(ours))


def united(entries: Iterable[LedgerEntry]) -> LedgerEntry:
    """Make one entry of several."""
    entries = list(entries)
    runs = normal(of_tables([entry.runs.to_table() for entry in entries]))
    rows = rows_of(runs.names, [entry.summary for entry in entries])
    return LedgerEntry(runs, rows, sum(entry.without_id for entry in entries))


def rows_of(names: pa.StringArray, summaries: Iterable[pa.Table]) -> Numbers:
    """Return how many rows each stream has in all summaries together."""
    together = pa.concat_tables([SUMMARY.empty_table(), *summaries])
    places = pc.index_in(together["stream"], value_set=names).to_numpy()
    counts = np.zeros(len(names), np.int64)
    np.add.at(counts, places, together["rows"].to_numpy())
    return counts


def overlaps(summary: pa.Table, names: pa.StringArray, lowest: Numbers, highest: Numbers) -> Flags:
    """Tell which of the streams may have some of their positions in what a summary describes."""
    places = pc.index_in(names, value_set=summary["stream"])
    begin = summary["lowest"].take(places).to_numpy(zero_copy_only=False)
    end = summary["highest"].take(places).to_numpy(zero_copy_only=False)
    found: Flags = (lowest <= end) & (highest >= begin)
    return found
