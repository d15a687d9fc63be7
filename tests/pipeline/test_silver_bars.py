"""Bars of trades, with the expected bars by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from bronze_pipeline.silver.bars import bars, quotient
from bronze_pipeline.silver.turnover import TYPE, turnover
from pyspark.sql import DataFrame, SparkSession
from silver_frames import at

pytestmark = pytest.mark.timeout(400)

SCHEMA = (
    "exchange string, symbol string, event_ts timestamp, stream_id string, position long, side string,"
    " price decimal(38,18), qty decimal(38,18), turnover decimal(38,18)"
)


def frame(
    spark: SparkSession, *rows: tuple[float, int, str | None, str | None, str | None], symbol: str = "A"
) -> DataFrame:
    """Make trades of seconds, position, side, price and quantity."""
    prices, quantities = (
        [None if row[place] is None else Decimal(str(row[place])) for row in rows] for place in (3, 4)
    )
    costs = turnover(pa.array(prices, TYPE), pa.array(quantities, TYPE)).to_pylist()
    made = [
        ("x", symbol, at(seconds), "r", position, side, price, qty, cost)
        for (seconds, position, side, *_), price, qty, cost in zip(
            rows, prices, quantities, costs, strict=True
        )
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


def test_a_turnover_that_does_not_fit_makes_that_of_its_bar_unknown(spark: SparkSession) -> None:
    trades = frame(
        spark,
        # 200,000,000,000,000,003 by 200,000,001 is 10^9 - 5 + 8 / 200,000,001.
        (0, 1, "buy", "1000000000", "200000000"),
        (1, 2, "buy", "3", "1"),
        (60, 3, "buy", "100000000000", "1000000000"),
        (61, 4, "buy", "3", "1"),
        (120, 5, "buy", "3", "1"),
        # Each fits, and their sum does not.
        (180, 6, "buy", "60000000000", "1000000000"),
        (181, 7, "buy", "60000000000", "1000000000"),
    )
    assert found(bars(trades, "1 minutes"), "turnover", "vwap", "trades") == [
        (Decimal(200000000000000003), Decimal("999999995.000000039999999800"), 2),
        (None, None, 2),
        (Decimal(3), Decimal(3), 1),
        (None, None, 2),
    ]


@pytest.mark.parametrize(
    ("price", "quantity", "expected"),
    [
        ("97000.12345678", "0.00000001", "0.0009700012345678"),
        ("0.0000123456789", "1000000", "12.3456789"),
        ("-1.5", "2.5", "-3.75"),
        ("1234567890.123456789", "0.123456789", "152415787.517146788750190521"),
        ("0.000000001", "0.0000000004", "0"),
        ("0.000000001", "0.0000000006", "0.000000000000000001"),
        ("99999999", "99999999", "9999999800000001"),
        ("50000000000000000000", "1.9", "95000000000000000000"),
        ("1.9", "50000000000000000000", "95000000000000000000"),
        ("50000000000000000000", "2", None),
        ("99999999999", "99999999999", None),
        ("10000000000000000000", "10000000000000000000", None),
        (None, "1", None),
    ],
)
def test_turnovers_have_18_places(price: str | None, quantity: str, expected: str | None) -> None:
    factors = [pa.array([each and Decimal(each)], TYPE) for each in (price, quantity)]
    assert turnover(*factors).to_pylist() == [None if expected is None else Decimal(expected)]


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
