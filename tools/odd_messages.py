"""JSON lines, right and wrong in every way that a normalized message can be."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import get_args

import msgspec
from bronze_sidecar.mapping.book_messages import Levels
from bronze_sidecar.mapping.message_base import Flag, Number, Text, Texts
from bronze_sidecar.mapping.messages import AnyMessage

FIELDS = {
    str(each.__struct_config__.tag): {field.encode_name: field.type for field in msgspec.structs.fields(each)}
    for each in get_args(AnyMessage)
}
EVERY_FIELD = sorted({name for fields in FIELDS.values() for name in fields})
TIMES = ("timestamp", "localTimestamp", "openTimestamp", "closeTimestamp")
CHOICES = {
    "side": ("buy", "sell", "unknown"),
    "kind": ("tick", "time", "volume"),
    "code": ("ws_connect", "ws_send", "source_auth", "source_rate_limit"),
}
WHOLE = {"depth", "interval", "grouping", "sequence", "trades", "subSequentErrorsCount", "subsequentErrors"}

EDGES = (0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**19, 10**20, 10**40)
NUMBERS = (
    *map(str, EDGES),
    *(
        "-0",
        "-1",
        "-0.0",
        "0.00",
        "0e5",
        "0E-7",
        "1.5",
        "0.5",
        "5e-8",
        "1E+10",
        "1e3",
        "1e999",
        "-1e-999",
        "5.0",
    ),
    *(f"-{2**63}", f"-{2**63 + 1}", "9" * 400, "0." + "0" * 300 + "1", "1" * 127, "1" * 128, "0" * 2),
    *(
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "--1",
        "-",
        "NaN",
        "Infinity",
        "-Infinity",
        "1_000",
        "0x1F",
        "1,5",
    ),
)
TEXTS = (
    *("", "x", "BTC/USDT", "é", "日本円", "😀", "\x7f", "\u2028", "x" * 127, "x" * 128, "x" * 256, "x" * 257),
    *(
        "é" * 128,
        "é" * 129,
        "x" * 17_000,
        r"\u0041",
        r"\ud83d\ude00",
        r"\ud800",
        r"\udc00x",
        r"\n",
        r"\/",
        r"\\",
    ),
    *(r"\"", r"\x", r"\u12", "\\", "\x01", "\t", "\n", "null", "0", "buy", "true"),
)
CHANGED_TIMES = (
    *("", "2024-05-31", "2024-05-31T23:59:59", "2024-05-31T23:59:59.Z", "2024-05-31 23:59:59.000Z"),
    *("2024-02-29T00:00:00.000Z", "2023-02-29T00:00:00.000Z", "1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z"),
    *("2024-05-31T23:59:60.000Z", "2024-05-31T24:00:00.000Z", "2024-13-01T00:00:00Z", "2024-00-10T00:00:00Z"),
    *(
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999999999Z",
        "1970-01-01T00:00:00Z",
    ),
    *("1969-12-31T23:59:59.999Z", "2024-05-31T23:59:59.123+00:00", "2024-05-31T23:59:59.123+01:00"),
    *(
        "2024-05-31T23:59:59.123z",
        "2024-05-31t23:59:59.123Z",
        "\uff12\uff10\uff12\uff14-05-31T23:59:59.123Z",
        "+024-05-31T23:59:59Z",
    ),
    *(
        "2024-05-31T23:59:59.1234567890Z",
        "2024-05-31T23:59:59,123Z",
        "2024-05-31T23:59:59.123Z ",
        "-024-05-31T23:59:59Z",
    ),
)
SPACES = ("", "", "", "", " ", "\t", "\r", "\n", "  ", "\x0b", "\xa0", "\ufeff")
TAILS = (",", "}", "{}", "x", "\0", "//", " \r")


def odd_message(rnd: random.Random) -> bytes:
    """Return a message that is right, nearly right, or far from it."""
    text = _message(rnd)
    if rnd.random() < 0.05:
        text += rnd.choice(TAILS)
    content = text.encode("utf-8", "surrogatepass")
    if rnd.random() < 0.15:
        content = _damaged(content, rnd)
    return content if rnd.random() < 0.98 else rnd.randbytes(rnd.randrange(40))


def _message(rnd: random.Random) -> str:
    kind = rnd.choice(tuple(FIELDS))
    # Some messages have nothing odd, most a little, and some much.
    oddness = rnd.choice((0.0, 0.0, 0.02, 0.02, 0.1, 0.4))
    fields = [name for name in FIELDS[kind] if rnd.random() < 0.8]
    if kind == "error" and rnd.random() < 0.9:
        fields.append("details")
    members = [(name, _value(FIELDS[kind][name], name, rnd, oddness)) for name in dict.fromkeys(fields)]
    if rnd.random() >= oddness / 2:
        members = [member for member in members if member[0] != "exchange"] + [("exchange", '"binance"')]
    if rnd.random() < oddness:
        members.append(_another(rnd, oddness))
    if rnd.random() < 0.5:
        rnd.shuffle(members)
    tag = kind if rnd.random() >= oddness / 3 else rnd.choice((*FIELDS, "trades", "", r"tr\u0061de"))
    if rnd.random() >= oddness / 3:
        members.insert(0 if rnd.random() < 0.7 else rnd.randrange(len(members) + 1), ("type", f'"{tag}"'))
    return _object(members, rnd, oddness)


def _another(rnd: random.Random, oddness: float) -> tuple[str, str]:
    """Return a member that the type does not know, or that is there twice, or whose name has escapes."""
    name = rnd.choice(
        (*EVERY_FIELD, "type", "other", "", "é", r"pr\u0069ce", r"\ud800", "Price", "bid_price")
    )
    return name, _any(rnd, oddness, 3)


def _object(members: list[tuple[str, str]], rnd: random.Random, oddness: float) -> str:
    def space() -> str:
        return rnd.choice(SPACES) if rnd.random() < oddness / 4 else rnd.choice(("", "", "", " "))

    inside = ",".join(f'{space()}"{name}"{space()}:{space()}{value}{space()}' for name, value in members)
    return f"{space()}{{{inside}}}{space()}"


def _value(declared: object, name: str, rnd: random.Random, oddness: float) -> str:
    if rnd.random() < oddness / 2:
        return _any(rnd, oddness, 3)
    if rnd.random() < 0.05:
        return "null"
    if name in TIMES:
        return f'"{_time(rnd, oddness)}"'
    if name in CHOICES and rnd.random() >= oddness / 2:
        return f'"{rnd.choice(CHOICES[name])}"'
    if name in WHOLE and rnd.random() >= oddness:
        return str(rnd.choice((rnd.randrange(100), rnd.getrandbits(rnd.randrange(70)))))
    makers: dict[object, Callable[[random.Random, float], str]] = {
        Number: _number,
        Text: _text,
        Flag: lambda rnd, _: rnd.choice(("true", "false")),
        Texts: lambda rnd, oddness: _array(_text, rnd, oddness),
        Levels: lambda rnd, oddness: _array(_level, rnd, oddness),
    }
    return makers[declared](rnd, oddness)


def _any(rnd: random.Random, oddness: float, depth: int) -> str:
    way = rnd.randrange(10 if depth else 7)
    if way == 0:
        return rnd.choice(("null", "true", "false", "nul", "True", "None", "undefined", "", "'x'"))
    if way == 1 and rnd.random() < 0.3:
        deep = rnd.choice((3, 14, 15, 16, 17, 18, 300, 1100))
        return "[" * deep + "]" * deep if rnd.random() < 0.5 else '{"a":' * deep + "1" + "}" * deep
    if way < 4:
        return _number(rnd, oddness)
    if way < 7:
        return _text(rnd, oddness)
    inner = [_any(rnd, oddness, depth - 1) for _ in range(rnd.randrange(3))]
    if way == 7:
        return f"[{','.join(inner)}{rnd.choice(('', '', '', ','))}]"
    return _object([(rnd.choice(("price", "amount", "a")), value) for value in inner], rnd, oddness)


def _number(rnd: random.Random, oddness: float) -> str:
    if rnd.random() < oddness:
        return rnd.choice(NUMBERS)
    return rnd.choice(
        (str(rnd.randrange(10_000)), repr(rnd.uniform(-1, 1) * 10 ** rnd.randrange(-9, 20)), "0")
    )


def _text(rnd: random.Random, oddness: float) -> str:
    return f'"{rnd.choice(TEXTS) if rnd.random() < oddness else rnd.choice(("BTC", "ETH", "é", ""))}"'


def _time(rnd: random.Random, oddness: float) -> str:
    if rnd.random() < oddness / 2:
        return rnd.choice(CHANGED_TIMES)
    digits = rnd.choice((0, 3, 3, 6, 6, rnd.randrange(10)))
    fraction = f".{rnd.randrange(10**digits):0{digits}}" if digits else ""
    time = f"{rnd.randrange(24):02}:{rnd.randrange(60):02}:{rnd.randrange(60):02}"
    year = rnd.choice((2024, 1969, rnd.randrange(1, 10_000)))
    return f"{year:04}-{rnd.randrange(1, 13):02}-{rnd.randrange(1, 30):02}T{time}{fraction}Z"


def _array(element: Callable[[random.Random, float], str], rnd: random.Random, oddness: float) -> str:
    count = rnd.choice((0, 1, 1, 2, 3, 12, 20))
    elements = [
        _any(rnd, oddness, 1) if rnd.random() < oddness / 8 else element(rnd, oddness / 4)
        for _ in range(count)
    ]
    return f"[{','.join(elements)}]"


def _level(rnd: random.Random, oddness: float) -> str:
    names = rnd.choice(
        (("price", "amount"),) * 8 + (("price",), ("amount",), (), ("amount", "price", "price"))
    )
    if not names and rnd.random() < 0.5:
        return "null"
    members = [(name, "null" if rnd.random() < 0.03 else _number(rnd, oddness)) for name in names]
    if rnd.random() < oddness:
        members.append(_another(rnd, oddness))
    return _object(members, rnd, oddness)


def _damaged(content: bytes, rnd: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rnd.randrange(1, 4)):
        place = rnd.randrange(len(damaged) + 1)
        instead = rnd.choice((rnd.randbytes(1), b"", rnd.randbytes(2), bytes([rnd.randrange(128)])))
        damaged[place : place + 1] = instead
    return bytes(damaged)
