"""Every client against the real sidecar: with publishing off, when every good event counts as filtered,
and with real servers, on which exactly what was published has to arrive.
"""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from bronze_client import PublishError, connect_sync
from bronze_client.schema import NormalizedEvent, Trade
from buses import Bus, NatsBus, RedisBus, assert_complete, trade
from clients import ClientUnderTest, NodeClient, until_inside, until_stats
from servers import NatsServer, RedisServer
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

LONG = 60.0

ENVELOPE = NormalizedEvent(exchange="bitmex", symbol="XBTUSD", trade=Trade(price_str="1", qty_str="2"))
MESSAGE = {
    "type": "trade",
    "symbol": "XBTUSD",
    "exchange": "bitmex",
    "price": 1,
    "amount": 2,
    "side": "buy",
    "timestamp": "2024-01-01T00:00:00.000Z",
    "localTimestamp": "2024-01-01T00:00:00.000Z",
}


@pytest.fixture(params=["nats", "redis"])
def bus(
    request: pytest.FixtureRequest,
    start_nats: Callable[..., NatsServer],
    start_redis: Callable[..., RedisServer],
) -> Bus:
    return NatsBus(start_nats()) if request.param == "nats" else RedisBus(start_redis())


def test_the_twin_publishes_every_kind_of_event() -> None:
    with sidecar() as process, connect_sync(process.address, source="test/1", origin="replay") as publisher:
        for _ in range(1000):
            publisher.publish(ENVELOPE)
            publisher.publish(ENVELOPE.SerializeToString())
            publisher.publish(MESSAGE)
        publisher.flush(LONG)
        assert (publisher.stats.acknowledged, publisher.stats.filtered) == (3000, 3000)


async def test_what_is_no_event_is_told_by_position(client: ClientUnderTest) -> None:
    with sidecar() as process:
        async with client.connect(process.address) as publisher:
            await publisher.publish_all([MESSAGE, b"\xff\xff", '{"type":\n"nonsense"}'])
            with pytest.raises(ValueError, match="empty"):
                await publisher.publish("")
            await publisher.publish_all([b"{", ENVELOPE.SerializeToString()])
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert [(failure.position, failure.kind) for failure in caught.value.failures] == [
                (1, "rejected"),
                (2, "rejected"),
                (4, "rejected"),
            ]
            stats = await publisher.stats()
            assert (stats.acknowledged, stats.filtered) == (5, 2)


async def test_a_context_that_the_sidecar_refuses_ends_publishing_with_its_reason(
    client: ClientUnderTest,
) -> None:
    with sidecar() as process, pytest.raises(PublishError, match=r"INVALID_ARGUMENT.*data_type"):
        async with client.connect(process.address, meta={"data_type": "mine"}) as publisher:
            await publisher.publish(MESSAGE)
            with pytest.raises(PublishError, match="1 not acknowledged"):
                await publisher.flush(LONG)
            assert await publisher.publish(MESSAGE) is False


async def test_a_frozen_sidecar_does_not_hold_up_the_producer(client: ClientUnderTest) -> None:
    with sidecar() as process:
        async with client.connect(process.address, buffer_events=1000) as publisher:
            await publisher.publish(MESSAGE)
            await publisher.flush(LONG)
            process.freeze()
            accepted = 0
            for _ in range(50):
                accepted += sum(await publisher.publish_all([MESSAGE] * 100))
                await asyncio.sleep(0)
            assert accepted == (await publisher.stats()).buffered_events == 1000
            process.thaw()
            with pytest.raises(PublishError, match="4000 dropped"):
                await publisher.flush(LONG)
            assert await publisher.publish(MESSAGE)
            await publisher.flush(LONG)
            assert (await publisher.stats()).acknowledged == 1002


async def test_a_killed_sidecar_and_a_new_one_publish_everything_between_them(
    client: ClientUnderTest, bus: Bus
) -> None:
    options = {"stream_id": "s", "batch_events": 50, "on_full": "wait", "max_wait": LONG}
    with sidecar(*bus.options()) as process:
        async with client.connect(process.address, **options, close_timeout=LONG) as publisher:
            for first in range(0, 15_000, 100):
                events = [trade(position) for position in range(first, first + 100)]
                assert all(await publisher.publish_wait_all(events))
                if first in (5_000, 10_000):
                    # The stream is open, again, and in use.
                    some = first - 4_000
                    await until_stats(publisher, lambda stats, some=some: stats.acknowledged > some)  # type: ignore[misc]
                    await asyncio.to_thread(process.kill)
                    await asyncio.to_thread(process.start)
            await publisher.flush(LONG)
            stats = await publisher.stats()
            assert (stats.acknowledged, stats.dropped, stats.reconnects) == (15_000, 0, 2)
        # At each kill what the sidecar had taken and not acknowledged may be stored a second time.
        assert await assert_complete(bus, {"s": 15_000}) <= 10_000


async def test_producers_are_back_soon_after_their_sidecar(client: ClientUnderTest) -> None:
    """Pauses grow while it is away, but not so far that they add up to an outage of their own."""
    with sidecar() as process:
        async with AsyncExitStack() as stack:
            publishers = [
                await stack.enter_async_context(client.connect(process.address, close_timeout=1.0))
                for _ in range(60)
            ]
            for publisher in publishers:
                await publisher.publish(MESSAGE)
                await publisher.flush(LONG)
            process.kill()
            # Each has something to send, and has been refused often enough for its longest pauses.
            for publisher in publishers:
                await publisher.publish(MESSAGE)
            await asyncio.sleep(8)
            await asyncio.to_thread(process.start)
            async with asyncio.timeout(4):
                await asyncio.gather(*(publisher.flush(LONG) for publisher in publishers))


async def test_blocks_of_lines_arrive_through_a_restart_line_by_line(
    node_client: NodeClient, start_nats: Callable[..., NatsServer]
) -> None:
    bus = NatsBus(start_nats())
    with sidecar(*bus.options()) as process:
        async with node_client.connect(process.address, stream_id="s", close_timeout=LONG) as publisher:
            for first in range(0, 20_000, 100):
                lines = b"\n".join(trade(position) for position in range(first, first + 100))
                assert await publisher.publish_lines(lines, 100)
                if first == 10_000:
                    await asyncio.to_thread(process.kill)
                    await asyncio.to_thread(process.start)
            await publisher.flush(LONG)
            assert (await publisher.stats()).acknowledged == 20_000
        await assert_complete(bus, {"s": 20_000})


async def test_a_sidecar_that_takes_less_than_the_one_before_gets_everything(
    client: ClientUnderTest, start_nats: Callable[..., NatsServer]
) -> None:
    """Batches that were sent before are larger than a request may be now; repeated, they would never end."""
    server = start_nats()
    with sidecar(*NatsBus(server).options()) as process:
        process.wait_until_ready()
        server.freeze()
        async with client.connect(process.address) as publisher:
            assert all(await publisher.publish_all([MESSAGE] * 5000))
            await until_inside(publisher, lambda inside: inside.sent)
            process.kill()
            smaller = SidecarProcess(
                process.directory,
                *NatsBus(server).options(),
                "--max-event-bytes=1024",
                "--max-queue-events=100",
            )
            server.thaw()
            smaller.start()
            try:
                await publisher.flush(LONG)
                stats = await publisher.stats()
                assert (stats.acknowledged, stats.published, stats.dropped) == (5000, 5000, 0)
            finally:
                await publisher.close()
                smaller.stop()
