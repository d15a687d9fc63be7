"""What a book's changes make of it, and the rows that follow; nothing here knows Spark.

A message becomes one event for each level, and nothing marks the last: the part of a message in a micro-batch
is applied and emitted, and if the next one has more of it, the row is emitted `again`, to replace the first.
So the table ends with the last message, and every message has one row.

Changes count in the order of their positions and levels, whenever they arrive. If one arrives behind a later
one (bronze was compacted, or a gap was filled), the book is made anew from the last snapshot before it, by
what the table of changes has, and every row from there on is emitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from bronze_pipeline.silver.book import Level, OrderBook

BOOK = ("stream_id", "exchange", "symbol")
AGAIN = "again"


class LevelChange(NamedTuple):
    """A level of a message."""

    position: int
    level: int
    is_snapshot: bool
    side: str | None
    price: Decimal | None
    qty: Decimal | None
    event_us: int | None
    local_us: int | None


History: TypeAlias = Callable[[Sequence[str | None], int, int], Iterable[LevelChange]]
"""Returns a book's changes from the last snapshot at or before one position up to another position."""


@dataclass(frozen=True)
class Shape:
    """What the rows show."""

    depth: int
    interval_us: int | None = None
    """One row for each interval; None for one after each message."""

    @property
    def near(self) -> int:
        """How many levels of a book to keep at hand, so that deeper ones are seldom read."""
        return 2 * self.depth + 16


@dataclass
class BookState:
    """What is kept of a book between micro-batches."""

    book: OrderBook = field(default_factory=OrderBook)
    emitted: int | None = None
    """The highest position, or interval, that has a row."""


def rows_after(
    state: BookState,
    key: Sequence[str | None],
    changes: Iterable[LevelChange],
    shape: Shape,
    history: History,
) -> list[dict[str, Any]]:
    """Apply the changes of a micro-batch to a book; return the rows that are new or again."""
    ordered = sorted(changes, key=attrgetter("position", "level"))
    first, last = ordered[0], ordered[-1]
    if (first.position, first.level) <= (state.book.position, state.book.level):
        # The table may have more by now. What it has is right to apply, and comes once more as late.
        known = history(key, first.position, max(last.position, state.book.position))
        ordered = sorted(known, key=attrgetter("position", "level"))
        state.book = OrderBook()
    kept: dict[int, dict[str, Any]] = {}
    for row in _messages(state.book, ordered, shape.depth):
        name = row["position"]
        if name < first.position:
            continue
        if shape.interval_us is not None:
            if row["event_us"] is None:
                continue
            name = row["interval_us"] = row["event_us"] - row["event_us"] % shape.interval_us
        kept[name] = row | dict(zip(BOOK, key, strict=True))
    for name, row in kept.items():
        row[AGAIN] = state.emitted is not None and name <= state.emitted
    state.emitted = max((*kept, *(() if state.emitted is None else (state.emitted,))), default=None)
    return list(kept.values())


def _messages(book: OrderBook, changes: Iterable[LevelChange], depth: int) -> Iterator[dict[str, Any]]:
    """Apply the changes; yield a row after each message."""
    for position, levels in groupby(changes, attrgetter("position")):
        message = list(levels)
        first = message[0]
        book.begin(position, is_snapshot=first.is_snapshot)
        for each in message:
            book.put(each.level, each.side, each.price, each.qty)
        bids, asks = book.best(depth)
        yield {
            "position": position,
            "event_us": first.event_us,
            "local_us": first.local_us,
            "is_snapshot": first.is_snapshot,
            "has_snapshot": book.has_snapshot,
            "unusable": book.unusable,
            "bids": _shown(bids),
            "asks": _shown(asks),
            "interval_us": None,
        }


def _shown(levels: list[Level]) -> list[dict[str, Any]]:
    return [{"price": price, "qty": quantity} for price, quantity in levels]
