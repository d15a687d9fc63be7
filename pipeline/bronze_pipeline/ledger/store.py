"""The ledger's files, in a folder of the table: `ledger.json`, segments, an entry for each newer version.

`ledger.json` names the segments and the version up to which they are complete. Everything else in the folder
is a newer version's entry, or rubbish that a killed job left behind.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileType

from bronze_pipeline.ledger.entries import LedgerEntry
from bronze_pipeline.ledger.runs import Numbers, Runs
from bronze_pipeline.ledger.segments import Segment, draft_of, read_table, write, write_table
from bronze_pipeline.tables.files import Folder
from bronze_pipeline.tables.tables import in_one_line

LEDGER = "_ledger"
MANIFEST = "ledger.json"
FORM = 1
"""Of the files; a ledger of another form is built anew."""
ENTRY = ".entry.parquet"
OTHERS_SECONDS = 3600.0
"""How long files stay that `ledger.json` does not name: another job may be about to name them, or reading."""
DECODING = re.compile(r"CRC|deserialize|[Cc]orrupt|decompress|ZSTD|page|magic")


class Damaged(Exception):  # noqa: N818 - it is mended
    """The ledger cannot be used; the text says why."""


@dataclass(frozen=True)
class Manifest:
    """What is settled."""

    table: str
    """The id of the table."""
    version: int
    """The table's version up to which the segments have all ids."""
    segments: Sequence[Segment]
    without_id: int


class Store:
    """The folder of the ledger of a table."""

    def __init__(self, url: str) -> None:
        self._system, root = Folder(url, ()).open()
        self._folder = f"{root}/{LEDGER}"

    def read(self) -> Manifest | None:
        """Return what is settled; None if there is no ledger; raise Damaged."""
        try:
            with self._system.open_input_stream(f"{self._folder}/{MANIFEST}") as stream:
                text = stream.read()
        except FileNotFoundError:
            return None
        with damage_is_named():
            said: dict[str, Any] = json.loads(text)
            if said["form"] != FORM:
                raise Damaged(f"its form is {said['form']}, not {FORM}")
            segments = [
                Segment(self._system, self._folder, name, count) for name, count in said["segments"].items()
            ]
            return Manifest(said["table"], said["version"], segments, said["without_id"])

    def settle(self, manifest: Manifest) -> None:
        """Write down what is settled, and remove what is no longer needed."""
        said = {
            "form": FORM,
            "table": manifest.table,
            "version": manifest.version,
            "segments": {segment.name: segment.count for segment in manifest.segments},
            "without_id": manifest.without_id,
        }
        self._system.create_dir(self._folder, recursive=True)
        path = f"{self._folder}/{MANIFEST}"
        draft = draft_of(path)
        with self._system.open_output_stream(draft) as stream:
            stream.write(json.dumps(said).encode())
        self._system.move(draft, path)
        self._clean(manifest)

    def _clean(self, manifest: Manifest) -> None:
        """Remove entries that are settled, and what nobody can need any more."""
        needed = {MANIFEST, *(name for segment in manifest.segments for name in segment.files())}
        before = time.time() - OTHERS_SECONDS
        for file in self._files():
            version = _version(file.base_name)
            is_old = file.mtime.timestamp() < before if version is None else version <= manifest.version
            if is_old and file.base_name not in needed:
                # Another job may be doing the same.
                with suppress(FileNotFoundError):
                    self._system.delete_file(file.path)

    def add_segment(self, runs: Runs, rows: Numbers) -> Segment:
        self._system.create_dir(self._folder, recursive=True)
        return write(self._system, self._folder, runs, rows)

    def add(self, version: int, entry: LedgerEntry) -> None:
        """Store the entry of a version."""
        write_table(self._system, f"{self._folder}/{_entry(version)}", entry.to_table())

    def versions(self) -> set[int]:
        """Return the versions that have entries."""
        found = (_version(file.base_name) for file in self._files())
        return {version for version in found if version is not None}

    def entry(self, version: int) -> LedgerEntry:
        """Return the entry of a version; raise Damaged."""
        with damage_is_named():
            return LedgerEntry.from_table(read_table(self._system, f"{self._folder}/{_entry(version)}"))

    def _files(self) -> list[FileInfo]:
        found = self._system.get_file_info(FileSelector(self._folder, allow_not_found=True))
        return [file for file in found if file.type == FileType.File]


@contextmanager
def damage_is_named() -> Iterator[None]:
    """Raise Damaged for what a file's content can cause; a store that does not answer is another matter."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(f"a file is gone: {in_one_line(error)}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"it cannot be read: {in_one_line(error)}") from error
    except OSError as error:
        # Arrow raises the same class for what it cannot decode; the system's own errors have a number.
        if error.errno is not None or not DECODING.search(str(error)):
            raise
        raise Damaged(f"it cannot be read: {in_one_line(error)}") from error


def _entry(version: int) -> str:
    return f"{version:020}{ENTRY}"


def _version(name: str) -> int | None:
    number = name.removesuffix(ENTRY)
    return int(number) if name.endswith(ENTRY) and number.isdecimal() else None
