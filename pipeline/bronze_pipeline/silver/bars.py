"""Trades to bars: open, high, low, close, volume for each interval, in exact decimals.

A bar is emitted whenever a trade changes it, and replaces the table's row for the same exchange, symbol and
time: the last bars of a replay do not wait for later trades. The watermark only says how long a bar stays in
Spark's state, where late trades can change it. Without one it stays forever, so that replays may come in any
order of dates; with one, trades that come later are left out and counted.

A sum that does not fit is NULL, and so is the turnover of a bar if that of one trade does not fit: what is
there is never the sum of some of the trades.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.types import DecimalType

from bronze_pipeline.silver.records import PRICE
from bronze_pipeline.silver.turnover import TURNOVER

TRADE_COLUMNS = ("exchange", "symbol", "event_ts", "stream_id", "position", "side", "price", "qty")
"""What bars need from the trades, besides their turnover."""

KEY = ("date", "exchange", "symbol", "open_ts")
PARTITION_COLUMNS = ("date",)
PLACES = Decimal(1).scaleb(-18)
# Enough for any quotient of two decimal(38,18).
CONTEXT = Context(prec=76, rounding=ROUND_HALF_EVEN)


def bars(trades: DataFrame, interval: str, watermark: str | None = None) -> DataFrame:
    """Return bars of one interval, such as `1 minutes`; they begin at whole intervals since 1970, UTC."""
    usable = trades.where(F.col("price").isNotNull() & F.col("qty").isNotNull())
    if watermark is not None:
        usable = usable.withWatermark("event_ts", watermark)
    # Trades with the same time are in the order in which their source sent them.
    moment = F.struct("event_ts", "position", "stream_id")
    grouped = usable.groupBy(F.window("event_ts", interval).alias("window"), "exchange", "symbol").agg(
        F.min_by("price", moment).alias("open"),
        F.max("price").alias("high"),
        F.min("price").alias("low"),
        F.max_by("price", moment).alias("close"),
        F.try_sum("qty").alias("volume"),
        _volume_of("buy"),
        _volume_of("sell"),
        F.count("*").alias("trades"),
        F.when(F.count(TURNOVER) == F.count("*"), F.try_sum(TURNOVER)).alias(TURNOVER),
    )
    return grouped.select(
        F.to_date("window.start").alias("date"),
        "exchange",
        "symbol",
        F.col("window.start").alias("open_ts"),
        F.col("window.end").alias("close_ts"),
        *(
            F.col(name)
            for name in ("open", "high", "low", "close", "volume", "buy_volume", "sell_volume", "trades")
        ),
        TURNOVER,
        F.udf(quotient, DecimalType(38, 18), useArrow=True)(TURNOVER, "volume").alias("vwap"),
    )


def quotient(dividend: Decimal | None, divisor: Decimal | None) -> Decimal | None:
    """Divide with 18 decimal places: Spark's own division of such numbers has six."""
    if dividend is None or not divisor:
        return None
    return CONTEXT.quantize(CONTEXT.divide(dividend, divisor), PLACES)


def _volume_of(side: str) -> Column:
    part = F.when(F.col("side") == side, F.col("qty")).otherwise(F.lit(0).cast(PRICE.sql))
    return F.try_sum(part).alias(f"{side}_volume")
