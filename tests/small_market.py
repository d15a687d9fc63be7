"""A small market for tests: its events as bronze has them, and what the silver tables must hold of them.

What they must hold is worked out by plain Python, from the events in their own order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeAlias

from hypothesis import strategies as st
from silver_frames import at, change, trade

PRICES = ("10", "10.50", "1e-18", "1e9", "99999999999999999999", "nothing")
QUANTITIES = ("1", "0.25", "2e8", "3e-18", "1e20")
EXACT = Context(prec=200)
PLACES, LIMIT = Decimal("1e-18"), Decimal(10) ** 20
DEPTH = 3

Rows: TypeAlias = list[tuple[Any, ...]]


@dataclass(frozen=True)
class MadeTrade:
    """A trade, and its places in streams."""

    symbol: str
    trade_id: str
    side: str
    price: str
    qty: str
    time: datetime
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Level:
    """A level of a book change."""

    position: int
    level: int
    side: str
    price: int
    qty: int
    is_snapshot: bool
    day: date


@st.composite
def trades(draw: st.DrawFn) -> list[MadeTrade]:
    """Make trades whose symbols and ids would run into each other, some of them in two streams."""
    made = []
    for place in range(draw(st.integers(1, 12))):
        trade_id = draw(st.sampled_from(["", "1", "B|1"]))
        times = 2 if trade_id and draw(st.booleans()) else 1
        made.append(
            MadeTrade(
                symbol=draw(st.sampled_from(["A", "A|B"])),
                trade_id=trade_id,
                side=draw(st.sampled_from(["BUY", "SELL"])),
                price=draw(st.sampled_from(PRICES)),
                qty=draw(st.sampled_from(QUANTITIES)),
                # No two at the same moment: which copy is kept would decide which of them is the first.
                time=at(draw(st.integers(0, 130))) + timedelta(microseconds=place),
                ids=tuple(f"{stream}:{place}" for stream in ("r", "s")[:times]),
            )
        )
    return made


@st.composite
def levels(draw: st.DrawFn) -> list[Level]:
    """Make the book changes of a stream that goes back and forth over midnight."""
    made = []
    for position in range(draw(st.integers(1, 10))):
        is_snapshot, day = draw(st.integers(0, 3)) == 0, date(2024, 1, draw(st.integers(1, 2)))
        for level in range(draw(st.integers(1, 3))):
            side = draw(st.sampled_from(["BUY", "SELL"]))
            price, qty = draw(st.integers(1, 4)), draw(st.integers(0, 2))
            made.append(Level(position, level, side, price, qty, is_snapshot, day))
    return made


def bronze_events(market: list[MadeTrade], book: list[Level]) -> list[dict[str, Any]]:
    events = [
        trade(
            event_id,
            # The same number, written otherwise in the other stream.
            f"{each.price}.0" if event_id.startswith("s") and each.price.isdigit() else each.price,
            each.qty,
            0,
            each.side,
            trade_id=each.trade_id,
            event_ts=each.time,
        )
        | {"symbol": each.symbol}
        for each in market
        for event_id in each.ids
    ]
    return events + [
        change(
            f"b:{each.position}.{each.level}",
            each.side,
            str(each.price),
            str(each.qty),
            snapshot=each.is_snapshot,
            date=each.day,
        )
        for each in book
    ]


def number(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except ArithmeticError:
        return None
    return value if abs(value) < LIMIT else None


def comparable(rows: Iterable[Sequence[Any]]) -> Rows:
    """Return rows in one order, with equal numbers in one form."""
    plain = [
        tuple(f"{value.normalize(EXACT):f}" if isinstance(value, Decimal) else value for value in row)
        for row in rows
    ]
    return sorted(plain, key=str)


def expected_trades(market: list[MadeTrade]) -> Rows:
    return comparable(
        (
            each.symbol,
            each.trade_id or None,
            each.side.lower(),
            number(each.price),
            number(each.qty),
            each.time,
        )
        for each in market
    )


def expected_bars(market: list[MadeTrade]) -> Rows:
    bars: dict[tuple[str, datetime], list[tuple[Decimal, Decimal, str]]] = defaultdict(list)
    for each in sorted(market, key=lambda each: each.time):
        price, qty = number(each.price), number(each.qty)
        if price is not None and qty is not None:
            bars[each.symbol, each.time.replace(second=0, microsecond=0)].append((price, qty, each.side))
    rows = []
    for (symbol, minute), found in bars.items():
        prices = [price for price, *_ in found]
        volume, bought, sold = (
            total([qty for _, qty, side in found if side in sides])
            for sides in (("BUY", "SELL"), ("BUY",), ("SELL",))
        )
        turnover = total([product(price, qty) for price, qty, _ in found])
        vwap = None
        if turnover is not None and volume is not None:
            vwap = EXACT.quantize(EXACT.divide(turnover, volume), PLACES)
        shown = (prices[0], max(prices), min(prices), prices[-1], volume, bought, sold, len(found))
        rows.append((symbol, minute, *shown, turnover, vwap))
    return comparable(rows)


def product(price: Decimal, qty: Decimal) -> Decimal | None:
    near = EXACT.multiply(price, qty).quantize(PLACES, ROUND_HALF_UP, EXACT)
    return near if near < LIMIT else None


def total(parts: Sequence[Decimal | None]) -> Decimal | None:
    found = Decimal(0)
    for part in parts:
        if part is None:
            return None
        found = EXACT.add(found, part)
    return found if found < LIMIT else None


def expected_books(book: list[Level]) -> Rows:
    rows: Rows = []
    there: dict[tuple[str, int], int] = {}
    has_snapshot = False
    for position in sorted({each.position for each in book}):
        message = [each for each in book if each.position == position]
        if message[0].is_snapshot:
            there, has_snapshot = {}, True
        for each in message:
            there.pop((each.side, each.price), None)
            if each.qty:
                there[each.side, each.price] = each.qty
        bids, asks = (
            sorted(
                ((price, qty) for (own, price), qty in there.items() if own == side), reverse=side == "BUY"
            )
            for side in ("BUY", "SELL")
        )
        rows.append((position, has_snapshot, bids[:DEPTH], asks[:DEPTH]))
    return rows
