"""A market that never was: normalized messages such as a replay gives, the same for the same seed.

Prices walk at random; each book is kept, so that snapshots, changes, quotes and tickers agree.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, islice
from typing import NamedTuple

BEGIN_MICROSECONDS = 1_709_251_200_000_000  # 2024-03-01T00:00:00Z
BOOK_LEVELS = 20
FIRST_DISCONNECT, DISCONNECT_INTERVAL = 500, 20_000

FUTURE = {
    "book_change": 46,
    "trade": 30,
    "book_ticker": 9,
    "book_snapshot": 4,
    "derivative_ticker": 4,
    "quote": 3,
    "trade_bar": 2,
    "grouped": 1,
    "liquidation": 1,
}
OPTION = {"option_summary": 6, "book_change": 3, "trade": 1}


class Terms(NamedTuple):
    """What an instrument is like. Its price and tick, and its lot, are in the last of their places."""

    share: int
    exchange: str
    symbol: str
    price: int
    tick: int
    places: int
    lot: int = 1
    lot_places: int = 0
    kinds: dict[str, int] = FUTURE


TERMS = (
    Terms(20, "bitmex", "XBTUSD", price=617_285, tick=5, places=1, lot=100),
    Terms(8, "bitmex", "ETHUSD", price=342_155, tick=1, places=2, lot=10),
    Terms(15, "deribit", "BTC-PERPETUAL", price=617_305, tick=5, places=1, lot=10),
    Terms(3, "deribit", "BTC-29MAR24-65000-C", price=855, tick=5, places=4, kinds=OPTION),
    Terms(2, "deribit", "DOGE-29MAR24-0.06-P", price=640, tick=1, places=5, kinds=OPTION),
    Terms(20, "binance-futures", "BTCUSDT", price=617_294, tick=1, places=1, lot_places=3),
    Terms(6, "binance-futures", "1000SHIBUSDT", price=12_734, tick=1, places=6),
    Terms(12, "okex-swap", "BTC-USDT-SWAP", price=617_301, tick=1, places=1),
    # A character that means something in paths and topics, and prices with an exponent.
    Terms(8, "okex-swap", "BTC/USDT", price=617_288, tick=1, places=1, lot=125, lot_places=8),
    Terms(6, "okex-swap", "PEPE-USDT-SWAP", price=5_231, tick=1, places=10, lot=1000),
)


def replay(messages: int, seed: int = 1) -> Iterator[bytes]:
    """Yield so many normalized messages, each as one line of JSON without its newline.

    All types that a replay has are among them: trades, book changes that begin with a snapshot, book
    snapshots (plain, grouped, as quotes), bars, tickers of books and derivatives, liquidations, option
    summaries, and disconnects, after which books begin anew. Times increase. A shorter replay with the
    same seed is the beginning of a longer one.
    """
    return islice(_endless(random.Random(seed)), messages)  # noqa: S311 - no secret


def _endless(chance: random.Random) -> Iterator[bytes]:
    clock = Clock(chance)
    instruments = [Instrument(terms, clock, chance) for terms in TERMS]
    shares = list(accumulate(terms.share for terms in TERMS))
    until_disconnect = FIRST_DISCONNECT
    while True:
        clock.advance()
        until_disconnect -= 1
        if until_disconnect == 0:
            until_disconnect = DISCONNECT_INTERVAL
            exchange = chance.choice(instruments).exchange
            for instrument in instruments:
                instrument.is_open &= instrument.exchange != exchange
            yield f'{{"type":"disconnect","exchange":"{exchange}","localTimestamp":"{clock.now()}"}}'.encode()
        else:
            (instrument,) = chance.choices(instruments, cum_weights=shares)
            yield instrument.message().encode()


class Clock:
    """The time of the replay, in microseconds."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._microseconds = BEGIN_MICROSECONDS

    def advance(self) -> None:
        """Go on by up to a few milliseconds."""
        self._microseconds += int(self._chance.expovariate(1 / 900)) + 1

    def now(self) -> str:
        """Return the time with six digits, as recorders note it."""
        seconds, fraction = divmod(self._microseconds, 1_000_000)
        return f"{_second(seconds)}.{fraction:06d}Z"

    def at_exchange(self, digits: int) -> str:
        """Return the time a little earlier, with three digits or six."""
        seconds, fraction = divmod(self._microseconds - 7_317, 1_000_000)
        if digits == 3:
            return f"{_second(seconds)}.{fraction // 1000:03d}Z"
        return f"{_second(seconds)}.{fraction:06d}Z"


@lru_cache(16)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


@lru_cache(1 << 16)
def number(units: int, places: int) -> str:
    """Write a decimal number as JavaScript does: no zeros behind, small ones with an exponent."""
    if places > 6 and 0 < units < 10 ** (places - 6):
        digits = str(units)
        exponent = places - len(digits) + 1
        digits = digits.rstrip("0")
        return f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e-{exponent}"
    whole, fraction = divmod(units, 10**places)
    return f"{whole}.{fraction:0{places}d}".rstrip("0").rstrip(".") if fraction else str(whole)


class Instrument:
    """One instrument with its book and the trades of its next bar. Prices are in ticks, amounts in lots."""

    def __init__(self, terms: Terms, clock: Clock, chance: random.Random) -> None:
        self._terms = terms
        self._clock = clock
        self._chance = chance
        self.exchange = terms.exchange
        self.is_open = False
        """Whether the book's opening snapshot was sent."""
        self._middle = terms.price // terms.tick
        self._digits = 6 if terms.exchange == "bitmex" else 3
        self._writers: list[Callable[[], str]] = [getattr(self, f"_{kind}") for kind in terms.kinds]
        self._shares = list(accumulate(terms.kinds.values()))
        # Amounts by their distance from the middle; 0 is a hole.
        self._bids = [self._amount() for _ in range(BOOK_LEVELS)]
        self._asks = [self._amount() for _ in range(BOOK_LEVELS)]
        self._trades = 0
        self._bars = 0
        self._bar: list[tuple[int, int, bool, str]] = []

    def message(self) -> str:
        """Return the next message as JSON."""
        if not self.is_open:
            self.is_open = True
            return self._book_message(enumerate(self._bids), enumerate(self._asks), snapshot=True)
        (write,) = self._chance.choices(self._writers, cum_weights=self._shares)
        return write()

    # -- parts of messages

    def _amount(self) -> int:
        return int(self._chance.expovariate(1 / 40)) + 1

    def _draw(self, most: int, places: int) -> str:
        return number(self._chance.randint(1, most), places)

    def _price(self, ticks: int) -> str:
        return number(ticks * self._terms.tick, self._terms.places)

    def _quantity(self, lots: int) -> str:
        return number(lots * self._terms.lot, self._terms.lot_places)

    def _level(self, ticks: int, lots: int) -> str:
        return f'{{"price":{self._price(ticks)},"amount":{self._quantity(lots)}}}'

    def _framed(self, kind: str, fields: str) -> str:
        return (
            f'{{"type":"{kind}","symbol":"{self._terms.symbol}","exchange":"{self.exchange}",{fields}'
            f'"timestamp":"{self._clock.at_exchange(self._digits)}","localTimestamp":"{self._clock.now()}"}}'
        )

    def _best(self) -> tuple[int, int]:
        """Return how far the best bid and the best ask are from the middle."""
        return (
            next((distance for distance, lots in enumerate(self._bids) if lots), 0),
            next((distance for distance, lots in enumerate(self._asks) if lots), 0),
        )

    # -- books

    def _book_message(
        self, bids: Iterable[tuple[int, int]], asks: Iterable[tuple[int, int]], *, snapshot: bool = False
    ) -> str:
        """Write levels, given by distance and amount; a snapshot has no holes."""
        lower = ",".join(
            self._level(self._middle - 1 - distance, lots) for distance, lots in bids if lots or not snapshot
        )
        upper = ",".join(
            self._level(self._middle + distance, lots) for distance, lots in asks if lots or not snapshot
        )
        is_snapshot = "true" if snapshot else "false"
        return self._framed("book_change", f'"isSnapshot":{is_snapshot},"bids":[{lower}],"asks":[{upper}],')

    def _book_change(self) -> str:
        draw = self._chance.random()
        if draw < 0.1 and self._middle > 10 * BOOK_LEVELS:
            return self._move(up=draw < 0.05)
        bids: dict[int, int] = {}
        asks: dict[int, int] = {}
        for _ in range(1 if draw < 0.75 else 3):
            distance = min(int(self._chance.expovariate(0.35)), BOOK_LEVELS - 1)
            lots = 0 if self._chance.random() < 0.2 else self._amount()
            if self._chance.random() < 0.5:
                bids[distance] = self._bids[distance] = lots
            else:
                asks[distance] = self._asks[distance] = lots
        return self._book_message(bids.items(), asks.items())

    def _move(self, *, up: bool) -> str:
        """Move the middle by one tick: each side wins a level at one end and loses one at the other."""
        last, lots, far = BOOK_LEVELS - 1, self._amount(), self._amount()
        if up:
            self._middle += 1
            self._bids, self._asks = [lots, *self._bids[:-1]], [*self._asks[1:], far]
            return self._book_message([(0, lots), (BOOK_LEVELS, 0)], [(-1, 0), (last, far)])
        self._middle -= 1
        self._bids, self._asks = [*self._bids[1:], far], [lots, *self._asks[:-1]]
        return self._book_message([(-1, 0), (last, far)], [(0, lots), (BOOK_LEVELS, 0)])

    def _snapshot(self, name: str, depth: int, *, group: int = 0) -> str:
        width = group or 1
        lower: dict[int, int] = {}
        upper: dict[int, int] = {}
        for distance, lots in enumerate(self._bids):
            price = (self._middle - 1 - distance) // width * width
            lower[price] = lower.get(price, 0) + lots
        for distance, lots in enumerate(self._asks):
            price = -(-(self._middle + distance) // width) * width
            upper[price] = upper.get(price, 0) + lots
        sides = []
        for side in (lower, upper):
            levels = [self._level(price, lots) for price, lots in side.items() if lots][:depth]
            sides.append(",".join(levels + ["{}"] * (depth - len(levels))))
        grouping = f'"grouping":{self._price(group)},' if group else ""
        return self._framed(
            "book_snapshot",
            f'"name":"{name}","depth":{depth},"interval":0,{grouping}"bids":[{sides[0]}],"asks":[{sides[1]}],',
        )

    def _book_snapshot(self) -> str:
        return self._snapshot("book_snapshot_5_0ms", 5)

    def _grouped(self) -> str:
        return self._snapshot(f"book_snapshot_3_grouped{self._price(10)}_0ms", 3, group=10)

    def _quote(self) -> str:
        return self._snapshot("quote", 1)

    def _book_ticker(self) -> str:
        bid, ask = self._best()
        return self._framed(
            "book_ticker",
            f'"askAmount":{self._quantity(self._asks[ask])},"askPrice":{self._price(self._middle + ask)},'
            f'"bidPrice":{self._price(self._middle - 1 - bid)},'
            f'"bidAmount":{self._quantity(self._bids[bid])},',
        )

    # -- trades and what follows from them

    def _trade(self) -> str:
        is_buy = self._chance.random() < 0.5
        bid, ask = self._best()
        price = self._middle + ask if is_buy else self._middle - 1 - bid
        lots = self._amount()
        self._trades += 1
        self._bar.append((price, lots, is_buy, self._clock.at_exchange(self._digits)))
        side = "buy" if is_buy else "sell"
        return self._framed(
            "trade",
            f'"id":"{self._trades + 1_000_000}","price":{self._price(price)},'
            f'"amount":{self._quantity(lots)},"side":"{side}",',
        )

    def _liquidation(self) -> str:
        bid, _ = self._best()
        # Some exchanges give liquidations no id.
        name = "" if self.exchange == "binance-futures" else f'"id":"liq-{self._chance.getrandbits(32):08x}",'
        return self._framed(
            "liquidation",
            f'{name}"price":{self._price(self._middle - 1 - bid)},"amount":{self._quantity(self._amount())},'
            f'"side":"sell",',
        )

    def _trade_bar(self) -> str:
        if not self._bar:
            return self._trade()
        trades, self._bar = self._bar, []
        self._bars += 1
        count = len(trades)
        volume = sum(lots for _, lots, _, _ in trades)
        bought = sum(lots for _, lots, is_buy, _ in trades if is_buy)
        turnover = sum(price * lots for price, lots, _, _ in trades)
        prices = [price for price, _, _, _ in trades]
        name, interval, kind = (
            ("trade_bar_1s", "1000", "time"),
            (f"trade_bar_{count}ticks", str(count), "tick"),
            ("trade_bar_0.5vol", "0.5", "volume"),
        )[self._bars % 3]
        return self._framed(
            "trade_bar",
            f'"name":"{name}","interval":{interval},"kind":"{kind}","open":{self._price(prices[0])},'
            f'"high":{self._price(max(prices))},"low":{self._price(min(prices))},'
            f'"close":{self._price(prices[-1])},"volume":{self._quantity(volume)},'
            f'"buyVolume":{self._quantity(bought)},"sellVolume":{self._quantity(volume - bought)},'
            f'"trades":{count},"vwap":{self._price(turnover // volume)},'
            f'"openTimestamp":"{trades[0][3]}","closeTimestamp":"{trades[-1][3]}",',
        )

    # -- derivatives

    def _derivative_ticker(self) -> str:
        funding = self._draw(50_000, 8)
        # What has not changed is often absent.
        interest = f'"openInterest":{self._amount() * 1000},' if self._chance.random() < 0.5 else ""
        return self._framed(
            "derivative_ticker",
            f'"lastPrice":{self._price(self._middle)},{interest}"fundingRate":{funding},'
            f'"indexPrice":{self._price(self._middle + 1)},"markPrice":{self._price(self._middle - 1)},',
        )

    def _option_summary(self) -> str:
        *_, strike, letter = self._terms.symbol.split("-")
        sign = "" if letter == "C" else "-"
        return self._framed(
            "option_summary",
            f'"optionType":"{"call" if letter == "C" else "put"}","strikePrice":{strike},'
            f'"expirationDate":"2024-03-29T08:00:00.000Z","openInterest":{self._amount()},'
            f'"markPrice":{self._price(self._middle)},"markIV":{self._draw(9_000, 2)},'
            f'"delta":{sign}{self._draw(99_999, 5)},'
            f'"gamma":{self._draw(900, 7)},'
            f'"vega":{self._draw(900_000, 4)},'
            f'"theta":-{self._draw(900_000, 4)},"rho":0,'
            f'"underlyingIndex":"SYN.{self._terms.symbol.rsplit("-", 2)[0]}",',
        )


def main() -> None:
    """Write so many messages (1,000 if no number is given) to standard output, one a line."""
    for message in replay(int(sys.argv[1]) if sys.argv[1:] else 1000):
        sys.stdout.buffer.write(message + b"\n")


if __name__ == "__main__":
    main()
