"""What was not published, as one line of a dead-letter file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["rejected", "failed"]
"""Refused as malformed by the sidecar, or given up by a back end."""
Form: TypeAlias = Literal["json", "envelope"]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that was rejected, or an event that a back end did not get; with all that sends it again."""

    time: datetime
    kind: Kind
    reason: str
    backend: str = ""
    """The back end that refused it; empty if it never got that far."""
    destination: str = ""
    """Where it would have gone there."""
    event_id: str
    """`<stream id>:<position>`, with `.<level>` for a level of a book change."""
    stream_id: str
    position: int
    level: int | None = None
    producer_id: str = ""
    source: str = ""
    origin: str = ""
    request_id: str = ""
    session_id: str = ""
    meta: Mapping[str, str] = {}
    form: Form
    content: bytes
    """The bytes themselves; base64 in the file."""

    def line(self) -> bytes:
        return _encode(self) + b"\n"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DeadLetter).decode


def read_line(line: bytes) -> DeadLetter:
    """Return the letter that a line holds; raise ValueError if it holds none."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
