"""The commands that publish records, and JetStream's confirmations, read without a task per message."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Sequence

from bronze_buses.nats import TakingTransport

from bronze_sidecar.routing.rules import Address, Record

FORBIDDEN = "the user may not publish to the subject: check the permissions of --nats-user"
_UNSAFE_IN_VALUE = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE_IN_NAME = re.compile(r"[^!-$&-9;-~]")


class Confirmations:
    """The confirmations that one write waits for."""

    def __init__(self, number: int, batch: Sequence[Record], places: Iterable[int]) -> None:
        self.number = b"%d" % number
        self.open = set(places)
        self._batch = batch
        self.refusals: dict[int, bytes] = {}
        """Place of a message to the server's answer, if it was not a confirmation."""
        self.finished = asyncio.Event()

    def settle(self, numbers: list[bytes], places: list[bytes], answers: list[bytes]) -> None:
        """Accept answers, each with the number of its window and the place of its message."""
        stored = []
        for number, place, answer in zip(numbers, places, answers, strict=True):
            if number != self.number:
                continue
            if b'"error"' in answer or answer.startswith(b"NATS/1.0"):
                self._refuse(int(place), answer.partition(b"\r\n")[0])
            else:
                stored.append(int(place))
        self._close(stored)

    def _refuse(self, place: int, answer: bytes) -> None:
        if place in self.open:
            self.refusals[place] = answer
            self._close([place])

    def _close(self, places: list[int]) -> None:
        self.open.difference_update(places)
        if not self.open:
            self.finished.set()

    def refuse(self, subject: str, reason: str) -> None:
        """Settle messages to a subject for which the server sends no answers."""
        for place in [each for each in self.open if self._batch[each].address.destination.lower() == subject]:
            self._refuse(place, reason.encode())


class ConfirmingTransport(TakingTransport):
    """Takes the confirmations out of what the library reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = f"_INBOX.{secrets.token_hex(11)}"
        self.window: Confirmations | None = None
        # A confirmation or an error is JSON on one line; a status such as 503 has headers and no payload.
        self._answers = re.compile(
            rb"H?MSG "
            + re.escape(self.inbox).encode()
            + rb"\.(\d+)\.(\d+) [\d ]+\r\n"
            + rb"(NATS/1\.0 [^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n|(?!NATS/1\.0)[^\r\n]*)\r\n"
        )
        self._beginnings = (b"MSG " + self.inbox.encode(), b"HMSG " + self.inbox.encode())
        self._rest = b""

    def note_error(self, text: str) -> None:
        """Settle what the server refuses other than by an answer; the library makes the text lower case."""
        violation = re.search(r'permissions violation for publish to "(.*)"', text)
        if violation and self.window:
            self.window.refuse(violation[1], FORBIDDEN)

    def note_loss(self) -> None:
        """Stop waiting for answers that will not come."""
        if self.window:
            self.window.finished.set()

    def take(self, received: bytes) -> bytes:
        """Take out the complete answers; keep an incomplete one for next time."""
        # Repeated to the end: the text before an answer, its window, its place, and the answer itself.
        pieces = self._answers.split(self._rest + received)
        if self.window:
            self.window.settle(pieces[1::4], pieces[2::4], pieces[3::4])
        others = pieces[::4]
        rest = others.pop()
        begin = self._incomplete(rest)
        self._rest = rest[begin:]
        others.append(rest[:begin])
        return b"".join(others)

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


def prepare(address: Address) -> tuple[bytes, bytes]:
    """Make the parts of a command that all messages to an address share: subject and leading headers."""
    lines = [b"NATS/1.0", *(header_line(name, value) for name, value in address.headers)]
    prepared = address.destination.encode(), b"\r\n".join(lines) + b"\r\nNats-Msg-Id: "
    address.prepared = prepared
    return prepared


def command(record: Record, more_headers: bytes, reply: bytes) -> bytes:
    """Make the command that publishes a record."""
    subject, first_headers = record.address.prepared or prepare(record.address)
    envelope = record.event.envelope
    event_id = record.event.id.encode()
    size = len(first_headers) + len(event_id) + len(more_headers) + 4
    return b"HPUB %b %b%d %d\r\n%b%b\r\n%b\r\n%b\r\n" % (
        subject,
        reply,
        size,
        size + len(envelope),
        first_headers,
        event_id,
        more_headers,
        envelope,
    )


def header_line(name: str, value: str) -> bytes:
    """Write a header; escape what could end the line or, in the name, the name."""
    name = _UNSAFE_IN_NAME.sub(_escape, name)
    return f"{name}: {_UNSAFE_IN_VALUE.sub(_escape, value)}".encode()


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
