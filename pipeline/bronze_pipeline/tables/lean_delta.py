"""A Delta table for which a commit costs the same however many files it has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import deltalake
import deltalake.exceptions
import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from bronze_pipeline.tables.checkpoints import trim, write_checkpoint
from bronze_pipeline.tables.delta_log import Action, DeltaLog, VersionTaken, in_log, log_folder
from bronze_pipeline.tables.evolution import compare
from bronze_pipeline.tables.files import Written
from bronze_pipeline.tables.partition_index import PartitionIndex, ValueSpan
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import DeltaTable, TableChanged, partition_values, stats

CHECKPOINT_EVERY = 100
"""Commits, and for a larger log more: a checkpoint costs as much as the log is large."""
ACTIONS_FOR_EACH_COMMIT = 1000
LOG_KEPT = timedelta(days=30)


class LeanDeltaTable(DeltaTable):
    """A Delta table on a local disk; elsewhere, or with features unknown to us, delta-rs does everything."""

    def __init__(self, url: str, schema: pa.Schema, partition_columns: tuple[str, ...], name: str) -> None:
        self._whole: deltalake.DeltaTable | None = None
        self._index: PartitionIndex | None = None
        self._log = _log_of(url, schema, partition_columns)
        if self._log is None:
            super().__init__(url, schema, partition_columns, name)
            self._log = _log_of(url, schema, partition_columns)
        else:
            self._describe(url, schema, partition_columns)

    @property
    def _table(self) -> deltalake.DeltaTable:
        """All that delta-rs knows of the table; loaded when it is needed."""
        if self._whole is None:
            self._whole = deltalake.DeltaTable(
                self.folder.url, storage_options=storage_options(self.folder.url)
            )
        return self._whole

    @_table.setter
    def _table(self, table: deltalake.DeltaTable) -> None:
        self._whole = table

    def has(self, job: str, batch: int) -> bool:
        if self._log is None:
            return super().has(job, batch)
        self._log.refresh()
        if not self._log.is_known:
            # Another program has just given it features: it is delta-rs' from here on.
            self._log = self._index = self._whole = None
            return super().has(job, batch)
        return self._log.batches.get(job, -1) >= batch

    def files(self) -> pa.Table:
        if self._log is not None:
            # Perhaps newer than the log; then the next version is taken, and the commit is not made.
            self._table.update_incremental()
        return super().files()

    def columns(self) -> pa.Schema:
        if self._log is None:
            return super().columns()
        return pa.schema(deltalake.Schema.from_json(self._log.metadata["schemaString"]).to_arrow())

    def near(self, folders: Iterable[str], spans: Mapping[str, ValueSpan]) -> list[str]:
        if self._log is None:
            return super().near(folders, spans)
        if self._index is None or self._index.columns != tuple(spans):
            self._index = PartitionIndex(self._log, tuple(spans))
        return self._index.near(folders, list(spans.values()))

    def commit(self, files: Sequence[Written], job: str, batch: int, *, removed: Sequence[str] = ()) -> None:
        if self._log is None:
            super().commit(files, job, batch, removed=removed)
            return
        now = int(time.time() * 1000)
        actions: list[Action] = [
            {"remove": {"path": in_log(path), "deletionTimestamp": now, "dataChange": True}}
            for path in removed
        ]
        actions += [
            {
                "add": {
                    "path": in_log(file.path),
                    "partitionValues": partition_values(file),
                    "size": file.size,
                    "modificationTime": now,
                    "dataChange": True,
                    "stats": stats(file),
                }
            }
            for file in files
        ]
        try:
            self._log.append([*actions, {"txn": {"appId": job, "version": batch}}])
        except VersionTaken as error:
            raise TableChanged(self.folder.url) from error
        self._keep_short(self._log)

    def _keep_short(self, log: DeltaLog) -> None:
        """Write a checkpoint now and then, and remove what is older than the log is kept."""
        every = max(CHECKPOINT_EVERY, log.checkpoint_size // ACTIONS_FOR_EACH_COMMIT)
        if log.version - log.checkpoint < every:
            return
        log.checkpoint_size = write_checkpoint(log.folder, log.version)
        log.checkpoint = log.version
        trim(LocalFileSystem(), str(log.folder), time.time() - LOG_KEPT.total_seconds())


def _log_of(url: str, schema: pa.Schema, partition_columns: Sequence[str]) -> DeltaLog | None:
    """Return the log of a table that can be used as it is; None if delta-rs has to see to it."""
    folder = log_folder(url)
    if folder is None:
        return None
    try:
        log = DeltaLog(folder)
        known = log.is_known and log.metadata["partitionColumns"] == list(partition_columns)
        there = deltalake.Schema.from_json(log.metadata["schemaString"]) if known else None
    except (OSError, ValueError, KeyError, TypeError, deltalake.exceptions.DeltaError):
        # delta-rs may be able to read it, or says what is wrong.
        return None
    if there is None:
        return None
    return log if compare(there, deltalake.Schema.from_arrow(schema)).is_enough else None
