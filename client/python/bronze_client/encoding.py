"""What a producer may publish, as the bytes that travel."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from bronze_client.schema import NormalizedEvent

Event: TypeAlias = "NormalizedEvent | Mapping[str, Any] | bytes | bytearray | memoryview | str"
"""An envelope, its encoded bytes, or a normalized message as mapping or JSON text."""

ENVELOPE = "lakehouse.bronze.v1.NormalizedEvent"

# No field of the envelope has a tag of these values. A newline is not among them: it is the tag of
# `source`, with which most envelopes begin.
_JSON_STARTS = frozenset(b"{ \t\r")

# As numbers: looking for bytes in bytes costs several times as much.
_NEWLINE, _RETURN = b"\n\r"
_BRACE = ord("{")
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")

# A text that no message contains, in front of numbers that the JSON encoder may not write itself.
_EXACT = uuid.uuid4().hex
_EXACT_NUMBER = re.compile(f'"{_EXACT}([^"]*)"')


def encode(event: Event) -> tuple[bytes, bool]:
    """Return the event as bytes, and whether they are JSON: then they are one line, never blank.

    Bytes that begin with `{`, a blank, a tab or a carriage return are JSON, all others an envelope.
    Raise TypeError for what is no event, ValueError for one that cannot be written: empty, no JSON
    object, not a number, or not Unicode.
    """
    if type(event) is bytes:
        if not event:
            raise ValueError("The event is empty.")
        # Bytes that begin with a blank are meant as JSON; whether they are, the sidecar judges.
        return (_line(event, event[0] == _BRACE), True) if event[0] in _JSON_STARTS else (event, False)
    if isinstance(event, Mapping):
        return _dump(event), True
    if isinstance(event, str):
        return _line(event.encode()), True
    if isinstance(event, bytes | bytearray | memoryview):
        return encode(bytes(event))
    # By name, not by class: a producer may have generated the same schema itself, and a client that is
    # switched off must not import Protobuf.
    if getattr(getattr(event, "DESCRIPTOR", None), "full_name", None) == ENVELOPE:
        return event.SerializeToString(), False
    raise TypeError(
        f"An event must be an envelope, bytes, a mapping or JSON text, not {type(event).__name__}."
    )


def _line(text: bytes, must_be_object: bool = True) -> bytes:
    # In JSON a newline can only stand between tokens, where a blank is as good.
    if _NEWLINE in text or _RETURN in text:
        text = text.translate(_ONE_LINE)
    if not text or text[0] != _BRACE:
        rest = text.lstrip()
        if not rest:
            raise ValueError("The event is empty.")
        if must_be_object and rest[0] != _BRACE:
            raise ValueError("The event is not a JSON object, which begins with '{'.")
    return text


def _dump(message: Mapping[str, Any]) -> bytes:
    text = _encode_json(message if isinstance(message, dict) else dict(message))
    if _EXACT in text:
        text = _EXACT_NUMBER.sub(r"\1", text)
    return text.encode()


def _digits(value: Any) -> str:
    """Write a decimal with exactly its digits; the encoder itself would only know floats."""
    if not isinstance(value, Decimal):
        raise TypeError(f"A normalized message cannot contain a {type(value).__name__}.")
    if not value.is_finite():
        raise ValueError(f"A normalized message cannot contain {value}.")
    return f"{_EXACT}{value}"


_encode_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_digits
).encode
