"""The letters of dead-letter files that a command asks for, and an overview of them."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from bronze_cli.problems import printable
from bronze_cli.program import CommandFailed
from bronze_cli.values import STANDARD_INPUT

from bronze_sidecar.ingest.dead_letters import DeadLetter, read_line

SAMPLES = 3
SHOWN_CONTENT = 200
_NUMBERS = re.compile(r"[0-9]+")


@dataclass
class Letters:
    """The letters of some files that pass the filters, read once."""

    paths: Sequence[str]
    backends: Sequence[str] = ()
    """Empty means all."""
    reason: str = ""
    """Part of the reason, in any case."""
    passed_over: int = 0
    """Letters that the filters left out."""
    unreadable: list[str] = field(default_factory=list)
    """Where lines are that are no letters."""

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield the letters in their order. Raise CommandFailed if a file cannot be read."""
        for path in self.paths:
            for number, line in enumerate(_lines(path), 1):
                if not line.strip():
                    continue
                try:
                    letter = read_line(line)
                except ValueError as error:
                    self.unreadable.append(f"{path}:{number}: {error}")
                    continue
                if self._passes(letter):
                    yield letter
                else:
                    self.passed_over += 1

    def _passes(self, letter: DeadLetter) -> bool:
        is_wanted = not self.backends or letter.backend in self.backends
        return is_wanted and self.reason.lower() in letter.reason.lower()


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines that a file has now: a sidecar may go on writing to it."""
    try:
        with _opened(path) as file:
            left = _size(file)
            for line in file:
                yield line
                left -= len(line)
                if left <= 0:
                    return
    except OSError as error:
        raise CommandFailed(f"'{path}' cannot be read: {error.strerror}.") from None


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else Path(path).open("rb")


def _size(file: BinaryIO) -> float:
    try:
        status = os.fstat(file.fileno())
    except io.UnsupportedOperation:
        return float("inf")
    return status.st_size if stat.S_ISREG(status.st_mode) else float("inf")


@dataclass
class Group:
    """Letters with the same cause."""

    kind: str
    backend: str
    reason: str
    """Of the first; numbers in the others may differ."""
    first: datetime
    last: datetime
    count: int = 0
    streams: set[str] = field(default_factory=set)
    samples: list[DeadLetter] = field(default_factory=list)

    def add(self, letter: DeadLetter) -> None:
        self.count += 1
        self.first = min(self.first, letter.time)
        self.last = max(self.last, letter.time)
        self.streams.add(letter.stream_id)
        if len(self.samples) < SAMPLES:
            self.samples.append(letter)

    def facts(self) -> dict[str, Any]:
        """Describe the group for programs."""
        return {
            "kind": self.kind,
            "backend": self.backend,
            "reason": self.reason,
            "count": self.count,
            "first": self.first.isoformat(),
            "last": self.last.isoformat(),
            "streams": len(self.streams),
            "samples": [{"event_id": each.event_id, **_content(each)} for each in self.samples],
        }

    def text(self) -> str:
        """Describe the group for people."""
        who = f"given up by {self.backend}" if self.backend else self.kind
        streams = f"{len(self.streams):,} stream{'s' * (len(self.streams) != 1)}"
        lines = [
            f"{self.count:,} {who}: {self.reason}",
            f"  {self.first:%Y-%m-%d %H:%M:%S} to {self.last:%Y-%m-%d %H:%M:%S} UTC, {streams}",
        ]
        for each in self.samples:
            shown = " ".join(f"{value}" for value in _content(each).values())
            lines.append(f"  {each.event_id}  {shown}")
        return "\n".join(printable(line) for line in lines)


def _content(letter: DeadLetter) -> dict[str, str]:
    size = f"{len(letter.content)} bytes"
    if letter.form == "envelope":
        return {"destination": letter.destination, "content": f"envelope of {size}"}
    text = letter.content.decode(errors="backslashreplace")
    return {"content": text if len(text) <= SHOWN_CONTENT else f"{text[:SHOWN_CONTENT]}… ({size})"}


def groups(letters: Letters) -> list[Group]:
    """Group letters by kind, back end and reason, the most frequent first."""
    found: dict[tuple[str, str, str], Group] = {}
    for letter in letters:
        # Sizes and the like differ where the cause is the same.
        key = letter.kind, letter.backend, _NUMBERS.sub("#", letter.reason)
        group = found.get(key)
        if group is None:
            group = found[key] = Group(
                letter.kind, letter.backend, letter.reason, first=letter.time, last=letter.time
            )
        group.add(letter)
    return sorted(found.values(), key=lambda group: -group.count)
