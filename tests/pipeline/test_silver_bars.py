"""Bars of trades, with the expected bars by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from bronze_pipeline.silver.bars import bars, quotient
from pyspark.sql import DataFrame, SparkSession
from silver_frames import at

pytestmark = pytest.mark.timeout(400)

SCHEMA = (
    "exchange string, symbol string, event_ts timestamp, stream_id string, position long, side string,"
    " price decimal(38,18), qty decimal(38,18)"
)


def frame(
    spark: SparkSession, *rows: tuple[float, int, str | None, str | None, str | None], symbol: str = "A"
) -> DataFrame:
    """Make trades of seconds, position, side, price and quantity."""
    made = [
        ("x", symbol, at(seconds), "r", position, side, price and Decimal(price), qty and Decimal(qty))
        for seconds, position, side, price, qty in rows
    ]
    return spark.createDataFrame(made, SCHEMA)


def found(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("symbol", "open_ts").select(*names).collect()]


def test_a_bar_in_full(spark: SparkSession) -> None:
    trades = frame(
        spark,
        (59.999999, 4, "sell", "99.5", "0.25"),
        (0, 1, "buy", "100", "1"),
        (30, 3, None, "98", "0.5"),
        (10, 2, "buy", "101.25", "2"),
    )
    (row,) = bars(trades, "1 minutes").collect()
    assert row.asDict() == {
        "date": at(0).date(),
        "exchange": "x",
        "symbol": "A",
        "open_ts": at(0).replace(tzinfo=None),
        "close_ts": at(60).replace(tzinfo=None),
        "open": Decimal(100),
        "high": Decimal("101.25"),
        "low": Decimal(98),
        "close": Decimal("99.5"),
        "volume": Decimal("3.75"),
        "buy_volume": Decimal(3),
        "sell_volume": Decimal("0.25"),
        "trades": 4,
        # 100 + 202.5 + 49 + 24.875, and that by 3.75
        "turnover": Decimal("376.375"),
        "vwap": Decimal("100.366666666666666667"),
    }


def test_intervals_begin_at_full_ones(spark: SparkSession) -> None:
    trades = frame(
        spark, (59.999999, 1, "buy", "1", "1"), (60, 2, "buy", "2", "1"), (125, 3, "buy", "3", "1")
    )
    times = [
        (at(second).replace(tzinfo=None), Decimal(price)) for second, price in ((0, 1), (60, 2), (120, 3))
    ]
    assert found(bars(trades, "1 minutes"), "open_ts", "open") == times
    assert found(bars(trades, "5 minutes"), "open", "close", "trades") == [(Decimal(1), Decimal(3), 3)]


def test_trades_of_one_moment_are_in_the_order_of_their_positions(spark: SparkSession) -> None:
    trades = frame(
        spark,
        (5, 12, "buy", "3", "1"),
        (5, 9, "buy", "1", "1"),
        (5, 10, "buy", "2", "1"),
        (5, 100, "buy", "4", "1"),
    )
    assert found(bars(trades, "1 seconds"), "open", "close") == [(Decimal(1), Decimal(4))]


def test_symbols_are_apart(spark: SparkSession) -> None:
    trades = frame(spark, (0, 1, "buy", "1", "1")).union(frame(spark, (0, 2, "buy", "5", "1"), symbol="B"))
    assert found(bars(trades, "1 hours"), "symbol", "close") == [("A", Decimal(1)), ("B", Decimal(5))]


def test_trades_without_price_or_quantity_are_left_out(spark: SparkSession) -> None:
    trades = frame(spark, (0, 1, "buy", None, "1"), (1, 2, "buy", "5", None), (2, 3, "sell", "7", "1"))
    assert found(bars(trades, "1 minutes"), "open", "volume", "trades") == [(Decimal(7), Decimal(1), 1)]


def test_small_numbers_are_exact(spark: SparkSession) -> None:
    trades = frame(
        spark, (0, 1, "buy", "0.0000123456789", "1000000.00000001"), (1, 2, "buy", "0.00001", "3e-18")
    )
    assert found(bars(trades, "1 minutes"), "volume", "turnover", "vwap") == [
        # 12.345678900000123456789 and 0.00000000000000000000003, each rounded at the 18th place
        (
            Decimal("1000000.000000010000000003"),
            Decimal("12.345678900000123457"),
            Decimal("0.000012345678900000"),
        )
    ]


@pytest.mark.parametrize(
    ("dividend", "divisor", "expected"),
    [
        ("2", "3", "0.666666666666666667"),
        ("1", "0", None),
        (None, "1", None),
        ("1e19", "1e-1", "100000000000000000000"),
    ],
)
def test_quotients(dividend: str | None, divisor: str, expected: str | None) -> None:
    result = quotient(None if dividend is None else Decimal(dividend), Decimal(divisor))
    assert result == (None if expected is None else Decimal(expected))
