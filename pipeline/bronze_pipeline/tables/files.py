"""Parquet files of a table: tasks write them, the driver commits them.

A `Folder` is where files go: a plain value that is sent to the workers. A `Written` describes one file, with
the statistics that let readers, and the check for duplicates, skip files that cannot hold what they look for.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from bronze_pipeline.tables.storage import file_system
from bronze_pipeline.tables.waiting import Places, WaitingRows

ROWS_IN_FILE = 256 * 1024
# What rows that wait for their files may take of a task's memory: some 800,000 ordinary events of bronze.
BYTES_WAITING = 256 << 20
ROWS_IN_GROUP = 128 * 1024
# Columns whose values rarely repeat: a dictionary of them only costs time.
DISTINCT_COLUMNS = ("event_id", "bus_position", "raw", "position", "local_ts", "ingest_ts")
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
        first: Callable[[WaitingRows], pa.Array | None] | None = None,
    ) -> None:
        """Prepare; writers `beside` each other share what may wait in memory.

        `first` tells which of the waiting rows are kept, where not all are.
        """
        self._folder = folder
        self._prefix = prefix
        self._schema = schema
        self._first = first
        self._waiting = WaitingRows(schema)
        self._written: list[Written] = []
        self.repeats = 0
        """How many rows were left out."""
        self.writers: list[FileWriter] = [] if beside is None else beside.writers
        """This one, and those beside it."""
        self.writers.append(self)

    @property
    def bytes_waiting(self) -> int:
        return self._waiting.nbytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Accept rows; they wait in memory until it is full, or until `finish`."""
        self._waiting.add(batch)
        while sum(each.bytes_waiting for each in self.writers) > BYTES_WAITING:
            max(self.writers, key=lambda each: each.bytes_waiting).write_files()

    def finish(self) -> list[Written]:
        """Write what is left, and describe all files."""
        self.write_files()
        return self._written

    def write_files(self) -> None:
        """Write what waits. Rows are divided now and not as they come, so that few pieces are made."""
        rows, self._waiting = self._waiting, WaitingRows(self._schema)
        if not len(rows):
            return
        keep = None if self._first is None else self._first(rows)
        chosen = np.arange(len(rows)) if keep is None else np.flatnonzero(keep)
        self.repeats += len(rows) - len(chosen)
        columns = self._folder.partition_columns
        keys = [_partition_values(rows.column(name)).take(chosen) for name in columns]
        files = [
            (
                dict(zip(columns, values, strict=True)),
                _grouped(rows, chosen[places[start : start + ROWS_IN_FILE]]),
            )
            for values, places in _places(keys, len(chosen))
            for start in range(0, len(places), ROWS_IN_FILE)
        ]
        stored = [name for name in self._schema.names if name not in columns]
        groups = iter(rows.divided(stored, [places for _, each in files for places in each]))
        for partition, each in files:
            path = new_path(partition, self._prefix)
            self._written.append(write_file(self._folder, path, partition, list(islice(groups, len(each)))))


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
    repeating = [name for field in rows.schema for name in _repeating(field)]
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
    if GROUPED_BY not in rows.schema.names:
        return [rows]
    waiting = WaitingRows(rows.schema)
    for batch in rows.to_batches():
        waiting.add(batch)
    return waiting.divided(rows.schema.names, _grouped(waiting, np.arange(len(rows))))


def _grouped(rows: WaitingRows, places: Places) -> list[Places]:
    """Divide some rows into the groups of a file."""
    if GROUPED_BY not in rows.names:
        return [places]
    return [places[some] for _, some in _places([rows.column(GROUPED_BY).take(places)], len(places))]


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


def _partition_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Neither format can tell empty text from NULL there.
    texts = column.cast(pa.string()).fill_null("")
    return pc.if_else(pc.equal(texts, ""), NULL_PARTITION, texts)


def _repeating(field: pa.Field) -> Iterator[str]:
    """Yield the leaves of a column that get dictionaries.

    Those of a payload and of `meta` have too many values: what repeats in them, compression finds with less.
    """
    if field.name in DISTINCT_COLUMNS or pa.types.is_struct(field.type):
        return
    if pa.types.is_map(field.type):
        yield f"{field.name}.key_value.key"
    else:
        yield from _leaves_of(field.name, field.type)


def _leaves_of(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _leaves_of(f"{path}.{part.name}", part.type)
    elif pa.types.is_list(kind):
        yield from _leaves_of(f"{path}.list.element", kind.value_type)
    else:
        yield path
