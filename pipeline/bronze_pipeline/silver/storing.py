"""Stores typed rows: tasks write the files; the driver leaves out what the table has, and commits.

Rows with the same `dedupe_key` are the same. A table is searched for a batch's keys only in the partitions
and the time span that the batch touches: rows with the same key have the same exchange and `event_ts`. Rows
without a key are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bronze_pipeline.decoding.schema import PAYLOADS, TIMESTAMP
from bronze_pipeline.silver.follow import TableFile, listed
from bronze_pipeline.silver.records import ENVELOPE, FAULTS, RecordKind
from bronze_pipeline.tables.batch_duplicates import first_of_each
from bronze_pipeline.tables.files import FileWriter, Folder, Written, keep_rows, read_file
from bronze_pipeline.tables.partition_index import span_of
from bronze_pipeline.tables.table_duplicates import values_there
from bronze_pipeline.tables.tables import Table

QUARANTINE = pa.schema(
    [
        # The table's day, so that a fault is found next to its row.
        pa.field("date", pa.date32()),
        pa.field("table", pa.string()),
        pa.field("event_id", pa.string()),
        pa.field("exchange", pa.string()),
        pa.field("symbol", pa.string()),
        pa.field("event_ts", TIMESTAMP),
        pa.field("column", pa.string()),
        pa.field("text", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
QUARANTINE_PARTITION_COLUMNS = ("date",)
_ROW_COLUMNS = ("date", "event_id", "exchange", "symbol", "event_ts")

RESULT = pa.schema([("name", pa.string()), ("file", pa.string())])
RESULT_SCHEMA = "name string, file string"
QUARANTINE_NAME = "quarantine"


@dataclass(frozen=True)
class TypedTable:
    """A table of typed records, as workers need it."""

    record: RecordKind
    folder: Folder
    schema: pa.Schema


@dataclass(frozen=True)
class TypeEvents:
    """What a worker does with files of bronze: all kinds of records in one pass."""

    url: str
    bronze: pa.Schema
    targets: Sequence[TypedTable]
    quarantine: Folder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        faults = FileWriter(self.quarantine, QUARANTINE, "part")
        rows = {
            each.record.table: FileWriter(each.folder, each.schema, "part", beside=faults)
            for each in self.targets
        }
        for file in listed(batches):
            events = TableFile(self.url, self.bronze, file)
            for target in self.targets:
                record = target.record
                is_of_kind = ds.field("payload_case") == PAYLOADS[record.payload]
                for batch in events.rows([*ENVELOPE, record.payload], is_of_kind):
                    typed = record.transform(batch)
                    if not len(typed):
                        continue
                    rows[record.table].write(typed.drop_columns([FAULTS]).cast(target.schema))
                    if typed[FAULTS].null_count < len(typed):
                        faults.write(quarantined(typed, record.table))
        written = {name: writer.finish() for name, writer in rows.items()}
        written[QUARANTINE_NAME] = faults.finish()
        yield pa.RecordBatch.from_pylist(
            [{"name": name, "file": file.to_json()} for name, files in written.items() for file in files],
            RESULT,
        )


def quarantined(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return a row of `QUARANTINE` for each fault."""
    owners = pc.list_parent_indices(batch[FAULTS])
    found = pc.list_flatten(batch[FAULTS])
    columns = {column: batch[column].take(owners) for column in _ROW_COLUMNS}
    columns |= {part: pc.struct_field(found, part) for part in ("column", "text", "reason")}
    columns["table"] = pa.repeat(pa.scalar(name), len(owners))
    return pa.RecordBatch.from_arrays(
        [columns[each.name].cast(each.type) for each in QUARANTINE], schema=QUARANTINE
    )


def distinct(table: Table, files: Sequence[Written]) -> Sequence[Written]:
    """Leave out of new files what is in the table, or in an earlier new file; return what is left."""
    if not files:
        return files
    parts = [read_file(table.staging, file.path, ["dedupe_key", "event_ts"]) for file in files]
    new = pa.concat_tables(parts).combine_chunks()
    keys = new["dedupe_key"].combine_chunks()
    keep = first_of_each(keys)
    known = _known(table, files, new, "dedupe_key")
    if len(known):
        fresh = pc.invert(pc.is_in(keys, value_set=known))
        keep = fresh if keep is None else pc.and_(keep, fresh)
    return files if keep is None else keep_rows(table.staging, files, keep)


def distinct_faults(quarantine: Table, files: Sequence[Written]) -> Sequence[Written]:
    """Leave out of new files the faults of events that the quarantine table has: all of one come together."""
    parts = [read_file(quarantine.staging, file.path, ["event_id", "event_ts"]) for file in files]
    new = pa.concat_tables(parts).combine_chunks()
    known = _known(quarantine, files, new, "event_id")
    if not len(known):
        return files
    keep = pc.invert(pc.is_in(new["event_id"].combine_chunks(), value_set=known))
    return keep_rows(quarantine.staging, files, keep)


def _known(table: Table, files: Sequence[Written], new: pa.Table, column: str) -> pa.Array:
    """Return which of the new values of a column the table already has."""
    folders = {file.path.rpartition("/")[0] for file in files}
    paths = table.near(folders, {"event_ts": span_of(new["event_ts"])})
    return values_there(table, paths, new[column], column, _near(new["event_ts"]))


def _near(times: pa.ChunkedArray) -> ds.Expression | None:
    if times.null_count:
        return None
    span: dict[str, Any] = pc.min_max(times).as_py()
    earliest, latest = (pa.scalar(span[end], TIMESTAMP) for end in ("min", "max"))
    return (ds.field("event_ts") >= earliest) & (ds.field("event_ts") <= latest)
