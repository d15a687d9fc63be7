"""An order book by itself, by hand and against a replay that shares nothing with it."""

from __future__ import annotations

import random
from decimal import Decimal

from bronze_pipeline.silver.book import OrderBook


def d(*numbers: str) -> tuple[Decimal, ...]:
    return tuple(Decimal(number) for number in numbers)


def put(book: OrderBook, side: str, price: str, quantity: str) -> None:
    book.put(0, side, Decimal(price), Decimal(quantity))


def test_best_levels_come_first() -> None:
    book = OrderBook()
    book.begin(0, is_snapshot=True)
    for price in ("9", "11", "10"):
        put(book, "buy", price, "1")
        put(book, "sell", f"2{price}", "2")
    assert book.bids.highest(2) == [d("11", "1"), d("10", "1")]
    assert book.asks.lowest(2) == [d("29", "2"), d("210", "2")]


def test_a_level_is_changed_and_removed() -> None:
    book = OrderBook()
    book.begin(0, is_snapshot=True)
    put(book, "buy", "10.0", "1")
    put(book, "buy", "10.00", "3")
    assert book.bids.highest(5) == [d("10", "3")]
    put(book, "buy", "10", "0")
    put(book, "buy", "7", "0")
    assert book.bids.highest(5) == []


def test_a_snapshot_begins_anew_and_comes_in_parts() -> None:
    book = OrderBook()
    book.begin(3, is_snapshot=False)
    put(book, "sell", "5", "1")
    before = book.has_snapshot
    book.begin(4, is_snapshot=True)
    put(book, "sell", "6", "1")
    book.begin(4, is_snapshot=True)
    put(book, "sell", "7", "1")
    assert (before, book.has_snapshot) == (False, True)
    assert book.asks.lowest(5) == [d("6", "1"), d("7", "1")]


def test_levels_that_say_nothing_are_counted_until_the_next_snapshot() -> None:
    book = OrderBook()
    book.begin(0, is_snapshot=False)
    book.put(0, None, Decimal(1), Decimal(1))
    book.put(1, "buy", None, Decimal(1))
    book.put(2, "buy", Decimal(1), None)
    assert (book.unusable, book.bids.highest(1)) == (3, [])
    book.begin(1, is_snapshot=True)
    assert book.unusable == 0


def test_a_book_survives_being_stored() -> None:
    book = OrderBook()
    book.begin(7, is_snapshot=True)
    put(book, "buy", "10.50", "1e-8")
    put(book, "sell", "11", "2")
    assert OrderBook.from_json(book.to_json()) == book


def test_a_long_replay() -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    book = OrderBook()
    # The independent one: a plain dictionary, sorted anew each time.
    plain: dict[tuple[str, int], int] = {}
    for position in range(2000):
        is_snapshot = position % 400 == 0
        book.begin(position, is_snapshot=is_snapshot)
        if is_snapshot:
            plain = {}
        for level in range(chance.randrange(1, 6)):
            side, price, quantity = chance.choice(["buy", "sell"]), chance.randrange(100), chance.randrange(4)
            book.put(level, side, Decimal(price) / 100, Decimal(quantity))
            plain.pop((side, price), None)
            if quantity:
                plain[side, price] = quantity
        bids = sorted(((price, qty) for (side, price), qty in plain.items() if side == "buy"), reverse=True)[
            :5
        ]
        asks = sorted((price, qty) for (side, price), qty in plain.items() if side == "sell")[:5]
        assert book.bids.highest(5) == [(Decimal(price) / 100, Decimal(qty)) for price, qty in bids]
        assert book.asks.lowest(5) == [(Decimal(price) / 100, Decimal(qty)) for price, qty in asks]
