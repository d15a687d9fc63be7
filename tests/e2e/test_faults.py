"""What is promised under faults, with the real process, real servers and our own client."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest
from bronze_client import Publisher, connect
from buses import NAMES, Bus, assert_complete, bus_named, trade
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

STREAMS = 4


@pytest.fixture(params=NAMES)
def bus(request: pytest.FixtureRequest) -> Bus:
    return bus_named(request.param, request.getfixturevalue)


async def produce(address: str, stream_id: str, count: int) -> Publisher:
    """Publish so many trades, at a pace that lasts through a few kills, and wait for all acknowledgements."""
    options = {"source": "test/1", "stream_id": stream_id, "on_full": "wait", "max_wait": 600.0}
    async with connect(address, close_timeout=120.0, **options) as publisher:  # type: ignore[arg-type]
        for position in range(count):
            await publisher.publish_wait(trade(position))
            if position % 500 == 0:
                await asyncio.sleep(0.03)
        await publisher.flush(timeout=200)
        assert publisher.stats.dropped == 0
    return publisher


async def test_nothing_is_lost_when_server_and_sidecar_are_killed(bus: Bus) -> None:
    """200,000 events (8,000 if it is slow); the server is killed twice, then the sidecar; each comes back."""
    each, some = (2_000, 800) if bus.slow else (50_000, 20_000)
    with sidecar(*bus.options()) as process:
        producers = [
            asyncio.create_task(produce(process.address, f"stream-{number}", each))
            for number in range(STREAMS)
        ]
        for kills in (1, 2):
            await published(process, kills * some)
            bus.server.kill()
            await asyncio.sleep(1)
            await asyncio.to_thread(bus.server.start)
        await published(process, 3 * some)
        process.kill()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(process.start)
        await asyncio.gather(*producers)
        streams = {f"stream-{number}": each for number in range(STREAMS)}
        duplicates = await assert_complete(bus, streams)
    # At each of three kills what the clients had on their way may be stored a second time, no more:
    # 16 batches of 256 events for each of them.
    assert duplicates <= 3 * 16 * 256 * STREAMS


async def published(process: SidecarProcess, events: float) -> None:
    while process.metric("bronze_events_published_total") < events:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def waiting_events(process: SidecarProcess) -> int:
    return sum(backend["waiting_events"] for backend in process.status()["backends"].values())


async def test_stopping_under_load_publishes_everything_that_was_accepted(bus: Bus) -> None:
    count, some = (3000, 300) if bus.slow else (60_000, 5000)
    few_accepted = ["--max-queue-events", "500"] if bus.slow else []
    with sidecar(*bus.options(), *few_accepted) as process:
        async with connect(
            process.address, stream_id="s", on_full="wait", max_wait=60.0, close_timeout=0.1
        ) as publisher:
            for position in range(count):
                await publisher.publish_wait(trade(position))
                if position % 100 == 0:
                    await asyncio.sleep(0)
                if position == count // 2:
                    while publisher.stats.acknowledged < some:  # noqa: ASYNC110
                        await asyncio.sleep(0.001)
                    process.terminate(signal.SIGTERM)
            status = await asyncio.to_thread(process.wait)
            acknowledged = publisher.stats.acknowledged
            assert status == 0
            on_the_bus = {event_id async for _, event_id in bus.read()}
            # What was acknowledged is there. What is there was acknowledged too, unless the client was kept
            # from its work: gRPC forgets answers that nobody has read when the other side closes.
            stored = len(on_the_bus)
            assert on_the_bus == {f"s:{number}" for number in range(stored)}
            assert some <= acknowledged <= stored < count
            await asyncio.to_thread(process.start)
            await publisher.flush(timeout=60)
        assert await assert_complete(bus, {"s": count}) <= stored - acknowledged
        drained = [line for line in process.log_lines() if line["event"] == "drained"]
        assert len(drained) == 1


async def test_a_frozen_server_bounds_memory_and_never_blocks_the_producer(bus: Bus) -> None:
    count, limit = (3000, 1000) if bus.slow else (100_000, 20_000)
    with sidecar(*bus.options(), "--max-queue-events", str(limit), "--grace-seconds", "60") as process:
        async with connect(
            process.address, stream_id="s", buffer_events=200_000, close_timeout=60.0
        ) as publisher:
            for position in range(count // 50):
                publisher.publish(trade(position))
            await publisher.flush(timeout=60)
            before = process.resident_bytes()
            bus.server.freeze()
            frozen_at = time.monotonic()
            longest = 0.0
            for position in range(count // 50, count):
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
        await assert_complete(bus, {"s": count})


async def test_starting_before_the_server_holds_events_and_delivers_when_it_comes(bus: Bus) -> None:
    bus.server.stop()
    with sidecar(*bus.options()) as process:
        code, reasons = process.get("/readyz")
        assert code == 503
        assert "unreachable" in reasons or "connecting" in reasons
        count = 1500 if bus.slow else 5000
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            for position in range(count):
                assert publisher.publish(trade(position))
            while not waiting_events(process):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.to_thread(bus.server.start)
            await publisher.flush(timeout=60)
        process.wait_until_ready()
        assert await assert_complete(bus, {"s": count}, duplicates_allowed=False) == 0
