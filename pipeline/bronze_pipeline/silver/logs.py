"""The logs of tables that are followed: which version added which files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

import deltalake
import deltalake.exceptions
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.tables.commit_log import Commit, CommitLog
from bronze_pipeline.tables.files import Folder, Written
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import format_of

NEW_CHECKPOINT = "Use a new checkpoint; rows already in the silver tables are not stored twice."


@dataclass(frozen=True)
class Added(InputPartition):
    """A file that was added to the table."""

    path: str
    partition: str
    rows: int


class Log(Protocol):
    """The log of a table; it is sent to the workers."""

    url: str

    def version(self) -> int:
        """Return the newest version; -1 if nothing was committed yet."""

    def table_id(self) -> str:
        """Return an id that distinguishes this table from another one at the same place."""

    def snapshot(self, version: int) -> list[Added]:
        """Return the files that the table had at a version, in the order of their events."""

    def added(self, version: int) -> list[Added]:
        """Return the files that a version added."""


def log_of(url: str) -> Log:
    """Return the log of the table at a place, whatever its format."""
    return ParquetLog(url) if format_of(url) == "parquet" else DeltaLog(url)


class DeltaLog:
    """The log of a Delta table.

    Files written by compaction change no data and are skipped; an append-only table need not care about
    removed files.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._table: deltalake.DeltaTable | None = None

    def version(self) -> int:
        table = self._open()
        table.update_incremental()
        return table.version()

    def table_id(self) -> str:
        return str(self._open().metadata().id)

    def snapshot(self, version: int) -> list[Added]:
        try:
            table = deltalake.DeltaTable(self.url, version, storage_options=storage_options(self.url))
            actions = pa.table(table.get_add_actions())
        except deltalake.exceptions.DeltaError as error:
            raise OptionError(
                f"version {version} of the table at {self.url} is gone. {NEW_CHECKPOINT}"
            ) from error
        return [_described(row) for row in sorted(actions.to_pylist(), key=_order)]

    def added(self, version: int) -> list[Added]:
        system, root = Folder(self.url, ()).open()
        try:
            with system.open_input_stream(f"{root}/_delta_log/{version:020}.json") as stream:
                actions = [json.loads(line) for line in stream.read().splitlines() if line]
        except FileNotFoundError as error:
            raise OptionError(
                f"version {version} of the table at {self.url} is no longer in its log. {NEW_CHECKPOINT}"
            ) from error
        adds = [each["add"] for each in actions if "add" in each]
        return [
            Added(unquote(add["path"]), json.dumps(add["partitionValues"]), _rows(add))
            for add in adds
            if add["dataChange"]
        ]

    def _open(self) -> deltalake.DeltaTable:
        # Opened on first use: the reader is sent to the workers, and a table cannot be.
        if self._table is None:
            try:
                self._table = deltalake.DeltaTable(self.url, storage_options=storage_options(self.url))
            except deltalake.exceptions.TableNotFoundError as error:
                raise OptionError(f"there is no table at {self.url}.") from error
        return self._table

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_table": None}


class ParquetLog:
    """The notes of a plain Parquet table."""

    def __init__(self, url: str) -> None:
        self.url = url

    def version(self) -> int:
        return max(CommitLog(self.url).numbers(), default=-1)

    def table_id(self) -> str:
        return CommitLog(self.url).table_id()

    def snapshot(self, version: int) -> list[Added]:
        files = [
            (_place(file.partition, file.lowest, number, file.path), file)
            for number in range(version + 1)
            for file in self._commit(number).files
        ]
        return [_noted(file) for _, file in sorted(files, key=lambda each: each[0])]

    def added(self, version: int) -> list[Added]:
        return [_noted(file) for file in self._commit(version).files]

    def _commit(self, number: int) -> Commit:
        try:
            return CommitLog(self.url).commit(number)
        except FileNotFoundError as error:
            raise OptionError(
                f"commit {number} of the table at {self.url} is no longer noted. {NEW_CHECKPOINT}"
            ) from error


def _noted(file: Written) -> Added:
    return Added(file.path, json.dumps(dict(file.partition)), file.rows)


def _rows(add: dict[str, Any]) -> int:
    return int(json.loads(add["stats"] or "{}").get("numRecords", 0)) if "stats" in add else 0


def _described(row: dict[str, Any]) -> Added:
    partition = {
        name: None if value is None else str(value) for name, value in (row["partition"] or {}).items()
    }
    return Added(unquote(row["path"]), json.dumps(partition), row["num_records"] or 0)


def _order(row: dict[str, Any]) -> tuple[str, int, Any, str]:
    return _place(row["partition"] or {}, row.get("min") or {}, row["modification_time"], row["path"])


def _place(
    partition: Mapping[str, Any], lowest: Mapping[str, Any], commit: Any, path: str
) -> tuple[str, int, Any, str]:
    """Return a file's place in the order."""
    # Positions of a stream grow with its dates, so each stream is in order.
    position = lowest.get("position")
    return str(partition.get("date")), -1 if position is None else position, commit, path
