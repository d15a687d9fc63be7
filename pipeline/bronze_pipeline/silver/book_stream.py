"""Book changes to the best levels after each message, with the books in Spark's state.

A message becomes one event for each level, and nothing marks the last: the part of a message in a micro-batch
is applied and emitted, and if the next one has more of it, the row is emitted `again`, to replace the first.
So the table ends with the last message, and every message has one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from bronze_pipeline.silver.book import Level, OrderBook

CHANGE_COLUMNS = (
    "exchange", "symbol", "event_ts", "local_ts", "stream_id", "position", "level",
    "is_snapshot", "side", "price", "qty",
)  # fmt: skip
"""What a book needs from the changes."""

BOOK = ("stream_id", "exchange", "symbol")
KEY = ("date", *BOOK, "position")
INTERVAL_KEY = ("date", *BOOK, "interval_ts")
AGAIN = "again"

LEVELS = "array<struct<price: decimal(38,18), qty: decimal(38,18)>>"
# Times are whole microseconds between Spark and Python: pandas covers fewer years than Spark.
OUTPUT = (
    "stream_id string, exchange string, symbol string, position long, event_us long, local_us long,"
    " is_snapshot boolean, has_snapshot boolean, late long, unusable long,"
    f" bids {LEVELS}, asks {LEVELS}, interval_us long, {AGAIN} boolean"
)


def book_top(changes: DataFrame, depth: int, interval_us: int | None = None) -> DataFrame:
    """Return the best `depth` levels after each message, or after the last message in each interval."""
    # Without a position there is no order, and without an order no book.
    usable = changes.where(F.col("position").isNotNull()).select(
        *BOOK,
        "position",
        F.coalesce("level", F.lit(0)).alias("level"),
        F.coalesce("is_snapshot", F.lit(False)).alias("is_snapshot"),
        "side",
        "price",
        "qty",
        F.unix_micros("event_ts").alias("event_us"),
        F.unix_micros("local_ts").alias("local_us"),
    )
    rows = usable.groupBy(*BOOK).transformWithStateInPandas(
        Books(depth, interval_us), outputStructType=OUTPUT, outputMode="append", timeMode="none"
    )
    event_ts, interval_ts = F.timestamp_micros("event_us"), F.timestamp_micros("interval_us")
    return rows.select(
        F.to_date(event_ts if interval_us is None else interval_ts).alias("date"),
        *BOOK,
        *([] if interval_us is None else [interval_ts.alias("interval_ts")]),
        "position",
        event_ts.alias("event_ts"),
        F.timestamp_micros("local_us").alias("local_ts"),
        *("is_snapshot", "has_snapshot", "late", "unusable", "bids", "asks", AGAIN),
    )


class Books(StatefulProcessor):
    """Keeps the book of each symbol in each stream."""

    def __init__(self, depth: int, interval_us: int | None) -> None:
        self._depth = depth
        self._interval_us = interval_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        # The book, its last row, and the time it has reached.
        self._state: ValueState = handle.getValueState("book", "book string, emitted long, clock_us long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        book, emitted, clock_us = OrderBook(), None, None
        if self._state.exists():
            text, emitted, clock_us = self._state.get() or ()
            book = OrderBook.from_json(text)
        kept: dict[int, dict[str, Any]] = {}
        for row in self._messages(book, key, _in_order(rows)):
            if self._interval_us is None:
                kept[row["position"]] = row
                continue
            # Intervals never go back, so that each has one row.
            clock_us = row["event_us"] if clock_us is None else max(clock_us, row["event_us"])
            row["interval_us"] = clock_us - clock_us % self._interval_us
            kept[row["interval_us"]] = row
        for name, row in kept.items():
            row[AGAIN] = name == emitted
        self._state.update((book.to_json(), next(reversed(kept), emitted), clock_us))
        if kept:
            yield pd.DataFrame(list(kept.values()))

    def _messages(
        self, book: OrderBook, key: Any, changes: Iterable[tuple[Any, ...]]
    ) -> Iterator[dict[str, Any]]:
        """Apply the changes; yield a row after each message."""
        for position, levels in groupby(changes, itemgetter(0)):
            first: tuple[Any, ...] | None = None
            for change in levels:
                if position < book.position:
                    book.late += 1
                    continue
                if first is None:
                    first = change
                    book.begin(position, is_snapshot=change[2])
                book.put(*change[3:6])
            if first is None:
                continue
            *_, event_us, local_us = first
            yield {
                **dict(zip(BOOK, key, strict=True)),
                "position": position,
                "event_us": event_us,
                "local_us": local_us,
                "is_snapshot": first[2],
                "has_snapshot": book.has_snapshot,
                "late": book.late,
                "unusable": book.unusable,
                "bids": _levels(book.bids.highest(self._depth)),
                "asks": _levels(book.asks.lowest(self._depth)),
                "interval_us": None,
            }


def _in_order(frames: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
    names = ("position", "level", "is_snapshot", "side", "price", "qty", "event_us", "local_us")
    rows = [row for frame in frames for row in zip(*(frame[name].tolist() for name in names), strict=True)]
    rows.sort(key=itemgetter(0, 1))
    return rows


def _levels(levels: list[Level]) -> list[dict[str, Any]]:
    return [{"price": price, "qty": quantity} for price, quantity in levels]
