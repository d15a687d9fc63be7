"""A lane's queue on disk: what memory does not hold while the bus is away.

It is an SQLite database in WAL mode. A row is a chunk of records, in the order in which they came; a chunk is
there until all its records are settled, so after a crash at most the records of open chunks are repeated.

The calls block, and belong to one thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import Permanent

VERSION = 1
_Fields = tuple[bytes, str, str, str, str, str, str, str, dict[str, str]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Fields]).decode


class SpooledChunk(NamedTuple):
    """Events under one number."""

    number: int
    events: list[Event]


class SpoolState(NamedTuple):
    """What a queue holds when it is opened."""

    last_number: int
    events: int
    bytes: int


class Spool:
    """A queue of chunks in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None

    def open(self) -> SpoolState:
        """Open the file, or make it; raise Permanent if it cannot be used."""
        try:
            # The lane's thread alone uses it, one call after the other.
            database = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
            # Until it is closed, no other process can open it.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            # A commit returns when the disk has it.
            database.execute("PRAGMA synchronous = FULL")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise Permanent(
                    f"the disk queue {self._path} was made by a newer version of the sidecar (format"
                    f" {version}): use that version until it is empty"
                )
            with _transaction(database):
                database.execute(
                    "CREATE TABLE IF NOT EXISTS chunks (number INTEGER PRIMARY KEY, events INTEGER NOT NULL,"
                    " bytes INTEGER NOT NULL, data BLOB NOT NULL)"
                )
                database.execute(f"PRAGMA user_version = {VERSION}")
            (damage,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if damage != "ok":
                raise self._damaged(damage)
            state = database.execute(
                "SELECT coalesce(max(number), 0), coalesce(sum(events), 0), coalesce(sum(bytes), 0)"
                " FROM chunks"
            ).fetchone()
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise Permanent(
                    f"another sidecar uses the disk queue {self._path}: give each its own"
                ) from error
            raise Permanent(f"the disk queue {self._path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error
        self._database = database
        return SpoolState(*state)

    def _damaged(self, what: str) -> Permanent:
        return Permanent(
            f"the disk queue {self._path} is damaged ({what}): restore it, or move it away to start without"
            " the events in it"
        )

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def change(self, added: Sequence[tuple[int, Sequence[Event]]], removed: Iterable[int]) -> None:
        """Add chunks and remove others; return when the disk has it. Raise sqlite3.Error if it has not."""
        database = self._opened
        with _transaction(database):
            database.executemany(
                "INSERT INTO chunks (number, events, bytes, data) VALUES (?, ?, ?, ?)",
                ((number, len(events), _size(events), _encode(_rows(events))) for number, events in added),
            )
            database.executemany("DELETE FROM chunks WHERE number = ?", ((number,) for number in removed))

    def read(self, after: int, most_events: int, most_bytes: int) -> list[SpooledChunk]:
        """Return the chunks that follow one, within the limits, and the first in any case."""
        chunks: list[SpooledChunk] = []
        rows = self._opened.execute(
            "SELECT number, events, bytes, data FROM chunks WHERE number > ? ORDER BY number", (after,)
        )
        for number, events, size, data in rows:
            most_events -= events
            most_bytes -= size
            if chunks and (most_events < 0 or most_bytes < 0):
                break
            chunks.append(SpooledChunk(number, [Event(*fields) for fields in _decode(data)]))
        return chunks

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._database is not None, "it is not open"  # noqa: S101 - the lane opens it first
        return self._database


class _transaction:  # noqa: N801 - used as a statement
    """Everything or nothing: a failed one is taken back."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._database.execute("COMMIT")
        elif self._database.in_transaction:
            self._database.execute("ROLLBACK")


def _rows(events: Iterable[Event]) -> list[_Fields]:
    return [
        (
            event.envelope,
            event.id,
            event.payload_case,
            event.exchange,
            event.symbol,
            event.data_type,
            event.source,
            event.origin,
            dict(event.meta),
        )
        for event in events
    ]


def _size(events: Iterable[Event]) -> int:
    return sum(len(event.envelope) for event in events)
