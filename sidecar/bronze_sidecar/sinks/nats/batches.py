"""Batched publishing: one confirmation for a whole write, and nothing is stored behind a refused message.

The server reads what a message is in its batch from the reply subject,
`<inbox>.<batch id>.<flow>.<gap mode>.<number>.<operation>.$FI`. Numbers count from 1. In the gap mode `fail`
it takes no message behind one that is missing or refused: it ends the batch, and confirms what came before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.nats.answers import UNKNOWN_BATCH, error_code
from bronze_sidecar.sinks.nats.confirmations import FORBIDDEN

START, APPEND, END = 0, 1, 3
FLOW = 500
"""Messages after which the server tells how far it is; it allows no more than this."""
_STORED = re.compile(rb'"seq": ?(\d+),.*"count": ?(\d+)')
_REFUSED = re.compile(rb'^\{"type":"err","seq":(\d+),')


def reply_of(inbox: str, prefix: str, number: int) -> bytes:
    """Return how the reply subjects of a batch begin: all up to the message's number."""
    return f"{inbox}.{prefix}-{number}.{FLOW}.fail.".encode()


class BatchConfirmation:
    """What the server says of one batch."""

    def __init__(self, number: int, reply: bytes, records: Sequence[Record]) -> None:
        self.stored: int | None = None
        """How many messages, from the first on, are stored; None if the server did not say."""
        self.is_in_log = True
        """Whether a message was new; otherwise all were known by their ids, stored or on their way."""
        self.refusals: dict[int, bytes] = {}
        """Number of a message to the server's answer."""
        self.finished = asyncio.Event()
        self.forbidden: set[str] = set()
        self._window = b"%d" % number
        self._records = records
        self._reply = reply
        self._end = b"%d" % (len(records) + 1)
        self._end_subject = b""

    def end_command(self) -> bytes:
        """Return the command that ends the batch, to a subject that may be published to; empty if none is."""
        subjects = (record.address.destination for record in reversed(self._records))
        allowed = next((each for each in subjects if each not in self.forbidden), None)
        if allowed is None:
            return b""
        self._end_subject = allowed.encode()
        return b"PUB %b %b%b.%d.$FI 0\r\n\r\n" % (self._end_subject, self._reply, self._end, END)

    def settle(self, windows: list[bytes], numbers: list[bytes], answers: list[bytes]) -> None:
        """Accept answers: how far the server is, what it refuses, and at last how much is stored."""
        for window, number, answer in zip(windows, numbers, answers, strict=True):
            if window != self._window or self.finished.is_set():
                continue
            if refused := _REFUSED.match(answer):
                self.refusals.setdefault(int(refused[1]), answer)
            elif b'"error":{' in answer or answer.startswith(b"NATS/1.0"):
                self.refusals.setdefault(int(number), answer.partition(b"\r\n")[0])
                if number == self._end:
                    self.finished.set()
            elif stored := _STORED.search(answer):
                self.stored = min([int(stored[2]), *(number - 1 for number in self.refusals)])
                self.is_in_log = stored[1] != b"0"
                self.finished.set()

    def forbid(self, subject: str) -> None:
        """Take note that the user may not publish to a subject; the batch may have to be ended anew."""
        self.forbidden.add(subject)
        if self._end_subject.decode() == subject:
            self.finished.set()

    @property
    def must_end_anew(self) -> bool:
        """Whether the end did not reach the server, for the user may not publish to its subject."""
        return self.stored is None and self._end_subject.decode() in self.forbidden

    def refused(self) -> tuple[int, bytes]:
        """Return the index of the first message that was not stored, and the server's answer to it.

        The answer is empty if there is none: the message did not reach the server.
        """
        index = self._first_refused() if self.stored is None else self.stored
        return index, FORBIDDEN.encode() if self.is_forbidden(index) else self.refusals.get(index + 1, b"")

    def is_forbidden(self, index: int) -> bool:
        """Tell whether the user may not publish to a message's subject."""
        return self._records[index].address.destination in self.forbidden

    def _first_refused(self) -> int:
        """Return the index of the message at fault if the server did not say how many are stored."""
        # An unknown batch only means that its first message is missing.
        numbers = [number for number, answer in self.refusals.items() if error_code(answer) != UNKNOWN_BATCH]
        numbers += [
            number
            for number, record in enumerate(self._records, 1)
            if record.address.destination in self.forbidden
        ]
        return min(min(numbers, default=1), len(self._records)) - 1
