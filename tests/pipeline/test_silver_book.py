"""An order book by itself, by hand and against a replay that shares nothing with it."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest
from bronze_pipeline.silver import book as book_module
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
    assert book.best(2)[0] == [d("11", "1"), d("10", "1")]
    assert book.best(2)[1] == [d("29", "2"), d("210", "2")]


def test_a_level_is_changed_and_removed() -> None:
    book = OrderBook()
    book.begin(0, is_snapshot=True)
    put(book, "buy", "10.0", "1")
    put(book, "buy", "10.00", "3")
    assert book.best(5)[0] == [d("10", "3")]
    put(book, "buy", "10", "0")
    put(book, "buy", "7", "0")
    assert book.best(5)[0] == []


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
    assert book.best(5)[1] == [d("6", "1"), d("7", "1")]


def test_levels_that_say_nothing_are_counted_until_the_next_snapshot() -> None:
    book = OrderBook()
    book.begin(0, is_snapshot=False)
    book.put(0, None, Decimal(1), Decimal(1))
    book.put(1, "buy", None, Decimal(1))
    book.put(2, "buy", Decimal(1), None)
    assert (book.unusable, book.best(1)[0]) == (3, [])
    book.begin(1, is_snapshot=True)
    assert book.unusable == 0


class Store:
    """A book that is stored and read again."""

    def __init__(self, near: int) -> None:
        self._near = near
        self._packed = OrderBook().pack(near).near
        self.far: list[bytes] = []
        self.reads = 0

    def load(self) -> OrderBook:
        return OrderBook.unpack(self._packed, self._read)

    def _read(self) -> list[bytes]:
        self.reads += 1
        return self.far

    def save(self, book: OrderBook) -> None:
        packed = book.pack(self._near)
        self._packed = packed.near
        if packed.replaces:
            self.far = []
        if packed.far:
            self.far.append(packed.far)


def test_a_book_survives_being_stored() -> None:
    store = Store(near=9)
    book = OrderBook()
    book.begin(7, is_snapshot=True)
    put(book, "buy", "10.50", "1e-8")
    put(book, "buy", "-99999999999999999999.999999999999999999", "99999999999999999999.999999999999999999")
    put(book, "sell", "11", "2")
    book.put(4, None, None, None)
    store.save(book)
    again = store.load()
    assert (again.position, again.level, again.has_snapshot, again.unusable) == (7, 4, True, 1)
    low = "-99999999999999999999.999999999999999999"
    assert again.best(5) == ([d("10.5", "1e-8"), d(low, low[1:])], [d("11", "2")])
    assert store.far == []


def test_far_levels_are_read_when_near_ones_run_out() -> None:
    store = Store(near=2)
    book = OrderBook()
    book.begin(0, is_snapshot=True)
    for price in range(1, 9):
        put(book, "sell", str(price), "1")
    store.save(book)
    book = store.load()
    book.begin(1, is_snapshot=False)
    put(book, "sell", "7", "0")
    put(book, "sell", "8", "5")
    put(book, "sell", "1.5", "1")
    assert book.best(2)[1] == [d("1", "1"), d("1.5", "1")]
    store.save(book)
    assert store.reads == 0
    book = store.load()
    book.begin(2, is_snapshot=False)
    for gone in ("1", "1.5", "3"):
        put(book, "sell", gone, "0")
    assert book.best(2)[1] == [d("2", "1"), d("4", "1")]
    assert store.reads == 1
    assert book.best(9)[1] == [d("2", "1"), d("4", "1"), d("5", "1"), d("6", "1"), d("8", "5")]
    store.save(book)
    assert len(store.far) == 1
    # A snapshot makes what is far void.
    book = store.load()
    book.begin(3, is_snapshot=True)
    put(book, "sell", "3", "1")
    assert book.best(5)[1] == [d("3", "1")]
    store.save(book)
    assert store.load().best(5)[1] == [d("3", "1")]
    assert store.reads == 1


def test_the_log_of_far_levels_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "FAR_SLACK", 50)
    store = Store(near=1)
    for position in range(300):
        book = store.load()
        book.begin(position, is_snapshot=False)
        for price in range(10):
            put(book, "buy", str(price), str(position + 1))
        store.save(book)
    assert sum(map(len, store.far)) < 100 * book_module.ENTRY_BYTES
    assert store.load().best(10)[0] == [d(str(price), "300") for price in range(9, -1, -1)]


@pytest.mark.parametrize("near", [1, 3, 1000])
def test_a_long_replay(near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "FAR_SLACK", 50)
    chance = random.Random(1)  # noqa: S311 - no secret
    store = Store(near)
    # The independent one: a plain dictionary, sorted anew each time.
    plain: dict[tuple[str, int], int] = {}
    for position in range(2000):
        is_snapshot = position % 400 == 0
        book = store.load()
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
        expected = tuple(
            [(Decimal(price) / 100, Decimal(qty)) for price, qty in side] for side in (bids, asks)
        )
        # Only now and then is something looked at between two micro-batches.
        if chance.randrange(3):
            assert book.best(5) == expected
        store.save(book)
