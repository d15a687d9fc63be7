"""Kafka, Kinesis and SQS under attack."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from aws_servers import ACCOUNT, FaultProxy, Relay, aws_client, fault_proxy, reach, shared_emulator
from bronze_client.schema import NormalizedEvent
from chaos.targets import FILLER, Target
from confluent_kafka import Producer
from kafka_servers import KafkaCluster, create_topic, delete_topic, read_topic
from servers import HOST, Endpoint, NativeServer

REFUSED_SHARE = 0.1
PARTITIONS = 3
PROBE_SECONDS = 2


class Kafka(Target):
    """Three brokers with three copies, two of which must have what is confirmed."""

    async def start(self, stack: AsyncExitStack) -> None:
        self._cluster = KafkaCluster(self.folder / "kafka", is_proxied=True)
        stack.callback(self._cluster.stop)
        await asyncio.to_thread(self._cluster.start)
        await asyncio.to_thread(self._create)

    def _create(self) -> None:
        create_topic(self._cluster.brokers, "bronze", PARTITIONS, copies=3)

    def options(self, port: int | None = None) -> list[str]:
        brokers = f"{HOST}:{port}" if port else self._cluster.brokers
        return [
            *("--kafka-brokers", brokers, "--kafka-topic", "bronze"),
            *("--kafka-key-template", "{{exchange}}|{{symbol}}"),
        ]

    @property
    def ways(self) -> Sequence[tuple[int, int]]:
        # Whoever comes by this listener is told the address of the relay for each broker.
        return [(node.ports["PROXIED"], node.proxy_port) for node in self._cluster.nodes]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        for record in await asyncio.to_thread(read_topic, self._cluster.brokers, "bronze"):
            event_id = dict(record.headers)["eventId"].decode()
            if not event_id.startswith(FILLER):
                yield record.key.decode(), event_id

    async def probe(self) -> None:
        await asyncio.to_thread(self._probe)

    def _probe(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.brokers, "acks": "all", "log_level": 0})
        errors: list[Any] = []
        for partition in range(PARTITIONS):
            headers: list[tuple[str, str | bytes | None]] = [("eventId", f"{FILLER}:probe")]
            producer.produce(
                "bronze",
                b"",
                b"",
                partition=partition,
                headers=headers,
                on_delivery=lambda error, _: errors.append(error),
            )
        producer.flush(PROBE_SECONDS)
        producer.purge()
        assert errors == [None] * PARTITIONS

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        return [await asyncio.to_thread(self._cluster.leader, "bronze", 0)]

    async def delete(self) -> None:
        await asyncio.to_thread(delete_topic, self._cluster.brokers, "bronze")
        await asyncio.to_thread(self._create)


class AwsService(Target):
    """A service of the emulator. A relay before it is killed and frozen: the emulator would forget."""

    # Messages of a key go one call after the other, each through two relays and an emulator, whose calls take
    # the longer the more it holds. With more, a cell on a busy machine would measure that.
    rate = 40
    service = ""

    async def start(self, stack: AsyncExitStack) -> None:
        self._emulator: Endpoint = await asyncio.to_thread(
            stack.enter_context, shared_emulator(self.folder / "aws")
        )
        self._proxy: FaultProxy = await stack.enter_async_context(fault_proxy(self._emulator.url))
        self._relay = Relay(self.folder / "relay", host=HOST, port=self._proxy.port)
        stack.callback(self._relay.stop)
        # It asks what is behind it, which is in this process.
        await asyncio.to_thread(self._relay.start)
        self.client = aws_client(self.service, self._emulator.url)
        await asyncio.to_thread(self.create)

    def create(self) -> None:
        raise NotImplementedError

    @property
    def port(self) -> int:
        return self._relay.port

    def address(self, port: int | None) -> str:
        return f"http://{HOST}:{port or self._relay.port}"

    async def probe(self) -> None:
        client = aws_client(self.service, self._relay.url)
        try:
            await asyncio.to_thread(client.list_streams if self.service == "kinesis" else client.list_queues)
        finally:
            client.close()

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        return [self._relay]

    async def refuse_some(self) -> None:
        self._proxy.refuses = lambda _: self.dice.random() < REFUSED_SHARE

    async def refuse_none(self) -> None:
        self._proxy.refuses = lambda _: False


class Kinesis(AwsService):
    service = "kinesis"
    stream = "bronze"

    def create(self) -> None:
        self.client.create_stream(StreamName=self.stream, ShardCount=2)
        self.client.get_waiter("stream_exists").wait(StreamName=self.stream)

    def options(self, port: int | None = None) -> list[str]:
        return ["--kinesis-stream", self.stream, *reach("kinesis", self.address(port))]

    def poison_options(self) -> list[str]:
        return ["--kinesis-max-record-bytes", "1048576"]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        for record in await asyncio.to_thread(self._records):
            event = NormalizedEvent.FromString(record["Data"])
            yield record["PartitionKey"], event.meta["event_id"]

    def _records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for shard in self.client.list_shards(StreamName=self.stream)["Shards"]:
            start = {"StreamName": self.stream, "ShardId": shard["ShardId"]}
            answer = self.client.get_shard_iterator(**start, ShardIteratorType="TRIM_HORIZON")
            iterator = answer["ShardIterator"]
            while iterator:
                answer = self.client.get_records(ShardIterator=iterator, Limit=10_000)
                found += answer["Records"]
                iterator = answer["NextShardIterator"] if answer["Records"] else None
        return found

    async def delete(self) -> None:
        await asyncio.to_thread(self.client.delete_stream, StreamName=self.stream)
        await asyncio.sleep(1)
        await asyncio.to_thread(self.create)


class SqsFifo(AwsService):
    service = "sqs"
    suffix = ".fifo"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._name = f"bronze-{uuid.uuid4().hex}{self.suffix}"
        self._taken: list[tuple[str, str]] = []

    def create(self) -> None:
        self.client.create_queue(QueueName=self._name, **self._attributes())

    def _attributes(self) -> dict[str, Any]:
        return {"Attributes": {"FifoQueue": "true"}} if self.suffix else {}

    def options(self, port: int | None = None) -> list[str]:
        queue = f"{self._emulator.url}/{ACCOUNT}/{self._name}"
        return ["--sqs-queue-url", queue, *reach("sqs", self.address(port))]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        await asyncio.to_thread(self._take)
        for each in self._taken:
            yield each

    def _take(self) -> None:
        queue = self.client.get_queue_url(QueueName=self._name)["QueueUrl"]
        queue = urlsplit(queue)._replace(netloc=urlsplit(self._emulator.url).netloc).geturl()
        wanted = {"AttributeNames": ["All"], "MaxNumberOfMessages": 10}
        while messages := self.client.receive_message(QueueUrl=queue, **wanted).get("Messages"):
            self._taken += [self._key_and_id(message) for message in messages]
            done = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            self.client.delete_message_batch(QueueUrl=queue, Entries=done)

    def _key_and_id(self, message: dict[str, Any]) -> tuple[str, str]:
        facts = message["Attributes"]
        return facts["MessageGroupId"], facts["MessageDeduplicationId"]

    async def delete(self) -> None:
        queue = f"{self._emulator.url}/{ACCOUNT}/{self._name}"
        await asyncio.to_thread(self.client.delete_queue, QueueUrl=queue)
        await asyncio.sleep(1)
        await asyncio.to_thread(self.create)


class SqsStandard(SqsFifo):
    """A standard queue promises no order."""

    suffix = ""
    keeps_order = False

    def _key_and_id(self, message: dict[str, Any]) -> tuple[str, str]:
        event = NormalizedEvent.FromString(base64.b64decode(message["Body"]))
        return "", event.meta["event_id"]
