"""The commands that publish records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.rules import Address, Record

_UNSAFE_IN_VALUE = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE_IN_NAME = re.compile(r"[^!-$&-9;-~]")


def prepare(address: Address) -> tuple[bytes, bytes, int]:
    """Make what all messages to an address share: start of the command, leading headers, and their length."""
    headers = b"NATS/1.0\r\n" + header_lines(address.headers) + b"Nats-Msg-Id: "
    prepared = f"HPUB {address.destination} ".encode(), headers, len(headers) + len(b"\r\n\r\n")
    address.prepared = prepared
    return prepared


def publish_commands(  # noqa: PLR0917 - as in compiled code
    records: Iterable[Record],
    first_reply: bytes,
    reply: bytes,
    most: int,
    prepare: Callable[[Address], tuple[bytes, bytes, int]],
    more_headers: Callable[[Event], bytes] | None,
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the commands that publish records, and place and size of each that has more than `most` bytes.

    A `%d` in a reply stands for the message's number; an empty one is none. `prepare` is asked about
    addresses that are not prepared, `more_headers` gives headers that differ between events of an address.
    """
    pieces: list[bytes] = []
    oversized: list[tuple[int, int]] = []
    number, more = 0, b""
    head, next_head = _head_of(first_reply), _head_of(reply)
    for place, record in enumerate(records):
        event = record.event
        if more_headers:
            more = more_headers(event)
        start, headers, length = record.address.prepared or prepare(record.address)
        event_id, envelope = event.id.encode(), event.envelope
        headers_size = length + len(event_id) + len(more)
        size = headers_size + len(envelope)
        if size > most:
            oversized.append((place, size))
            continue
        number += 1
        pieces += head % (start, number, headers_size, size, headers, event_id, more), envelope, b"\r\n"
        head = next_head
    return b"".join(pieces), oversized


def _head_of(reply: bytes) -> bytes:
    """Return what to format a command's head with: start, number, the two sizes, headers, id, more headers.

    Without a reply, nothing of the number is printed.
    """
    return b"%%b%b%%d %%d\r\n%%b%%b\r\n%%b\r\n" % (b"%b " % reply if reply else b"%.0a")


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Write headers, each with the end of its line.

    What could end the line is escaped, and what could end the name.
    """
    return "".join(
        f"{_UNSAFE_IN_NAME.sub(_escape, name)}: {_UNSAFE_IN_VALUE.sub(_escape, value)}\r\n"
        for name, value in headers
    ).encode()


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
