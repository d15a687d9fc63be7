"""The dead-letter file: appended to by a thread, rotated, and never in the way of delivery."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bronze_sidecar.configuration.bounds import DEAD_LETTER_FILES
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.telemetry.logs import logger
from bronze_sidecar.telemetry.metrics import Metrics

MOST_WAITING = 10_000
MOST_WAITING_BYTES = 8 << 20
WARNING_INTERVAL_SECONDS = 10.0
CLOSE_SECONDS = 5.0


def generations(path: Path) -> list[Path]:
    """Return the files that letters may be in, the newest first."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, DEAD_LETTER_FILES))]


class DeadLetterFile:
    """Takes letters from the event loop; a thread writes them.

    What cannot be written, or comes faster than the disk takes it, is counted and warned of.
    """

    def __init__(self, path: Path, max_bytes: int, metrics: Metrics) -> None:
        self._generations = generations(path)
        self._most = max_bytes // DEAD_LETTER_FILES
        self._metrics = metrics
        self._waiting: deque[DeadLetter] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._warned_at: dict[str, float] = {}

    def put(self, letter: DeadLetter) -> None:
        """Have a letter written, soon."""
        size = len(letter.content)
        with self._changed:
            has_room = (
                len(self._waiting) < MOST_WAITING and self._waiting_bytes + size <= MOST_WAITING_BYTES
            ) or not self._waiting
            if has_room:
                self._waiting.append(letter)
                self._waiting_bytes += size
                self._changed.notify()
            if self._thread is None:
                # Only now: most processes never need it. A disk that hangs must not hold up the exit.
                self._thread = threading.Thread(target=self._run, name="dead letters", daemon=True)
                self._thread.start()
        if not has_room:
            self._lose(1, "they come faster than the disk takes them")

    def close(self) -> None:
        """Write what waits, unless that takes too long."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread:
            self._thread.join(CLOSE_SECONDS)
        if self._waiting:
            self._lose(len(self._waiting), "the disk does not take them")

    def _run(self) -> None:
        while letters := self._take():
            lines = [letter.line() for letter in letters]
            done = 0
            try:
                while done < len(lines):
                    done += self._append(lines[done:])
            except OSError as error:
                self._lose(len(lines) - done, str(error.strerror or error))
            self._metrics.dead_letters.inc(done)

    def _take(self) -> list[DeadLetter]:
        """Wait for letters; return all of them, none if no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            letters = [*self._waiting]
            self._waiting.clear()
            self._waiting_bytes = 0
            return letters

    def _append(self, lines: Sequence[bytes]) -> int:
        """Append lines as long as they fit, or begin a new file; return how many were written.

        The file is opened each time: someone may have moved it away.
        """
        with _opened(self._generations[0]) as file:
            size = file.seek(0, os.SEEK_END)
            count = _fitting(lines, self._most - size) or (0 if size else 1)
            if count:
                # A process that was killed may have left a part of a line.
                broken = _last_byte(file, size) not in {b"", b"\n"}
                _write(file, (b"\n" if broken else b"") + b"".join(lines[:count]), size)
        if not count:
            self._rotate()
        return count

    def _rotate(self) -> None:
        oldest = self._generations[-1]
        if oldest.exists():
            self._warn("the oldest dead letters are deleted: the files are full", path=str(oldest))
        for newer, older in zip(self._generations[-2::-1], self._generations[:0:-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)

    def _lose(self, count: int, reason: str) -> None:
        self._metrics.dead_letters_lost.inc(count)
        self._warn("dead letters are lost", path=str(self._generations[0]), count=count, reason=reason)

    def _warn(self, event: str, **facts: object) -> None:
        now = time.monotonic()
        if now - self._warned_at.get(event, -WARNING_INTERVAL_SECONDS) >= WARNING_INTERVAL_SECONDS:
            self._warned_at[event] = now
            logger().warning(event, **facts)


def _opened(path: Path) -> io.FileIO:
    # For its owner alone: events may be confidential.
    return io.FileIO(path, "a+", opener=lambda name, flags: os.open(name, flags, 0o600))


def _fitting(lines: Sequence[bytes], room: int) -> int:
    """Return how many of the first lines fit."""
    for count, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return count
    return len(lines)


def _last_byte(file: io.FileIO, size: int) -> bytes:
    return os.pread(file.fileno(), 1, size - 1) if size else b""


def _write(file: io.FileIO, content: bytes, size: int) -> None:
    """Append all of the content or nothing."""
    view = memoryview(content)
    try:
        while view:
            view = view[file.write(view) or 0 :]
    except OSError:
        with contextlib.suppress(OSError):
            file.truncate(size)
        raise
