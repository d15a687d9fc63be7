"""Bronze events to typed rows: for each kind of record a pure function of a frame.

Every table begins with the same columns. A field of a payload for which there is no rule here, because it is
newer, is passed on under its name. `event_ts` is the exchange's time, or the local time if the
exchange gives none, or else the sidecar's. Text that is not a number becomes NULL in its row and an entry in
`faults`, which goes to the quarantine table; a number that the exchange did not give is NULL without a fault.

`dedupe_key` identifies what a row is about. Bronze has each event once, so it is mostly the event's id.
Trades recur in other streams if a replay with another request covers the same time: two trades are the same
if exchange, symbol, the exchange's id, side, price, quantity and `event_ts` are. (The id alone does not do:
some exchanges give the parts of one order the same id, or count anew.) The key is these as a JSON array, in
which no part can run into the next. Trades without an id from the exchange, and everything else, are told
apart only by the event's id: two streams are two views of a book.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.types import StructType

from bronze_pipeline.silver.columns import (
    NumberKind,
    decimal,
    enum_name,
    fault,
    number_text,
    present,
    scaled,
)

ENVELOPE = (
    "payload_case", "event_id", "stream_id", "position", "level",
    "source", "exchange", "symbol", "local_ts", "ingest_ts", "origin", "meta",
)  # fmt: skip
"""The bronze columns that every record needs in addition to its payload."""

COMMON = (
    "date", "exchange", "symbol", "event_ts", "local_ts", "ingest_ts", "dedupe_key",
    "event_id", "stream_id", "position", "level", "source", "origin",
)  # fmt: skip
"""The columns with which every table begins."""

PARTITION_COLUMNS = ("date", "exchange")
FAULTS = "faults"
FAULTS_TYPE = "array<struct<column: string, text: string, reason: string>>"

PRICE = NumberKind(places=18, scaled=8)
"""Prices and quantities: what is traded has a finite tick."""
CALCULATED_PRICE = NumberKind(places=24, scaled=8)
"""Mark and index prices: an exchange's floating-point numbers, with 17 digits of however small a price."""
FUNDING_RATE = NumberKind(places=30, scaled=9)
GREEK = NumberKind(places=30, scaled=9)
VOLATILITY = NumberKind(places=30, scaled=6)

Transform: TypeAlias = Callable[[DataFrame], DataFrame]


def trades(events: DataFrame) -> DataFrame:
    parts = [
        F.col("exchange"),
        F.col("symbol"),
        F.col("trade.trade_id"),
        _side("trade"),
        *(number_text(F.col(f"trade.{name}_str"), PRICE) for name in ("price", "qty")),
        F.unix_micros(_event_ts("trade")).cast("string"),
    ]
    key = F.when(present(F.col("trade.trade_id")).isNotNull(), F.to_json(F.array(*parts)))
    columns = {
        "trade_id": present(F.col("trade.trade_id")),
        "side": _side("trade"),
        "sequence": F.col("trade.sequence"),
    }
    return _typed(events, "trade", columns, {"price": PRICE, "qty": PRICE}, key=key)


def book_changes(events: DataFrame) -> DataFrame:
    """Return one row for each level; those of a message share its position."""
    columns = {
        "is_snapshot": F.col("meta")["is_snapshot"] == "true",
        "side": _side("book_change"),
        "action": enum_name(F.col("book_change.action"), "ACTION_"),
        "sequence": F.col("book_change.sequence"),
    }
    return _typed(events, "book_change", columns, {"price": PRICE, "qty": PRICE})


def book_snapshots(events: DataFrame) -> DataFrame:
    return _snapshots(events, "book_snapshot")


def grouped_book_snapshots(events: DataFrame) -> DataFrame:
    return _snapshots(events, "grouped_book_snapshot")


def quotes(events: DataFrame) -> DataFrame:
    return _typed(events, "quote", {}, dict.fromkeys(("bid_price", "bid_qty", "ask_price", "ask_qty"), PRICE))


def book_tickers(events: DataFrame) -> DataFrame:
    names = ("best_bid_price", "best_bid_qty", "best_ask_price", "best_ask_qty")
    return _typed(events, "book_ticker", {}, dict.fromkeys(names, PRICE))


def derivative_tickers(events: DataFrame) -> DataFrame:
    prices = dict.fromkeys(("mark_price", "index_price"), CALCULATED_PRICE)
    numbers = {**prices, "funding_rate": FUNDING_RATE}
    return _typed(events, "derivative_ticker", {}, numbers)


def liquidations(events: DataFrame) -> DataFrame:
    columns = {"order_id": present(F.col("liquidation.order_id")), "side": _side("liquidation")}
    return _typed(events, "liquidation", columns, {"price": PRICE, "qty": PRICE})


def option_summaries(events: DataFrame) -> DataFrame:
    greeks = dict.fromkeys(("delta", "gamma", "theta", "vega"), GREEK)
    return _typed(events, "option_summary", {}, {"iv": VOLATILITY, **greeks, "oi": PRICE})


def trade_bars(events: DataFrame) -> DataFrame:
    """Return the bars that the source made; those made from trades are in other tables."""
    columns = {
        "kind": enum_name(F.col("trade_bar.kind"), "BAR_KIND_"),
        "interval": F.col("trade_bar.interval"),
        "interval_ms": F.col("trade_bar.interval_ms"),
        "end_ts": F.col("trade_bar.end_ts"),
        "trade_count": F.col("trade_bar.trade_count"),
    }
    numbers = dict.fromkeys(("open", "high", "low", "close", "volume"), PRICE)
    return _typed(events, "trade_bar", columns, numbers)


def errors(events: DataFrame) -> DataFrame:
    columns = {
        "details": F.col("error.details"),
        "code": enum_name(F.col("error.code"), "ERROR_CODE_"),
        "subsequent_errors": F.col("error.subsequent_errors"),
    }
    return _typed(events, "error", columns, {}, has_event_ts=False)


def disconnects(events: DataFrame) -> DataFrame:
    """Return the connections that were lost; the sidecar's own event at the end of a stream is none."""
    events = events.where(~F.col("meta")["data_type"].eqNullSafe("stream_end"))
    columns = {"reason": F.col("disconnect.reason"), "close_code": F.col("disconnect.close_code")}
    return _typed(events, "disconnect", columns, {}, has_event_ts=False)


@dataclass(frozen=True)
class RecordKind:
    """A kind of record: its payload's column in bronze, and its table."""

    payload: str
    table: str
    transform: Transform


RECORDS = (
    RecordKind("trade", "trades", trades),
    RecordKind("book_change", "book_changes", book_changes),
    RecordKind("book_snapshot", "book_snapshots", book_snapshots),
    RecordKind("grouped_book_snapshot", "grouped_book_snapshots", grouped_book_snapshots),
    RecordKind("quote", "quotes", quotes),
    RecordKind("book_ticker", "book_tickers", book_tickers),
    RecordKind("derivative_ticker", "derivative_tickers", derivative_tickers),
    RecordKind("liquidation", "liquidations", liquidations),
    RecordKind("option_summary", "option_summaries", option_summaries),
    RecordKind("trade_bar", "trade_bars", trade_bars),
    RecordKind("error", "errors", errors),
    RecordKind("disconnect", "disconnects", disconnects),
)
"""Every kind of record that has a table."""


def _side(payload: str) -> Column:
    return enum_name(F.col(f"{payload}.side"), "SIDE_")


def _typed(
    events: DataFrame,
    payload: str,
    columns: Mapping[str, Column],
    numbers: Mapping[str, NumberKind],
    *,
    key: Column | None = None,
    has_event_ts: bool = True,
) -> DataFrame:
    """Select the common columns, the record's own, and its numbers with their scaled form."""
    texts = {name: F.col(f"{payload}.{name}_str") for name in numbers}
    known = {*COMMON, *columns, *numbers, *(f"{name}_str" for name in numbers)}
    columns = {**columns, **_newer(events, payload, known)}
    typed = events.where(F.col(payload).isNotNull()).select(
        *_common(payload, key, has_event_ts=has_event_ts),
        *(column.alias(name) for name, column in columns.items()),
        *(text.alias(f"{name}_str") for name, text in texts.items()),
        *(decimal(text, numbers[name]).alias(name) for name, text in texts.items()),
    )
    found = [fault(name, F.col(f"{name}_str"), F.col(name), kind) for name, kind in numbers.items()]
    return typed.select(
        *_names(typed, without=[*numbers, *(f"{name}_str" for name in numbers)]),
        *(
            column
            for name, kind in numbers.items()
            for column in (F.col(name), scaled(F.col(name), kind).alias(f"{name}_e{kind.scaled}"))
        ),
        _faults(found),
    )


def _newer(events: DataFrame, payload: str, known: Collection[str]) -> dict[str, Column]:
    """Return the fields of a payload that are newer than the rules here; they are passed on as they are."""
    kind = events.schema[payload].dataType
    names = kind.names if isinstance(kind, StructType) else []
    return {name: F.col(f"{payload}.{name}") for name in names if name not in known}


def _common(payload: str, key: Column | None, *, has_event_ts: bool) -> list[Column]:
    event_ts = _event_ts(payload if has_event_ts else None)
    event_id = F.col("event_id")
    return [
        F.to_date(event_ts).alias("date"),
        F.col("exchange"),
        F.col("symbol"),
        event_ts.alias("event_ts"),
        F.col("local_ts"),
        F.col("ingest_ts"),
        (event_id if key is None else F.coalesce(key, event_id)).alias("dedupe_key"),
        event_id,
        *(F.col(name) for name in ("stream_id", "position", "level", "source")),
        enum_name(F.col("origin"), "ORIGIN_").alias("origin"),
    ]


def _event_ts(payload: str | None) -> Column:
    times = [F.col("local_ts"), F.col("ingest_ts")]
    return F.coalesce(*times) if payload is None else F.coalesce(F.col(f"{payload}.event_ts"), *times)


def _names(frame: DataFrame, without: Sequence[str]) -> list[Column]:
    return [F.col(name) for name in frame.columns if name not in without]


def _faults(found: Sequence[Column]) -> Column:
    if not found:
        return F.lit(None).cast(FAULTS_TYPE).alias(FAULTS)
    faults = F.array_compact(F.array(*found)).cast(FAULTS_TYPE)
    return F.when(F.size(faults) > 0, faults).alias(FAULTS)


def _snapshots(events: DataFrame, payload: str) -> DataFrame:
    columns = {
        "data_name": F.col("meta")["data_name"],
        **{
            name: F.col(f"{payload}.{name}")
            for name in ("depth", "interval_ms", "grouping", "remove_crossed_levels", "sequence")
        },
        "bids": _levels(F.col(f"{payload}.bids")),
        "asks": _levels(F.col(f"{payload}.asks")),
    }
    typed = _typed(events, payload, columns, {})
    faults = F.concat(_level_faults("bids"), _level_faults("asks"))
    return typed.select(
        *_names(typed, without=["bids", "asks", FAULTS]),
        *(F.transform(F.col(side), _without_text).alias(side) for side in ("bids", "asks")),
        F.when(F.size(faults) > 0, faults).alias(FAULTS),
    )


def _levels(levels: Column) -> Column:
    """Return the levels that exist: a book with fewer than `depth` has empty ones at the end."""
    there = F.filter(levels, lambda level: (level["price_str"] != "") | (level["qty_str"] != ""))
    return F.transform(
        there,
        lambda level: F.struct(
            level["price_str"].alias("price_str"),
            level["qty_str"].alias("qty_str"),
            decimal(level["price_str"], PRICE).alias("price"),
            decimal(level["qty_str"], PRICE).alias("qty"),
        ),
    )


def _without_text(level: Column) -> Column:
    price, qty = level["price"], level["qty"]
    return F.struct(
        price.alias("price"),
        qty.alias("qty"),
        scaled(price, PRICE).alias(f"price_e{PRICE.scaled}"),
        scaled(qty, PRICE).alias(f"qty_e{PRICE.scaled}"),
    )


def _level_faults(side: str) -> Column:
    found = F.transform(
        F.col(side),
        lambda level: F.array_compact(
            F.array(
                *(
                    fault(f"{side}.{name}", level[f"{name}_str"], level[name], PRICE)
                    for name in ("price", "qty")
                )
            )
        ),
    )
    return F.flatten(found).cast(FAULTS_TYPE)
