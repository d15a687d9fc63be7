"""Encoded envelopes, right and wrong in every way that the wire format allows."""

from __future__ import annotations

import random
from collections.abc import Sequence

from bronze_client.schema import NormalizedEvent

VARINT, FIXED64, DELIMITED, GROUP_START, GROUP_END, FIXED32 = range(6)
USUAL_FIELDS = (1, 2, 3, 4, 5, 6, 10, 100, 101, 102)
ODD_FIELDS = (0, *USUAL_FIELDS, 9, 11, 13, 99, 103, 108, 109, 150, 151, 152, 1000, 2**29 - 1, 2**29)
TEXTS = (b"binance", b"BTC", b"", "é".encode(), b"data_type", b"event_id", b"k", "日本".encode())
TEXT_BYTES = b"abc\x80\xff" + "€😀".encode() + b"\xed\xa0\x80\xf4\x90"
NUMBERS = (0, 1, 2, 3, 4, 5, 2**64 - 1, 2**31, 2**32 + 2, 2**63)
DEEPEST = 100


def usual_envelope() -> bytes:
    event = NormalizedEvent(exchange="binance", symbol="BTC", source="a", meta={"data_type": "trade"})
    event.trade.price_str = "1"
    event.ingest_ts.seconds = 5
    return event.SerializeToString()


USUAL = usual_envelope()


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes((*encoded, number))


def odd_envelope(rnd: random.Random) -> bytes:
    """Return an envelope that is right, nearly right, or far from it."""
    (make,) = rnd.choices((_fields, _damaged, _extended, _deep, _noise), (8, 6, 4, 1, 1))
    return make(rnd)


def _fields(rnd: random.Random) -> bytes:
    return b"".join(_field(rnd, 0) for _ in range(rnd.randrange(6)))


def _damaged(rnd: random.Random) -> bytes:
    envelope = bytearray(USUAL)
    for _ in range(rnd.randrange(1, 4)):
        place = rnd.randrange(len(envelope))
        instead: Sequence[bytes] = (rnd.randbytes(1), rnd.randbytes(1), b"", rnd.randbytes(2))
        envelope[place : place + 1] = rnd.choice(instead)
    return bytes(envelope)


def _extended(rnd: random.Random) -> bytes:
    return USUAL + b"".join(_field(rnd, 0) for _ in range(rnd.randrange(4)))


def _deep(rnd: random.Random) -> bytes:
    """Nest groups about as deep as is allowed: in the envelope, its payload, the payload's time, or meta."""
    depth = rnd.randrange(DEEPEST - 6, DEEPEST + 4)
    content = varint(9 << 3 | GROUP_START) * depth + varint(9 << 3 | GROUP_END) * depth
    for number in rnd.choice(((), (100,), (10, 100), (10,))):
        content = _delimited(number, content)
    return USUAL + content


def _noise(rnd: random.Random) -> bytes:
    return rnd.randbytes(rnd.randrange(30))


def _delimited(number: int, content: bytes) -> bytes:
    return varint(number << 3 | DELIMITED) + varint(len(content)) + content


def _field(rnd: random.Random, depth: int) -> bytes:
    number = rnd.choice(ODD_FIELDS if rnd.random() < 0.3 else USUAL_FIELDS)
    wire = DELIMITED if number != 6 else VARINT
    if rnd.random() < 0.2:
        wire = rnd.randrange(8)
    return _tag(rnd, number, wire) + _content(rnd, number, wire, depth)


def _tag(rnd: random.Random, number: int, wire: int) -> bytes:
    tag = varint(number << 3 | wire)
    if rnd.random() < 0.02:  # longer than it need be
        return tag[:-1] + bytes((tag[-1] | 128,)) + rnd.choice((b"\0", b"\x80\0"))
    return varint(rnd.getrandbits(rnd.choice((32, 33, 35, 40)))) if rnd.random() < 0.01 else tag


def _content(rnd: random.Random, number: int, wire: int, depth: int) -> bytes:
    if wire == VARINT:
        if rnd.random() < 0.1:
            return b"\xff" * rnd.randrange(8, 11) + bytes((rnd.randrange(128),))
        return varint(rnd.choice((*NUMBERS, rnd.getrandbits(64))))
    if wire in {FIXED64, FIXED32}:
        size = 8 if wire == FIXED64 else 4
        return rnd.randbytes(size if rnd.random() < 0.8 else size - 1)
    if wire == GROUP_START:
        fields = b"".join(_field(rnd, depth + 1) for _ in range(rnd.randrange(3)))
        end = varint((number if rnd.random() < 0.9 else 7) << 3 | GROUP_END)
        return fields + (end if rnd.random() < 0.9 else b"")
    if wire == DELIMITED:
        content = _text(rnd)
        if depth < 4 and rnd.random() < 0.5:
            content = b"".join(_field(rnd, depth + 1) for _ in range(rnd.randrange(4)))
        length = len(content)
        if rnd.random() < 0.03:
            length = rnd.choice((length + 1, max(0, length - 1), 2**31 - 1, 2**31, 2**32, 2**35, 2**63))
        return varint(length) + content
    return b""


def _text(rnd: random.Random) -> bytes:
    if rnd.random() < 0.6:
        return rnd.choice(TEXTS)
    return bytes(rnd.choices(TEXT_BYTES, k=rnd.randrange(8)))
