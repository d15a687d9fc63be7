"""What the sidecar says of itself is so: readiness, order, and what it did when it stopped."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from bronze_client import connect
from buses import NatsBus, RedisBus, assert_complete, trade
from kafka_servers import KafkaCluster, create_topic, delete_topic
from nats.js.api import DiscardPolicy, StreamConfig
from servers import NatsServer, RedisServer
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def not_ready(process: SidecarProcess) -> str:
    """Return why it is not ready; empty if it is, and the metric must say the same."""
    code, reasons = process.get("/readyz")
    return reasons if code == 503 else ""


async def stream_of(server: NatsServer, **settings: Any) -> None:
    client = await nats.connect(server.url)
    usual: dict[str, Any] = {"name": "BRONZE", "subjects": ["bronze.>"], "allow_batched": True}
    await client.jetstream().add_stream(StreamConfig(**usual | settings))
    await client.close()


@pytest.mark.parametrize("batched", [True, False])
async def test_a_full_stream_is_not_ready_until_it_takes_events_again(
    start_nats: Callable[..., NatsServer], batched: bool
) -> None:
    server = start_nats()
    await stream_of(server, max_msgs=10, discard=DiscardPolicy.NEW, allow_batched=batched)
    with sidecar(*NatsBus(server).options(), "--retry-backoff-max-ms", "200") as process:
        process.wait_until_ready()
        order = process.status()["backends"]["nats"]["order"]
        assert (order == "strict") is batched
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            for position in range(100):
                publisher.publish(trade(position))
            await until(lambda: "maximum messages exceeded" in not_ready(process))
            assert process.metric("bronze_backend_ready") == 0
            client = await nats.connect(server.url)
            config = (await client.jetstream().stream_info("BRONZE")).config
            config.max_msgs = -1
            await client.jetstream().update_stream(config)
            await client.close()
            await publisher.flush(timeout=60)
        assert not_ready(process) == ""
        assert process.metric("bronze_backend_ready") == 1
        await assert_complete(NatsBus(server), {"s": 100}, duplicates_allowed=False)


async def test_a_stream_that_was_deleted_is_created_again(start_nats: Callable[..., NatsServer]) -> None:
    bus = NatsBus(start_nats())
    with sidecar(*bus.options()) as process:
        process.wait_until_ready()
        client = await nats.connect(bus.server.url)
        await client.jetstream().delete_stream("BRONZE")
        await client.close()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            for position in range(1000):
                publisher.publish(trade(position))
            await publisher.flush(timeout=60)
        assert await assert_complete(bus, {"s": 1000}, duplicates_allowed=False) == 0


async def test_a_stream_that_an_operator_deleted_is_not_ready(start_nats: Callable[..., NatsServer]) -> None:
    server = start_nats()
    await stream_of(server)
    options = ("--nats-servers", f"127.0.0.1:{server.port}", "--nats-subject", "bronze.{{symbol}}")
    with sidecar(*options) as process:
        process.wait_until_ready()
        client = await nats.connect(server.url)
        await client.jetstream().delete_stream("BRONZE")
        await client.close()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            publisher.publish(trade(0))
            await until(lambda: "no JetStream stream accepts" in not_ready(process))
            await stream_of(server)
            await publisher.flush(timeout=60)
        assert not_ready(process) == ""


async def test_a_topic_that_is_gone_is_not_ready(kafka_cluster: KafkaCluster) -> None:
    topic = f"bronze.{uuid.uuid4().hex}"
    create_topic(kafka_cluster.brokers, topic)
    options = ("--kafka-brokers", kafka_cluster.brokers, "--kafka-topic", topic)
    with sidecar(*options, "--retry-backoff-max-ms", "500") as process:
        process.wait_until_ready()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            publisher.publish(trade(0))
            await publisher.flush(timeout=60)
            await asyncio.to_thread(delete_topic, kafka_cluster.brokers, topic)
            publisher.publish(trade(1))
            await until(lambda: topic in not_ready(process))
            create_topic(kafka_cluster.brokers, topic)
            await publisher.flush(timeout=60)
        assert not_ready(process) == ""


async def test_says_how_long_a_back_end_was_away_and_how_much_waited(
    start_redis: Callable[..., RedisServer],
) -> None:
    bus = RedisBus(start_redis(append_only=True))
    with sidecar(*bus.options()) as process:
        process.wait_until_ready()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            bus.server.kill()
            for position in range(500):
                publisher.publish(trade(position))
            await until(lambda: process.status()["backends"]["redis"]["waiting_events"] == 500)
            await asyncio.sleep(1)
            await asyncio.to_thread(bus.server.start)
            await publisher.flush(timeout=60)
        lines = [line for line in process.log_lines() if line["event"] == "connected"]
        assert lines[0]["waiting"] == 0
        assert lines[-1]["waiting"] == 500
        assert lines[-1]["away_seconds"] >= 1


PRODUCER = """
import sys, time
from bronze_client import connect_sync
with connect_sync(sys.argv[1], stream_id="s") as publisher, open(sys.argv[2], "rb") as messages:
    for message in messages:
        publisher.publish(message)
    time.sleep(600)
"""


async def stop_after_producer(bus: NatsBus, process: SidecarProcess, messages: Path, *, waiting: int) -> None:
    """Publish while the bus is frozen, kill the producer, tell the sidecar to stop, and let the bus go on."""
    process.wait_until_ready()
    bus.server.freeze()
    producer = await asyncio.create_subprocess_exec(sys.executable, "-c", PRODUCER, process.address, messages)
    await until(lambda: process.status()["backends"]["nats"]["waiting_events"] == waiting)
    producer.kill()
    await producer.wait()
    await until(lambda: process.status()["streams"]["open"] == 0)
    process.terminate()
    await until(lambda: any(line["event"] == "stopping" for line in process.log_lines()))
    await asyncio.sleep(0.5)
    bus.server.thaw()
    assert await asyncio.to_thread(process.wait) == 0
    assert [line["event"] for line in process.log_lines()][-1] == "drained"


async def test_stopping_delivers_what_was_accepted_from_producers_that_are_gone(
    tmp_path: Path, start_nats: Callable[..., NatsServer]
) -> None:
    bus, messages = NatsBus(start_nats()), tmp_path / "messages"
    messages.write_bytes(b"\n".join(map(trade, range(2000))))
    with sidecar(*bus.options(), "--grace-seconds", "60") as process:
        await stop_after_producer(bus, process, messages, waiting=2000)
    await assert_complete(bus, {"s": 2000})


async def test_stopping_delivers_a_message_of_which_the_queue_had_room_for_a_part(
    tmp_path: Path, start_nats: Callable[..., NatsServer]
) -> None:
    bus, messages = NatsBus(start_nats()), tmp_path / "messages"
    bids = ",".join(f'{{"price":{price},"amount":1}}' for price in range(1, 351))
    book = f'{{"type":"book_change","exchange":"bitmex","symbol":"XBTUSD","bids":[{bids}],"asks":[]}}'
    messages.write_text(book)
    with sidecar(*bus.options(), "--grace-seconds", "60", "--max-queue-events", "100") as process:
        await stop_after_producer(bus, process, messages, waiting=100)
    assert [event_id async for _, event_id in bus.read()] == [f"s:0.{level}" for level in range(350)]


async def test_what_cannot_be_delivered_in_time_is_counted(start_redis: Callable[..., RedisServer]) -> None:
    bus = RedisBus(start_redis(append_only=True))
    with sidecar(*bus.options(), "--grace-seconds", "1") as process:
        process.wait_until_ready()
        bus.server.kill()
        async with connect(process.address, stream_id="s", close_timeout=0.1) as publisher:
            for position in range(100):
                publisher.publish(trade(position))
            await until(lambda: process.status()["backends"]["redis"]["waiting_events"] == 100)
            process.terminate()
            assert await asyncio.to_thread(process.wait) == 3
            (line,) = [line for line in process.log_lines() if "were not delivered" in line["event"]]
            assert line["undelivered"] == {"redis": 100}
            await asyncio.to_thread(bus.server.start)
            await asyncio.to_thread(process.start)
            await publisher.flush(timeout=60)
        await assert_complete(bus, {"s": 100})
