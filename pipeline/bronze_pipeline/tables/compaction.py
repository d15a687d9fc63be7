"""Makes few large files of many small ones, in a Delta table that others read and write meanwhile.

Each partition is a commit of its own that changes no data: who follows the table's log takes no notice of it,
and the files that it replaces stay until they are cleaned up. A file is replaced only if it is still there at
the commit. A killed attempt leaves files behind that no commit has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from urllib.parse import unquote

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from bronze_pipeline.tables import files as table_files
from bronze_pipeline.tables.delta_log import Action, DeltaLog, VersionTaken, actions_of, in_log, log_folder
from bronze_pipeline.tables.files import NULL_PARTITION, Folder, Written
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import partition_values, stats

PREFIX = "compacted"
FULL = f"{PREFIX}-full"
"""Names files that have as many bytes in memory as may wait there, however few rows they have."""
ORDER = ("stream_id", "position", "level")
"""Rows are sorted by these where the table has them: a stream is then in few files and groups of rows."""
ATTEMPTS = 100


@dataclass(frozen=True)
class Small:
    """A file that is to become part of a larger one."""

    path: str
    in_log: str
    """The path as the log has it."""
    size: int
    rows: int
    place: tuple[Any, ...]


@dataclass
class Compacted:
    """What was done, or would be."""

    partitions: int = 0
    before: int = 0
    after: int = 0
    rows: int = 0
    left: list[str] = field(default_factory=list)
    """Partitions whose files were changed by others meanwhile."""


class Gone(Exception):  # noqa: N818 - the next run sees what there is
    """A file that was to be replaced is no longer in the table."""


def compact(url: str, *, until: date | None, dry_run: bool) -> Compacted:
    """Compact each partition with several small files; of days before `until`, or all if that is None."""
    table = deltalake.DeltaTable(url, storage_options=storage_options(url))
    columns = tuple(table.metadata().partition_columns)
    done = Compacted()
    for partition, small in _partitions(table, columns, until).items():
        if len(small) < 2:
            continue
        try:
            made = 0 if dry_run else _replace(url, columns, dict(partition), small)
        except Gone:
            done.left.append("/".join(f"{name}={value}" for name, value in partition))
            continue
        done.partitions += 1
        done.before += len(small)
        done.after += made
        done.rows += sum(file.rows for file in small)
    return done


def _partitions(
    table: deltalake.DeltaTable, columns: Sequence[str], until: date | None
) -> dict[tuple[tuple[str, str], ...], list[Small]]:
    found: dict[tuple[tuple[str, str], ...], list[Small]] = {}
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        is_full = row["path"].rpartition("/")[2].startswith(FULL)
        if is_full or (row["num_records"] or 0) * 2 > table_files.ROWS_IN_FILE:
            continue
        values = [row[f"partition.{name}"] for name in columns]
        day = next((value for name, value in zip(columns, values, strict=True) if name == "date"), None)
        if until is not None and day is not None and str(day) >= until.isoformat():
            continue
        texts = (NULL_PARTITION if value is None else str(value) for value in values)
        place = (row.get("min.stream_id") or "", row.get("min.position") or 0, row["modification_time"])
        small = Small(unquote(row["path"]), row["path"], row["size_bytes"], row["num_records"] or 0, place)
        found.setdefault(tuple(zip(columns, texts, strict=True)), []).append(small)
    return dict(sorted(found.items()))


def _replace(url: str, columns: tuple[str, ...], partition: dict[str, str], small: Sequence[Small]) -> int:
    """Write the rows of files into larger ones, and commit that; return how many these are."""
    folder = Folder(url, ())
    written: list[Written] = []
    replaced: list[Small] = []
    # Files with other columns stay apart: what a file lacks is for its readers to say.
    for schema, some in _alike(folder, small):
        if len(some) < 2:
            continue
        rows = (batch for file in some for batch in _read(folder, file.path, schema))
        written += _written(folder, schema, partition, rows)
        replaced += some
    if not replaced:
        return 0
    try:
        _commit(url, columns, written, replaced)
    except Gone:
        for file in written:
            table_files.delete_file(folder, file.path)
        raise
    return len(written)


def _alike(folder: Folder, small: Sequence[Small]) -> Iterator[tuple[pa.Schema, list[Small]]]:
    system, root = folder.open()
    found: dict[str, tuple[pa.Schema, list[Small]]] = {}
    for file in sorted(small, key=lambda each: each.place):
        schema = _plain(pq.read_schema(f"{root}/{file.path}", filesystem=system))
        found.setdefault(str(schema), (schema, []))[1].append(file)
    yield from found.values()


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return a schema with ordinary texts: what delta-rs writes, Arrow could not compare with others."""
    plain = {pa.string_view(): pa.string(), pa.large_string(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(plain.get(field.type, field.type)) for field in schema])


def _read(folder: Folder, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    system, root = folder.open()
    with pq.ParquetFile(f"{root}/{path}", filesystem=system) as file:
        for batch in file.iter_batches():
            yield batch.cast(schema)


def _written(
    folder: Folder, schema: pa.Schema, partition: dict[str, str], batches: Iterator[pa.RecordBatch]
) -> Iterator[Written]:
    """Write rows of a partition, a full file at a time."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows >= table_files.ROWS_IN_FILE or size >= table_files.BYTES_WAITING:
            yield _write(folder, schema, partition, waiting, FULL)
            waiting = []
            rows = size = 0
    if waiting:
        yield _write(folder, schema, partition, waiting, PREFIX)


def _write(
    folder: Folder,
    schema: pa.Schema,
    partition: dict[str, str],
    batches: Sequence[pa.RecordBatch],
    prefix: str,
) -> Written:
    rows = pa.Table.from_batches(batches, schema)
    order = [(name, "ascending") for name in ORDER if name in schema.names]
    if order:
        rows = rows.sort_by(order)
    path = table_files.new_path(partition, prefix)
    return table_files.write_file(folder, path, partition, table_files.groups_of(rows))


def _commit(url: str, columns: Sequence[str], written: Sequence[Written], replaced: Sequence[Small]) -> None:
    folder = log_folder(url)
    log = None if folder is None else DeltaLog(folder)
    if log is None or not log.is_known:
        _commit_by_delta_rs(url, columns, written, replaced)
        return
    now = int(time.time() * 1000)
    actions: list[Action] = [
        {
            "remove": {
                "path": each.in_log,
                "deletionTimestamp": now,
                "dataChange": False,
                "extendedFileMetadata": True,
                "partitionValues": partition_values(written[0]),
                "size": each.size,
            }
        }
        for each in replaced
    ]
    actions += [
        {
            "add": {
                "path": in_log(each.path),
                "partitionValues": partition_values(each),
                "size": each.size,
                "modificationTime": now,
                "dataChange": False,
                "stats": stats(each),
            }
        }
        for each in written
    ]
    _append(
        log,
        actions,
        {each.in_log for each in replaced},
        deltalake.DeltaTable(url, storage_options=storage_options(url)),
    )


def _append(log: DeltaLog, actions: Sequence[Action], replaced: set[str], seen: deltalake.DeltaTable) -> None:
    there = set(pa.table(seen.get_add_actions())["path"].to_pylist())
    begin = seen.version()
    while True:
        log.refresh()
        for version in range(begin + 1, log.version + 1):
            removed = {
                action["remove"]["path"] for action in actions_of(log.folder, version) if "remove" in action
            }
            there -= removed
        begin = log.version
        if not replaced <= there:
            raise Gone
        try:
            log.append(actions)
        except VersionTaken:
            continue
        return


def _commit_by_delta_rs(
    url: str, columns: Sequence[str], written: Sequence[Written], replaced: Sequence[Small]
) -> None:
    now = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(each.path, data_change=False, deletion_timestamp=now) for each in replaced
    ]
    actions += [
        AddAction(each.path, each.size, partition_values(each), now, data_change=False, stats=stats(each))
        for each in written
    ]
    for attempt in range(ATTEMPTS):
        table = deltalake.DeltaTable(url, storage_options=storage_options(url))
        there = set(pa.table(table.get_add_actions())["path"].to_pylist())
        if not {each.in_log for each in replaced} <= there:
            raise Gone
        try:
            # Without retries of its own: delta-rs would not notice that a file is gone.
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=list(columns),
                commit_properties=deltalake.CommitProperties(max_commit_retries=0),
            )
        except deltalake.exceptions.CommitFailedError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return
