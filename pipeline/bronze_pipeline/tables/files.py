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
from functools import reduce
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from bronze_pipeline.tables.storage import file_system

ROWS_IN_FILE = 256 * 1024
# What rows that wait for their files may take of a task's memory. A file of ordinary events is full before.
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


class Waiting:
    """The rows of one partition that wait for their file."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += len(batch)
        self.bytes += batch.nbytes

    @property
    def are_many(self) -> bool:
        """Whether they are a full file."""
        return self.rows >= ROWS_IN_FILE or self.bytes >= BYTES_WAITING


class FileWriter:
    """Writes the rows of one task, one file for each partition that occurs."""

    def __init__(
        self, folder: Folder, schema: pa.Schema, prefix: str, beside: FileWriter | None = None
    ) -> None:
        """Prepare; writers `beside` each other share what may wait in memory."""
        self._folder = folder
        self._prefix = prefix
        self._schema = pa.schema([field for field in schema if field.name not in folder.partition_columns])
        self._waiting: dict[tuple[str, ...], Waiting] = {}
        self._written: list[Written] = []
        self.writers: list[FileWriter] = [] if beside is None else beside.writers
        """This one, and those beside it."""
        self.writers.append(self)

    def write(self, batch: pa.RecordBatch) -> None:
        """Accept rows; they wait in memory until a file is full, memory is, or until `finish`."""
        for values, rows in _divide(batch, self._folder.partition_columns):
            waiting = self._waiting.setdefault(values, Waiting())
            waiting.add(rows.select(self._schema.names))
            if waiting.are_many:
                self._write_file(values)
        while sum(map(FileWriter.bytes_waiting, self.writers)) > BYTES_WAITING:
            max(self.writers, key=FileWriter.most_bytes_waiting).write_largest()

    def bytes_waiting(self) -> int:
        return sum(each.bytes for each in self._waiting.values())

    def most_bytes_waiting(self) -> int:
        """Return how many bytes wait for the largest file."""
        return max((each.bytes for each in self._waiting.values()), default=0)

    def write_largest(self) -> None:
        """Write the file that makes most room."""
        self._write_file(max(self._waiting, key=lambda values: self._waiting[values].bytes))

    def finish(self) -> list[Written]:
        """Write what is left, and describe all files."""
        for values in sorted(self._waiting):
            self._write_file(values)
        return self._written

    def _write_file(self, values: tuple[str, ...]) -> None:
        partition = dict(zip(self._folder.partition_columns, values, strict=True))
        path = new_path(partition, self._prefix)
        rows = pa.Table.from_batches(self._waiting.pop(values).batches, self._schema)
        self._written.append(write_file(self._folder, path, partition, rows))


def new_path(partition: Mapping[str, str], prefix: str) -> str:
    """Return the path of a new file of a partition."""
    parts = [f"{name}={quote(value, safe='')}" for name, value in partition.items()]
    return "/".join([*parts, f"{prefix}-{uuid.uuid4().hex}.parquet"])


def write_file(folder: Folder, path: str, partition: Mapping[str, str], rows: pa.Table) -> Written:
    """Write one file."""
    system, root = folder.open()
    target = f"{root}/{path}"
    system.create_dir(target.rpartition("/")[0], recursive=True)
    repeating = [name for name in _leaves(rows.schema) if name.split(".")[0] not in DISTINCT_COLUMNS]
    with pq.ParquetWriter(
        target, rows.schema, filesystem=system, compression=COMPRESSION, use_dictionary=repeating
    ) as writer:
        for group in _groups(rows):
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
    return [write_file(folder, path, file.partition, rows)]


def _divide(
    batch: pa.RecordBatch, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    texts = [_partition_values(batch[name]) for name in columns]
    found = pa.table(texts, names=list(columns)).group_by(columns).aggregate([]).to_pylist()
    for each in found:
        values = tuple(each[name] for name in columns)
        if len(found) == 1:
            yield values, batch
            continue
        is_here = [pc.equal(text, value) for text, value in zip(texts, values, strict=True)]
        yield values, batch.filter(reduce(pc.and_, is_here))


def _partition_values(column: pa.Array) -> pa.Array:
    # Neither format can tell empty text from NULL there.
    texts = column.cast(pa.string()).fill_null("")
    return pc.if_else(pc.equal(texts, ""), NULL_PARTITION, texts)


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    if GROUPED_BY not in rows.schema.names or rows[GROUPED_BY].null_count:
        yield rows
        return
    for case in pc.unique(rows[GROUPED_BY]).sort().to_pylist():
        yield rows.filter(pc.equal(rows[GROUPED_BY], case))


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
