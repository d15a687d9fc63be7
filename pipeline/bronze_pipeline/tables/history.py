"""What each version of a table added, read from its log alone: no state of all files is loaded.

A version of a Delta table is an entry of its log, one of a plain Parquet table a note of its commits. Entries
are small, so what is new costs the same however many files the table has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow.fs import FileType

from bronze_pipeline.tables.commit_log import CommitLog
from bronze_pipeline.tables.files import Folder

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"


class Forgotten(Exception):  # noqa: N818 - the log may forget
    """The log no longer has a version."""


@dataclass(frozen=True)
class Change:
    """What a version did to the rows of a table."""

    added: Sequence[str]
    """Paths of files with new rows."""
    batches: Sequence[tuple[str, int]]
    """The jobs and batches that it completes."""
    removes_rows: bool = False


class History(Protocol):
    """The versions of a table."""

    def table_id(self) -> str:
        """Return an id that distinguishes this table from another one at the same place."""

    def newest(self, known: int) -> int:
        """Return the newest version, which is not below a known one; -1 if nothing was committed yet."""

    def change(self, version: int) -> Change:
        """Return what a version did; raise Forgotten if the log no longer has it."""

    def paths(self, version: int) -> list[str]:
        """Return the files that the table has at a version."""


class DeltaHistory:
    """The log of a Delta table."""

    def __init__(self, url: str) -> None:
        self._system, root = Folder(url, ()).open()
        self._folder = f"{root}/{DELTA_LOG}"

    def table_id(self) -> str:
        version, parts = self._checkpoint()
        found = ""
        for part in parts:
            file = pq.ParquetFile(part, filesystem=self._system)
            for batch in file.iter_batches(columns=["metaData.id"]):
                found = next((each["id"] for each in batch["metaData"].to_pylist() if each), found)
        # The id never changes; without a checkpoint the first entry has it.
        if not found and version < 0:
            found = next(str(each["metaData"]["id"]) for each in self._actions(0) if "metaData" in each)
        return found

    def newest(self, known: int) -> int:
        version = known if known >= 0 else max(self._checkpoint()[0], 0)
        while self._has(version + 1):
            version += 1
        return version

    def change(self, version: int) -> Change:
        added, batches, removes_rows = [], [], False
        for action in self._actions(version):
            if "add" in action and action["add"]["dataChange"]:
                added.append(unquote(action["add"]["path"]))
            elif "remove" in action:
                removes_rows = removes_rows or action["remove"]["dataChange"]
            elif "txn" in action:
                batches.append((action["txn"]["appId"], action["txn"]["version"]))
        return Change(added, batches, removes_rows)

    def paths(self, version: int) -> list[str]:
        begin, parts = self._checkpoint()
        if begin > version:
            raise Forgotten(f"version {version}")
        found: dict[str, None] = {}
        for part in parts:
            file = pq.ParquetFile(part, filesystem=self._system)
            for batch in file.iter_batches(columns=["add.path"]):
                found |= dict.fromkeys(each["path"] for each in batch["add"].to_pylist() if each)
        for number in range(begin + 1, version + 1):
            for action in self._actions(number):
                if "add" in action:
                    found[action["add"]["path"]] = None
                elif "remove" in action:
                    found.pop(action["remove"]["path"], None)
        return [unquote(path) for path in found]

    def removed(self) -> dict[str, float]:
        """Return when files were removed, in seconds, as far as the log still knows."""
        begin, parts = self._checkpoint()
        found: dict[str, float] = {}
        for part in parts:
            file = pq.ParquetFile(part, filesystem=self._system)
            for batch in file.iter_batches(columns=["remove.path", "remove.deletionTimestamp"]):
                for each in batch["remove"].drop_null().to_pylist():
                    found[unquote(each["path"])] = (each["deletionTimestamp"] or 0) / 1000
        for number in range(begin + 1, self.newest(begin) + 1):
            for action in self._actions(number):
                if "remove" in action:
                    when = action["remove"].get("deletionTimestamp") or 0
                    found[unquote(action["remove"]["path"])] = when / 1000
        return found

    def _checkpoint(self) -> tuple[int, list[str]]:
        """Return the version and the files of the newest checkpoint; -1 if there is none."""
        try:
            with self._system.open_input_stream(f"{self._folder}/{LAST_CHECKPOINT}") as stream:
                said: dict[str, Any] = json.loads(stream.read())
        except FileNotFoundError:
            return -1, []
        version, count = int(said["version"]), said.get("parts")
        start = f"{self._folder}/{version:020}.checkpoint"
        if not count:
            return version, [f"{start}.parquet"]
        return version, [f"{start}.{part:010}.{count:010}.parquet" for part in range(1, count + 1)]

    def _entry(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"

    def _has(self, version: int) -> bool:
        return bool(self._system.get_file_info(self._entry(version)).type == FileType.File)

    def _actions(self, version: int) -> Iterator[dict[str, Any]]:
        try:
            with self._system.open_input_stream(self._entry(version)) as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError as error:
            raise Forgotten(f"version {version}") from error
        return (json.loads(line) for line in lines if line)


class ParquetHistory:
    """The notes of a plain Parquet table."""

    def __init__(self, url: str) -> None:
        self._notes = CommitLog(url)

    def table_id(self) -> str:
        return self._notes.table_id()

    def newest(self, known: int) -> int:
        if known < 0:
            return max(self._notes.numbers(), default=-1)
        while self._notes.has(known + 1):
            known += 1
        return known

    def change(self, version: int) -> Change:
        try:
            commit = self._notes.commit(version)
        except FileNotFoundError as error:
            raise Forgotten(f"commit {version}") from error
        return Change([file.path for file in commit.files], [(commit.job, commit.batch)])

    def paths(self, version: int) -> list[str]:
        return [path for number in range(version + 1) for path in self.change(number).added]


def history_of(url: str, kind: str) -> History:
    """Return the history of a table in a format."""
    return ParquetHistory(url) if kind == "parquet" else DeltaHistory(url)
