"""Removes what a table no longer needs: files of killed attempts, replaced files, and old entries of its log.

Everything is judged by age, for tasks write files before they are committed, and readers may still be on
their way to files that were replaced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import deltalake
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from bronze_pipeline.tables.checkpoints import trim, write_checkpoint
from bronze_pipeline.tables.commit_log import CommitLog
from bronze_pipeline.tables.delta_log import DELTA_LOG, DeltaLog, log_folder
from bronze_pipeline.tables.files import Folder
from bronze_pipeline.tables.history import DeltaHistory
from bronze_pipeline.tables.tables import STAGING

DRAFT = ".tmp"


@dataclass
class Removed:
    """Files that were removed, or would be."""

    files: int = 0
    bytes: int = 0

    def add(self, file: FileInfo) -> None:
        self.files += 1
        self.bytes += file.size or 0


@dataclass(frozen=True)
class Ages:
    """How old, in seconds, a file must be."""

    orphaned: float
    """If no commit ever had it."""
    replaced: float
    """Since a commit removed it."""


def clean(url: str, kind: str, ages: Ages, *, dry_run: bool) -> tuple[Removed, Removed]:
    """Remove files that no commit has, and files that were replaced; return what became of each kind."""
    system, root = Folder(url, ()).open()
    # The folder first: what is committed from now on is in the log that is read next.
    found = list(_files(system, root, kind))
    orphans, replaced = Removed(), Removed()
    now = time.time()
    active, removed = _in_delta(url) if kind == "delta" else (_noted(url), {})
    for file in found:
        path = file.path[len(root) + 1 :]
        if path in active:
            continue
        when = removed.get(path)
        counted, age = (orphans, ages.orphaned) if when is None else (replaced, ages.replaced)
        if now - (file.mtime.timestamp() if when is None else when) < age:
            continue
        counted.add(file)
        if not dry_run:
            system.delete_file(file.path)
    return orphans, replaced


def _files(system: FileSystem, root: str, kind: str) -> Iterator[FileInfo]:
    """Yield the data files in a table's folder, and drafts of its log."""
    for file in system.get_file_info(FileSelector(root, recursive=True)):
        if file.type != FileType.File:
            continue
        parts = file.path[len(root) + 1 :].split("/")
        is_data = not parts[0].startswith(("_", ".")) or (kind == "parquet" and parts[0] == STAGING)
        if (is_data and parts[-1].endswith(".parquet")) or (
            parts[0] == DELTA_LOG and parts[-1].endswith(DRAFT)
        ):
            yield file


def _in_delta(url: str) -> tuple[set[str], dict[str, float]]:
    """Return the files that readers see, and when others were removed as far as the log knows."""
    history = DeltaHistory(url)
    return set(history.paths(history.newest(-1))), history.removed()


def _noted(url: str) -> set[str]:
    return {file.path for commit in CommitLog(url).commits() for file in commit.files}


def trim_log(url: str, age: float, *, dry_run: bool) -> int:
    """Remove entries of a Delta table's log that are older than an age in seconds; return how many."""
    system, root = Folder(url, ()).open()
    before = time.time() - age
    if not dry_run:
        folder = log_folder(url)
        log = None if folder is None else DeltaLog(folder)
        if log is None or not log.is_known:
            deltalake.DeltaTable(url).create_checkpoint()
        elif log.version > log.checkpoint:
            write_checkpoint(log.folder, log.version)
    return trim(system, f"{root}/{DELTA_LOG}", before, dry_run=dry_run)
