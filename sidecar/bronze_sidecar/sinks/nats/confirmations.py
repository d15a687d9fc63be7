"""JetStream's confirmations, one for each message, and taking answers out of what the library reads."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from typing import Protocol

from bronze_buses.nats import TakingTransport

from bronze_sidecar.routing.rules import Record

_FORBIDDEN_SUBJECT = re.compile(rb"-ERR 'Permissions Violation for Publish to \"(.*)\"'")
FORBIDDEN = "the user may not publish to the subject: check the permissions of --nats-user"


class AnswerWindow(Protocol):
    """What one write waits for."""

    finished: asyncio.Event

    def settle(self, windows: list[bytes], numbers: list[bytes], answers: list[bytes]) -> None:
        """Accept answers, each with the number of its window and that of its message there."""

    def forbid(self, subject: str) -> None:
        """Take note that the user may not publish to a subject."""


class Confirmations:
    """One confirmation for each message. The server may store a message that follows a refused one."""

    def __init__(self, number: int, records: Sequence[Record]) -> None:
        self.open = set(range(1, len(records) + 1))
        """Numbers of messages without an answer; they count from 1."""
        self.refusals: dict[int, bytes] = {}
        """Number of a message to the server's answer, if it was not a confirmation."""
        self.finished = asyncio.Event()
        self._window = b"%d" % number
        self._records = records

    def settle(self, windows: list[bytes], numbers: list[bytes], answers: list[bytes]) -> None:
        stored = []
        for window, number, answer in zip(windows, numbers, answers, strict=True):
            if window != self._window:
                continue
            if b'"error":{' in answer or answer.startswith(b"NATS/1.0"):
                self._refuse(int(number), answer.partition(b"\r\n")[0])
            else:
                stored.append(int(number))
        self._close(stored)

    def forbid(self, subject: str) -> None:
        destinations = [record.address.destination for record in self._records]
        for number in [each for each in self.open if destinations[each - 1] == subject]:
            self._refuse(number, FORBIDDEN.encode())

    def _refuse(self, number: int, answer: bytes) -> None:
        if number in self.open:
            self.refusals[number] = answer
            self._close([number])

    def _close(self, numbers: list[int]) -> None:
        self.open.difference_update(numbers)
        if not self.open:
            self.finished.set()


class ForbiddenSubjects:
    """What core NATS says of messages: nothing, unless the user may not publish to their subject."""

    def __init__(self) -> None:
        self.subjects: set[str] = set()
        self.finished = asyncio.Event()

    def settle(self, windows: list[bytes], numbers: list[bytes], answers: list[bytes]) -> None:
        """Ignore answers: none are asked for."""

    def forbid(self, subject: str) -> None:
        self.subjects.add(subject)


class ConfirmingTransport(TakingTransport):
    """Takes the answers to our messages out of what the library reads."""

    def __init__(self) -> None:
        super().__init__()
        token = secrets.token_hex(11)
        self.inbox = f"_INBOX.{token}"
        self.batch_prefix = token[:12]
        """What the ids of this connection's batches begin with."""
        self.window: AnswerWindow | None = None
        # After the inbox: the number of the window and of the message, plain or as the reply of a batch. A
        # confirmation or an error is JSON on one line; a status such as 503 has headers and no payload.
        self._answers = re.compile(
            rb"H?MSG "
            + re.escape(self.inbox).encode()
            + rb"\.(?:[0-9a-f]{12}-)?(\d+)\.(?:\d+\.fail\.)?(\d+)(?:\.\d\.\$FI)? [\d ]+\r\n"
            + rb"(NATS/1\.0 [^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n|(?!NATS/1\.0)[^\r\n]*)\r\n"
        )
        self._beginnings = (b"MSG " + self.inbox.encode(), b"HMSG " + self.inbox.encode())
        self._rest = b""
        self._line = b""

    def note_loss(self) -> None:
        """Stop waiting for answers that will not come."""
        if self.window:
            self.window.finished.set()

    def take(self, received: bytes) -> bytes:
        """Take out the complete answers; keep an incomplete one for next time."""
        # Repeated to the end: the text before an answer, its window, its number, and the answer itself.
        pieces = self._answers.split(self._rest + received)
        if self.window:
            self.window.settle(pieces[1::4], pieces[2::4], pieces[3::4])
        others = pieces[::4]
        rest = others.pop()
        begin = self._incomplete(rest)
        self._rest = rest[begin:]
        others.append(rest[:begin])
        for_library = b"".join(others)
        if for_library:
            self._look_for_refusals(for_library)
        return for_library

    def _look_for_refusals(self, received: bytes) -> None:
        """Settle what the server refuses other than by an answer; the library tells it in lower case."""
        *lines, self._line = (self._line + received).split(b"\r\n")
        for violation in filter(None, map(_FORBIDDEN_SUBJECT.match, lines)):
            if self.window:
                self.window.forbid(violation[1].decode())

    def _incomplete(self, rest: bytes) -> int:
        """Return where an incomplete answer begins."""
        for beginning in self._beginnings:
            found = rest.find(beginning)
            if found >= 0:
                # 'HMSG' contains 'MSG'.
                return found - 1 if found and rest[found - 1 : found] == b"H" else found
        last_line = rest.rfind(b"\n") + 1
        tail = rest[last_line:]
        is_beginning = tail and any(beginning.startswith(tail) for beginning in self._beginnings)
        return last_line if is_beginning else len(rest)
