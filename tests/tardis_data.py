"""Plays the service that tardis-machine gets its data from: a generated market, and a minute written by hand.

An unmodified server sends its downloads through the proxy that `HTTP_PROXY` names. This is such a proxy, but
answers for the service itself, with a certificate of an authority that `NODE_EXTRA_CA_CERTS` makes the server
trust. It passes on only what goes to this machine: connections to an exchange that a test plays.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import trustme
from servers import HOST, free_port

SERVICE = "api.tardis.dev"
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
SYMBOLS = {"bitmex": "XBTUSD", "binance-futures": "BTCUSDT"}
LEVELS = 40

# The minute of `HAND_WRITTEN` in test_tardis_machine.py.
HAND_WRITTEN_MINUTE = datetime(2020, 3, 1, tzinfo=UTC)

# A message of an exchange: microseconds within the minute, channel, and what it says.
Message = tuple[int, str, object]


def bitmex(number: int, time: str) -> tuple[str, object]:
    """Return a message as BitMEX writes it: of eight, five are changes of the book."""
    symbol = SYMBOLS["bitmex"]
    entry: dict[str, object] = {"symbol": symbol, "timestamp": time}
    price = 9350 + number % 20 / 2
    match number % 8:
        case 0:
            side = "Buy" if number % 16 else "Sell"
            entry |= {"side": side, "size": 1 + number % 500, "price": price, "trdMatchID": f"trade-{number}"}
            return "trade", {"table": "trade", "action": "insert", "data": [entry]}
        case 1 if number % 32 == 1:
            entry |= {"markPrice": price + 0.25, "openInterest": 1_000_000 + number}
            return "instrument", {"table": "instrument", "action": "update", "data": [entry]}
        case 1 if number % 32 == 9:
            entry |= {"orderID": f"order-{number}", "side": "Sell", "price": price, "leavesQty": 1 + number}
            return "liquidation", {"table": "liquidation", "action": "insert", "data": [entry]}
        case 2:
            entry |= {"bidPrice": 9349.5, "bidSize": 1 + number, "askPrice": 9350, "askSize": 2 + number}
            return "quote", {"table": "quote", "action": "insert", "data": [entry]}
        case _:
            data = [
                {**entry, "id": (number + each) % LEVELS, "side": side_of(number + each), "size": 1 + number}
                for each in range(1 + number % 3)
            ]
            return "orderBookL2", {"table": "orderBookL2", "action": "update", "data": data}


def side_of(level: int) -> str:
    return "Buy" if level % LEVELS < LEVELS // 2 else "Sell"


def bitmex_opening(time: str) -> Iterator[tuple[str, object]]:
    """Yield what BitMEX says when a subscription begins."""
    symbol = SYMBOLS["bitmex"]
    price = {level: 9340 + level / 2 for level in range(LEVELS)}
    book = [
        {"symbol": symbol, "id": level, "side": side_of(level), "size": 100 + level, "price": price[level]}
        for level in price
    ]
    yield "orderBookL2", {"table": "orderBookL2", "action": "partial", "data": book}
    facts = {"symbol": symbol, "state": "Open", "openInterest": 7, "fundingRate": 1e-4, "timestamp": time}
    yield "instrument", {"table": "instrument", "action": "partial", "data": [facts]}


def binance(number: int, milliseconds: int) -> tuple[str, object]:
    """Return a message as Binance writes it."""
    symbol, event = SYMBOLS["binance-futures"], {"E": milliseconds, "T": milliseconds - 3}
    price, amount = f"{9350 + number % 50 / 100:.2f}", f"{1 + number % 900 / 1000:.3f}"
    match number % 8:
        case 0 | 1:
            channel = "trade"
            data = {
                "e": "trade",
                **event,
                "s": symbol,
                "t": number,
                "p": price,
                "q": amount,
                "m": number % 16 == 0,
            }
            data["X"] = "MARKET"
        case 2:
            channel = "bookTicker"
            data = {
                "e": "bookTicker",
                **event,
                "s": symbol,
                "b": "9349.99",
                "B": amount,
                "a": price,
                "A": amount,
            }
        case 3 if number % 32 == 3:
            channel = "markPrice"
            data = {"e": "markPriceUpdate", **event, "s": symbol, "p": price, "i": price, "r": "0.00009537"}
        case 3 if number % 32 == 11:
            channel = "forceOrder"
            order = {
                "s": symbol,
                "S": "SELL",
                "q": amount,
                "p": price,
                "ap": price,
                "X": "FILLED",
                "T": milliseconds,
            }
            data = {"e": "forceOrder", "E": milliseconds, "o": order | {"l": amount, "z": amount}}
        case _:
            channel = "depth"
            bids = [[f"{9349 + each % 90 / 100:.2f}", amount] for each in range(number % 9)]
            asks = [[f"{9351 + each % 90 / 100:.2f}", amount] for each in range(1 + number % 7)]
            changed = {"U": 10 * number + 1, "u": 10 * number + 10, "pu": 10 * number, "b": bids, "a": asks}
            data = {"e": "depthUpdate", **event, "s": symbol, **changed}
    return channel, {"stream": f"{symbol.lower()}@{channel}", "data": data}


def binance_opening(milliseconds: int) -> Iterator[tuple[str, object]]:
    levels = {
        "bids": [[f"{9349 - level / 100:.2f}", "1.500"] for level in range(LEVELS)],
        "asks": [[f"{9351 + level / 100:.2f}", "2.500"] for level in range(LEVELS)],
    }
    data = {"lastUpdateId": 5, "E": milliseconds, "T": milliseconds, **levels}
    yield "depthSnapshot", {"stream": f"{SYMBOLS['binance-futures'].lower()}@depthSnapshot", "data": data}


def generated(exchange: str, minute: datetime, count: int) -> Iterator[Message]:
    """Yield an opening, then `count` messages; at the end of odd minutes the connection is lost."""
    start = int(minute.timestamp()) * 1000
    opening = bitmex_opening(iso(minute)) if exchange == "bitmex" else binance_opening(start)
    for at, message in enumerate(opening):
        yield 1000 + at, *message
    for number in range(count):
        at = 2_000 + number * 59_000_000 // count
        made = (
            bitmex(number, iso(minute + timedelta(microseconds=at)))
            if exchange == "bitmex"
            else binance(number, start + at // 1000)
        )
        yield at, *made
    if minute.minute % 2:
        yield 59_900_000, "", None


def iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


async def pass_on(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Connect a client of the proxy to a port of this machine, until either side ends it."""
    method, target, _ = head.decode().split(" ", 2)
    # Some ask for a connection, others send a request with a whole URL.
    is_connection = method == "CONNECT"
    port = urlsplit(f"//{target}" if is_connection else target).port
    answers, requests = await asyncio.open_connection(HOST, port)
    if is_connection:
        writer.write(CONNECTED)
    else:
        requests.write(head)
    await asyncio.gather(copy(reader, requests), copy(answers, writer))


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.closing(target):
        while part := await source.read(1 << 16):
            target.write(part)
            await target.drain()


class TardisData:
    """The service, in a thread of its own."""

    def __init__(self, folder: Path, hand_written: Mapping[str, Sequence[Message]], messages: int) -> None:
        self._hand_written = hand_written
        self._messages = messages
        authority = trustme.CA()
        self._ca_file = folder / "data-ca.pem"
        authority.cert_pem.write_to_path(str(self._ca_file))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(SERVICE).configure_cert(self._context)
        self.port = free_port()
        self.lines = lru_cache(400)(self._lines)

    @property
    def environment(self) -> dict[str, str]:
        """What a server needs in order to find this."""
        return {"HTTP_PROXY": f"http://{HOST}:{self.port}", "NODE_EXTRA_CA_CERTS": str(self._ca_file)}

    def _lines(self, exchange: str, minute: datetime) -> list[tuple[str, str]]:
        """Return channels, and lines as the service stores them; an empty line is a lost connection."""
        if minute == HAND_WRITTEN_MINUTE:
            messages = iter(self._hand_written[exchange])
        else:
            messages = generated(exchange, minute, self._messages)
        lines = []
        for at, channel, said in messages:
            # Whoever recorded it wrote seven digits.
            time = f"{minute + timedelta(microseconds=at):%Y-%m-%dT%H:%M:%S.%f}0Z"
            lines.append((channel, f"{time} {json.dumps(said)}" if channel else ""))
        return lines

    def answer(self, target: str) -> tuple[int, bytes]:
        """Return status and body of the answer to a request."""
        url = urlsplit(target)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        exchange = url.path.rpartition("/")[2]
        if exchange not in SYMBOLS:
            return 404, b'{"message": "no such data"}'
        filters = json.loads(asked.get("filters", "[]"))
        for symbol in {symbol for each in filters for symbol in each.get("symbols") or []}:
            if symbol.upper().startswith("STATUS"):
                status = int(symbol[6:])
                return status, json.dumps({"code": status, "message": f"refused with {status}"}).encode()
        first = datetime.fromisoformat(asked["from"]) + timedelta(minutes=int(asked.get("offset", "0")))
        channels = {each["channel"] for each in filters}
        body = "".join(
            f"{line}\n"
            for number in range(int(asked.get("sliceSize", "1")))
            for channel, line in self.lines(exchange, first + timedelta(minutes=number))
            if not channel or channel in channels
        )
        return 200, gzip.compress(body.encode(), 1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Either side may break off at any time.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(f"CONNECT {SERVICE}:".encode()):
                writer.write(CONNECTED)
                await writer.drain()
                await writer.start_tls(self._context)
            else:
                await pass_on(head, reader, writer)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = self.answer(head.split(b" ")[1].decode())
                kind = "Content-Encoding: gzip\r\nX-Slice-Size: 1\r\n" if status == 200 else ""
                size = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"HTTP/1.1 {status} .\r\n{size}{kind}\r\n".encode() + body)
                await writer.drain()
        writer.close()


@contextlib.contextmanager
def tardis_data(
    folder: Path, hand_written: Mapping[str, Sequence[Message]] | None = None, messages: int = 1600
) -> Iterator[TardisData]:
    """Run the service, with so many messages of an exchange in each minute."""
    data = TardisData(folder, hand_written or {}, messages)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(data.serve, HOST, data.port, limit=1 << 20)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result()

    async def stop() -> None:
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        yield data
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
