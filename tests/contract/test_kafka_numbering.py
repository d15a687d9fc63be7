"""Kafka: what may be stored is repeated under its numbers, so that brokers drop what they have."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.produce import ProduceRequest
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.errors import Disconnected, NotTried, Permanent
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Backend, Sink
from bronze_sidecar.sinks.kafka import connection as kafka_connection
from bronze_sidecar.telemetry.metrics import Metrics
from configurations import backend_of
from contract.contract import Stored, event, price, records, trade
from kafka_proxy import Proxy
from kafka_servers import KafkaCluster, KafkaServer, alter_topic, create_topic, delete_topic, read_topic

pytestmark = pytest.mark.servers


@pytest.fixture
def topic() -> str:
    return f"test.{uuid.uuid4().hex}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_connection, "ANSWER_SECONDS", 1.0)


def made(brokers: str, topic: str, *flags: str) -> tuple[Backend, Route]:
    backend: Backend = backend_of(f"--kafka-brokers={brokers}", f"--kafka-topic={topic}", *flags)
    return backend, Route(backend.rules())


async def numbers_in(server: KafkaServer | KafkaCluster, topic: str) -> list[int]:
    kept = await asyncio.to_thread(read_topic, server.brokers, topic)
    return [price(Stored(each.value, {})) for each in kept]


async def in_vain(sink: Sink, batch: Sequence[Record]) -> Disconnected:
    """Write what nobody answers, without waiting for long; other writes have all the time that they need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_connection, "ANSWER_SECONDS", 1.0)
        with pytest.raises(Disconnected) as lost:
            await sink.write(batch)
    return lost.value


async def deliver(sink: Sink, batch: Sequence[Record]) -> None:
    """Write until everything is stored; nothing may fail meanwhile."""
    pending = list(batch)
    while pending:
        failures = await sink.write(pending)
        assert all(isinstance(failure.error, NotTried) for failure in failures)
        pending = [pending[failure.place] for failure in failures]


WHOLE = [[1, 2, 3, 4]]
GROUPINGS = {
    "as before": WHOLE,
    "with others behind": [[1, 2, 3, 4, 5, 6]],
    "halved": [[1, 2], [3, 4], [5, 6]],
    "one by one": [[1], [2], [3], [4], [5, 6]],
    "a part with others": [[1, 2, 5], [3, 4, 6]],
    "another one first": [[5], [1, 2, 3, 4], [6]],
}


@pytest.mark.parametrize("lost", ["answer", "question"])
@pytest.mark.parametrize("groups", GROUPINGS.values(), ids=GROUPINGS)
async def test_what_is_in_doubt_is_stored_once_however_the_next_connection_groups_it(
    kafka_broker: KafkaServer, topic: str, groups: list[list[int]], lost: str
) -> None:
    create_topic(kafka_broker.brokers, topic)
    async with Proxy(kafka_broker) as proxy:
        backend, route = made(proxy.address, topic)
        # 5 has a key of its own, in the same partition.
        batch = records(backend, [trade("B" if position == 5 else "A", position) for position in range(7)])
        async with backend.open(route) as sink:
            assert not await sink.write(batch[:1])
            proxy.cut_after(lost)
            await in_vain(sink, batch[1:5])
        proxy.is_cut = False
        async with backend.open(route) as sink:
            for group in groups:
                await deliver(sink, [batch[position] for position in group])
        async with backend.open(route) as sink:
            assert not await sink.write(records(backend, [trade("A", 7)]))
    stored = await numbers_in(kafka_broker, topic)
    others = sorted({position for group in groups for position in group} - {1, 2, 3, 4})
    assert stored == [0, 1, 2, 3, 4, *others, 7]


async def test_doubts_survive_several_connections(kafka_broker: KafkaServer, topic: str) -> None:
    create_topic(kafka_broker.brokers, topic, 4)
    async with Proxy(kafka_broker) as proxy:
        backend, route = made(proxy.address, topic, "--kafka-key-template={{symbol}}")
        batch = records(backend, [trade(f"S{position % 16}", position) for position in range(400)])
        async with backend.open(route) as sink:
            assert not await sink.write(batch[:100])
        for lost in ("question", "answer", "answer", "question"):
            async with backend.open(route) as sink:
                # So that the proxy sees nothing but the write.
                await sink._topics.learn([topic])  # type: ignore[attr-defined]
                proxy.cut_after(lost)
                await in_vain(sink, batch[100:300])
            proxy.is_cut = False
        async with backend.open(route) as sink:
            await deliver(sink, batch[100:])
    stored = await asyncio.to_thread(read_topic, kafka_broker.brokers, topic)
    by_key: dict[bytes, list[int]] = {}
    for each in stored:
        by_key.setdefault(each.key, []).append(price(Stored(each.value, {})))
    assert by_key == {b"S%d" % symbol: list(range(symbol, 400, 16)) for symbol in range(16)}


async def test_numbers_that_the_broker_does_not_accept_are_given_up_with_a_word(
    kafka_broker: KafkaServer, topic: str
) -> None:
    create_topic(kafka_broker.brokers, topic)
    async with Proxy(kafka_broker) as proxy:
        backend, route = made(proxy.address, topic)
        batch = records(backend, [trade("A", position) for position in range(4)])
        async with backend.open(route) as sink:
            assert not await sink.write(batch[:1])
            proxy.cut_after("answer")
            lost_answer = await in_vain(sink, batch[1:3])
            assert lost_answer.repeated == 0
        proxy.is_cut = False
        first = route.remembered.producer
        # As if the broker had lost what came before, and knows the producer nevertheless.
        route.remembered.of(TopicPartition(topic, 0)).next += 7
        async with backend.open(route) as sink:
            with pytest.raises(Disconnected) as lost:
                await sink.write(batch[1:])
            assert lost.value.repeated == 2
            with pytest.raises(Disconnected):
                await sink.write(batch[1:])
        async with backend.open(route) as sink:
            assert route.remembered.producer != first
            assert not await sink.write(batch[1:])
    assert await numbers_in(kafka_broker, topic) == [0, 1, 2, 1, 2, 3]


async def test_a_refusal_of_what_may_be_stored_ends_the_doubt(kafka_broker: KafkaServer, topic: str) -> None:
    create_topic(kafka_broker.brokers, topic)
    async with Proxy(kafka_broker) as proxy:
        backend, route = made(proxy.address, topic)
        first, large, small = records(backend, [trade("A", 0), event("A", 1, b"x" * 2000), trade("A", 2)])
        async with backend.open(route) as sink:
            assert not await sink.write([first])
            proxy.cut_after("answer")
            await in_vain(sink, [large])
        proxy.is_cut = False
        alter_topic(kafka_broker.brokers, topic, "max.message.bytes", "1000")
        async with backend.open(route) as sink:
            with pytest.raises(Disconnected) as lost:
                await sink.write([large, small])
            assert lost.value.repeated == 1
        async with backend.open(route) as sink:
            (failure,) = await sink.write([large, small])
            assert (failure.place, type(failure.error)) == (0, Permanent)
    stored = await asyncio.to_thread(read_topic, kafka_broker.brokers, topic)
    assert [each.value for each in stored] == [first.event.envelope, b"x" * 2000, small.event.envelope]


async def test_a_partition_that_is_gone_leaves_no_doubt(kafka_broker: KafkaServer, topic: str) -> None:
    create_topic(kafka_broker.brokers, topic, 8)
    async with Proxy(kafka_broker) as proxy:
        backend, route = made(proxy.address, topic, "--kafka-key-template={{symbol}}")
        batch = records(backend, [trade(f"S{position}", position) for position in range(32)])
        async with backend.open(route) as sink:
            await sink._topics.learn([topic])  # type: ignore[attr-defined]
            proxy.cut_after("answer")
            await in_vain(sink, batch)
        proxy.is_cut = False
        delete_topic(kafka_broker.brokers, topic)
        create_topic(kafka_broker.brokers, topic, 1)
        async with backend.open(route) as sink:
            with pytest.raises(Disconnected, match="fewer partitions"):
                await sink.write(batch)
        async with backend.open(route) as sink:
            await deliver(sink, batch)
    assert sorted(await numbers_in(kafka_broker, topic)) == list(range(32))


async def test_another_cluster_gives_another_producer(kafka_broker: KafkaServer, topic: str) -> None:
    """Its id might be somebody else's there."""
    create_topic(kafka_broker.brokers, topic)
    backend, route = made(kafka_broker.brokers, topic)
    async with backend.open(route) as sink:
        assert not await sink.write(records(backend, [trade("A", 0)]))
    here = route.remembered
    async with backend.open(route):
        assert route.remembered is here
    here.cluster = "another"
    async with backend.open(route):
        assert route.remembered is not here


class Waiting:
    """A ticket that only counts."""

    is_durable = False

    def __init__(self) -> None:
        self.stored_events = 0

    def stored(self, count: int) -> None:
        self.stored_events += count

    def failed(self, record: Record, backend: str, reason: str) -> None:
        raise AssertionError(f"{record.event.id}: {reason}")


@pytest.mark.usefixtures("impatient")
async def test_a_broker_that_was_frozen_for_long_has_everything_once(
    own_kafka: KafkaServer, topic: str
) -> None:
    """What reached its machine meanwhile it reads when it goes on, also from connections that are closed."""
    create_topic(own_kafka.brokers, topic)
    backend, _ = made(own_kafka.brokers, topic)
    lane = Lane(backend, Config(retry_backoff_ms=50, retry_backoff_max_ms=200), Metrics().lane("kafka"))
    running = asyncio.create_task(lane.run())
    ticket, position = Waiting(), 0

    def publish(count: int) -> None:
        nonlocal position
        events = records(backend, [trade("A", position + number) for number in range(count)])
        lane.put(ticket, events, sum(len(each.event.envelope) for each in events))
        position += count

    try:
        await lane.connected.wait()
        publish(100)
        await lane.wait_until_empty()
        for _ in range(3):
            own_kafka.freeze()
            publish(50)
            until = time.monotonic() + 4
            while time.monotonic() < until:
                await asyncio.sleep(0.1)
                publish(5)
            own_kafka.thaw()
            await lane.wait_until_empty()
    finally:
        own_kafka.thaw()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert ticket.stored_events == position
    assert await numbers_in(own_kafka, topic) == list(range(position))


def keep_confirmations_from(sink: Sink) -> asyncio.Event:
    """Have a sink wait in vain for each confirmation of a write; return what is set when one has come."""
    confirmed = asyncio.Event()
    connection = sink._connection  # type: ignore[attr-defined]
    send = connection.send

    async def silent(node: int, request: Any) -> Any:
        answer = await send(node, request)
        if isinstance(request, ProduceRequest):
            ((_, ((_, code, *_),)),) = answer.topics
            if code == 0:
                confirmed.set()
                await asyncio.Event().wait()
        return answer

    connection.send = silent
    return confirmed


async def store(sink: Sink, batch: Sequence[Record]) -> None:
    """Write until everything is stored, as soon as there is a leader."""
    while await sink.write(batch):
        pass


@pytest.mark.timeout(240)
async def test_a_new_leader_knows_what_the_old_one_stored_without_an_answer(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_cluster.brokers, topic, 1, copies=3)
    backend, route = made(kafka_cluster.brokers, topic)
    batch = records(backend, [trade("A", position) for position in range(6)])
    async with backend.open(route) as sink:
        await store(sink, batch[:2])
        confirmed = keep_confirmations_from(sink)
        unanswered = asyncio.create_task(store(sink, batch[2:4]))
        await confirmed.wait()
        unanswered.cancel()
        await asyncio.gather(unanswered, return_exceptions=True)
    leader = kafka_cluster.leader(topic, 0)
    leader.kill()
    async with asyncio.timeout(120):
        pending, is_done = batch[2:], False
        while not is_done:
            try:
                async with backend.open(route) as sink:
                    await deliver(sink, pending)
                    is_done = True
            except Exception:  # noqa: BLE001 - another leader has to be found first
                await asyncio.sleep(0.2)
    assert kafka_cluster.leader(topic, 0) is not leader
    assert await numbers_in(kafka_cluster, topic) == [0, 1, 2, 3, 4, 5]
