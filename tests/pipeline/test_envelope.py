"""Decoding, on frames written by hand: no Spark, no server."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bronze_client.schema import NormalizedEvent, Origin, Side
from bronze_pipeline.decoding import envelope
from bronze_pipeline.decoding import protobuf_decoder as reference
from bronze_pipeline.decoding.schema import ARRIVED, EVENTS, PAYLOADS, QUARANTINE

GOLDEN = sorted(Path(__file__).parents[1].joinpath("golden").glob("*.binpb"))


def arrived(*values: bytes | None) -> pa.RecordBatch:
    rows = [
        {"destination": "bronze.x", "bus_partition": "S", "bus_position": str(number), "value": value}
        for number, value in enumerate(values, 1)
    ]
    return pa.RecordBatch.from_pylist(rows, ARRIVED)


def trade(**fields: str) -> NormalizedEvent:
    event = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    event.trade.price_str = fields.get("price", "1")
    event.meta["event_id"] = fields.get("event_id", "s:1")
    return event


def decoded(*values: bytes | None, **options: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    events, quarantined = envelope.decode(arrived(*values), "nats", **options)
    assert events.schema == EVENTS
    assert quarantined.schema == QUARANTINE
    assert len(events) + len(quarantined) == len(values)
    return events.to_pylist(), quarantined.to_pylist()


def test_rows_hold_no_memory_of_the_envelopes_that_they_were_made_of() -> None:
    """Rows wait for their files, and count with what they have themselves."""
    newer = trade().SerializeToString()
    # A field of the envelope that is newer than this program: its number, its length, its bytes.
    newer += b"\xa2\x38" + b"\xff\x7f" + bytes(0x3FFF)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARRIVED) as stream:
        stream.write(arrived(*[newer] * 100))
    whole = sink.getvalue()
    events, _ = envelope.decode(pa.ipc.open_stream(whole).read_next_batch(), "nats")
    parts = [part for column in events.columns for part in column.buffers() if part is not None]
    assert len(events) == 100
    assert not [part for part in parts if whole.address <= part.address < whole.address + whole.size]
    assert sum(part.size for part in parts) < whole.size / 2


def test_a_trade_has_every_column() -> None:
    event = trade(price="7996.50", event_id="replay-4f:12")
    event.source, event.origin = "tardis/1", Origin.ORIGIN_REPLAY
    event.local_ts.seconds, event.local_ts.nanos = 1_561_939_199, 999_999_999
    event.trade.side = Side.SIDE_BUY
    [row], [] = decoded(event.SerializeToString())
    payload = row.pop("trade")
    assert {name: value for name, value in row.items() if name not in PAYLOADS} == {
        "date": date(2019, 6, 30),
        "payload_case": "trade",
        "event_id": "replay-4f:12",
        "stream_id": "replay-4f",
        "position": 12,
        "level": None,
        "source": "tardis/1",
        "exchange": "bitmex",
        "symbol": "XBTUSD",
        "local_ts": datetime(2019, 6, 30, 23, 59, 59, 999_999, tzinfo=UTC),
        "ingest_ts": None,
        "origin": "ORIGIN_REPLAY",
        "meta": [("event_id", "replay-4f:12")],
        "bus": "nats",
        "destination": "bronze.x",
        "bus_partition": "S",
        "bus_position": "1",
        "raw": None,
    }
    assert payload == {
        "trade_id": "",
        "price_str": "7996.50",
        "qty_str": "",
        "side": "SIDE_BUY",
        "sequence": 0,
        "event_ts": None,
    }
    assert {row[name] for name in PAYLOADS if name != "trade"} == {None}


@pytest.mark.parametrize(
    ("event_id", "parts"),
    [
        ("abc:0", ("abc", 0, None)),
        ("abc:12.3", ("abc", 12, 3)),
        ("a:b:7", ("a:b", 7, None)),
        ("abc", (None, None, None)),
        ("abc:x", (None, None, None)),
        ("live:18446744073709551615", (None, None, None)),
    ],
)
def test_the_parts_of_an_event_id(event_id: str, parts: tuple[str | None, int | None, int | None]) -> None:
    [row], [] = decoded(trade(event_id=event_id).SerializeToString())
    assert row["event_id"] == event_id
    assert (row["stream_id"], row["position"], row["level"]) == parts


def test_the_largest_unsigned_numbers_survive() -> None:
    event = NormalizedEvent(exchange="x")
    event.trade_bar.interval = 18_446_744_073_709_551_615
    event.trade_bar.interval_ms = 4_294_967_295
    [row], [] = decoded(event.SerializeToString())
    assert row["trade_bar"]["interval"] == Decimal(18_446_744_073_709_551_615)
    assert row["trade_bar"]["interval_ms"] == 4_294_967_295
    assert row["payload_case"] == "tradeBar"


def test_a_time_before_1970_has_its_day() -> None:
    event = trade()
    event.local_ts.seconds, event.local_ts.nanos = -1, 1000
    [row], [] = decoded(event.SerializeToString())
    assert row["date"] == date(1969, 12, 31)
    assert row["local_ts"] == datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)


def test_malformed_values_are_quarantined_and_the_rest_goes_on() -> None:
    good = trade().SerializeToString()
    [row], quarantined = decoded(b"\xff\xff", good, b"\x0a\x02\xff\xfe", b"", None)
    assert row["bus_position"] == "2"
    assert [(each["bus_position"], each["reason"], each["raw"]) for each in quarantined] == [
        ("1", "not an envelope: Wire format was corrupt", b"\xff\xff"),
        ("3", "not an envelope: String field had bad UTF-8", b"\x0a\x02\xff\xfe"),
        ("4", "not an envelope: neither an exchange nor a known payload", b""),
        ("5", "the record has no value", None),
    ]


def test_what_was_lost_on_the_bus_is_quarantined() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"bus_partition": "S", "bus_position": "5", "loss": "5 to 9 are gone"}], ARRIVED
    )
    events, quarantined = envelope.decode(batch, "nats")
    assert len(events) == 0
    assert quarantined.to_pylist()[0]["reason"] == "5 to 9 are gone"


def test_times_that_no_reader_can_show_are_quarantined() -> None:
    outer, inner = trade(), trade()
    outer.local_ts.seconds = 1 << 60
    inner.trade.event_ts.seconds = 253_402_300_800
    last = trade()
    last.local_ts.seconds = 253_402_300_799
    [row], quarantined = decoded(
        outer.SerializeToString(), inner.SerializeToString(), last.SerializeToString()
    )
    assert row["date"] == date(9999, 12, 31)
    assert [each["reason"] for each in quarantined] == ["a timestamp is outside the years 1 to 9999"] * 2


def test_an_exchange_that_can_name_no_folder_is_quarantined() -> None:
    longest, longer = trade(), trade()
    longest.exchange, longer.exchange = "é" * 40, "x" * 81
    [row], [refused] = decoded(longest.SerializeToString(), longer.SerializeToString())
    assert row["exchange"] == "é" * 40
    assert refused["reason"] == "the exchange is longer than 80 bytes"


def test_an_unknown_payload_is_kept_with_its_bytes() -> None:
    # Field 120, which this schema does not have.
    value = NormalizedEvent(exchange="x", symbol="Y").SerializeToString() + b"\xc2\x07\x03\x0a\x01z"
    [row], [] = decoded(value)
    assert (row["payload_case"], row["exchange"], row["raw"]) == ("unknown", "x", value)


def test_an_added_field_and_an_added_enum_value_do_no_harm() -> None:
    event = trade(price="5")
    event.trade.side = 77  # type: ignore[assignment] # newer than the schema
    # Field 50 of the envelope, which this schema does not have.
    [row], [] = decoded(event.SerializeToString() + b"\x92\x03\x02hi")
    assert row["trade"]["price_str"] == "5"
    assert row["trade"]["side"] == "77"


def test_raw_is_kept_on_request() -> None:
    value = trade().SerializeToString()
    [row], [] = decoded(value, keep_raw=True)
    assert row["raw"] == value


def test_fields_that_come_again_override_as_protobuf_says() -> None:
    first, second = trade(event_id="s:1"), NormalizedEvent()
    second.meta["event_id"] = "s:2"
    second.quote.bid_price_str = "3"
    [row], [] = decoded(first.SerializeToString() + second.SerializeToString())
    assert (row["payload_case"], row["trade"], row["event_id"]) == ("quote", None, "s:2")
    assert row["meta"] == [("event_id", "s:2")]
    assert row["quote"]["bid_price_str"] == "3"


@pytest.mark.parametrize("path", [b"\x00", b"\x02\x00"])
def test_the_framing_of_a_schema_registry_is_taken_off(path: bytes) -> None:
    value = trade(price="8").SerializeToString()
    rows, [] = decoded(b"\x00\x00\x00\x00\x2a" + path + value, value)
    assert [row["trade"]["price_str"] for row in rows] == ["8", "8"]


@pytest.mark.parametrize("name", GOLDEN, ids=lambda path: path.stem)
def test_both_decoders_agree(name: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = name.read_bytes()
    [fast], [] = decoded(value, keep_raw=True)
    monkeypatch.setattr(envelope, "_columns", lambda: reference.to_columns)
    [slow], [] = decoded(value, keep_raw=True)
    assert fast["payload_case"] == name.stem
    # The order of a map's entries means nothing.
    fast["meta"], slow["meta"] = dict(fast["meta"]), dict(slow["meta"])
    assert fast == slow


def test_the_cases_are_those_of_the_bus() -> None:
    assert list(PAYLOADS.values()) == [
        "trade",
        "bookChange",
        "bookSnapshot",
        "quote",
        "derivativeTicker",
        "liquidation",
        "optionSummary",
        "bookTicker",
        "groupedBookSnapshot",
        "tradeBar",
        "error",
        "disconnect",
    ]
