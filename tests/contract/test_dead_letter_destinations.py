"""What a real server refuses for good is published to the back end's dead-letter destination."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import nats
import pytest
import redis.asyncio
from aws_servers import deliver, reach
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.delivery.batch import Item
from bronze_sidecar.delivery.redirect import Redirect
from bronze_sidecar.errors import Permanent
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend
from configurations import backend_of
from contract import test_kinesis as kinesis
from contract import test_sqs as sqs
from contract.contract import Stored as Kept
from contract.contract import event, price, records, trade
from kafka_servers import KafkaServer, create_topic, read_topic
from servers import Endpoint, NatsServer, RedisServer

pytestmark = pytest.mark.servers


def made(*flags: str) -> Backend:
    backend: Backend = backend_of(*flags)
    return backend


async def test_redis_keeps_what_was_meant_for_a_key_of_another_type(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = start_redis()
    client: Any = redis.asyncio.Redis(port=server.port)
    await client.set("x.B", "no stream")
    backend = made(
        *("--redis-host=127.0.0.1", f"--redis-port={server.port}", "--redis-stream=x.{{symbol}}"),
        "--redis-dead-letter-stream=dead",
    )
    events = [trade(symbol, number) for number, symbol in enumerate("ABABA")]
    delivery = await deliver(backend, records(backend, events))
    assert [
        (failed, reason.startswith("kept at 'dead': stream 'x.B': ")) for failed, reason in delivery.failures
    ] == [
        (events[1].id, True),
        (events[3].id, True),
    ]
    kept = [fields for _, fields in await client.xrange("dead")]
    assert [price(Kept(fields[b"data"], {})) for fields in kept] == [1, 3]
    assert [fields[b"eventId"].decode() for fields in kept] == [events[1].id, events[3].id]
    assert {fields[b"deadLetterDestination"] for fields in kept} == {b"x.B"}
    assert all(fields[b"deadLetterReason"].startswith(b"stream 'x.B': WRONGTYPE") for fields in kept)
    assert len(await client.xrange("x.A")) == 3
    await client.aclose()


async def test_a_dead_letter_that_is_refused_too_is_told_of_once(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = start_redis()
    client: Any = redis.asyncio.Redis(port=server.port)
    for key in ("x.B", "dead"):
        await client.set(key, "no stream")
    backend = made(
        *("--redis-host=127.0.0.1", f"--redis-port={server.port}", "--redis-stream=x.{{symbol}}"),
        "--redis-dead-letter-stream=dead",
    )
    delivery = await deliver(backend, records(backend, [trade("B", 0), trade("A", 1)]))
    ((_, reason),) = delivery.failures
    assert reason.startswith("stream 'x.B': WRONGTYPE")
    assert "kept" not in reason
    await client.aclose()


@pytest.mark.parametrize("batching", ["auto", "off"])
async def test_nats_keeps_what_the_user_may_not_publish(
    start_nats: Callable[..., NatsServer], batching: str
) -> None:
    allowed = 'publish: ["$JS.API.>", "x.A", "dead.>"], subscribe: ["_INBOX.>"]'
    users = f"{{ user: w, password: p, permissions: {{ {allowed} }} }}, {{ user: r, password: p }}"
    server = start_nats(config=f"authorization: {{ users: [ {users} ] }}")
    backend = made(
        *(f"--nats-servers=127.0.0.1:{server.port}", "--nats-user=w", "--nats-pass=p", "--nats-stream=S"),
        *("--nats-subject=x.{{symbol}}", "--nats-dead-letter-subject=dead.{{symbol}}"),
        f"--nats-batching={batching}",
    )
    events = [trade(symbol, number) for number, symbol in enumerate("ABA")]
    delivery = await deliver(backend, records(backend, events))
    assert [failed for failed, _ in delivery.failures] == [events[1].id]
    client = await nats.connect(f"nats://r:p@127.0.0.1:{server.port}")
    stream = client.jetstream()
    assert sorted((await stream.stream_info("S")).config.subjects or []) == ["dead.*", "x.*"]
    kept = await stream.get_last_msg("S", "dead.B")
    assert price(Kept(kept.data or b"", {})) == 1
    headers = kept.headers or {}
    assert (headers["Nats-Msg-Id"], headers["deadLetterDestination"]) == (events[1].id, "x.B")
    assert headers["deadLetterReason"].startswith("the user may not publish to the subject")
    assert (await stream.stream_info("S")).state.messages == 3
    await client.close()


async def test_kafka_keeps_what_is_too_large_for_a_topic(kafka_broker: KafkaServer) -> None:
    topic, dead = f"test.{uuid.uuid4().hex}", f"dead.{uuid.uuid4().hex}"
    create_topic(kafka_broker.brokers, topic, max_message_bytes="20000")
    create_topic(kafka_broker.brokers, dead)
    backend = made(
        *(f"--kafka-brokers={kafka_broker.brokers}", f"--kafka-topic={topic}"),
        f"--kafka-dead-letter-topic={dead}",
    )
    large = event("A", 1, b"x" * 30_000)
    delivery = await deliver(backend, records(backend, [trade("A", 0), large, trade("A", 2)]))
    assert [failed for failed, _ in delivery.failures] == [large.id]
    (kept,) = await asyncio.to_thread(read_topic, kafka_broker.brokers, dead)
    headers = {name: value.decode() for name, value in kept.headers}
    assert (kept.value, headers["eventId"]) == (large.envelope, large.id)
    assert headers["deadLetterDestination"] == topic
    assert "larger than the topic's max.message.bytes" in headers["deadLetterReason"]
    assert len(await asyncio.to_thread(read_topic, kafka_broker.brokers, topic)) == 2


@pytest.mark.parametrize("suffix", ["", ".fifo"])
async def test_sqs_keeps_what_is_too_large_for_a_queue(aws_emulator: Endpoint, suffix: str) -> None:
    queue, dead = f"q-{uuid.uuid4().hex}{suffix}", f"d-{uuid.uuid4().hex}{suffix}"
    sqs.create(aws_emulator.url, queue, MaximumMessageSize="2048")
    sqs.create(aws_emulator.url, dead)
    dead_letter = f"--sqs-dead-letter-queue-url={sqs.queue_url(aws_emulator.url, dead)}"
    backend = sqs.backend_at(aws_emulator.url, queue, dead_letter)
    large = event("A", 1, b"x" * 4000)
    delivery = await deliver(backend, records(backend, [trade("A", 0), large, trade("A", 2)]))
    assert [failed for failed, _ in delivery.failures] == [large.id]
    (kept,) = await asyncio.to_thread(sqs.read, aws_emulator.url, dead)
    found = sqs.attributes(kept)
    assert sqs.body(kept) == large.envelope
    assert found["deadLetterDestination"] == sqs.queue_url(aws_emulator.url, queue)
    assert found["deadLetterReason"]
    assert len(await asyncio.to_thread(sqs.read, aws_emulator.url, queue)) == 2


async def test_sqs_and_kinesis_look_for_the_destination_at_start(aws_emulator: Endpoint) -> None:
    queue, stream = f"q-{uuid.uuid4().hex}", f"s-{uuid.uuid4().hex}"
    sqs.create(aws_emulator.url, queue)
    kinesis.create(aws_emulator.url, stream)
    missing = f"--sqs-dead-letter-queue-url={sqs.queue_url(aws_emulator.url, 'no-such-queue')}"
    for backend in (
        sqs.backend_at(aws_emulator.url, queue, missing),
        made(
            *(f"--kinesis-stream={stream}", "--kinesis-dead-letter-stream=no-such-stream"),
            *reach("kinesis", aws_emulator.url),
        ),
    ):
        with pytest.raises(Permanent, match=f"^--{backend.name}-dead-letter-"):
            async with backend.open(Route(backend.rules())):
                pass


async def test_kinesis_has_the_reason_in_meta(aws_emulator: Endpoint) -> None:
    stream, dead = f"s-{uuid.uuid4().hex}", f"d-{uuid.uuid4().hex}"
    kinesis.create(aws_emulator.url, stream, dead)
    backend = made(
        *(f"--kinesis-stream={stream}", f"--kinesis-dead-letter-stream={dead}"),
        *("--kinesis-static-headers=env:prod", *reach("kinesis", aws_emulator.url)),
    )
    (record,) = records(backend, [trade("A", 1)])
    destination = backend.rules().dead_letter
    assert destination is not None
    redirected = Redirect("kinesis", destination)(Item(Nobody(), record, 0.0), "not allowed")
    assert redirected is not None
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(redirected[1])
    (kept,) = await asyncio.to_thread(kinesis.read, aws_emulator.url, dead)
    meta = NormalizedEvent.FromString(kept["Data"]).meta
    assert (meta["deadLetterReason"], meta["deadLetterDestination"]) == ("not allowed", stream)
    assert meta["env"] == "prod"


class Nobody:
    """Listens to nothing."""

    is_durable = False

    def stored(self, count: int) -> None:
        """Do nothing."""

    def failed(self, record: object, backend: str, reason: str) -> None:
        """Do nothing."""
