"""The Python client against the real sidecar, with publishing off: every good event counts as filtered."""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import asyncio

import pytest
from bronze_client import PublishError, connect, connect_sync
from bronze_client.schema import NormalizedEvent, Trade
from sidecar_process import sidecar

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


def test_the_twin_publishes_every_kind_of_event() -> None:
    with sidecar() as process, connect_sync(process.address, source="test/1", origin="replay") as publisher:
        for _ in range(1000):
            publisher.publish(ENVELOPE)
            publisher.publish(ENVELOPE.SerializeToString())
            publisher.publish(MESSAGE)
        publisher.flush(LONG)
        assert (publisher.stats.acknowledged, publisher.stats.filtered) == (3000, 3000)


async def test_what_is_no_event_is_told_by_position() -> None:
    with sidecar() as process:
        async with connect(process.address) as publisher:
            publisher.publish(MESSAGE)
            publisher.publish(b"\xff\xff")
            publisher.publish('{"type":\n"nonsense"}')
            with pytest.raises(ValueError, match="empty"):
                publisher.publish("")
            publisher.publish(b"{")
            publisher.publish(ENVELOPE)
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert [(failure.position, failure.kind) for failure in caught.value.failures] == [
                (1, "rejected"),
                (2, "rejected"),
                (4, "rejected"),
            ]
            assert (publisher.stats.acknowledged, publisher.stats.filtered) == (5, 2)


async def test_a_context_that_the_sidecar_refuses_ends_publishing_with_its_reason() -> None:
    with sidecar() as process, pytest.raises(PublishError, match=r"INVALID_ARGUMENT.*data_type"):
        async with connect(process.address, meta={"data_type": "mine"}) as publisher:
            publisher.publish(MESSAGE)
            with pytest.raises(PublishError, match="1 not acknowledged"):
                await publisher.flush(LONG)
            assert publisher.publish(MESSAGE) is False


async def test_a_killed_sidecar_and_a_new_one_get_everything_between_them() -> None:
    with sidecar() as process:
        async with connect(process.address, batch_events=50, on_full="wait", max_wait=LONG) as publisher:
            for number in range(30_000):
                assert await publisher.publish_wait(MESSAGE)
                if number % 100 == 0:
                    await asyncio.sleep(0)
                if number in (10_000, 20_000):
                    await asyncio.to_thread(process.kill)
                    await asyncio.to_thread(process.start)
                    await publisher.flush(LONG)
            await publisher.flush(LONG)
            assert publisher.stats.acknowledged == 30_000
            assert publisher.stats.reconnects == 2


async def test_a_frozen_sidecar_does_not_hold_up_the_producer() -> None:
    with sidecar() as process:
        async with connect(process.address, buffer_events=1000) as publisher:
            publisher.publish(MESSAGE)
            await publisher.flush(LONG)
            process.freeze()
            accepted = 0
            for _ in range(5000):
                accepted += publisher.publish(MESSAGE)
                await asyncio.sleep(0)
            assert accepted == publisher.stats.buffered_events == 1000
            process.thaw()
            with pytest.raises(PublishError, match="4000 dropped"):
                await publisher.flush(LONG)
            assert publisher.publish(MESSAGE)
            await publisher.flush(LONG)
            assert publisher.stats.acknowledged == 1002
