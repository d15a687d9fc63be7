"""Back ends with their real servers: the sidecar's options for them, and how to read them by other means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, Protocol

import nats
import redis.asyncio
from nats.js.api import AckPolicy, ConsumerConfig
from servers import NativeServer, NatsServer, RedisServer

SYMBOLS = ("XBTUSD", "ETHUSD", "BTC/USDT", "SOL.P", "ADA_USD")


def trade(position: int) -> bytes:
    """Write one trade; its symbol and price follow from its position."""
    return (
        b'{"type":"trade","symbol":"%b","exchange":"bitmex","id":"%d","price":%d.5,"amount":1,"side":"buy",'
        b'"timestamp":"2024-01-01T00:00:00.000Z","localTimestamp":"2024-01-01T00:00:00.000000Z"}'
        % (SYMBOLS[position % len(SYMBOLS)].encode(), position, position)
    )


class Bus(Protocol):
    """A back end with its real server."""

    @property
    def server(self) -> NativeServer:
        """Return the server."""

    def options(self) -> list[str]:
        """Return the sidecar's options for it."""

    def read(self) -> AsyncIterator[tuple[str, str]]:
        """Yield destination and event id of every record, in the order of the bus."""


class NatsBus:
    def __init__(self, server: NatsServer) -> None:
        self.server = server

    def options(self) -> list[str]:
        return [
            *("--nats-servers", f"127.0.0.1:{self.server.port}", "--nats-stream", "BRONZE"),
            *("--nats-subject", "bronze.{{exchange}}.{{symbol}}"),
        ]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        client = await nats.connect(self.server.url)
        stream = client.jetstream()
        count = (await stream.stream_info("BRONZE")).state.messages
        unconfirmed = ConsumerConfig(ack_policy=AckPolicy.NONE)
        consumer = await stream.pull_subscribe("bronze.>", stream="BRONZE", config=unconfirmed)
        seen = 0
        while seen < count:
            for message in await consumer.fetch(min(1000, count - seen), timeout=10):
                assert message.headers is not None
                yield message.subject, message.headers["Nats-Msg-Id"]
                seen += 1
        await client.close()


class RedisBus:
    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def options(self) -> list[str]:
        return [
            *("--redis-host", "127.0.0.1", "--redis-port", str(self.server.port)),
            *("--redis-stream", "bronze:{{exchange}}:{{symbol}}"),
        ]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        client: Any = redis.asyncio.Redis(port=self.server.port)
        for key in sorted(await client.keys("bronze:*")):
            last = b"-"
            while entries := await client.xrange(key, last, count=5000):
                for _, fields in entries:
                    yield key.decode(), fields[b"eventId"].decode()
                last = b"(" + entries[-1][0]
        await client.aclose()


async def assert_complete(bus: Bus, streams: dict[str, int], *, duplicates_allowed: bool = True) -> int:
    """Every position of every stream is on the bus, in order per destination; return the duplicates."""
    seen: dict[str, list[str]] = defaultdict(list)
    total = 0
    async for destination, event_id in bus.read():
        seen[destination].append(event_id)
        total += 1
    found: dict[str, set[int]] = {stream: set() for stream in streams}
    for destination, ids in seen.items():
        newest: dict[str, int] = defaultdict(lambda: -1)
        already: set[str] = set()
        for event_id in ids:
            stream, _, position = event_id.partition(":")
            found[stream].add(int(position))
            if event_id in already:
                continue
            already.add(event_id)
            # The first copy of each event comes in order; a repeated stretch may follow an interruption.
            assert int(position) > newest[stream], (
                f"{destination}: {event_id} after {stream}:{newest[stream]}"
            )
            newest[stream] = int(position)
    for stream, count in streams.items():
        assert found[stream] == set(range(count)), f"{stream}: {count - len(found[stream])} missing"
    duplicates = total - sum(streams.values())
    assert duplicates >= 0
    assert duplicates_allowed or duplicates == 0
    return duplicates
