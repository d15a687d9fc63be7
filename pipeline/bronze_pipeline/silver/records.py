"""Bronze events to typed rows: for each kind of record a pure function, Arrow in, Arrow out.

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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.silver.columns import NumberColumn, NumberKind, enum_names, json_arrays, present

ENVELOPE = (
    "event_id", "stream_id", "position", "level", "source", "exchange", "symbol", "local_ts", "ingest_ts",
    "origin", "meta",
)  # fmt: skip
"""The bronze columns that every record needs in addition to its payload."""

PARTITION_COLUMNS = ("date", "exchange")
FAULTS = "faults"
FAULT = pa.struct([("column", pa.string()), ("text", pa.string()), ("reason", pa.string())])
FAULTS_FIELD = pa.field(FAULTS, pa.list_(FAULT))

PRICE = NumberKind(places=18, scaled=8)
"""Prices and quantities: what is traded has a finite tick."""
CALCULATED_PRICE = NumberKind(places=24, scaled=8)
"""Mark and index prices: an exchange's floating-point numbers, with 17 digits of however small a price."""
FUNDING_RATE = NumberKind(places=30, scaled=9)
GREEK = NumberKind(places=30, scaled=9)
VOLATILITY = NumberKind(places=30, scaled=6)

Columns: TypeAlias = dict[str, pa.Array]
Transform: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Events that all have the payload, to the table's rows, with their faults as the last column."""


@dataclass(frozen=True)
class NumberFault:
    """A text that did not become a number."""

    row: int
    column: str
    text: str
    reason: str


def trades(events: pa.RecordBatch) -> pa.RecordBatch:
    payload = events["trade"]
    prices, quantities = _numbers(payload, {"price": PRICE, "qty": PRICE})
    trade_id, side = pc.struct_field(payload, "trade_id"), _enum(payload, "side", "SIDE_")
    key = json_arrays(
        events["exchange"],
        events["symbol"],
        trade_id,
        side,
        prices.one_form,
        quantities.one_form,
        _event_ts(events, payload).cast(pa.int64()).cast(pa.string()),
    )
    trade_id = present(trade_id)
    columns = {"trade_id": trade_id, "side": side, "sequence": pc.struct_field(payload, "sequence")}
    key = pc.if_else(pc.is_valid(trade_id), key, events["event_id"])
    return _typed(events, "trade", columns, [prices, quantities], key=key)


def book_changes(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return one row for each level; those of a message share its position."""
    payload = events["book_change"]
    columns = {
        "is_snapshot": pc.equal(_meta(events, "is_snapshot"), "true"),
        "side": _enum(payload, "side", "SIDE_"),
        "action": _enum(payload, "action", "ACTION_"),
        "sequence": pc.struct_field(payload, "sequence"),
    }
    return _typed(events, "book_change", columns, _numbers(payload, {"price": PRICE, "qty": PRICE}))


def book_snapshots(events: pa.RecordBatch) -> pa.RecordBatch:
    return _snapshots(events, "book_snapshot")


def grouped_book_snapshots(events: pa.RecordBatch) -> pa.RecordBatch:
    return _snapshots(events, "grouped_book_snapshot")


def quotes(events: pa.RecordBatch) -> pa.RecordBatch:
    names = ("bid_price", "bid_qty", "ask_price", "ask_qty")
    return _typed(events, "quote", {}, _numbers(events["quote"], dict.fromkeys(names, PRICE)))


def book_tickers(events: pa.RecordBatch) -> pa.RecordBatch:
    names = ("best_bid_price", "best_bid_qty", "best_ask_price", "best_ask_qty")
    return _typed(events, "book_ticker", {}, _numbers(events["book_ticker"], dict.fromkeys(names, PRICE)))


def derivative_tickers(events: pa.RecordBatch) -> pa.RecordBatch:
    prices = dict.fromkeys(("mark_price", "index_price"), CALCULATED_PRICE)
    numbers = _numbers(events["derivative_ticker"], {**prices, "funding_rate": FUNDING_RATE})
    return _typed(events, "derivative_ticker", {}, numbers)


def liquidations(events: pa.RecordBatch) -> pa.RecordBatch:
    payload = events["liquidation"]
    columns = {
        "order_id": present(pc.struct_field(payload, "order_id")),
        "side": _enum(payload, "side", "SIDE_"),
    }
    return _typed(events, "liquidation", columns, _numbers(payload, {"price": PRICE, "qty": PRICE}))


def option_summaries(events: pa.RecordBatch) -> pa.RecordBatch:
    greeks = dict.fromkeys(("delta", "gamma", "theta", "vega"), GREEK)
    numbers = _numbers(events["option_summary"], {"iv": VOLATILITY, **greeks, "oi": PRICE})
    return _typed(events, "option_summary", {}, numbers)


def trade_bars(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the bars that the source made; those made from trades are in other tables."""
    payload = events["trade_bar"]
    columns = {
        "kind": _enum(payload, "kind", "BAR_KIND_"),
        **_fields(payload, "interval", "interval_ms", "end_ts", "trade_count"),
    }
    numbers = dict.fromkeys(("open", "high", "low", "close", "volume"), PRICE)
    return _typed(events, "trade_bar", columns, _numbers(payload, numbers))


def errors(events: pa.RecordBatch) -> pa.RecordBatch:
    payload = events["error"]
    columns = {
        "details": pc.struct_field(payload, "details"),
        "code": _enum(payload, "code", "ERROR_CODE_"),
        "subsequent_errors": pc.struct_field(payload, "subsequent_errors"),
    }
    return _typed(events, "error", columns)


def disconnects(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return the connections that were lost; the sidecar's own event at the end of a stream is none."""
    is_end = pc.equal(_meta(events, "data_type"), "stream_end").fill_null(False)
    events = events.filter(pc.invert(is_end))
    return _typed(events, "disconnect", _fields(events["disconnect"], "reason", "close_code"))


@dataclass(frozen=True)
class RecordKind:
    """A kind of record: its payload's column in bronze, and its table."""

    payload: str
    table: str
    transform: Transform

    def schema(self, bronze: pa.Schema = EVENTS) -> pa.Schema:
        """Return the columns of its table, made from a bronze table with these."""
        fields = [bronze.field(name) for name in (*ENVELOPE, self.payload)]
        made = self.transform(pa.RecordBatch.from_pylist([], pa.schema(fields))).schema
        return made.remove(made.get_field_index(FAULTS))


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


def _fields(payload: pa.Array, *names: str) -> Columns:
    return {name: pc.struct_field(payload, name) for name in names}


def _enum(payload: pa.Array, name: str, prefix: str) -> pa.Array:
    return enum_names(pc.struct_field(payload, name), prefix)


def _meta(events: pa.RecordBatch, key: str) -> pa.Array:
    return pc.map_lookup(events["meta"], pa.scalar(key), "first")


def _numbers(payload: pa.Array, kinds: Mapping[str, NumberKind]) -> list[NumberColumn]:
    return [
        NumberColumn.of(name, pc.struct_field(payload, f"{name}_str"), kind) for name, kind in kinds.items()
    ]


def _event_ts(events: pa.RecordBatch, payload: pa.Array) -> pa.Array:
    times = [events["local_ts"], events["ingest_ts"]]
    if "event_ts" in payload.type.names:
        times.insert(0, pc.struct_field(payload, "event_ts"))
    return pc.coalesce(*times)


def _typed(
    events: pa.RecordBatch,
    name: str,
    columns: Columns,
    numbers: Iterable[NumberColumn] = (),
    *,
    key: pa.Array | None = None,
) -> pa.RecordBatch:
    """Return the common columns, the record's own, and its numbers with their scaled form."""
    payload = events[name]
    found = _common(events, payload, events["event_id"] if key is None else key)
    found |= columns | _newer(payload, {*found, *columns, *(f"{each.name}_str" for each in numbers)})
    for each in numbers:
        found |= {each.name: each.values, f"{each.name}_e{each.kind.scaled}": each.scaled()}
    faults = [
        NumberFault(row, each.name, text, each.reason(text))
        for each in numbers
        if (mask := each.faulty()).true_count
        for row, text in zip(_places(mask), each.texts.filter(mask).to_pylist(), strict=True)
    ]
    return _with_faults(found, faults, len(events))


def _common(events: pa.RecordBatch, payload: pa.Array, key: pa.Array) -> Columns:
    event_ts = _event_ts(events, payload)
    return {
        "date": event_ts.cast(pa.date32()),
        "exchange": events["exchange"],
        "symbol": events["symbol"],
        "event_ts": event_ts,
        "local_ts": events["local_ts"],
        "ingest_ts": events["ingest_ts"],
        "dedupe_key": key,
        **{name: events[name] for name in ("event_id", "stream_id", "position", "level", "source")},
        "origin": enum_names(events["origin"], "ORIGIN_"),
    }


def _newer(payload: pa.Array, known: set[str]) -> Columns:
    """Return the fields of a payload that are newer than the rules here; they are passed on as they are."""
    return _fields(payload, *(name for name in payload.type.names if name not in known))


def _places(mask: pa.Array) -> list[int]:
    places: list[int] = pc.indices_nonzero(mask).to_pylist()
    return places


def _with_faults(columns: Columns, faults: Iterable[NumberFault], rows: int) -> pa.RecordBatch:
    by_row: dict[int, list[dict[str, str]]] = {}
    for each in faults:
        by_row.setdefault(each.row, []).append(
            {"column": each.column, "text": each.text, "reason": each.reason}
        )
    # Mostly there are none.
    found = (
        pa.array(map(by_row.get, range(rows)), FAULTS_FIELD.type)
        if by_row
        else pa.nulls(rows, FAULTS_FIELD.type)
    )
    return pa.RecordBatch.from_pydict({**columns, FAULTS: found})


def _snapshots(events: pa.RecordBatch, name: str) -> pa.RecordBatch:
    payload = events[name]
    bids, asks = (_Levels(side, pc.struct_field(payload, side)) for side in ("bids", "asks"))
    columns = {
        "data_name": _meta(events, "data_name"),
        **_fields(payload, "depth", "interval_ms", "grouping", "remove_crossed_levels", "sequence"),
    }
    # The sides come last.
    fields = [field for field in payload.type if field.name not in {"bids", "asks"}]
    rest = pa.StructArray.from_arrays(
        [pc.struct_field(payload, field.name) for field in fields], fields=fields
    )
    at = events.schema.get_field_index(name)
    typed = _typed(events.set_column(at, pa.field(name, rest.type), rest), name, columns)
    found = {each: typed[each] for each in typed.schema.names if each != FAULTS}
    found |= {"bids": bids.array(), "asks": asks.array()}
    return _with_faults(found, [*bids.faults(), *asks.faults()], len(events))


class _Levels:
    """A side of books: the levels that exist. A book with fewer than `depth` has empty ones at the end."""

    def __init__(self, side: str, lists: pa.Array) -> None:
        self._side = side
        self._lists = lists
        levels = pc.list_flatten(lists)
        texts = {name: pc.struct_field(levels, f"{name}_str") for name in ("price", "qty")}
        there = pc.or_kleene(*(pc.not_equal(each, "") for each in texts.values())).fill_null(False)
        self._owners: np.ndarray[Any, Any] = pc.list_parent_indices(lists).filter(there).to_numpy()
        self._numbers = [NumberColumn.of(name, each.filter(there), PRICE) for name, each in texts.items()]

    def array(self) -> pa.Array:
        columns = {each.name: each.values for each in self._numbers}
        columns |= {f"{each.name}_e{PRICE.scaled}": each.scaled() for each in self._numbers}
        levels = pa.StructArray.from_arrays(list(columns.values()), list(columns))
        counts = np.bincount(self._owners, minlength=len(self._lists))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
        kind = pa.list_(pa.field("element", levels.type, nullable=False))
        return pa.ListArray.from_arrays(offsets, levels, type=kind, mask=self._lists.is_null())

    def faults(self) -> list[NumberFault]:
        found = [
            (
                level,
                NumberFault(int(self._owners[level]), f"{self._side}.{each.name}", text, each.reason(text)),
            )
            for each in self._numbers
            if (mask := each.faulty()).true_count
            for level, text in zip(_places(mask), each.texts.filter(mask).to_pylist(), strict=True)
        ]
        # Level by level.
        return [fault for _, fault in sorted(found, key=lambda pair: pair[0])]
