"""The commits of a plain Parquet table, as noted next to its files.

The notes are numbered from 0, so that a reader can tell what is new. The first line of a note names the job
and its batch; each other line describes a file. The table's columns are noted too: a note for each set of
columns with which a program has opened it, named by its content, so that two programs at once do not disturb
each other.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from pyarrow.fs import FileSelector, LocalFileSystem

from bronze_pipeline.tables.files import Folder, Written

LOG = "_commits"
ID = "table-id"
NOTE = ".json"
SCHEMA = ".schema"


@dataclass(frozen=True)
class Commit:
    """The files of one batch."""

    number: int
    job: str
    batch: int
    files: Sequence[Written]


class CommitLog:
    """The notes of the table at a place."""

    def __init__(self, url: str) -> None:
        self._system, root = Folder(url, ()).open()
        self._folder = f"{root}/{LOG}"

    def create(self) -> None:
        """Create the folder of the notes, if necessary."""
        self._system.create_dir(self._folder, recursive=True)
        if not self._system.get_file_info(f"{self._folder}/{ID}").is_file:
            # Another job may be opening the same new table.
            with suppress(FileExistsError):
                self._write(ID, uuid.uuid4().hex)

    def table_id(self) -> str:
        """Return an id that distinguishes this table from another one at the same place."""
        return self._read(ID)

    def schemas(self) -> list[str]:
        """Return the columns that were noted, in no particular order, but always the same."""
        return [self._read(f"{name}{SCHEMA}") for name in sorted(self._names(SCHEMA))]

    def add_schema(self, text: str) -> None:
        """Note columns."""
        # Another process may have noted the same.
        with suppress(FileExistsError):
            self._write(f"{blake2b(text.encode(), digest_size=16).hexdigest()}{SCHEMA}", text)

    def numbers(self) -> list[int]:
        """Return the numbers of the commits, in order."""
        names = self._names(NOTE)
        odd = next((name for name in names if not (name.isascii() and name.isdigit())), None)
        if odd is not None:
            raise ValueError(f"{LOG}/{odd}{NOTE} is not a commit note.")
        return sorted(map(int, names))

    def has(self, number: int) -> bool:
        return bool(self._system.get_file_info(f"{self._folder}/{_name(number)}").is_file)

    def time(self, number: int) -> datetime | None:
        """Return when a commit was noted; None if it is not there."""
        moment: datetime | None = self._system.get_file_info(f"{self._folder}/{_name(number)}").mtime
        return moment

    def commits(self) -> list[Commit]:
        """Return the commits in order."""
        return [self.commit(number) for number in self.numbers()]

    def commit(self, number: int) -> Commit:
        """Return one commit.

        Raise FileNotFoundError if there is none with that number, ValueError if its note cannot be read.
        """
        text = self._read(_name(number))
        try:
            head, *lines = text.splitlines()
            return Commit(number, **json.loads(head), files=[Written.from_json(line) for line in lines])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{LOG}/{_name(number)} is damaged: {error}") from error

    def noted_at(self, number: int) -> datetime:
        """Return when a commit was noted."""
        noted: datetime = self._system.get_file_info(f"{self._folder}/{_name(number)}").mtime
        return noted

    def add(self, commit: Commit) -> None:
        """Note a commit, completely or not at all; raise FileExistsError if its number is taken."""
        head = json.dumps({"job": commit.job, "batch": commit.batch})
        lines = [head, *(file.to_json() for file in commit.files)]
        self._write(_name(commit.number), "\n".join(lines))

    def _names(self, ending: str) -> list[str]:
        found = self._system.get_file_info(FileSelector(self._folder))
        return [file.base_name.removesuffix(ending) for file in found if file.base_name.endswith(ending)]

    def _read(self, name: str) -> str:
        with self._system.open_input_stream(f"{self._folder}/{name}") as stream:
            return str(stream.read().decode())

    def _write(self, name: str, text: str) -> None:
        path = f"{self._folder}/{name}"
        draft = f"{path}.{uuid.uuid4().hex}.new"
        with self._system.open_output_stream(draft) as stream:
            stream.write(text.encode())
        if isinstance(self._system, LocalFileSystem):
            # Moving would replace a note that another job has written since.
            try:
                os.link(draft, path)
            finally:
                self._system.delete_file(draft)
            return
        if self._system.get_file_info(path).is_file:
            self._system.delete_file(draft)
            raise FileExistsError(path)
        self._system.move(draft, path)


def _name(number: int) -> str:
    return f"{number:010}{NOTE}"
