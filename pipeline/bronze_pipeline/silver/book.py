"""An order book built from changes; nothing here knows Spark."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice

Level = tuple[Decimal, Decimal]
"""A price, and the quantity at it."""


@dataclass
class Side:
    """One side of a book."""

    quantities: dict[Decimal, Decimal] = field(default_factory=dict)
    prices: list[Decimal] = field(default_factory=list)
    """The prices with quantities, lowest first."""

    def put(self, price: Decimal, quantity: Decimal) -> None:
        """Set the quantity at a price; zero removes it."""
        known = price in self.quantities
        if quantity:
            self.quantities[price] = quantity
            if not known:
                insort(self.prices, price)
        elif known:
            del self.quantities[price]
            del self.prices[bisect_left(self.prices, price)]

    def clear(self) -> None:
        self.quantities.clear()
        self.prices.clear()

    def lowest(self, count: int) -> list[Level]:
        return [(price, self.quantities[price]) for price in self.prices[:count]]

    def highest(self, count: int) -> list[Level]:
        return [(price, self.quantities[price]) for price in islice(reversed(self.prices), count)]


@dataclass
class OrderBook:
    """The book of one symbol in one stream, as of its last change.

    A message has one change for each level; all have its position. Changes must come in the order of their
    positions and levels.
    """

    bids: Side = field(default_factory=Side)
    asks: Side = field(default_factory=Side)
    position: int = -1
    """Of the last change."""
    level: int = -1
    """Of the last change."""
    has_snapshot: bool = False
    """Whether a snapshot started it; without one, levels that did not change are missing."""
    unusable: int = 0
    """Levels without a price or quantity since the last snapshot."""

    def begin(self, position: int, *, is_snapshot: bool) -> None:
        """Begin a message, or continue it."""
        if is_snapshot and position > self.position:
            self.bids.clear()
            self.asks.clear()
            self.has_snapshot = True
            self.unusable = 0
        self.position = position

    def put(self, level: int, side: str | None, price: Decimal | None, quantity: Decimal | None) -> None:
        """Apply a level of the message."""
        self.level = level
        if price is None or quantity is None or side is None:
            self.unusable += 1
        else:
            (self.bids if side == "buy" else self.asks).put(price, quantity)

    def to_json(self) -> str:
        return json.dumps(
            {
                "bids": _texts(self.bids),
                "asks": _texts(self.asks),
                "position": self.position,
                "level": self.level,
                "has_snapshot": self.has_snapshot,
                "unusable": self.unusable,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> OrderBook:
        stored = json.loads(text)
        return cls(**{**stored, "bids": _side(stored["bids"]), "asks": _side(stored["asks"])})


def _texts(side: Side) -> list[tuple[str, str]]:
    return [(str(price), str(side.quantities[price])) for price in side.prices]


def _side(texts: Iterable[tuple[str, str]]) -> Side:
    quantities = {Decimal(price): Decimal(quantity) for price, quantity in texts}
    return Side(quantities, list(quantities))
