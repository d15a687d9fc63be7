"""Checkpoints of a Delta table's log, made from the one before and the versions since, a part at a time.

Memory does not depend on how many files the table has, only on how many came since the last checkpoint.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

from bronze_pipeline.tables.delta_log import LAST_CHECKPOINT, actions_of, last_checkpoint

_TEXTS = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    {
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "createdTime": pa.int64(),
                "configuration": _TEXTS,
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    }
)
ROWS = 64 * 1024
TOMBSTONES_KEPT = timedelta(days=7)
"""How long a checkpoint knows of removed files, for those who clean up."""


def write_checkpoint(folder: Path, version: int) -> int:
    """Write the checkpoint of a version, unless there is a newer one; return how many actions it has."""
    last, parts, size = last_checkpoint(folder)
    if last >= version:
        # Another process was faster. Made from its checkpoint, this one would have what came later.
        return size
    since = _Since(folder, last, parts, version)
    target = folder / f"{version:020}.checkpoint.parquet"
    draft = folder / f"_checkpoint_{uuid.uuid4().hex}.parquet.tmp"
    count = files = 0
    with pq.ParquetWriter(draft, SCHEMA, compression="zstd") as writer:
        for rows in since.rows():
            writer.write_table(rows, ROWS)
            count += len(rows)
            files += len(rows) - rows["add"].null_count
    draft.rename(target)
    said = {"version": version, "size": count, "sizeInBytes": target.stat().st_size, "numOfAddFiles": files}
    note = folder / f"_last_{uuid.uuid4().hex}.tmp"
    note.write_text(json.dumps(said))
    note.rename(folder / LAST_CHECKPOINT)
    return count


class _Since:
    """The last checkpoint, and what came since."""

    def __init__(self, folder: Path, begin: int, parts: Sequence[Path], version: int) -> None:
        self._parts = parts
        self._files: dict[str, dict[str, Any]] = {}
        """The newest action for each path."""
        self._others: dict[tuple[str, str], dict[str, Any]] = {}
        for number in range(begin + 1, version + 1):
            for action in actions_of(folder, number):
                self._take(action)

    def _take(self, action: dict[str, Any]) -> None:
        for name in SCHEMA.names:
            if name not in action:
                continue
            if name in {"add", "remove"}:
                self._files[action[name]["path"]] = action
            else:
                self._others[name, action[name].get("appId", "")] = action

    def rows(self) -> Iterator[pa.Table]:
        """Yield the actions that hold at the version, as rows of `SCHEMA`."""
        touched = pa.array(list(self._files), pa.string())
        oldest = int((time.time() - TOMBSTONES_KEPT.total_seconds()) * 1000)
        for part in self._parts:
            file = pq.ParquetFile(part)
            leaves = [name for name in _leaves(SCHEMA) if name.split(".")[0] in file.schema_arrow.names]
            for batch in file.iter_batches(ROWS, columns=leaves):
                yield self._kept(batch, touched, oldest)
        actions = [*self._others.values(), *self._files.values()]
        for start in range(0, len(actions), ROWS):
            yield pa.Table.from_pylist([_row(each) for each in actions[start : start + ROWS]], SCHEMA)

    def _kept(self, batch: pa.RecordBatch, touched: pa.Array, oldest: int) -> pa.Table:
        rows = pa.Table.from_batches([batch])
        columns = [
            rows[field.name].cast(field.type)
            if field.name in rows.schema.names
            else pa.nulls(len(rows), field.type)
            for field in SCHEMA
        ]
        rows = pa.table(columns, schema=SCHEMA)
        added, removed = (pc.struct_field(rows[name], "path") for name in ("add", "remove"))
        stays = pc.and_(pc.is_valid(added), pc.invert(pc.is_in(added, value_set=touched)))
        when = pc.struct_field(rows["remove"], "deletionTimestamp")
        recent = pc.and_(
            pc.greater_equal(when, oldest).fill_null(False), pc.invert(pc.is_in(removed, value_set=touched))
        )
        stays = pc.or_(stays, recent)
        for name in ("txn", "metaData", "protocol"):
            if rows[name].null_count == len(rows):
                continue
            keys = (
                pc.struct_field(rows[name], "appId") if name == "txn" else pa.repeat(pa.scalar(""), len(rows))
            )
            newer = pa.array([key for kind, key in self._others if kind == name], pa.string())
            stays = pc.or_(
                stays, pc.and_(pc.is_valid(rows[name]), pc.invert(pc.is_in(keys, value_set=newer)))
            )
        return rows.filter(stays)


def _row(action: dict[str, Any]) -> dict[str, Any]:
    """Return an action as a row; maps are pairs there."""
    (name,) = (each for each in SCHEMA.names if each in action)
    return {name: _value(action[name], SCHEMA.field(name).type)}


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {field.name: _value(value.get(field.name), field.type) for field in kind}
    return value


def _leaves(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        yield from (f"{field.name}.{part.name}" for part in field.type)


def trim(system: FileSystem, folder: str, before: float, *, dry_run: bool = False) -> int:
    """Remove log entries that were made before a moment and that a checkpoint of that time replaces.

    Return how many files these are. The newest checkpoint that is old enough stays, with what follows it.
    """
    numbered = [
        (int(file.base_name[:20]), file)
        for file in system.get_file_info(FileSelector(folder))
        if file.base_name[:20].isdecimal() and file.mtime.timestamp() < before
    ]
    first = max((number for number, file in numbered if ".checkpoint" in file.base_name), default=-1)
    gone = [file.path for number, file in numbered if number < first]
    for path in () if dry_run else gone:
        system.delete_file(path)
    return len(gone)
