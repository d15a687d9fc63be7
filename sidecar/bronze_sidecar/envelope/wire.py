"""The part of the Protobuf wire format that the mapping writes."""

from __future__ import annotations

from typing import TypeAlias

_VARINT = 0
_LENGTH_DELIMITED = 2

# Two bytes at a time: half the steps of the usual loop. `PAIRS` go on, `ENDS` stop.
PAIRS = tuple(bytes((low & 0x7F | 0x80, low >> 7 | 0x80)) for low in range(1 << 14))
# As many as a number below two to the power of 30 needs, such as the nanoseconds of a time.
ENDS = (
    *(bytes((low,)) for low in range(1 << 7)),
    *(bytes((low & 0x7F | 0x80, low >> 7)) for low in range(1 << 7, 1 << 14)),
    *(PAIRS[low & 0x3FFF] + bytes((low >> 14,)) for low in range(1 << 14, 1 << 16)),
)

Heads: TypeAlias = tuple[bytes, ...]
"""A length-delimited field's tag and length, indexed by the length, for those below 128."""


def varint(value: int) -> bytes:
    """Encode an integer of at most 64 bits; a negative one takes ten bytes, as int64 does."""
    if value >= 1 << 14:
        return PAIRS[value & 0x3FFF] + (ENDS[value >> 14] if value < 1 << 30 else varint(value >> 14))
    return ENDS[value] if value >= 0 else varint(value + (1 << 64))


def heads(number: int) -> Heads:
    """Prepare what precedes the content of length-delimited field `number`."""
    tag = varint(number << 3 | _LENGTH_DELIMITED)
    return tuple(tag + bytes((length,)) for length in range(128))


def long_head(prepared: Heads, length: int) -> bytes:
    """Return what precedes content of 128 bytes or more."""
    return prepared[0][:-1] + varint(length)


def delimited(prepared: Heads, content: bytes) -> bytes:
    """Encode a length-delimited field, also when it is empty: a sub-message is then still there."""
    length = len(content)
    return (prepared[length] if length < 128 else long_head(prepared, length)) + content


def string_field(prepared: Heads, text: str) -> bytes:
    """Encode a string field; an empty one is left out, as proto3 does."""
    if not text:
        return b""
    content = text.encode()
    length = len(content)
    return (prepared[length] if length < 128 else long_head(prepared, length)) + content


def varint_field(number: int, value: int) -> bytes:
    """Encode an integer, enum or bool field; a zero is left out, as proto3 does."""
    return varint(number << 3 | _VARINT) + varint(value) if value else b""


_KEY = heads(1)
_VALUE = heads(2)


def map_entry(prepared: Heads, key: str, value: str) -> bytes:
    """Encode one entry of a `map<string, string>`; key and value are written even if empty."""
    return delimited(prepared, delimited(_KEY, key.encode()) + delimited(_VALUE, value.encode()))


def timestamp_field(number: int, seconds: int, nanos: int) -> bytes:
    """Encode a Timestamp field, zeros too.

    Parsers merge a field that comes twice, and a part left out would keep its earlier value.
    """
    content = b"\x08" + varint(seconds) + b"\x10" + varint(nanos)
    return varint(number << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content
