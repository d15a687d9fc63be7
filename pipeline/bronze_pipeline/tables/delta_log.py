"""The log of a Delta table on a local disk, read and extended without loading what it says about each file.

delta-rs keeps a description of every file in memory and goes through all of them at each commit, so a commit
takes longer with every file. To add files, one needs to know only the newest version, the columns, and the
last batch of each job. Tables with features that this module does not know are left to delta-rs.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow.parquet as pq

Action = Mapping[str, Any]

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
# Newer ones bring features that change what a writer has to do.
KNOWN_READER, KNOWN_WRITER = 1, 2
OPERATION = {"operation": "WRITE", "engineInfo": "bronze-pipeline"}
_WANTED = (b'"txn"', b'"metaData"', b'"protocol"')


class VersionTaken(Exception):  # noqa: N818 - whoever looks again can go on
    """Another process made the next version first."""


def log_folder(url: str) -> Path | None:
    """Return the folder of the log of a table on a local disk; None if it is elsewhere, or there is none."""
    parts = urlsplit(url)
    folder = Path(unquote(parts.path), DELTA_LOG)
    return folder if parts.scheme == "file" and folder.is_dir() else None


class DeltaLog:
    """What a writer needs of a table's log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.version = -1
        self.checkpoint = -1
        """The version of the newest checkpoint."""
        self.checkpoint_size = 0
        """How many actions it has."""
        self.batches: dict[str, int] = {}
        """The last batch of each job."""
        self.metadata: dict[str, Any] = {}
        self.protocol: dict[str, Any] = {}
        self._load()

    @property
    def is_known(self) -> bool:
        """Whether this module knows all that the table demands of its writers."""
        protocol = self.protocol
        return (
            bool(self.metadata)
            and protocol.get("minReaderVersion", 99) <= KNOWN_READER
            and protocol.get("minWriterVersion", 99) <= KNOWN_WRITER
        )

    def _load(self) -> None:
        self.checkpoint, parts, self.checkpoint_size = last_checkpoint(self.folder)
        for part in parts:
            file = pq.ParquetFile(part)
            for batch in file.iter_batches(columns=["txn", "metaData", "protocol"]):
                for name in ("txn", "metaData", "protocol"):
                    for value in batch[name].drop_null().to_pylist():
                        self._take({name: value})
        self.version = self.checkpoint
        self.refresh()

    def refresh(self) -> None:
        """Read the versions that are new."""
        while True:
            try:
                content = entry(self.folder, self.version + 1).read_bytes()
            except FileNotFoundError:
                return
            for line in content.splitlines():
                if any(name in line[:12] for name in _WANTED):
                    self._take(json.loads(line))
            self.version += 1

    def _take(self, action: Action) -> None:
        if "txn" in action:
            self.batches[action["txn"]["appId"]] = action["txn"]["version"]
        self.metadata = action.get("metaData", self.metadata)
        self.protocol = action.get("protocol", self.protocol)

    def append(self, actions: Sequence[Action]) -> None:
        """Make the next version, completely or not at all; raise VersionTaken if there is one already."""
        now = int(time.time() * 1000)
        lines = [{"commitInfo": {"timestamp": now, **OPERATION}}, *actions]
        draft = self.folder / f"_commit_{uuid.uuid4().hex}.json.tmp"
        draft.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        try:
            os.link(draft, entry(self.folder, self.version + 1))
        except FileExistsError as error:
            raise VersionTaken from error
        finally:
            draft.unlink()
        for action in actions:
            self._take(action)
        self.version += 1


def entry(folder: Path, version: int) -> Path:
    return folder / f"{version:020}.json"


def actions_of(folder: Path, version: int) -> Iterator[dict[str, Any]]:
    """Yield what a version did."""
    return (json.loads(line) for line in entry(folder, version).read_bytes().splitlines() if line)


def last_checkpoint(folder: Path) -> tuple[int, list[Path], int]:
    """Return version, files and size of the newest checkpoint; -1 if there is none."""
    try:
        said: dict[str, Any] = json.loads((folder / LAST_CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return -1, [], 0
    version, count = int(said["version"]), said.get("parts")
    start = f"{version:020}.checkpoint"
    if not count:
        return version, [folder / f"{start}.parquet"], int(said.get("size", 0))
    names = [f"{start}.{part:010}.{count:010}.parquet" for part in range(1, count + 1)]
    return version, [folder / name for name in names], int(said.get("size", 0))


def in_log(path: str) -> str:
    """Return a path as the log writes it."""
    return quote(path, safe="/=")
