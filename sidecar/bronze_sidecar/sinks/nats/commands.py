"""The commands that publish records."""

from __future__ import annotations

import re

from bronze_sidecar.routing.rules import Address, Record

_UNSAFE_IN_VALUE = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE_IN_NAME = re.compile(r"[^!-$&-9;-~]")


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


def payload_size(made: bytes) -> int:
    """Return what the server counts as a command's payload: headers and data."""
    return int(made.partition(b"\r\n")[0].rpartition(b" ")[2])
