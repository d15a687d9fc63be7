"""Plays BitMEX as tardis-machine connects to it for live data."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from aiohttp import web
from servers import HOST, free_port


class Exchange:
    """Refuses some connections, ends one with an error after its trades, and keeps those that follow."""

    def __init__(self, trades: int, refusals: int = 0, failures: int = 0) -> None:
        self._trades = trades
        self._refusals = refusals
        self._failures = failures
        self._connections = 0

    async def connect(self, request: web.Request) -> web.StreamResponse:
        self._connections += 1
        if self._connections <= self._refusals:
            return web.Response(status=503)
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        await connection.receive()  # the subscription
        trade = {
            "timestamp": "2020-02-01T00:00:00.148Z",
            "symbol": "XBTUSD",
            "side": "Sell",
            "size": 1,
            "price": 9351.5,
            "trdMatchID": f"trade-{self._connections}",
        }
        await connection.send_json({"table": "trade", "action": "insert", "data": [trade] * self._trades})
        if self._connections <= self._refusals + self._failures:
            await connection.send_json({"status": 400, "error": "not today"})
        await connection.receive()  # until it is closed
        return connection


@contextlib.contextmanager
def running_exchange(exchange: Exchange) -> Iterator[dict[str, str]]:
    """Run an exchange in a thread of its own; give what makes a server connect to it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    application = web.Application()
    application.router.add_get("/", exchange.connect)
    runner = web.AppRunner(application)
    port = free_port()

    async def listen() -> None:
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()

    asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield {"WSS_URL_BITMEX": f"ws://{HOST}:{port}/"}
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
