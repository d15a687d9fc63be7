"""The mapping, against expectations written by hand: `tests/fixtures/normalized` has one file per type."""

from pathlib import Path

import pytest
import yaml
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.envelope import wire
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping import timestamps
from bronze_sidecar.mapping.mapper import FrameCache, Mapper, StreamContext
from google.protobuf import json_format

FIXTURES = Path(__file__).parents[2] / "fixtures" / "normalized"
CASES = {
    f"{path.stem}: {case['case']}": case
    for path in sorted(FIXTURES.glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8"))
}
TYPES = {
    "trade",
    "book_change",
    "book_snapshot",
    "grouped_book_snapshot",
    "quote",
    "book_ticker",
    "derivative_ticker",
    "liquidation",
    "option_summary",
    "trade_bar",
    "error",
    "disconnect",
}

POSITION = 7
INGEST_FIELD = wire.timestamp_field(5, 1_700_000_000, 1)
INGEST_TS = "2023-11-14T22:13:20.000000001Z"


def map_text(message, **context):
    mapper = Mapper(StreamContext(**{"stream_id": "s"} | context))
    return mapper.events(message.encode(), POSITION, INGEST_FIELD)


def map_one(message, **context):
    (event,) = map_text(message, **context)
    return event, NormalizedEvent.FromString(event.envelope)


def rejection(message):
    with pytest.raises(Rejected) as caught:
        Mapper(StreamContext("s")).events(
            message if isinstance(message, bytes) else message.encode(), POSITION, INGEST_FIELD
        )
    return caught.value.message_type, caught.value.field, caught.value.reason


def test_every_type_has_cases():
    assert {name.partition(":")[0] for name in CASES} == TYPES


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_envelopes(case):
    events = map_text(case["message"], **case.get("context", {}))
    expected = [
        json_format.ParseDict(one | {"ingestTs": INGEST_TS}, NormalizedEvent()) for one in case["expected"]
    ]
    assert [NormalizedEvent.FromString(event.envelope) for event in events] == expected


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_envelopes_have_no_byte_that_protobuf_would_not_write(case):
    for event in map_text(case["message"], **case.get("context", {})):
        decoded = NormalizedEvent.FromString(event.envelope)
        encoded = decoded.SerializeToString(deterministic=True)
        assert NormalizedEvent.FromString(encoded) == decoded
        assert len(encoded) == len(event.envelope)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_routing_facts_are_those_of_the_envelope(case):
    for event in map_text(case["message"], **case.get("context", {})):
        decoded = NormalizedEvent.FromString(event.envelope)
        assert json_format.MessageToDict(decoded).keys() >= {event.payload_case}
        assert event.id == decoded.meta["event_id"]
        assert (event.exchange, event.symbol) == (decoded.exchange, decoded.symbol)
        assert (event.source, event.data_type) == (decoded.source, decoded.meta["data_type"])
        assert event.origin == {0: "unspecified", 2: "replay"}[decoded.origin]
        assert event.meta | {"event_id": event.id} == dict(decoded.meta)


def test_the_bytes_of_an_envelope():
    message = (
        '{"type":"trade","exchange":"x","symbol":"A","name":"n","isSnapshot":true,"symbols":["B"],"price":1,'
        '"side":"buy","timestamp":"1970-01-01T00:00:01.000Z","localTimestamp":"1970-01-01T00:00:02.000Z"}'
    )
    context = {"source": "p", "origin": 1, "request_id": "r", "session_id": "t", "meta": {"b": "1", "a": "2"}}
    event, _ = map_one(message, **context)
    assert event.envelope == b"".join(
        (
            b"\x0a\x01p\x12\x01x\x1a\x01A",
            b"\x22\x02\x08\x02",
            INGEST_FIELD,
            b"\x30\x01",
            b"\x52\x12\x0a\x09data_type\x12\x05trade",
            b"\x52\x0e\x0a\x09data_name\x12\x01n",
            b"\x52\x13\x0a\x0bis_snapshot\x12\x04true",
            b"\x52\x0c\x0a\x07symbols\x12\x01B",
            b"\x52\x0f\x0a\x0arequest_id\x12\x01r",
            b"\x52\x0f\x0a\x0asession_id\x12\x01t",
            b"\x52\x06\x0a\x01b\x12\x011",
            b"\x52\x06\x0a\x01a\x12\x012",
            b"\x52\x0f\x0a\x08event_id\x12\x03s:7",
            b"\xa2\x06\x09",
            b"\x12\x011",
            b"\x20\x01",
            b"\x52\x02\x08\x01",
        )
    )


def test_exact_texts_stand_before_the_entries_of_the_context():
    message = '{"type":"book_snapshot","exchange":"x","name":"n","grouping":0.5,"interval":0.1,"depth":1.5}'
    event, _ = map_one(message, request_id="r", meta={"a": "1"})
    assert list(event.meta) == ["data_type", "data_name", "depth", "interval", "grouping", "request_id", "a"]


def test_levels_share_their_meta():
    events = map_text('{"type":"book_change","exchange":"x","bids":[{},{}]}')
    assert events[0].meta is events[1].meta


def test_messages_alike_but_for_one_fact_are_told_apart():
    mapper = Mapper(StreamContext("s"))
    messages = [
        '{"type":"trade","exchange":"x"}',
        '{"type":"quote","exchange":"x"}',
        '{"type":"trade","exchange":"y"}',
        '{"type":"trade","exchange":"x","symbol":"A"}',
        '{"type":"trade","exchange":"x","name":"A"}',
        '{"type":"trade","exchange":"x","isSnapshot":true}',
        '{"type":"trade","exchange":"x","isSnapshot":false}',
        '{"type":"trade","exchange":"x","symbols":["A"]}',
        '{"type":"book_snapshot","exchange":"x"}',
        '{"type":"book_snapshot","exchange":"x","depth":0.5}',
        '{"type":"book_snapshot","exchange":"x","depth":0.6}',
        '{"type":"book_snapshot","exchange":"x","interval":0.5}',
    ]
    for _ in range(2):
        facts = [
            (event.exchange, event.symbol, dict(event.meta))
            for message in messages
            for event in mapper.events(message.encode(), 0, b"")
        ]
        assert facts == [
            ("x", "", {"data_type": "trade"}),
            ("x", "", {"data_type": "quote"}),
            ("y", "", {"data_type": "trade"}),
            ("x", "A", {"data_type": "trade"}),
            ("x", "", {"data_type": "trade", "data_name": "A"}),
            ("x", "", {"data_type": "trade", "is_snapshot": "true"}),
            ("x", "", {"data_type": "trade", "is_snapshot": "false"}),
            ("x", "", {"data_type": "trade", "symbols": "A"}),
            ("x", "", {"data_type": "book_snapshot"}),
            ("x", "", {"data_type": "book_snapshot", "depth": "0.5"}),
            ("x", "", {"data_type": "book_snapshot", "depth": "0.6"}),
            ("x", "", {"data_type": "book_snapshot", "interval": "0.5"}),
        ]


def test_what_all_mappers_remember_is_bounded_in_bytes():
    cache = FrameCache(100_000)
    first, second = (Mapper(StreamContext("s", meta={"k": "v" * 4000}), cache) for _ in range(2))
    for number in range(100):
        message = f'{{"type":"trade","exchange":"x","symbol":"{number}"}}'.encode()
        assert first.events(message, number, b"")[0].symbol == str(number)
        assert second.events(message, number, b"")[0].symbol == str(number)
        assert cache.bytes <= 100_000
    assert len(first._frames) + len(second._frames) > 5
    first.close()
    second.close()
    assert cache.bytes == 0
    assert first.events(b'{"type":"trade","exchange":"x"}', 0, b"")
    assert cache.bytes == 0


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 100])
def test_a_message_in_steps_becomes_the_same_events(at_once):
    levels = ",".join(f'{{"price":{number},"amount":{number % 3}}}' for number in range(12))
    message = f'{{"type":"book_change","exchange":"x","bids":[{levels}],"asks":[{levels}]}}'.encode()
    mapper = Mapper(StreamContext("s"), most_events=at_once)
    first, others = mapper.first_events(message, 5, b"")
    parts = [first, *others]
    assert [len(part) for part in parts[:-1]] == [at_once] * (len(parts) - 1)
    assert [event for part in parts for event in part] == mapper.events(message, 5, b"")


def test_a_wrong_level_refuses_a_message_in_steps_as_a_whole():
    levels = ",".join('{"price":1,"amount":1}' for _ in range(10))
    message = f'{{"type":"book_change","exchange":"x","bids":[{levels},{{"price":"1"}}]}}'.encode()
    with pytest.raises(Rejected, match="must be a number, not text"):
        Mapper(StreamContext("s"), most_events=2).first_events(message, 0, b"")


def test_seconds_that_are_remembered_are_bounded():
    for number in range(5000):
        text = f"2020-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
        _, decoded = map_one(f'{{"type":"trade","exchange":"x","timestamp":"{text}"}}')
        assert decoded.trade.event_ts.seconds == 1_577_836_800 + number
    assert len(timestamps._seconds) <= 4096


def test_levels_are_numbered_over_both_sides():
    levels = ",".join(['{"price":1,"amount":2}'] * 600)
    events = map_text(f'{{"type":"book_change","exchange":"x","bids":[{levels}],"asks":[{levels}]}}')
    assert [event.id for event in events] == [f"s:7.{number}" for number in range(1200)]
    decoded = [NormalizedEvent.FromString(event.envelope) for event in events]
    assert [event.meta["event_id"] for event in decoded] == [f"s:7.{number}" for number in range(1200)]
    assert [event.book_change.side for event in decoded] == [1] * 600 + [2] * 600


def test_the_longest_ids():
    events = Mapper(StreamContext("s" * 64)).events(
        b'{"type":"book_change","exchange":"x","bids":[' + b"{}," * 10_000 + b"{}]}", 2**64 - 1, b""
    )
    assert events[-1].id == "s" * 64 + ":18446744073709551615.10000"
    assert NormalizedEvent.FromString(events[-1].envelope).meta["event_id"] == events[-1].id


@pytest.mark.parametrize("length", [39, 79, 80, 127, 128, 100_000])
def test_numbers_of_any_length(length):
    digits = "1" * length
    level = f'{{"price":{digits},"amount":{digits}}}'
    (event,) = map_text(f'{{"type":"book_change","exchange":"x","bids":[{level}]}}')
    change = NormalizedEvent.FromString(event.envelope).book_change
    assert (change.price_str, change.qty_str, change.action) == (digits, digits, 1)
    _, decoded = map_one(f'{{"type":"book_snapshot","exchange":"x","asks":[{level}],"depth":{digits}}}')
    assert [(one.price_str, one.qty_str) for one in decoded.book_snapshot.asks] == [(digits, digits)]
    assert decoded.book_snapshot.depth == 4294967295
    assert decoded.meta["depth"] == digits


def test_a_zero_of_any_length_deletes():
    (event,) = map_text(
        f'{{"type":"book_change","exchange":"x","bids":[{{"price":1,"amount":0.{"0" * 200}}}]}}'
    )
    assert NormalizedEvent.FromString(event.envelope).book_change.action == 2


@pytest.mark.parametrize(
    ("text", "stored", "exact"),
    [
        ("0", 0, True),
        ("-0", 0, True),
        ("-0.0e9", 0, True),
        ("0e99999999999999999999999", 0, True),
        ("1000.0", 1000, True),
        ("1e3", 1000, True),
        ("0.001e6", 1000, True),
        ("123456e-3", 123, False),
        ("123000e-3", 123, True),
        ("1e0003", 1000, True),
        ("-1e-9", -1, False),
        ("-7", -7, True),
        ("-7.0", -7, True),
        ("-7.01", -8, False),
        ("9223372036854775807", 2**63 - 1, True),
        ("9223372036854775807.5", 2**63 - 1, False),
        ("9223372036854775808", 2**63 - 1, False),
        ("-9223372036854775808", -(2**63), True),
        ("-9223372036854775808.5", -(2**63), False),
        ("99999999999999999999", 2**63 - 1, False),
        ("1e20", 2**63 - 1, False),
        ("-1e999999999", -(2**63), False),
        ("1e-999999999", 0, False),
        pytest.param("0." + "0" * 100_000 + "25e100002", 25, True, id="many zeros made up for"),
        pytest.param("5" + "0" * 100_000 + "e-100000", 5, True, id="many zeros taken away"),
    ],
)
def test_integers(text, stored, exact):
    _, decoded = map_one(f'{{"type":"book_snapshot","exchange":"x","sequence":{text}}}')
    assert decoded.book_snapshot.sequence == stored
    assert decoded.meta.get("sequence") == (None if exact else text)


@pytest.mark.parametrize(
    ("text", "seconds", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0, 0),
        ("1970-01-01T00:00:00.000Z", 0, 0),
        ("1970-01-01T00:00:00.000001Z", 0, 1_000),
        ("1970-01-01T00:00:01.5Z", 1, 500_000_000),
        ("2001-09-09T01:46:40.123Z", 1_000_000_000, 123_000_000),
        ("2001-09-09T01:46:40.123456Z", 1_000_000_000, 123_456_000),
        ("2001-09-09T01:46:40.123456789Z", 1_000_000_000, 123_456_789),
        ("2001-09-09T01:46:40.1234567Z", 1_000_000_000, 123_456_700),
        ("2001-09-09T01:46:40.12Z", 1_000_000_000, 120_000_000),
        ("2001-09-09T01:46:40+00:00", 1_000_000_000, 0),
        ("2001-09-09T01:46:40.000250+00:00", 1_000_000_000, 250_000),
        ("1969-12-31T23:59:59.999999Z", -1, 999_999_000),
        ("1969-12-31T23:59:59Z", -1, 0),
        ("0001-01-01T00:00:00.000Z", -62_135_596_800, 0),
        ("9999-12-31T23:59:59.999999999Z", 253_402_300_799, 999_999_999),
        ("2024-02-29T00:00:00.000Z", 1_709_164_800, 0),
    ],
)
def test_times(text, seconds, nanos):
    _, decoded = map_one(f'{{"type":"trade","exchange":"x","timestamp":"{text}","localTimestamp":"{text}"}}')
    for time in (decoded.local_ts, decoded.trade.event_ts):
        assert (time.seconds, time.nanos) == (seconds, nanos)


def test_the_epoch_is_a_time_and_not_an_absence():
    _, decoded = map_one('{"type":"trade","exchange":"x","timestamp":"1970-01-01T00:00:00Z"}')
    assert decoded.trade.HasField("event_ts")
    assert not decoded.HasField("local_ts")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2020-01-01",
        "2020-01-01T00:00:00",
        "2020-01-01T00:00:00.Z",
        "2020-01-01T00:00:00.1234567890Z",
        "2020-01-01T00:00:00.12 Z",
        "2020-01-01T00:00:00.+12Z",
        "2020-01-01T00:00:00.1_0Z",
        "2020-01-01T00:00:00.123z",
        "2020-01-01t00:00:00.123Z",
        "2020-01-01 00:00:00.123Z",
        "2020-01-01T00:00:00.123",
        "2020-01-01T00:00:00,123Z",
        "2020-01-01T00:00:00.123+01:00",
        "2020-01-01T00:00:00.123-00:00",
        "2020-01-01T00:00:00.123+0000",
        " 2020-01-01T00:00:00.123Z",
        "2020-01-01T00:00:00.123Z ",
        "2020-01-01T00:00:00.123ZZ",
        "2020-01-01T00:00.123Z",
        "20200101T000000.123Z",
        "02020-01-01T00:00:00.123Z",
        "+2020-01-01T00:00:0.123Z",
        "\uff12\uff10\uff12\uff10-01-01T00:00:00.123Z",
        "2020-01-01T00:00:00.\uff11\uff12\uff13Z",
        "1577836800000",
    ],
)
def test_what_is_no_time(text):
    wrong = "must be a UTC time such as 2024-05-31T23:59:59.123456Z"
    message = f'{{"type":"trade","exchange":"x","timestamp":"{text}"}}'
    assert rejection(message) == ("trade", "timestamp", wrong)


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00.000Z",
        "2023-02-29T00:00:00.000Z",
        "2020-02-30T00:00:00Z",
        "2020-04-31T00:00:00.000Z",
        "2020-00-01T00:00:00.000Z",
        "2020-13-01T00:00:00.000Z",
        "2020-01-00T00:00:00.000Z",
        "2020-01-01T24:00:00.000Z",
        "2020-01-01T23:60:00.000Z",
        "2016-12-31T23:59:60.000Z",
    ],
)
def test_times_that_never_were(text):
    message = f'{{"type":"trade","exchange":"x","localTimestamp":"{text}"}}'
    assert rejection(message) == ("trade", "localTimestamp", "must be a date and time of day that exist")


@pytest.mark.parametrize("name", ["openTimestamp", "closeTimestamp", "timestamp"])
def test_each_time_of_a_bar_is_checked(name):
    assert rejection(f'{{"type":"trade_bar","exchange":"x","{name}":"?"}}')[:2] == ("trade_bar", name)


NUMBERS = {
    "trade": ["price", "amount"],
    "liquidation": ["price", "amount"],
    "book_snapshot": ["depth", "interval", "grouping", "sequence"],
    "grouped_book_snapshot": ["depth", "interval", "grouping", "sequence"],
    "quote": ["bidPrice", "bidAmount", "askPrice", "askAmount"],
    "book_ticker": ["bidPrice", "bidAmount", "askPrice", "askAmount"],
    "derivative_ticker": ["markPrice", "indexPrice", "fundingRate"],
    "option_summary": [
        *("markIV", "bestBidIV", "bestAskIV"),
        *("delta", "gamma", "theta", "vega", "openInterest"),
    ],
    "trade_bar": ["interval", "open", "high", "low", "close", "volume", "trades"],
    "error": ["subSequentErrorsCount", "subsequentErrors"],
}


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in NUMBERS for field in NUMBERS[kind]])
@pytest.mark.parametrize(
    ("value", "found"),
    [('"1"', "text"), ("true", "true or false"), ("[1]", "an array"), ('{"a":1}', "an object")],
)
def test_what_must_be_a_number(kind, field, value, found):
    message = f'{{"type":"{kind}","exchange":"x","details":"d","{field}":{value}}}'
    assert rejection(message) == (kind, field, f"must be a number, not {found}")


TEXTS = {kind: ["exchange", "symbol", "name", "localTimestamp"] for kind in sorted(TYPES)}
TEXTS["trade"] += ["id", "side", "timestamp"]
TEXTS["liquidation"] += ["id", "side", "timestamp"]
TEXTS["trade_bar"] += ["kind", "openTimestamp", "closeTimestamp", "timestamp"]
TEXTS["error"] += ["details", "code"]


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind in TEXTS for field in TEXTS[kind]])
@pytest.mark.parametrize(("value", "found"), [("5", "a number"), ("false", "true or false")])
def test_what_must_be_text(kind, field, value, found):
    required = {"exchange": '"x"', "details": '"d"'} | {field: value}
    fields = ",".join(f'"{name}":{text}' for name, text in required.items())
    assert rejection(f'{{"type":"{kind}",{fields}}}') == (kind, field, f"must be text, not {found}")


@pytest.mark.parametrize(
    ("message", "field", "reason"),
    [
        ('"isSnapshot":"true"', "isSnapshot", "must be true or false, not text"),
        ('"symbols":"A"', "symbols", "must be an array, not text"),
        ('"symbols":["A",5]', "symbols[1]", "must be text, not a number"),
        ('"bids":{}', "bids", "must be an array, not an object"),
        ('"asks":5', "asks", "must be an array, not a number"),
        ('"bids":[{},[1,2]]', "bids[1]", "must be an object, not an array"),
        ('"asks":[{},{},{},{"price":"1","amount":1}]', "asks[3].price", "must be a number, not text"),
        ('"bids":[{"price":1,"amount":false}]', "bids[0].amount", "must be a number, not true or false"),
    ],
)
@pytest.mark.parametrize("kind", ["book_change", "book_snapshot", "grouped_book_snapshot"])
def test_other_wrong_types(kind, message, field, reason):
    assert rejection(f'{{"type":"{kind}","exchange":"x",{message}}}') == (kind, field, reason)


def test_a_flag_of_a_snapshot_must_be_one():
    message = '{"type":"book_snapshot","exchange":"x","removeCrossedLevels":1}'
    reason = "must be true or false, not a number"
    assert rejection(message) == ("book_snapshot", "removeCrossedLevels", reason)


@pytest.mark.parametrize(
    ("kind", "field", "value", "reason"),
    [
        ("trade", "side", "BUY", "must be one of buy, sell, unknown; not 'BUY'"),
        ("trade", "side", "", "must be one of buy, sell, unknown; not ''"),
        ("liquidation", "side", "long", "must be one of buy, sell, unknown; not 'long'"),
        ("trade_bar", "kind", "hour", "must be one of tick, time, volume; not 'hour'"),
        (
            *("error", "code", "other"),
            "must be one of ws_connect, ws_send, source_auth, source_rate_limit; not 'other'",
        ),
        ("trade", "side", "x" * 1000, f"must be one of buy, sell, unknown; not '{'x' * 59}..."),
    ],
)
def test_values_that_are_not_allowed(kind, field, value, reason):
    message = f'{{"type":"{kind}","exchange":"x","details":"d","{field}":"{value}"}}'
    assert rejection(message) == (kind, field, reason)


@pytest.mark.parametrize("details", ["", ',"details":null'])
def test_an_error_needs_details(details):
    assert rejection(f'{{"type":"error","exchange":"x"{details}}}') == ("error", "details", "is missing")


def test_a_count_is_checked_even_if_the_other_is_used():
    message = '{"type":"error","exchange":"x","details":"d","subSequentErrorsCount":1,"subsequentErrors":"2"}'
    assert rejection(message) == ("error", "subsequentErrors", "must be a number, not text")


@pytest.mark.parametrize("exchange", ["", ',"exchange":null', ',"exchange":""'])
def test_an_exchange_is_needed(exchange):
    assert rejection(f'{{"type":"trade"{exchange}}}') == ("trade", "exchange", "is missing or empty")


@pytest.mark.parametrize("kind", ["", '"type":null,', '"type":"",'])
def test_a_type_is_needed(kind):
    assert rejection(f'{{{kind}"exchange":"x"}}') == ("", "type", "is missing or empty")


def test_a_type_must_be_text():
    assert rejection('{"type":5,"exchange":"x"}') == ("", "type", "must be text, not a number")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Trade", "there is no type 'Trade'; did you mean 'trade'?"),
        ("bookchange", "there is no type 'bookchange'; did you mean 'book_change'?"),
        ("liquidations", "there is no type 'liquidations'; did you mean 'liquidation'?"),
    ],
)
def test_an_unknown_type_like_a_known_one(kind, reason):
    assert rejection(f'{{"type":"{kind}","exchange":"x"}}') == (kind, "type", reason)


def test_an_unknown_type_like_no_other():
    kind, field, reason = rejection('{"type":"%%%","exchange":"x"}')
    assert (kind, field) == ("%%%", "type")
    assert reason.startswith("there is no type '%%%'; the types are trade, book_change, ")


def test_an_unknown_type_of_great_length_is_shortened():
    kind, _, reason = rejection(f'{{"type":"{"t" * 100_000}","exchange":"x"}}')
    assert len(kind) == 60
    assert len(reason) < 400


@pytest.mark.parametrize(
    "text", ["01", "1.", "-", "+1", ".5", "NaN", "Infinity", "-Infinity", "1e", "0x1", "1_0"]
)
@pytest.mark.parametrize("field", ["price", "not_read"])
def test_what_json_has_no_numbers_for(text, field):
    kind, name, reason = rejection(f'{{"type":"trade","exchange":"x","{field}":{text}}}')
    assert (kind, name) == ("", "")
    assert reason.startswith("the message is not valid JSON: ")


@pytest.mark.parametrize(
    "message",
    [
        "",
        " ",
        "{",
        "{}x",
        "trade",
        '{"type":"trade","exchange":"x"}{"type":"trade","exchange":"x"}',
        '{"type":"trade","exchange":"x",}',
        "{'type':'trade'}",
        '\ufeff{"type":"trade","exchange":"x"}',
        '{"type":"trade","exchange":"\\ud800"}',
        '{"type":"trade","exchange":"\\udc00 and more text"}',
        '{"type":"trade","exchange":"x","symbol":"\\ud800\\u0041"}',
        '{"type":"trade","exchange":"line\nbreak"}',
    ],
)
def test_what_is_no_json(message):
    kind, field, reason = rejection(message)
    assert (kind, field) == ("", "")
    assert reason.startswith("the message is not valid JSON: ")


@pytest.mark.parametrize(
    "message", ["[]", "null", "5", '"trade"', "true", '[{"type":"trade","exchange":"x"}]']
)
def test_what_is_no_object(message):
    assert rejection(message) == ("", "", "the message must be a JSON object")


@pytest.mark.parametrize(
    "message",
    [
        b'{"type":"trade","exchange":"\xff"}',
        b'{"type":"trade","exchange":"x","not_read":"\xff"}',
        b'{"type":"trade","exchange":"x","\xff":1}',
        b'{"type":"trade","exchange":"x","symbol":"\xed\xa0\x80"}',
        b'{"type":"trade","exchange":"x","symbol":"\xc0\x80"}',
    ],
)
def test_what_is_no_utf8(message):
    kind, field, reason = rejection(message)
    assert (kind, field) == ("", "")
    assert reason.startswith("the message is not valid UTF-8: ")


@pytest.mark.parametrize(
    "start",
    ['{"type":"trade","exchange":"x","price":', '{"type":"trade","exchange":"x","not_read":', '{"bids":', ""],
)
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_without_end(start, opening):
    assert rejection(start + opening * 100_000)[2] in {
        "the message is nested too deeply",
        "the message must be a JSON object",
    }


@pytest.mark.parametrize("field", ["price", "not_read", "symbols", "exchange", "bids"])
def test_nesting_around_the_limit(field):
    for depth in range(1, 1100):
        message = f'{{"type":"book_change","exchange":"x","{field}":{"[" * depth}{"]" * depth}}}'
        try:
            map_text(message)
        except Rejected:
            continue


def test_a_field_that_comes_twice_is_checked_twice():
    message = '{"type":"trade","exchange":"x","symbol":5,"symbol":"A"}'
    kind, _, reason = rejection(message)
    assert kind == "trade"
    assert reason.startswith("the message cannot be read: ")


def test_of_fields_that_come_twice_the_last_counts():
    assert map_one('{"type":"trade","exchange":"x","symbol":"A","symbol":"B"}')[0].symbol == "B"


def test_a_rejection_says_where_and_why():
    with pytest.raises(Rejected) as caught:
        map_text('{"type":"trade","exchange":"x","price":"5"}')
    assert str(caught.value) == "trade: field 'price': must be a number, not text"


@pytest.mark.parametrize("stream_id", ["", "a" * 65, "a b", "a:b", "é", "a\n", "a/b"])
def test_streams_that_are_not_allowed(stream_id):
    with pytest.raises(Rejected, match="field 'stream_id': must have 1 to 64 characters"):
        StreamContext(stream_id)


@pytest.mark.parametrize("origin", [-1, 4, 99])
def test_origins_that_are_not_allowed(origin):
    with pytest.raises(Rejected, match="field 'origin': must be a number from 0 to 3"):
        StreamContext("s", origin=origin)


@pytest.mark.parametrize(
    ("origin", "name"), [(0, "unspecified"), (1, "realtime"), (2, "replay"), (3, "archive")]
)
def test_origins(origin, name):
    event, decoded = map_one('{"type":"trade","exchange":"x"}', origin=origin)
    assert (event.origin, decoded.origin) == (name, origin)


@pytest.mark.parametrize(
    "key",
    [
        *("data_type", "data_name", "is_snapshot", "symbols", "event_id", "request_id", "session_id"),
        *("depth", "interval", "grouping", "sequence", "trades", "subSequentErrorsCount", "subsequentErrors"),
    ],
)
def test_meta_that_the_mapping_writes_itself(key):
    with pytest.raises(Rejected, match=f"field 'meta': must not have the key '{key}'"):
        StreamContext("s", meta={key: "1"})


def test_meta_with_an_empty_key():
    with pytest.raises(Rejected, match="field 'meta': must not have an empty key"):
        StreamContext("s", meta={"": "1"})


@pytest.mark.parametrize(
    ("field", "context"),
    [
        ("source", {"source": "\ud800"}),
        ("request_id", {"request_id": "\udfff"}),
        ("session_id", {"session_id": "a\ud800"}),
        ("meta", {"meta": {"\ud800": "a"}}),
        ("meta", {"meta": {"a": "\ud800"}}),
    ],
)
def test_context_that_utf8_cannot_encode(field, context):
    with pytest.raises(Rejected, match=f"field '{field}': must be text that UTF-8 can encode"):
        StreamContext("s", **context)
