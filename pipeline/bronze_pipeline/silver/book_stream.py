"""Book changes to the best levels after each message, with the books in Spark's state (`book_rows.py`).

Of a book with hundreds of levels a micro-batch reads and writes the near ones, and appends to the far ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from bronze_pipeline.silver.book import OrderBook
from bronze_pipeline.silver.book_history import BookHistory
from bronze_pipeline.silver.book_rows import AGAIN, BOOK, BookState, LevelChange, Shape, rows_after

CHANGE_COLUMNS = (
    "exchange", "symbol", "event_ts", "local_ts", "stream_id", "position", "level",
    "is_snapshot", "side", "price", "qty",
)  # fmt: skip
"""What a book needs from the changes."""

KEY = ("date", *BOOK, "position")
INTERVAL_KEY = ("date", *BOOK, "interval_ts")

LEVELS = "array<struct<price: decimal(38,18), qty: decimal(38,18)>>"
# Times are whole microseconds between Spark and Python: pandas covers fewer years than Spark.
OUTPUT = (
    "stream_id string, exchange string, symbol string, position long, event_us long, local_us long,"
    " is_snapshot boolean, has_snapshot boolean, unusable long,"
    f" bids {LEVELS}, asks {LEVELS}, interval_us long, {AGAIN} boolean"
)


def book_top(changes: DataFrame, shape: Shape, history: BookHistory) -> DataFrame:
    """Return the best levels after each message, or after the last message in each interval.

    `history` is the table of the changes.
    """
    interval_us = shape.interval_us
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
        Books(shape, history), outputStructType=OUTPUT, outputMode="append", timeMode="none"
    )
    event_ts, interval_ts = F.timestamp_micros("event_us"), F.timestamp_micros("interval_us")
    return rows.select(
        F.to_date(event_ts if interval_us is None else interval_ts).alias("date"),
        *BOOK,
        *([] if interval_us is None else [interval_ts.alias("interval_ts")]),
        "position",
        event_ts.alias("event_ts"),
        F.timestamp_micros("local_us").alias("local_ts"),
        *("is_snapshot", "has_snapshot", "unusable", "bids", "asks", AGAIN),
    )


class Books(StatefulProcessor):
    """Keeps the book of each symbol in each stream."""

    def __init__(self, shape: Shape, history: BookHistory) -> None:
        self._shape = shape
        self._history = history

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._book: ValueState = handle.getValueState("book", "near binary, emitted long")
        self._far: ListState = handle.getListState("far", "changes binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        # Every call of a state is a question to the JVM.
        stored = self._book.get()
        state = BookState(OrderBook.unpack(stored[0], self._chunks), stored[1]) if stored else BookState()
        made = rows_after(state, key, _changes(rows), self._shape, self._history)
        packed = state.book.pack(self._shape.near)
        self._book.update((packed.near, state.emitted))
        if packed.far:
            (self._far.put if packed.replaces else self._far.appendList)([(packed.far,)])
        elif packed.replaces and stored:
            self._far.clear()
        if made:
            yield pd.DataFrame(made)

    def _chunks(self) -> Iterator[bytes]:
        return (bytes(changes) for (changes,) in self._far.get())


def _changes(frames: Iterator[pd.DataFrame]) -> list[LevelChange]:
    return [
        LevelChange(*values[:-2], *(None if pd.isna(time) else int(time) for time in values[-2:]))
        for frame in frames
        for values in zip(*(frame[name].tolist() for name in LevelChange._fields), strict=True)
    ]
