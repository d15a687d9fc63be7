"""Messages shaped like the replay of one exchange.

The cost of a message is in its type, its bytes, and the levels of a book change, for each becomes an event.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator


def narrow_books(messages: int) -> Iterator[bytes]:
    """Yield trades and changes of few levels: 2.75 in the mean, 10 in one of a hundred."""
    chance = random.Random(1)  # noqa: S311 - no secret
    for number in range(messages):
        if chance.random() < 0.19:
            fields = f'"id":"{uuid.UUID(int=chance.getrandbits(128))}",{_trade(chance, 0.5, 1)}'
            yield _framed("trade", "bitmex", "XBTUSD", fields, number)
        else:
            levels = 1
            while chance.random() > 1 / 2.75:
                levels += 1
            yield _framed("book_change", "bitmex", "XBTUSD", _changes(chance, levels, 0.5, 100), number)


def wide_books(messages: int) -> Iterator[bytes]:
    """Yield tickers, trades, and changes of many levels: 29 in the mean, 97 in one of a hundred."""
    chance = random.Random(1)  # noqa: S311 - no secret
    kinds = random.Random(2).choices(("book_ticker", "book_change", "trade"), (50, 37.5, 12.5), k=messages)  # noqa: S311
    fields: dict[str, Callable[[], str]] = {
        "book_ticker": lambda: _best_prices(chance),
        "book_change": lambda: _changes(chance, round(chance.gammavariate(2, 14.5)) or 1, 0.01, 0.001),
        "trade": lambda: f'"id":"{chance.randint(5 * 10**8, 6 * 10**8)}",{_trade(chance, 0.01, 0.001)}',
    }
    for number, kind in enumerate(kinds):
        yield _framed(kind, "binance-futures", "BTCUSDT", fields[kind](), number)


SHAPES: dict[str, Callable[[int], Iterator[bytes]]] = {
    "json, narrow books": narrow_books,
    "json, wide books": wide_books,
}


def _framed(kind: str, exchange: str, symbol: str, fields: str, number: int) -> bytes:
    second, millisecond = divmod(number, 1000)
    time = f"2020-02-01T00:{second // 60:02}:{second % 60:02}.{millisecond:03}"
    return (
        f'{{"type":"{kind}","symbol":"{symbol}","exchange":"{exchange}",{fields},'
        f'"timestamp":"{time}Z","localTimestamp":"{time}{number * 37 % 1000:03}Z"}}'
    ).encode()


def _number(chance: random.Random, least: int, most: int, step: float) -> str:
    return f"{round(chance.randint(round(least / step), round(most / step)) * step, 3):.10g}"


def _trade(chance: random.Random, tick: float, lot: float) -> str:
    side = chance.choice(("buy", "sell"))
    return (
        f'"price":{_number(chance, 8850, 9850, tick)},"amount":{_number(chance, 0, 9, lot)},"side":"{side}"'
    )


def _changes(chance: random.Random, levels: int, tick: float, lot: float) -> str:
    """Write so many levels, on both sides; one of five is deleted."""
    sides: tuple[list[str], list[str]] = ([], [])
    for _ in range(levels):
        amount = "0" if chance.random() < 0.2 else _number(chance, 0, round(10_000 * lot) or 9, lot)
        level = f'{{"price":{_number(chance, 8850, 9850, tick)},"amount":{amount}}}'
        chance.choice(sides).append(level)
    bids, asks = (",".join(side) for side in sides)
    return f'"isSnapshot":false,"bids":[{bids}],"asks":[{asks}]'


def _best_prices(chance: random.Random) -> str:
    ask, bid = (
        f'"{side}Price":{_number(chance, 8850, 9850, 0.01)},"{side}Amount":{_number(chance, 0, 9, 0.001)}'
        for side in ("ask", "bid")
    )
    return f"{ask},{bid}"
