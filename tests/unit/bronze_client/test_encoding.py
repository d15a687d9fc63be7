"""What a producer may publish, and the bytes that come of it."""

from __future__ import annotations

import datetime as dt
import pathlib
import types
from decimal import Decimal

import pytest
from bronze_client.encoding import encode
from bronze_client.schema import NormalizedEvent, Trade
from clients import ClientUnderTest

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"


def test_envelope_bytes_stay_as_they_are(client: ClientUnderTest) -> None:
    envelope = (GOLDEN / "trade.binpb").read_bytes()
    assert client.encode(envelope) == (envelope, False)


def test_an_envelope_message_is_encoded() -> None:
    envelope = NormalizedEvent(source="a", exchange="b", trade=Trade(trade_id="c"))
    assert encode(envelope) == (b"\x0a\x01a\x12\x01b\xa2\x06\x03\x0a\x01c", False)


@pytest.mark.parametrize("length", [9, 10, 13, 32, 123])
def test_no_source_makes_an_envelope_look_like_json(client: ClientUnderTest, length: int) -> None:
    envelope = NormalizedEvent(source="{" * length, trade=Trade()).SerializeToString()
    assert client.encode(envelope) == (envelope, False)


@pytest.mark.parametrize("case", sorted(path.name for path in GOLDEN.glob("*.binpb")))
@pytest.mark.parametrize("field", ["source", "exchange", "symbol", "local_ts", "ingest_ts", "origin", "meta"])
def test_no_envelope_looks_like_json(client: ClientUnderTest, case: str, field: str) -> None:
    names = ["source", "exchange", "symbol", "local_ts", "ingest_ts", "origin", "meta"]
    envelope = NormalizedEvent.FromString((GOLDEN / case).read_bytes())
    for name in names[: names.index(field)]:
        envelope.ClearField(name)  # type: ignore[arg-type]
    assert client.encode(envelope.SerializeToString())[1] is False


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (b'{"type":"trade"}', b'{"type":"trade"}'),
        (b' \t{"a": 1} ', b' \t{"a": 1} '),
        ('{"symbol":"币安人生USDT"}', '{"symbol":"币安人生USDT"}'.encode()),
        (bytearray(b'{"a":1}'), b'{"a":1}'),
        (memoryview(b'{"a":1}'), b'{"a":1}'),
    ],
)
def test_json_text_stays_as_it_is(client: ClientUnderTest, event: bytes | str, line: bytes) -> None:
    assert client.encode(event) == (line, True)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ('{\n  "a": 1\n}\n', b'{   "a": 1 } '),
        (b'{\r\n"a":"x\\ny"}', b'{  "a":"x\\ny"}'),
        (b'\r\n{"a":1}', b'  {"a":1}'),
        ('\n{"a":1}', b' {"a":1}'),
    ],
)
def test_json_text_becomes_one_line(client: ClientUnderTest, event: bytes | str, line: bytes) -> None:
    assert client.encode(event) == (line, True)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ({"type": "trade", "price": 7996.5, "n": 1}, b'{"type":"trade","price":7996.5,"n":1}'),
        ({"symbol": "币安"}, '{"symbol":"币安"}'.encode()),
        ({"text": 'a\n"b"'}, b'{"text":"a\\n\\"b\\""}'),
        (
            {"bids": [{"price": 1.5, "amount": None}], "ok": True},
            b'{"bids":[{"price":1.5,"amount":null}],"ok":true}',
        ),
        ({}, b"{}"),
    ],
)
def test_a_mapping_becomes_compact_json(
    client: ClientUnderTest, message: dict[str, object], line: bytes
) -> None:
    assert client.encode(message) == (line, True)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("0.1000", b"0.1000"),
        ("5E-8", b"5E-8"),
        ("1E+3", b"1E+3"),
        ("-0", b"-0"),
        ("123456789012345678901234567890.000000001", b"123456789012345678901234567890.000000001"),
    ],
)
def test_a_decimal_keeps_its_digits(number: str, text: bytes) -> None:
    message = {"price": Decimal(number), "levels": [{"amount": Decimal(number)}], "name": number}
    line = b'{"price":%s,"levels":[{"amount":%s}],"name":"%s"}' % (text, text, number.encode())
    assert encode(message) == (line, True)


@pytest.mark.parametrize("event", [object(), Trade()])
def test_what_no_mapping_is_is_refused_in_python(event: object) -> None:
    with pytest.raises(TypeError, match="An event must be an envelope, bytes, a mapping or JSON text"):
        encode(event)  # type: ignore[arg-type]


def test_any_mapping_and_the_shortest_digits_will_do_in_python() -> None:
    assert encode(types.MappingProxyType({"a": 1})) == (b'{"a":1}', True)
    assert encode({"price": 5e-8}) == (b'{"price":5e-08}', True)


@pytest.mark.parametrize("event", [None, 1, 1.5, True, ["a"], [{"type": "trade"}]])
def test_what_is_no_event_is_refused(client: ClientUnderTest, event: object) -> None:
    with pytest.raises(TypeError, match=r"^An event must be an .*, not "):
        client.encode(event)  # type: ignore[arg-type]


def test_a_value_that_json_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot contain a datetime"):
        encode({"timestamp": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)})


@pytest.mark.parametrize(
    "event",
    [
        b"",
        "",
        " \n",
        b"  ",
        b" \t\r\n ",
        "\ud800",
        '{"a":"\ud800"}',
    ],
)
def test_an_event_that_cannot_be_written_is_refused(client: ClientUnderTest, event: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        client.encode(event)


@pytest.mark.parametrize("event", ["not json", "[1]", " 5", "  x", "\n[]", "\x00{"])
def test_text_that_is_no_json_object_is_refused(client: ClientUnderTest, event: object) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        client.encode(event)


@pytest.mark.parametrize(
    "message", [{"a": "\ud800"}, {"price": float("nan")}, {"price": Decimal("Infinity")}]
)
def test_a_mapping_that_cannot_be_written_is_refused_in_python(message: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(message)
