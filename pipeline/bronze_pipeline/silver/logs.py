"""The logs of tables that are followed: which version added which files.

Logs are trimmed: delta-rs removes entries older than 30 days, and `vacuum` the files that compaction has
replaced. A reader that still needs what is gone has fallen behind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import unquote

import deltalake
import deltalake.exceptions
import pyarrow as pa
from pyarrow.fs import FileSelector
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.tables.commit_log import Commit, CommitLog
from bronze_pipeline.tables.delta_log import DeltaLog, log_folder
from bronze_pipeline.tables.files import Folder, Written
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import format_of

COMMIT = re.compile(r"(\d{20})\.json")


class FellBehind(Exception):  # noqa: N818 - named for what it says
    """What a reader needs next is no longer in the table's log, or its file is gone; the text says what."""


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

    def count(self, version: int) -> int:
        """Return how many files the table had at a version that is itself no longer in the log."""

    def oldest(self) -> int:
        """Return the oldest version that the log has; the one after the newest if it has none."""

    def time(self, version: int) -> datetime | None:
        """Return when a version was committed; None if the log no longer says so."""


def log_of(url: str) -> Log:
    """Return the log of the table at a place, whatever its format."""
    return ParquetLog(url) if format_of(url) == "parquet" else DeltaTableLog(url)


class DeltaTableLog:
    """The log of a Delta table.

    Files written by compaction change no data and are skipped; an append-only table need not care about
    removed files. On a local disk no list of all files is made to see what is new.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._table: deltalake.DeltaTable | None = None
        self._local: DeltaLog | None = None

    def version(self) -> int:
        if local := self._on_disk():
            local.refresh()
            return local.version
        table = self._open()
        table.update_incremental()
        return table.version()

    def table_id(self) -> str:
        if local := self._on_disk():
            return str(local.metadata["id"])
        return str(self._open().metadata().id)

    def snapshot(self, version: int) -> list[Added]:
        try:
            table = deltalake.DeltaTable(self.url, version, storage_options=storage_options(self.url))
            actions = pa.table(table.get_add_actions())
        except deltalake.exceptions.DeltaError as error:
            if self.oldest() <= version:
                raise
            raise FellBehind(_gone(self, version)) from error
        return [_described(row) for row in sorted(actions.to_pylist(), key=_order)]

    def added(self, version: int) -> list[Added]:
        adds = [each["add"] for each in self._actions(version) if "add" in each]
        return [
            Added(unquote(add["path"]), json.dumps(add["partitionValues"]), _rows(add))
            for add in adds
            if add["dataChange"]
        ]

    def count(self, version: int) -> int:
        table = self._open()
        table.update_incremental()
        latest, count = table.version(), len(pa.table(table.get_add_actions()))
        for later in range(version + 1, latest + 1):
            for action in self._actions(later):
                count += ("remove" in action) - ("add" in action)
        return count

    def oldest(self) -> int:
        system, root = Folder(self.url, ()).open()
        names = (file.base_name for file in system.get_file_info(FileSelector(f"{root}/_delta_log")))
        found = [int(match[1]) for match in map(COMMIT.fullmatch, names) if match]
        return min(found, default=self.version() + 1)

    def time(self, version: int) -> datetime | None:
        system, root = Folder(self.url, ()).open()
        moment: datetime | None = system.get_file_info(f"{root}/_delta_log/{version:020}.json").mtime
        return moment

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        system, root = Folder(self.url, ()).open()
        try:
            with system.open_input_stream(f"{root}/_delta_log/{version:020}.json") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError as error:
            raise FellBehind(_gone(self, version)) from error
        return (json.loads(line) for line in lines if line)

    def _on_disk(self) -> DeltaLog | None:
        """Return the log of a table on a local disk; None if delta-rs has to see to it."""
        if self._local is None:
            folder = log_folder(self.url)
            try:
                log = None if folder is None else DeltaLog(folder)
            except (OSError, ValueError, KeyError, TypeError):
                # delta-rs may be able to read it, or says what is wrong.
                return None
            self._local = log if log is not None and log.is_known else None
        return self._local

    def _open(self) -> deltalake.DeltaTable:
        # Opened on first use: the reader is sent to the workers, and a table cannot be.
        if self._table is None:
            try:
                self._table = deltalake.DeltaTable(self.url, storage_options=storage_options(self.url))
            except deltalake.exceptions.TableNotFoundError as error:
                raise OptionError(f"there is no table at {self.url}.") from error
        return self._table

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_table": None, "_local": None}


class ParquetLog:
    """The notes of a plain Parquet table."""

    def __init__(self, url: str) -> None:
        self.url = url

    def version(self) -> int:
        return max(CommitLog(self.url).numbers(), default=-1)

    def table_id(self) -> str:
        return CommitLog(self.url).table_id()

    def snapshot(self, version: int) -> list[Added]:
        # At least the version itself must be there.
        first = min(self.oldest(), max(version, 0))
        files = [
            (_place(file.partition, file.lowest, number, file.path), file)
            for number in range(first, version + 1)
            for file in self._commit(number).files
        ]
        return [_noted(file) for _, file in sorted(files, key=lambda each: each[0])]

    def added(self, version: int) -> list[Added]:
        return [_noted(file) for file in self._commit(version).files]

    def count(self, version: int) -> int:
        # Nothing but the notes says which files there are.
        return len(self.snapshot(version))

    def oldest(self) -> int:
        return min(CommitLog(self.url).numbers(), default=0)

    def time(self, version: int) -> datetime | None:
        return CommitLog(self.url).time(version)

    def _commit(self, number: int) -> Commit:
        try:
            return CommitLog(self.url).commit(number)
        except FileNotFoundError as error:
            raise FellBehind(_gone(self, number)) from error


def _gone(log: Log, version: int) -> str:
    """Say that the log does not have a version, and where it begins."""
    oldest = log.oldest()
    if oldest <= version:
        return f"version {version} of the table at {log.url} is not in its log"
    gap = f"version {version} is" if oldest == version + 1 else f"versions {version} to {oldest - 1} are"
    began = log.time(oldest)
    since = f" of {shown(began)}" if began else ""
    return f"{gap} no longer in the log of the table at {log.url}, which begins with version {oldest}{since}"


def shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


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
