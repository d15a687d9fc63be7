"""Typed rows of each kind of record, with the expected rows by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from bronze_pipeline.silver import records
from pyspark.sql import Row, SparkSession
from silver_frames import at, bronze_frame, event, trade

pytestmark = pytest.mark.timeout(400)

COMMON = {
    "date": at(0).date(),
    "exchange": "x",
    "symbol": "A",
    "event_ts": at(1).replace(tzinfo=None),
    "local_ts": at(0.25).replace(tzinfo=None),
    "ingest_ts": at(0.5).replace(tzinfo=None),
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
            "end_ts": at(60).replace(tzinfo=None),
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
            "event_ts": at(0.25).replace(tzinfo=None),
            "details": "boom",
            "code": "ws_send",
            "subsequent_errors": 2,
        },
    ),
    (
        "disconnect",
        {"reason": "stream_disconnected", "close_code": 1006},
        {"event_ts": at(0.25).replace(tzinfo=None), "reason": "stream_disconnected", "close_code": 1006},
    ),
]

TRANSFORMS = {record.payload: record.transform for record in records.RECORDS}


@pytest.mark.parametrize(("payload", "fields", "expected"), CASES, ids=[payload for payload, *_ in CASES])
def test_typed_rows(
    spark: SparkSession, payload: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    times = {} if payload in ("error", "disconnect") else {"event_ts": at(1)}
    events = bronze_frame(spark, event(payload, "r:0", fields | times))
    (row,) = TRANSFORMS[payload](events).collect()
    assert row.asDict() == COMMON | expected | {"faults": None}


@pytest.mark.parametrize("payload", ["book_snapshot", "grouped_book_snapshot"])
def test_snapshots_keep_the_levels_that_are_there(spark: SparkSession, payload: str) -> None:
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
    events = bronze_frame(spark, event(payload, "r:0", fields, meta=[("data_name", "book_snapshot_2_100ms")]))
    (row,) = TRANSFORMS[payload](events).collect()
    assert row.asDict(recursive=True) == COMMON | {
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


def test_unusable_numbers_are_faults_and_the_row_stays(spark: SparkSession) -> None:
    events = bronze_frame(spark, trade("r:0", "1e30", "many", 1))
    (row,) = records.trades(events).collect()
    assert (row.event_id, row.price, row.price_e8, row.qty, row.side) == ("r:0", None, None, None, "buy")
    assert row.faults == [
        Row(column="price", text="1e30", reason="does not fit decimal(38,18)"),
        Row(column="qty", text="many", reason="not a number"),
    ]


def test_trades_are_the_same_if_all_that_an_exchange_says_of_them_is(spark: SparkSession) -> None:
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
    first, *keys = [row.dedupe_key for row in records.trades(bronze_frame(spark, *events)).collect()]
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


def test_the_parts_of_a_key_cannot_run_into_each_other(spark: SparkSession) -> None:
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
    keys = [row.dedupe_key for row in records.trades(bronze_frame(spark, *events)).collect()]
    assert len(set(keys)) == len(pairs)


def test_event_time_falls_back_to_local_and_ingest_time(spark: SparkSession) -> None:
    payload = {"price_str": "1", "qty_str": "1", "trade_id": "1", "side": "SIDE_BUY"}
    events = bronze_frame(
        spark, event("trade", "r:0", payload), event("trade", "r:1", payload, local_ts=None)
    )
    found = [(row.event_ts, row.date) for row in records.trades(events).collect()]
    assert found == [
        (at(0.25).replace(tzinfo=None), at(0).date()),
        (at(0.5).replace(tzinfo=None), at(0).date()),
    ]


def test_a_record_takes_only_its_own_events(spark: SparkSession) -> None:
    events = bronze_frame(spark, trade("r:0", "1", "1", 0), event("disconnect", "r:1", {"reason": "gone"}))
    assert [row.event_id for row in records.disconnects(events).collect()] == ["r:1"]


def test_the_end_of_a_stream_is_no_disconnect(spark: SparkSession) -> None:
    ended = {"reason": "stream_ended"}
    events = bronze_frame(
        spark,
        event("disconnect", "r:0", {"reason": "gone"}, meta=[("data_type", "disconnect")]),
        event("disconnect", "r~end:1", ended, meta=[("data_type", "stream_end"), ("stream_messages", "1")]),
    )
    assert [row.event_id for row in records.disconnects(events).collect()] == ["r:0"]


def test_a_snapshot_mark_of_book_changes(spark: SparkSession) -> None:
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
    rows = records.book_changes(bronze_frame(spark, *events)).collect()
    assert [(row.position, row.level, row.is_snapshot) for row in rows] == [(0, 0, True), (0, 1, False)]
