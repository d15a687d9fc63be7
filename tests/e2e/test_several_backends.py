"""Several back ends at once: each gets everything, and one that is down does not stop the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from bronze_client import connect
from buses import NatsBus, RedisBus, assert_complete, trade
from clients import ClientUnderTest
from servers import NatsServer, RedisServer
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


def waiting(process: SidecarProcess, backend: str) -> int:
    events: int = process.status()["backends"][backend]["waiting_events"]
    return events


async def test_one_back_end_down_delays_acknowledgements_but_not_the_other(
    start_nats: Callable[..., NatsServer], start_redis: Callable[..., RedisServer]
) -> None:
    nats_bus, redis_bus = NatsBus(start_nats()), RedisBus(start_redis(append_only=True))
    with sidecar(*nats_bus.options(), *redis_bus.options()) as process:
        process.wait_until_ready()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            redis_bus.server.kill()
            for position in range(3000):
                publisher.publish(trade(position))
            while process.metric("bronze_events_published_total") < 3000:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert waiting(process, "nats") == 0
            assert waiting(process, "redis") == 3000
            assert publisher.stats.acknowledged == 0
            code, reasons = process.get("/readyz")
            assert code == 503
            assert "redis is" in reasons
            assert "nats" not in reasons
            # Both were reached once.
            assert process.get("/reached") == (200, "reached\n")
            await asyncio.to_thread(redis_bus.server.start)
            await publisher.flush(timeout=60)
            assert publisher.stats.published == 3000
        await assert_complete(nats_bus, {"s": 3000}, duplicates_allowed=False)
        await assert_complete(redis_bus, {"s": 3000})


async def test_what_was_never_reached_is_named_until_it_is(
    start_nats: Callable[..., NatsServer], start_redis: Callable[..., RedisServer]
) -> None:
    nats_bus, redis_bus = NatsBus(start_nats()), RedisBus(start_redis(append_only=True))
    redis_bus.server.kill()
    with sidecar(*nats_bus.options(), *redis_bus.options()) as process:
        while "nats" in process.get("/readyz")[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        code, reasons = process.get("/reached")
        assert (code, reasons.partition(" is ")[0], reasons.count("\n")) == (503, "redis", 1)
        await asyncio.to_thread(redis_bus.server.start)
        process.wait_until_ready()
        nats_bus.server.kill()
        assert process.get("/reached") == (200, "reached\n")


@pytest.mark.parametrize("is_frozen", [False, True], ids=["dead", "frozen"])
async def test_one_back_end_down_does_not_stop_the_other_before_its_queue_is_full(
    client: ClientUnderTest,
    is_frozen: bool,
    start_nats: Callable[..., NatsServer],
    start_redis: Callable[..., RedisServer],
) -> None:
    nats_bus, redis_bus = NatsBus(start_nats()), RedisBus(start_redis(append_only=True))
    count = 60_000
    limits = ("--max-queue-events", "70000", "--max-queue-bytes", str(64 << 20))
    with sidecar(*nats_bus.options(), *redis_bus.options(), *limits) as process:
        process.wait_until_ready()
        async with client.connect(
            process.address, stream_id="s", buffer_events=count, close_timeout=60.0
        ) as publisher:
            (redis_bus.server.freeze if is_frozen else redis_bus.server.kill)()
            for first in range(0, count, 5000):
                assert all(await publisher.publish_all([trade(first + number) for number in range(5000)]))
            while process.metric("bronze_events_published_total") < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert (waiting(process, "nats"), waiting(process, "redis")) == (0, count)
            assert (await publisher.stats()).acknowledged == 0
            await asyncio.to_thread(redis_bus.server.thaw if is_frozen else redis_bus.server.start)
            await publisher.flush(60)
            assert (await publisher.stats()).published == count
        await assert_complete(nats_bus, {"s": count}, duplicates_allowed=False)
        await assert_complete(redis_bus, {"s": count})


async def test_a_back_end_that_reached_its_bound_slows_the_producer_for_all(
    start_nats: Callable[..., NatsServer], start_redis: Callable[..., RedisServer]
) -> None:
    nats_bus, redis_bus = NatsBus(start_nats()), RedisBus(start_redis(append_only=True))
    limits = ("--max-queue-events", "2000")
    with sidecar(*nats_bus.options(), *redis_bus.options(), *limits) as process:
        process.wait_until_ready()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            redis_bus.server.kill()
            for position in range(20_000):
                publisher.publish(trade(position))
            # Another batch of 1,024 would not fit.
            while waiting(process, "redis") < 1000:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            assert waiting(process, "redis") <= 2000
            assert process.metric("bronze_events_received_total") < 20_000
            await asyncio.to_thread(redis_bus.server.start)
            await publisher.flush(timeout=60)
        await assert_complete(nats_bus, {"s": 20_000}, duplicates_allowed=False)
        await assert_complete(redis_bus, {"s": 20_000})


def quote(position: int) -> bytes:
    return trade(position).replace(b'"type":"trade"', b'"type":"quote","bidPrice":1,"askPrice":2')


@pytest.mark.parametrize("is_frozen", [False, True], ids=["dead", "frozen"])
async def test_a_full_queue_slows_no_stream_of_which_its_back_end_takes_nothing(
    client: ClientUnderTest,
    is_frozen: bool,
    start_nats: Callable[..., NatsServer],
    start_redis: Callable[..., RedisServer],
) -> None:
    nats_bus, redis_bus = NatsBus(start_nats()), RedisBus(start_redis(append_only=True))
    count = 20_000
    only_trades = ("--redis-include-payloads", "trade", "--max-queue-events", "2000")
    with sidecar(*nats_bus.options(), *redis_bus.options(), *only_trades) as process:
        process.wait_until_ready()
        async with contextlib.AsyncExitStack() as stack:
            trades = [
                await stack.enter_async_context(
                    client.connect(process.address, stream_id=f"trades{number}", close_timeout=60.0)
                )
                for number in range(3)
            ]
            (redis_bus.server.freeze if is_frozen else redis_bus.server.kill)()
            for publisher in trades:
                assert all(await publisher.publish_all([trade(number) for number in range(5000)]))
            # Another batch of any of them has no room.
            while waiting(process, "redis") < 1000:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            quotes = await stack.enter_async_context(
                client.connect(process.address, stream_id="quotes", close_timeout=60.0)
            )
            for first in range(0, count, 2000):
                assert all(await quotes.publish_all([quote(first + number) for number in range(2000)]))
                await quotes.flush(60)
            assert (await quotes.stats()).published == count
            assert waiting(process, "redis") <= 2000
            assert all([(await publisher.stats()).acknowledged == 0 for publisher in trades])
            await asyncio.to_thread(redis_bus.server.thaw if is_frozen else redis_bus.server.start)
            for publisher in trades:
                await publisher.flush(60)
                assert (await publisher.stats()).published == 5000
        streams = {f"trades{number}": 5000 for number in range(3)}
        await assert_complete(redis_bus, streams)
        await assert_complete(nats_bus, {**streams, "quotes": count}, duplicates_allowed=False)
