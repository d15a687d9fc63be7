"""The generated market: the same for the same seed, complete, and consistent with itself."""

from __future__ import annotations

import json
from collections import Counter

import market
import pytest
from bronze_sidecar.mapping.mapper import Mapper, StreamContext

COUNT = 5_000


@pytest.fixture(scope="module")
def messages():
    return [json.loads(message) for message in market.replay(COUNT)]


def test_the_same_seed_gives_the_same_messages_and_another_one_others():
    first = list(market.replay(300))
    assert len(first) == 300
    assert list(market.replay(300, seed=1)) == first
    assert list(market.replay(300, seed=2)) != first


def test_a_shorter_replay_is_the_beginning_of_a_longer_one():
    assert list(market.replay(700))[:600] == list(market.replay(600))


def test_every_type_of_a_replay_is_there(messages):
    kinds = Counter(message["type"] for message in messages)
    assert set(kinds) == {
        "trade",
        "book_change",
        "book_snapshot",
        "book_ticker",
        "derivative_ticker",
        "liquidation",
        "option_summary",
        "trade_bar",
        "disconnect",
    }
    assert any("grouping" in message for message in messages)
    assert any(message.get("name") == "quote" for message in messages)
    assert {message["kind"] for message in messages if message["type"] == "trade_bar"} == {
        "time",
        "tick",
        "volume",
    }


def test_several_exchanges_and_awkward_symbols_are_there(messages):
    assert {message["exchange"] for message in messages} == {
        "bitmex",
        "deribit",
        "binance-futures",
        "okex-swap",
    }
    symbols = {message.get("symbol") for message in messages}
    assert {"XBTUSD", "BTC/USDT", "DOGE-29MAR24-0.06-P"} <= symbols


def test_times_increase_and_have_three_digits_or_six(messages):
    local = [message["localTimestamp"] for message in messages]
    assert local == sorted(local)
    assert {len(time) for time in local} == {len("2024-03-01T00:00:00.000000Z")}
    exchange_times = {len(message["timestamp"]) for message in messages if "timestamp" in message}
    assert exchange_times == {len("2024-03-01T00:00:00.000Z"), len("2024-03-01T00:00:00.000000Z")}


def test_books_begin_with_a_snapshot_also_after_a_disconnect_and_never_cross(messages):
    books: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
    changes = 0
    for message in messages:
        if message["type"] == "disconnect":
            books = {key: book for key, book in books.items() if key[0] != message["exchange"]}
        if message["type"] != "book_change":
            continue
        key = message["exchange"], message["symbol"]
        assert message["isSnapshot"] is (key not in books)
        book = books.setdefault(key, {"bids": {}, "asks": {}})
        for side, levels in book.items():
            for level in message[side]:
                if level["amount"]:
                    levels[level["price"]] = level["amount"]
                else:
                    levels.pop(level["price"], None)
        assert max(book["bids"]) < min(book["asks"])
        changes += 1
    assert changes > 1_000


def test_a_plain_snapshot_shows_the_book_that_the_changes_make(messages):
    books: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
    compared = 0
    for message in messages:
        key = message["exchange"], message.get("symbol", "")
        if message["type"] == "book_change":
            fresh: dict[str, dict[float, float]] = {"bids": {}, "asks": {}}
            book = fresh if message["isSnapshot"] else books[key]
            for side, levels in book.items():
                levels |= {level["price"]: level["amount"] for level in message[side]}
            books[key] = book
        elif message.get("name") == "book_snapshot_5_0ms":
            best = sorted(price for price, amount in books[key]["bids"].items() if amount)[-5:]
            assert [level["price"] for level in message["bids"] if level] == best[::-1]
            compared += 1
    assert compared > 50


@pytest.mark.parametrize(
    ("units", "places", "text"),
    [
        (0, 8, "0"),
        (5, 0, "5"),
        (125, 1, "12.5"),
        (120, 1, "12"),
        (5231, 10, "5.231e-7"),
        (500, 10, "5e-8"),
        (10_000, 10, "0.000001"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(units, places, text):
    assert market.number(units, places) == text


def test_the_sidecar_can_map_every_message():
    mapper = Mapper(StreamContext(stream_id="s"))
    events = [
        event
        for position, message in enumerate(market.replay(COUNT))
        for event in mapper.events(message, position, b"")
    ]
    assert len(events) > COUNT
    assert "e-" in next(event for event in events if event.symbol == "PEPE-USDT-SWAP").envelope.decode(
        "latin-1"
    )
