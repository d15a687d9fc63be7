"""An order book built from changes, of which little is read and written at a time; nothing here knows Spark.

The best levels of a side are near: they are what a micro-batch reads and writes. The others are far, behind
a bound. What changes there is appended to a log that is read only when near levels run out, or when it has
grown so long that it is written anew. Near and far have no price in common.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal

Level = tuple[Decimal, Decimal]
"""A price, and the quantity at it."""

PLACES = 18
# More than any decimal(38,18) has.
CONTEXT = Context(prec=80)
NOTHING_FAR: Callable[[], Iterable[bytes]] = tuple

BIDS, ASKS = b"ba"
HEAD = struct.Struct("<qi?qqqI??")
NUMBER_BYTES = 16
ENTRY_BYTES = 1 + 2 * NUMBER_BYTES
# Entries of the log of far levels that are not worth writing it anew.
FAR_SLACK = 1000


@dataclass
class Side:
    """A side of a book, in units of the last decimal place.

    Prices have a sign that puts the best first: those of the buyers are negated.
    """

    sign: int
    quantities: dict[int, int] = field(default_factory=dict)
    """The near levels."""
    prices: list[int] = field(default_factory=list)
    """Their prices, the best first."""
    bound: int | None = None
    """The last price that is near; None if all are."""
    changed: list[tuple[int, int]] = field(default_factory=list)
    """What is to be appended to the log of far levels."""

    def put(self, price: int, quantity: int) -> None:
        """Set the quantity at a price; zero removes it."""
        if self.bound is not None and price > self.bound:
            self.changed.append((price, quantity))
            return
        known = price in self.quantities
        if quantity:
            self.quantities[price] = quantity
            if not known:
                insort(self.prices, price)
        elif known:
            del self.quantities[price]
            del self.prices[bisect_left(self.prices, price)]

    def best(self, count: int) -> list[Level]:
        return [
            (_decimal(price * self.sign), _decimal(self.quantities[price])) for price in self.prices[:count]
        ]

    def keep(self, count: int) -> None:
        """Let the levels behind the first ones be far, if there are many more."""
        if len(self.prices) <= 2 * count:
            return
        self.bound = self.prices[count - 1]
        self.changed += [(price, self.quantities.pop(price)) for price in self.prices[count:]]
        del self.prices[count:]


@dataclass(frozen=True)
class Packed:
    """A book as it is stored."""

    near: bytes
    far: bytes
    """To be appended to the log of far levels; empty if nothing is."""
    replaces: bool
    """Whether the log begins anew with that."""


@dataclass
class OrderBook:
    """The book of one symbol in one stream, as of its last change.

    A message has one change for each level; all have its position. Changes must come in the order of their
    positions and levels.
    """

    bids: Side = field(default_factory=lambda: Side(-1))
    asks: Side = field(default_factory=lambda: Side(1))
    position: int = -1
    """Of the last change."""
    level: int = -1
    """Of the last change."""
    has_snapshot: bool = False
    """Whether a snapshot started it; without one, levels that did not change are missing."""
    unusable: int = 0
    """Levels without a price or quantity since the last snapshot."""
    far: Callable[[], Iterable[bytes]] = field(default=NOTHING_FAR, compare=False)
    """Reads the log of far levels."""
    replaces: bool = True
    """Whether that log is void."""
    entries: int = 0
    """How many it has."""
    entries_at_first: int = 0
    """How many it had when it was begun."""

    def begin(self, position: int, *, is_snapshot: bool) -> None:
        """Begin a message, or continue it."""
        if is_snapshot and position > self.position:
            self.bids, self.asks = Side(-1), Side(1)
            self.replaces = True
            self.has_snapshot = True
            self.unusable = 0
        self.position = position

    def put(self, level: int, side: str | None, price: Decimal | None, quantity: Decimal | None) -> None:
        """Apply a level of the message."""
        self.level = level
        if price is None or quantity is None or side is None:
            self.unusable += 1
            return
        each = self.bids if side == "buy" else self.asks
        each.put(_units(price) * each.sign, _units(quantity))

    def best(self, count: int) -> tuple[list[Level], list[Level]]:
        """Return the first levels of both sides."""
        if any(side.bound is not None and len(side.prices) < count for side in (self.bids, self.asks)):
            self._recall()
        return self.bids.best(count), self.asks.best(count)

    def _recall(self) -> None:
        """Bring the far levels near."""
        sides = {BIDS: self.bids, ASKS: self.asks}
        levels: dict[int, dict[int, int]] = {name: {} for name in sides}
        for name, price, quantity in () if self.replaces else _entries(self.far()):
            levels[name][price] = quantity
        for name, side in sides.items():
            levels[name].update(side.changed)
            side.quantities |= {price: quantity for price, quantity in levels[name].items() if quantity}
            side.prices = sorted(side.quantities)
            side.bound = None
            side.changed = []
        self.replaces = True

    def pack(self, near: int) -> Packed:
        """Return what is to be stored, with about so many near levels of each side; the book is done with."""
        if not self.replaces and self.entries > 2 * self.entries_at_first + FAR_SLACK:
            self._recall()
        for side in (self.bids, self.asks):
            side.keep(near)
        far = [
            (name, *each) for name, side in ((BIDS, self.bids), (ASKS, self.asks)) for each in side.changed
        ]
        entries = len(far) if self.replaces else self.entries + len(far)
        head = HEAD.pack(
            self.position,
            self.level,
            self.has_snapshot,
            self.unusable,
            entries,
            entries if self.replaces else self.entries_at_first,
            len(self.bids.prices),
            self.bids.bound is not None,
            self.asks.bound is not None,
        )
        numbers: list[int] = []
        for side in (self.bids, self.asks):
            numbers.append(side.bound or 0)
            for price in side.prices:
                numbers += (price, side.quantities[price])
        return Packed(
            head + _bytes(numbers),
            b"".join(bytes([name]) + _bytes(change) for name, *change in far),
            self.replaces,
        )

    @classmethod
    def unpack(cls, near: bytes, far: Callable[[], Iterable[bytes]]) -> OrderBook:
        """Return a book that was stored; `far` reads its log of far levels."""
        position, level, has_snapshot, unusable, entries, first, count, *are_bound = HEAD.unpack_from(near)
        numbers = _numbers(near, HEAD.size)
        end = 1 + 2 * count
        return cls(
            _side(-1, numbers[:end], is_bound=are_bound[0]),
            _side(1, numbers[end:], is_bound=are_bound[1]),
            position,
            level,
            has_snapshot,
            unusable,
            far,
            replaces=False,
            entries=entries,
            entries_at_first=first,
        )


def _side(sign: int, numbers: list[int], *, is_bound: bool) -> Side:
    prices = numbers[1::2]
    return Side(sign, dict(zip(prices, numbers[2::2], strict=True)), prices, numbers[0] if is_bound else None)


def _bytes(numbers: Iterable[int]) -> bytes:
    return b"".join(number.to_bytes(NUMBER_BYTES, "little", signed=True) for number in numbers)


def _numbers(data: bytes, start: int) -> list[int]:
    return [
        int.from_bytes(data[place : place + NUMBER_BYTES], "little", signed=True)
        for place in range(start, len(data), NUMBER_BYTES)
    ]


def _entries(log: Iterable[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield side, price and quantity of each entry."""
    for chunk in log:
        for place in range(0, len(chunk), ENTRY_BYTES):
            price, quantity = _numbers(chunk[place : place + ENTRY_BYTES], 1)
            yield chunk[place], price, quantity


def _units(value: Decimal) -> int:
    return int(CONTEXT.scaleb(value, PLACES))


def _decimal(units: int) -> Decimal:
    return CONTEXT.scaleb(Decimal(units), -PLACES)
