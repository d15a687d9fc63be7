"""A lane's queue on disk: what memory does not hold while the bus is away.

It is an SQLite database in WAL mode. A row is a chunk of records, in the order in which they came; a chunk is
there until all its records are settled, so after a crash at most the records of open chunks are repeated.

The calls block, and belong to one thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bronze_sidecar.delivery import spool_log
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import Permanent

VERSION = 1
SUFFIX = ".spool"
RESERVE_BYTES = 16 << 20
"""Left free on the disk: without it SQLite could not even remove what is delivered."""
WORTH_SHRINKING = 64 << 20
"""Of a file that holds nothing any more."""
# Where SQLite locks: https://www.sqlite.org/src/file?name=src/os.h
_FIRST_LOCKED, _LOCKED_BYTES = 0x40000002, 510
_Fields = tuple[bytes, str, str, str, str, str, str, str, dict[str, str]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Fields]).decode


class Unusable(Exception):  # noqa: N818 - named for what it says
    """The disk does not do it now, and may do it later; the text says what helps."""


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
        self._identity: tuple[int, int] | None = None

    def open(self) -> SpoolState:
        """Open the file, or make it; raise Permanent if it cannot be used."""
        log = self._path.with_name(f"{self._path.name}-wal")
        # SQLite would delete it with the newest events, for it belongs to no file.
        if _size(log) and not _size(self._path):
            raise Permanent(
                f"the disk queue {self._path} is missing, but its log {log.name} is there and may hold"
                " events: bring the file back, or move the log away to start without the events in both"
            )
        # Before SQLite sees it: what it cannot read there it overwrites, or deletes with the log.
        if _size(log) and spool_log.is_damaged(log) and not _is_in_use(self._path):
            raise Permanent(
                f"the log {log.name} of the disk queue {self._path} is damaged, and holds events that could"
                " not be read: restore both, or move both away to start without the events in them"
            )
        state = self._open()
        # From here on, the log holds nothing of a write that a crash cut short. If the disk is full, it may.
        with contextlib.suppress(sqlite3.Error):
            self._opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return state

    def _open(self) -> SpoolState:
        try:
            # The lane's thread alone uses it, one call after the other.
            database = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
            # Until it is closed, no other process can open it.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            # Some systems overwrite what is removed by default: on a full disk there is no room for that.
            database.execute("PRAGMA secure_delete = OFF")
            # A commit returns when the disk has it.
            database.execute("PRAGMA synchronous = FULL")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise Permanent(
                    f"the disk queue {self._path} was made by a newer version of the sidecar (format"
                    f" {version}): use that version until it is empty"
                )
            # It fails if the file is read-only. On a disk that is full nothing need be written to a file that
            # exists, so what is in it can still be delivered.
            with _transaction(database):
                if not version:
                    database.execute(
                        "CREATE TABLE chunks (number INTEGER PRIMARY KEY, events INTEGER NOT NULL,"
                        " bytes INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL)"
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
            raise Permanent(
                f"the disk queue {self._path} cannot be opened: {error}; the folder of --spool-dir must be"
                " writable, and its disk have room"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error
        self._database = database
        self._identity = _identity(self._path)
        return SpoolState(*state)

    def _damaged(self, what: str) -> Permanent:
        return Permanent(
            f"the disk queue {self._path} is damaged ({what}): restore it, or move it away to start without"
            " the events in it"
        )

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def obstacle(self, size: int) -> str:
        """Return what keeps so many bytes from being added; empty if nothing does."""
        try:
            with self._failing():
                return self._find_obstacle(size)
        except (OSError, Permanent, Unusable) as error:
            return str(error)

    def _find_obstacle(self, size: int) -> str:
        if _identity(self._path) != self._identity:
            if not self._is_empty:
                return (
                    f"{self._path} (--spool-dir) was moved or deleted: bring it back, or let the sidecar run"
                    " until the back end has taken what was in it"
                )
            # Nothing is lost with it.
            before = self._opened
            self._open()
            before.close()
        disk = os.statvfs(self._path)
        (free_pages,) = self._opened.execute("PRAGMA freelist_count").fetchone()
        (page,) = self._opened.execute("PRAGMA page_size").fetchone()
        # Twice: what is added is in the log first, and then in the file.
        is_full = disk.f_bavail * disk.f_frsize + free_pages * page < RESERVE_BYTES + 2 * size
        return self._is_full() if is_full else ""

    def _is_full(self) -> str:
        return (
            f"the disk of {self._path.parent} (--spool-dir) is full: make room there,"
            f" {RESERVE_BYTES >> 20} MiB at least"
        )

    def change(self, added: Sequence[tuple[int, Sequence[Event]]], removed: Sequence[int]) -> None:
        """Add chunks and remove others; return when the disk has it. Raise Unusable if it has not."""
        with self._failing(), _transaction(self._opened) as database:
            database.executemany(
                "INSERT INTO chunks (number, events, bytes, checksum, data) VALUES (?, ?, ?, ?, ?)",
                (_row(number, events) for number, events in added),
            )
            database.executemany("DELETE FROM chunks WHERE number = ?", ((number,) for number in removed))
            if not added:
                # Whatever there is to do, it shows whether the disk can be written.
                database.execute(f"PRAGMA user_version = {VERSION}")
        if removed:
            self._shrink()

    def _shrink(self) -> None:
        """Give the disk back what a queue does not need that was large, and is empty."""
        # It was a favour: what was to be done is done.
        with contextlib.suppress(sqlite3.Error, OSError):
            if self._is_empty and self._path.stat().st_size >= WORTH_SHRINKING:
                self._opened.execute("VACUUM")
                self._opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def _is_empty(self) -> bool:
        return self._opened.execute("SELECT 1 FROM chunks").fetchone() is None

    def read(self, after: int, most_events: int, most_bytes: int) -> list[SpooledChunk]:
        """Return the chunks that follow one, within the limits, and the first in any case."""
        chunks: list[SpooledChunk] = []
        with self._failing():
            rows = self._opened.execute(
                "SELECT number, events, bytes, checksum, data FROM chunks WHERE number > ? ORDER BY number",
                (after,),
            )
            for number, events, size, checksum, data in rows:
                most_events -= events
                most_bytes -= size
                if chunks and (most_events < 0 or most_bytes < 0):
                    break
                if zlib.crc32(data) != checksum:
                    raise self._damaged(f"the checksum of chunk {number} is wrong")
                chunks.append(SpooledChunk(number, [Event(*fields) for fields in _decode(data)]))
        return chunks

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Say what SQLite's errors mean."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                raise self._damaged(str(error)) from error
            is_full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
            raise Unusable(self._is_full() if is_full else f"{self._path} (--spool-dir): {error}") from error

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._database is not None, "it is not open"  # noqa: S101 - the lane opens it first
        return self._database


class _transaction:  # noqa: N801 - used as a statement
    """Everything or nothing: a failed one is taken back."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> sqlite3.Connection:
        self._database.execute("BEGIN IMMEDIATE")
        return self._database

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._database.execute("COMMIT")
        elif self._database.in_transaction:
            self._database.execute("ROLLBACK")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file is at a path; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _size(path: Path) -> int:
    """Return how large a file is; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def left_behind(folder: Path, names: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Yield the queues of back ends that use none now, each with what is in it."""
    for path in (folder / f"{name}{SUFFIX}" for name in names):
        # What another sidecar has open, it delivers.
        if not path.exists() or _is_in_use(path):
            continue
        spool = Spool(path)
        try:
            if events := spool.open().events:
                yield path, f"{events} events"
        except Permanent as error:
            yield path, str(error)
        finally:
            spool.close()


def _is_in_use(path: Path) -> bool:
    """Tell whether another process has locked a database, or may have."""
    try:
        with path.open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCKED_BYTES, _FIRST_LOCKED)
    except OSError:
        return True
    return False


def _row(number: int, events: Sequence[Event]) -> tuple[int, int, int, int, bytes]:
    data = _encode(_rows(events))
    return number, len(events), sum(len(event.envelope) for event in events), zlib.crc32(data), data


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
