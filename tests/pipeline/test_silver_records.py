"""Typed rows of each kind of record, with the expected rows by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.silver.records import RECORDS
from silver_frames import at, event, trade

COMMON = {
    "date": at(0).date(),
    "exchange": "x",
    "symbol": "A",
    "event_ts": at(1),
    "local_ts": at(0.25),
    "ingest_ts": at(0.5),
    "dedupe_key": "r:0",
    "event_id": "r:0",
    "stream_id": "r",
    "position": 0,
    "level": None,
    "source": "tests",
    "origin": "replay",
}


def number(name: str, value: str | None, scaled: int | None, digits: int = 8) -> dict[str, Any]:
    return {name: None if value is None else Decimal(value), f"{name}_e{digits}": scaled}


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "trade",
        {"trade_id": "", "price_str": "9469.10", "qty_str": "5e-8", "side": "SIDE_SELL", "sequence": 7},
        {
            "trade_id": None,
            "side": "sell",
            "sequence": 7,
            **number("price", "9469.1", 946910000000),
            **number("qty", "5e-8", 5),
        },
    ),
    (
        "book_change",
        {
            "side": "SIDE_BUY",
            "action": "ACTION_DELETE",
            "price_str": "0.000000000001",
            "qty_str": "0",
            "level": 3,
            "sequence": 8,
        },
        {
            "is_snapshot": None,
            "side": "buy",
            "action": "delete",
            "sequence": 8,
            **number("price", "0.000000000001", None),
            **number("qty", "0", 0),
        },
    ),
    (
        "quote",
        {"bid_price_str": "1.5", "bid_qty_str": "2", "ask_price_str": "", "ask_qty_str": ""},
        {
            **number("bid_price", "1.5", 150000000),
            **number("bid_qty", "2", 200000000),
            **number("ask_price", None, None),
            **number("ask_qty", None, None),
        },
    ),
    (
        "book_ticker",
        {
            "best_bid_price_str": "1",
            "best_bid_qty_str": "2",
            "best_ask_price_str": "3",
            "best_ask_qty_str": "4",
        },
        {
            **number("best_bid_price", "1", 100000000),
            **number("best_bid_qty", "2", 200000000),
            **number("best_ask_price", "3", 300000000),
            **number("best_ask_qty", "4", 400000000),
        },
    ),
    (
        "derivative_ticker",
        {
            "mark_price_str": "1.2345678901234567e-8",
            "index_price_str": "",
            "funding_rate_str": "-0.00012345678901234567",
        },
        {
            **number("mark_price", "1.2345678901234567e-8", None),
            **number("index_price", None, None),
            **number("funding_rate", "-0.00012345678901234567", None, 9),
        },
    ),
    (
        "liquidation",
        {"side": "SIDE_UNSPECIFIED", "price_str": "5", "qty_str": "6", "order_id": "o1"},
        {"order_id": "o1", "side": None, **number("price", "5", 500000000), **number("qty", "6", 600000000)},
    ),
    (
        "option_summary",
        {
            "iv_str": "0.5",
            "delta_str": "0.1",
            "gamma_str": "1.2345678901234567e-13",
            "theta_str": "-3",
            "vega_str": "",
            "oi_str": "12",
        },
        {
            **number("iv", "0.5", 500000, 6),
            **number("delta", "0.1", 100000000, 9),
            **number("gamma", "1.2345678901234567e-13", None, 9),
            **number("theta", "-3", -3000000000, 9),
            **number("vega", None, None, 9),
            **number("oi", "12", 1200000000),
        },
    ),
    (
        "trade_bar",
        {
            "kind": "BAR_KIND_TIME",
            "interval": Decimal(18446744073709551615),
            "interval_ms": 60000,
            "open_str": "1",
            "high_str": "4",
            "low_str": "0.5",
            "close_str": "2",
            "volume_str": "100.10",
            "trade_count": Decimal(7),
            "end_ts": at(60),
        },
        {
            "kind": "time",
            "interval": Decimal(18446744073709551615),
            "interval_ms": 60000,
            "end_ts": at(60),
            "trade_count": Decimal(7),
            **number("open", "1", 100000000),
            **number("high", "4", 400000000),
            **number("low", "0.5", 50000000),
            **number("close", "2", 200000000),
            **number("volume", "100.1", 10010000000),
        },
    ),
    (
        "error",
        {"details": "boom", "subsequent_errors": 2, "code": "ERROR_CODE_WS_SEND"},
        {
            "event_ts": at(0.25),
            "details": "boom",
            "code": "ws_send",
            "subsequent_errors": 2,
        },
    ),
    (
        "disconnect",
        {"reason": "stream_disconnected", "close_code": 1006},
        {"event_ts": at(0.25), "reason": "stream_disconnected", "close_code": 1006},
    ),
]

TRANSFORMS = {record.payload: record.transform for record in RECORDS}


def typed(payload: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of events, which stand in the middle of others."""
    first, last = ({**each, "event_id": "other"} for each in (events[0], events[-1]))
    batch = pa.RecordBatch.from_pylist([first, *events, last], EVENTS)
    rows = TRANSFORMS[payload](batch.slice(1, len(events)))
    (schema,) = (record.schema() for record in RECORDS if record.payload == payload)
    assert rows.schema.names == [*schema.names, "faults"]
    assert all(rows.schema.field(name).type == schema.field(name).type for name in schema.names)
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


@pytest.mark.parametrize(("payload", "fields", "expected"), CASES, ids=[payload for payload, *_ in CASES])
def test_typed_rows(payload: str, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    times = {} if payload in ("error", "disconnect") else {"event_ts": at(1)}
    (row,) = typed(payload, event(payload, "r:0", fields | times))
    assert row == COMMON | expected | {"faults": None}


@pytest.mark.parametrize("payload", ["book_snapshot", "grouped_book_snapshot"])
def test_snapshots_keep_the_levels_that_are_there(payload: str) -> None:
    fields = {
        "depth": 2,
        "bids": [{"price_str": "2", "qty_str": "1e-9"}, {"price_str": "1", "qty_str": "x"}],
        "asks": [{"price_str": "3", "qty_str": "4"}, {"price_str": "", "qty_str": ""}],
        "event_ts": at(1),
        "grouping": 10,
        "interval_ms": 100,
        "remove_crossed_levels": True,
        "sequence": 5,
    }
    (row,) = typed(payload, event(payload, "r:0", fields, meta=[("data_name", "book_snapshot_2_100ms")]))
    assert row == COMMON | {
        "data_name": "book_snapshot_2_100ms",
        "depth": 2,
        "interval_ms": 100,
        "grouping": 10,
        "remove_crossed_levels": True,
        "sequence": 5,
        "bids": [
            number("price", "2", 200000000) | number("qty", "1e-9", None),
            number("price", "1", 100000000) | number("qty", None, None),
        ],
        "asks": [number("price", "3", 300000000) | number("qty", "4", 400000000)],
        "faults": [{"column": "bids.qty", "text": "x", "reason": "not a number"}],
    }


def test_unusable_numbers_are_faults_and_the_row_stays() -> None:
    good, row = typed("trade", trade("r:0", "1", "", 1), trade("r:1", "1e30", "many", 1))
    assert (good["price"], good["qty"], good["faults"]) == (1, None, None)
    values = [row[name] for name in ("event_id", "price", "price_e8", "qty", "side")]
    assert values == ["r:1", None, None, None, "buy"]
    assert row["faults"] == [
        {"column": "price", "text": "1e30", "reason": "does not fit decimal(38,18)"},
        {"column": "qty", "text": "many", "reason": "not a number"},
    ]


def test_faults_of_a_snapshot_are_in_the_order_of_its_levels() -> None:
    def side(*levels: tuple[str | None, str | None]) -> list[dict[str, str | None]]:
        return [{"price_str": price, "qty_str": qty} for price, qty in levels]

    books: list[dict[str, Any]] = [
        {"bids": None, "asks": []},
        {"bids": side(("1", "2"), ("", ""), (None, None), ("x", "y")), "asks": side(("z", ""))},
        {"bids": side(("", "3")), "asks": side(("4", ""))},
    ]
    events = [event("book_snapshot", f"r:{place}", book) for place, book in enumerate(books)]
    none, faulty, half = typed("book_snapshot", *events)
    assert (none["bids"], none["asks"], none["faults"]) == (None, [], None)
    assert [level["price"] for level in faulty["bids"]] == [1, None]
    assert [each["column"] for each in faulty["faults"]] == ["bids.price", "bids.qty", "asks.price"]
    assert [each["text"] for each in faulty["faults"]] == ["x", "y", "z"]
    assert [(level["price"], level["qty"]) for level in half["bids"] + half["asks"]] == [(None, 3), (4, None)]
    assert half["faults"] is None


def test_trades_are_the_same_if_all_that_an_exchange_says_of_them_is() -> None:
    same: dict[str, Any] = {"event_id": "r:0", "price": "1", "qty": "2.50", "seconds": 0, "trade_id": "77"}
    others: list[dict[str, Any]] = [
        {"event_id": "s:5", "qty": "2.5"},
        {"price": "1.1"},
        {"qty": "many"},
        {"seconds": 600},
        {"side": "SELL"},
        {"trade_id": "78"},
        {"event_id": "s:7", "trade_id": ""},
        {"event_id": None, "trade_id": ""},
    ]
    events = [trade(**(same | each)) for each in [{}, *others]]
    first, *keys = [row["dedupe_key"] for row in typed("trade", *events)]
    micros = 1704110400000000
    assert first == f'["x","A","77","buy","1","2.5","{micros}"]'
    assert keys == [
        first,
        f'["x","A","77","buy","1.1","2.5","{micros}"]',
        f'["x","A","77","buy","1","many","{micros}"]',
        f'["x","A","77","buy","1","2.5","{micros + 600_000_000}"]',
        f'["x","A","77","sell","1","2.5","{micros}"]',
        f'["x","A","78","buy","1","2.5","{micros}"]',
        "s:7",
        None,
    ]


def test_the_parts_of_a_key_cannot_run_into_each_other() -> None:
    pairs = [
        ("A|B", "x"),
        ("A", "B|x"),
        ('A","B', "x"),
        ("A", 'B","x'),
        (None, "x"),
        ("null", "x"),
        ("", "x"),
    ]
    events = [
        {**trade("r:0", "1", "1", 0, trade_id=trade_id), "symbol": symbol} for symbol, trade_id in pairs
    ]
    keys = [row["dedupe_key"] for row in typed("trade", *events)]
    assert len(set(keys)) == len(pairs)


def test_event_time_falls_back_to_local_and_ingest_time() -> None:
    payload = {"price_str": "1", "qty_str": "1", "trade_id": "1", "side": "SIDE_BUY"}
    # Before 1970, too.
    long_ago = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    rows = typed(
        "trade",
        event("trade", "r:0", payload),
        event("trade", "r:1", payload, local_ts=None),
        event("trade", "r:2", payload | {"event_ts": long_ago}),
    )
    assert [(row["event_ts"], row["date"]) for row in rows] == [
        (at(0.25), at(0).date()),
        (at(0.5), at(0).date()),
        (long_ago, date(1969, 12, 31)),
    ]


def test_the_end_of_a_stream_is_no_disconnect() -> None:
    ended = {"reason": "stream_ended"}
    rows = typed(
        "disconnect",
        event("disconnect", "r:0", {"reason": "gone"}, meta=[("data_type", "disconnect")]),
        event("disconnect", "r~end:1", ended, meta=[("data_type", "stream_end"), ("stream_messages", "1")]),
    )
    assert [row["event_id"] for row in rows] == ["r:0"]


def test_a_snapshot_mark_of_book_changes() -> None:
    fields = {
        "side": "SIDE_BUY",
        "action": "ACTION_UPSERT",
        "price_str": "1",
        "qty_str": "1",
        "event_ts": at(1),
    }
    events = [
        event("book_change", f"r:0.{level}", fields, meta=[("is_snapshot", text)])
        for level, text in enumerate(["true", "false"])
    ]
    rows = typed("book_change", *events)
    assert [(row["position"], row["level"], row["is_snapshot"]) for row in rows] == [
        (0, 0, True),
        (0, 1, False),
    ]
