"""Parquet files of a table: tasks write them, the driver commits them.

A `Folder` is where files go: a plain value that is sent to the workers. A `Written` describes one file, with
the statistics that let readers, and the check for duplicates, skip files that cannot hold what they look for.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from bronze_pipeline.tables.batch_duplicates import first_of_each
from bronze_pipeline.tables.storage import file_system

ROWS_IN_FILE = 256 * 1024
# What rows that wait for their files may take of a task's memory: some 300,000 ordinary events of bronze.
BYTES_WAITING = 256 << 20
ROWS_IN_GROUP = 128 * 1024
# Columns whose values rarely repeat: a dictionary of them only costs time.
DISTINCT_COLUMNS = ("event_id", "bus_position", "raw")
# The most common search columns; their statistics go into the table's log.
INDEXED_COLUMNS = (
    "stream_id",
    "position",
    "payload_case",
    "exchange",
    "symbol",
    "open_ts",
    "interval_ts",
    "event_ts",
)
# Each of its values gets its own row groups, so that a reader of one kind of event skips the others.
GROUPED_BY = "payload_case"
COMPRESSION = "zstd"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
PLACE = "place"

Places: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Folder:
    """A place for files, as a path or URL, and how rows are divided among its subfolders."""

    url: str
    partition_columns: tuple[str, ...]

    def open(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """Return the file system and the path on it."""
        return file_system(self.url)


@dataclass(frozen=True)
class Written:
    """A file of a table."""

    path: str
    """Relative to the table's folder."""
    size: int
    rows: int
    partition: Mapping[str, str]
    lowest: Mapping[str, Any]
    highest: Mapping[str, Any]
    nulls: Mapping[str, int]

    def moved(self, path: str) -> Written:
        return replace(self, path=path)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Written:
        return cls(**json.loads(text))


class FileWriter:
    """Writes the rows of one task, one file for each partition that occurs."""

    def __init__(
        self,
        folder: Folder,
        schema: pa.Schema,
        prefix: str,
        beside: FileWriter | None = None,
        distinct: str | None = None,
    ) -> None:
        """Prepare; writers `beside` each other share what may wait in memory.

        Of waiting rows with the same value in the column `distinct` all but the first are left out.
        """
        self._folder = folder
        self._prefix = prefix
        self._schema = schema
        self._distinct = distinct
        self._waiting: list[pa.RecordBatch] = []
        self._written: list[Written] = []
        self.bytes_waiting = 0
        self.repeats = 0
        """How many rows were left out."""
        self.writers: list[FileWriter] = [] if beside is None else beside.writers
        """This one, and those beside it."""
        self.writers.append(self)

    def write(self, batch: pa.RecordBatch) -> None:
        """Accept rows; they wait in memory until it is full, or until `finish`."""
        self._waiting.append(batch.select(self._schema.names))
        self.bytes_waiting += batch.nbytes
        while sum(each.bytes_waiting for each in self.writers) > BYTES_WAITING:
            max(self.writers, key=lambda each: each.bytes_waiting).write_files()

    def finish(self) -> list[Written]:
        """Write what is left, and describe all files."""
        self.write_files()
        return self._written

    def write_files(self) -> None:
        """Write what waits. Rows are divided now and not as they come, so that they are copied once."""
        rows = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
        self._waiting, self.bytes_waiting = [], 0
        if self._distinct is not None and (keep := first_of_each(rows[self._distinct])) is not None:
            self.repeats += len(rows) - pc.sum(keep).as_py()
            rows = rows.filter(keep)
        columns = self._folder.partition_columns
        stored = rows.drop_columns(list(columns))
        for values, places in _places([_partition_values(rows[name]) for name in columns], len(rows)):
            partition = dict(zip(columns, values, strict=True))
            for start in range(0, len(places), ROWS_IN_FILE):
                groups = list(_groups(stored, places[start : start + ROWS_IN_FILE]))
                path = new_path(partition, self._prefix)
                self._written.append(write_file(self._folder, path, partition, groups))


def new_path(partition: Mapping[str, str], prefix: str) -> str:
    """Return the path of a new file of a partition."""
    parts = [f"{name}={quote(value, safe='')}" for name, value in partition.items()]
    return "/".join([*parts, f"{prefix}-{uuid.uuid4().hex}.parquet"])


def write_file(
    folder: Folder, path: str, partition: Mapping[str, str], groups: Sequence[pa.Table]
) -> Written:
    """Write one file, each group of rows by itself."""
    rows = pa.concat_tables(groups)
    system, root = folder.open()
    target = f"{root}/{path}"
    system.create_dir(target.rpartition("/")[0], recursive=True)
    repeating = [name for name in _leaves(rows.schema) if name.split(".")[0] not in DISTINCT_COLUMNS]
    with pq.ParquetWriter(
        target, rows.schema, filesystem=system, compression=COMPRESSION, use_dictionary=repeating
    ) as writer:
        for group in groups:
            writer.write_table(group, ROWS_IN_GROUP)
    size = system.get_file_info(target).size
    indexed = [name for name in INDEXED_COLUMNS if name in rows.schema.names]
    bounds = {name: pc.min_max(rows[name]).as_py() for name in indexed}
    return Written(
        path=path,
        size=size,
        rows=len(rows),
        partition=dict(partition),
        lowest={name: _in_log(each["min"]) for name, each in bounds.items() if each["min"] is not None},
        highest={name: _in_log(each["max"]) for name, each in bounds.items() if each["max"] is not None},
        nulls={name: rows[name].null_count for name in indexed},
    )


def _in_log(value: Any) -> Any:
    """Return a value as written in a table's log."""
    if not isinstance(value, datetime):
        return value
    return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def read_file(folder: Folder, path: str, columns: list[str] | None = None) -> pa.Table:
    """Read one file, or some of its columns; the partition columns are not in it."""
    system, root = folder.open()
    return pq.ParquetFile(f"{root}/{path}", filesystem=system).read(columns)


def delete_file(folder: Folder, path: str) -> None:
    system, root = folder.open()
    system.delete_file(f"{root}/{path}")


def keep_rows(folder: Folder, files: Sequence[Written], keep: pa.Array) -> list[Written]:
    """Rewrite files without the rows to drop; `keep` counts rows through all files."""
    kept: list[Written] = []
    start = 0
    for file in files:
        kept += _filtered(folder, file, keep.slice(start, file.rows))
        start += file.rows
    return kept


def _filtered(folder: Folder, file: Written, keep: pa.Array) -> list[Written]:
    count = pc.sum(keep).as_py() or 0
    if count == file.rows:
        return [file]
    rows = read_file(folder, file.path).filter(keep) if count else None
    delete_file(folder, file.path)
    if rows is None:
        return []
    path = f"{file.path.rpartition('/')[0]}/part-{uuid.uuid4().hex}.parquet"
    return [write_file(folder, path, file.partition, groups_of(rows))]


def groups_of(rows: pa.Table) -> list[pa.Table]:
    """Divide the rows of a file into its groups."""
    return list(_groups(rows, np.arange(len(rows))))


def _groups(rows: pa.Table, places: Places) -> Iterator[pa.Table]:
    """Divide some rows of a table into the groups of a file."""
    if GROUPED_BY not in rows.schema.names:
        yield _taken(rows, places)
        return
    for _, some in _places([rows[GROUPED_BY].take(places)], len(places)):
        yield _taken(rows, places[some])


def _places(keys: Sequence[pa.ChunkedArray], rows: int) -> Iterator[tuple[tuple[str, ...], Places]]:
    """Yield the combinations of the keys' values, in their order, and the places of the rows with each."""
    if not keys:
        yield (), np.arange(rows)
        return
    names = [str(number) for number in range(len(keys))]
    table = pa.table([*keys, pa.array(np.arange(rows))], names=[*names, PLACE])
    # With threads, the places would be in any order.
    found = (
        table.group_by(names, use_threads=False)
        .aggregate([(PLACE, "list")])
        .sort_by([(name, "ascending") for name in names])
    )
    for row, places in zip(found.select(names).to_pylist(), found[f"{PLACE}_list"], strict=True):
        yield tuple(row.values()), places.values.to_numpy()


def _taken(rows: pa.Table, places: Places) -> pa.Table:
    """Return some rows. A payload that none of them has is not copied: most have one of many."""
    if len(places) == len(rows):
        return rows
    columns = []
    for column in rows.columns:
        is_payload = pa.types.is_struct(column.type) and column.null_count
        if is_payload and not pc.any(column.is_valid().take(places)).as_py():
            columns.append(pa.nulls(len(places), column.type))
        else:
            columns.append(column.take(places))
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _partition_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Neither format can tell empty text from NULL there.
    texts = column.cast(pa.string()).fill_null("")
    return pc.if_else(pc.equal(texts, ""), NULL_PARTITION, texts)


def _leaves(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        yield from _leaves_of(field.name, field.type)


def _leaves_of(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _leaves_of(f"{path}.{part.name}", part.type)
    elif pa.types.is_map(kind):
        yield from (f"{path}.key_value.key", f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield from _leaves_of(f"{path}.list.element", kind.value_type)
    else:
        yield path
