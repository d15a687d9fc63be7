"""A log that lost a byte is noticed before SQLite passes over it; one that a crash cut short is none."""

from __future__ import annotations

import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bronze_sidecar.delivery.spool import Spool
from bronze_sidecar.delivery.spool_log import is_damaged
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import Permanent

HEADER_BYTES = 32
FRAME_BYTES = 24 + 4096
CHUNKS = 12


def event(position: int) -> Event:
    envelope = random.Random(position).randbytes(3000)  # noqa: S311
    return Event(envelope, f"s:{position}", "trade", "x", "y", "trade", "s", "realtime", {})


def filled(folder: Path, chunks: int = CHUNKS) -> Path:
    """Return a queue as a process that was killed leaves it, with a log that has all its chunks."""
    folder.mkdir()
    spool = Spool(folder / "x.spool")
    spool.open()
    for number in range(1, chunks + 1):
        spool.change([(number, [event(number)])], [])
    (folder / "left").mkdir()
    for path in folder.glob("x.spool*"):
        shutil.copy(path, folder / "left")
    spool.close()
    return folder / "left" / "x.spool"


def log_of(queue: Path) -> Path:
    return queue.with_name("x.spool-wal")


def ends(log: Path) -> list[int]:
    """Return where the transactions of a log end."""
    content = log.read_bytes()
    starts = range(HEADER_BYTES, len(content), FRAME_BYTES)
    return [start + FRAME_BYTES for start in starts if struct.unpack_from(">I", content, start + 4)[0]]


def change(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def numbers(queue: Path) -> list[int]:
    spool = Spool(queue)
    spool.open()
    try:
        return [chunk.number for chunk in spool.read(0, 1000, 1 << 30)]
    finally:
        spool.close()


def test_a_log_of_a_process_that_was_killed_is_whole(tmp_path: Path) -> None:
    queue = filled(tmp_path / "a")
    assert not is_damaged(log_of(queue))
    assert numbers(queue) == [*range(1, CHUNKS + 1)]


def test_no_byte_changes_unnoticed_but_in_the_last_transaction(tmp_path: Path) -> None:
    queue = filled(tmp_path / "a")
    log, kept = log_of(queue), log_of(queue).read_bytes()
    *_, last, _ = ends(log)
    # Salts say to which log a page belongs: without them, its end is not known for one.
    salts = {start + place for start in range(HEADER_BYTES, last, FRAME_BYTES) for place in range(8, 16)}
    places = [place for place in random.Random(1).sample(range(last), 60) if place not in salts]  # noqa: S311
    for place in [*range(HEADER_BYTES), *places, last - 1]:
        change(log, place)
        changed = log.read_bytes()
        with pytest.raises(Permanent, match=r"the log x\.spool-wal of the disk queue .* is damaged"):
            Spool(queue).open()
        # It is left as it was, for whoever can mend it.
        assert log.read_bytes() == changed
        log.write_bytes(kept)
    change(log, last + 1000)
    assert numbers(queue) == [*range(1, CHUNKS)]


@pytest.mark.parametrize("missing", [1, 1000, FRAME_BYTES, FRAME_BYTES + 1])
def test_a_write_that_was_cut_short_is_no_damage(tmp_path: Path, missing: int) -> None:
    queue = filled(tmp_path / "a")
    log = log_of(queue)
    log.write_bytes(log.read_bytes()[:-missing])
    assert numbers(queue) == [*range(1, CHUNKS)]


def test_pages_of_the_last_write_may_be_missing_before_others(tmp_path: Path) -> None:
    """A machine that fails may have written the later pages of a transaction, and not the earlier ones."""
    queue = filled(tmp_path / "a")
    log = log_of(queue)
    *_, last, _ = ends(log)
    content = bytearray(log.read_bytes())
    content[last : last + FRAME_BYTES] = bytes(FRAME_BYTES)
    log.write_bytes(content)
    assert numbers(queue) == [*range(1, CHUNKS)]


def test_what_the_log_held_before_it_began_anew_is_no_damage(tmp_path: Path) -> None:
    queue = filled(tmp_path / "a")
    with closing(sqlite3.connect(queue, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(RESTART)")
        database.execute("DELETE FROM chunks WHERE number = 1")
        left = tmp_path / "left"
        shutil.copytree(queue.parent, left)
    assert len(ends(left / "x.spool-wal")) > CHUNKS / 2
    assert numbers(left / "x.spool") == [*range(2, CHUNKS + 1)]


@pytest.mark.parametrize("content", [b"", b"short", bytes(HEADER_BYTES + FRAME_BYTES)])
def test_a_log_that_was_never_written_is_empty(tmp_path: Path, content: bytes) -> None:
    log = tmp_path / "log"
    log.write_bytes(content)
    assert not is_damaged(log)


def test_a_log_is_not_judged_while_it_is_written(tmp_path: Path) -> None:
    """Another sidecar's log may look like anything; what is wrong is that there is another."""
    spool = Spool(tmp_path / "x.spool")
    spool.open()
    for number in range(1, 4):
        spool.change([(number, [event(number)])], [])
    script = (
        "import sys; from pathlib import Path; from bronze_sidecar.delivery import spool, spool_log\n"
        "spool_log.is_damaged = lambda _: True\n"
        "try: spool.Spool(Path(sys.argv[1])).open()\n"
        "except spool.Permanent as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "x.spool")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.startswith("another sidecar uses the disk queue")
    assert len(spool.read(0, 10, 1 << 20)) == 3
    spool.close()


def test_a_start_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    queue = filled(tmp_path / "a")
    spool = Spool(queue)
    spool.open()
    assert log_of(queue).stat().st_size == 0
    assert len(spool.read(0, 1000, 1 << 30)) == CHUNKS
    spool.close()
