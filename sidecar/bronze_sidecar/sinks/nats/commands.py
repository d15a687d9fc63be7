"""The commands that publish records."""

from __future__ import annotations

import re

from bronze_sidecar.routing.rules import Address

_UNSAFE_IN_VALUE = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE_IN_NAME = re.compile(r"[^!-$&-9;-~]")


def prepare(address: Address) -> tuple[bytes, bytes, int]:
    """Make what all messages to an address share: start of the command, leading headers, and their length."""
    lines = [b"NATS/1.0", *(header_line(name, value) for name, value in address.headers)]
    headers = b"\r\n".join(lines) + b"\r\nNats-Msg-Id: "
    prepared = f"HPUB {address.destination} ".encode(), headers, len(headers) + len(b"\r\n\r\n")
    address.prepared = prepared
    return prepared


def head_of(reply: bytes) -> bytes:
    """Return what to format a command's head with: start, number, the two sizes, headers, id, more headers.

    A `%d` in the reply stands for the message's number. Without a reply, nothing of the number is printed.
    """
    return b"%%b%b%%d %%d\r\n%%b%%b\r\n%%b\r\n" % (b"%b " % reply if reply else b"%.0a")


def header_line(name: str, value: str) -> bytes:
    """Write a header; escape what could end the line or, in the name, the name."""
    name = _UNSAFE_IN_NAME.sub(_escape, name)
    return f"{name}: {_UNSAFE_IN_VALUE.sub(_escape, value)}".encode()


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
