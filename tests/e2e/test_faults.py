"""What is promised under faults, with the real process, real servers and our own client."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import nats
import pytest
import redis.asyncio
from bronze_client import Publisher, connect
from nats.js.api import AckPolicy, ConsumerConfig
from servers import NativeServer, NatsServer, RedisServer
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

STREAMS = 4
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


@pytest.fixture(params=["nats", "redis"])
def bus(
    request: pytest.FixtureRequest,
    start_nats: Callable[..., NatsServer],
    start_redis: Callable[..., RedisServer],
) -> Bus:
    return NatsBus(start_nats()) if request.param == "nats" else RedisBus(start_redis(append_only=True))


async def produce(address: str, stream_id: str, count: int, pace: Callable[[int], float]) -> Publisher:
    """Publish so many trades and wait for all acknowledgements; `pace` says how long to wait at times."""
    options = {"source": "test/1", "stream_id": stream_id, "on_full": "wait", "max_wait": 600.0}
    async with connect(address, close_timeout=120.0, **options) as publisher:  # type: ignore[arg-type]
        for position in range(count):
            await publisher.publish_wait(trade(position))
            if position % 500 == 0:
                await asyncio.sleep(pace(position))
        await publisher.flush(timeout=200)
        assert publisher.stats.dropped == 0
    return publisher


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


async def test_nothing_is_lost_when_server_and_sidecar_are_killed(bus: Bus) -> None:
    """200,000 events; the server is killed twice, then the sidecar, and each comes back."""
    each = 50_000
    with sidecar(*bus.options()) as process:
        producers = [
            asyncio.create_task(produce(process.address, f"stream-{number}", each, lambda _: 0.03))
            for number in range(STREAMS)
        ]
        await published(process, 20_000)
        for _ in range(2):
            bus.server.kill()
            await asyncio.sleep(1)
            await asyncio.to_thread(bus.server.start)
            await published(process, process.metric("bronze_events_published_total") + 20_000)
        process.kill()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(process.start)
        await asyncio.gather(*producers)
        streams = {f"stream-{number}": each for number in range(STREAMS)}
        duplicates = await assert_complete(bus, streams)
    # What was on its way at three kills may be there twice, no more.
    assert duplicates <= 3 * 100_000


async def published(process: SidecarProcess, events: float) -> None:
    while process.metric("bronze_events_published_total") < events:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def waiting_events(process: SidecarProcess) -> int:
    return sum(backend["waiting_events"] for backend in process.status()["backends"].values())


async def test_stopping_under_load_publishes_everything_that_was_accepted(bus: Bus) -> None:
    with sidecar(*bus.options()) as process:
        async with connect(
            process.address, stream_id="s", on_full="wait", max_wait=60.0, close_timeout=0.1
        ) as publisher:
            for position in range(60_000):
                await publisher.publish_wait(trade(position))
                if position % 100 == 0:
                    await asyncio.sleep(0)
                if position == 30_000:
                    while publisher.stats.acknowledged < 5000:  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                    process.terminate(signal.SIGTERM)
            status = await asyncio.to_thread(process.wait)
            acknowledged = publisher.stats.acknowledged
            assert status == 0
            on_the_bus = {event_id async for _, event_id in bus.read()}
            # What was acknowledged is there, and what is there was acknowledged.
            assert on_the_bus == {f"s:{number}" for number in range(acknowledged)}
            assert 5000 <= acknowledged < 60_000
            await asyncio.to_thread(process.start)
            await publisher.flush(timeout=60)
        assert await assert_complete(bus, {"s": 60_000}, duplicates_allowed=False) == 0
        drained = [line for line in process.log_lines() if line["event"] == "drained"]
        assert len(drained) == 1


async def test_a_frozen_server_bounds_memory_and_never_blocks_the_producer(bus: Bus) -> None:
    limit = 20_000
    with sidecar(*bus.options(), "--max-queue-events", str(limit), "--grace-seconds", "60") as process:
        async with connect(
            process.address, stream_id="s", buffer_events=200_000, close_timeout=60.0
        ) as publisher:
            for position in range(2000):
                publisher.publish(trade(position))
            await publisher.flush(timeout=60)
            before = process.resident_bytes()
            bus.server.freeze()
            frozen_at = time.monotonic()
            longest = 0.0
            for position in range(2000, 100_000):
                started = time.perf_counter()
                assert publisher.publish(trade(position))
                longest = max(longest, time.perf_counter() - started)
                if position % 500 == 0:
                    await asyncio.sleep(0)
            while time.monotonic() - frozen_at < 20:
                assert waiting_events(process) <= limit + 256
                assert process.resident_bytes() < before + 100 * 1024 * 1024
                await asyncio.sleep(0.5)
            # `publish` only fills a buffer: whatever the server does, it returns at once. (A pause of the
            # machine itself is allowed for.)
            assert longest < 1.0
            bus.server.thaw()
            await publisher.flush(timeout=120)
        await assert_complete(bus, {"s": 100_000})


async def test_starting_before_the_server_holds_events_and_delivers_when_it_comes(bus: Bus) -> None:
    bus.server.stop()
    with sidecar(*bus.options()) as process:
        code, reasons = process.get("/readyz")
        assert code == 503
        assert "unreachable" in reasons or "connecting" in reasons
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            for position in range(5000):
                assert publisher.publish(trade(position))
            while not waiting_events(process):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.to_thread(bus.server.start)
            await publisher.flush(timeout=60)
        process.wait_until_ready()
        assert await assert_complete(bus, {"s": 5000}, duplicates_allowed=False) == 0
