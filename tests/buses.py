"""Back ends with their real servers: the sidecar's options for them, and how to read them by other means."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import nats
import redis.asyncio
from aws_servers import ACCOUNT, Relay, aws_client, events_in, reach
from bronze_client.schema import NormalizedEvent
from kafka_servers import KafkaServer, read_topic
from nats.js.api import AckPolicy, ConsumerConfig
from servers import Endpoint, NativeServer, NatsServer, RedisServer

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

    async def headers(self) -> list[dict[str, str]]:
        """Return the headers of every record, or what stands for them."""

    @property
    def slow(self) -> bool:
        """Tell whether it takes hundreds of events a second, not tens of thousands."""


class NatsBus:
    slow = False

    def __init__(self, server: NatsServer) -> None:
        self.server = server

    def options(self) -> list[str]:
        return [
            *("--nats-servers", f"127.0.0.1:{self.server.port}", "--nats-stream", "BRONZE"),
            *("--nats-subject", "bronze.{{exchange}}.{{symbol}}"),
        ]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        async for message in self._messages():
            yield message.subject, message.headers["Nats-Msg-Id"]

    async def envelopes(self) -> AsyncIterator[tuple[str, bytes]]:
        async for message in self._messages():
            yield message.subject, message.data

    async def headers(self) -> list[dict[str, str]]:
        return [message.headers async for message in self._messages()]

    async def _messages(self) -> AsyncIterator[Any]:
        client = await nats.connect(self.server.url)
        stream = client.jetstream()
        count = (await stream.stream_info("BRONZE")).state.messages
        unconfirmed = ConsumerConfig(ack_policy=AckPolicy.NONE)
        consumer = await stream.pull_subscribe("bronze.>", stream="BRONZE", config=unconfirmed)
        seen = 0
        while seen < count:
            for message in await consumer.fetch(min(1000, count - seen), timeout=60):
                yield message
                seen += 1
        await client.close()


class RedisBus:
    slow = False

    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def options(self) -> list[str]:
        return [
            *("--redis-host", "127.0.0.1", "--redis-port", str(self.server.port)),
            *("--redis-stream", "bronze:{{exchange}}:{{symbol}}"),
        ]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        async for key, fields in self._entries():
            yield key.decode(), fields[b"eventId"].decode()

    async def envelopes(self) -> AsyncIterator[tuple[str, bytes]]:
        async for key, fields in self._entries():
            yield key.decode(), fields[b"data"]

    async def headers(self) -> list[dict[str, str]]:
        return [
            {name.decode(): value.decode() for name, value in fields.items() if name != b"data"}
            async for _, fields in self._entries()
        ]

    async def _entries(self) -> AsyncIterator[tuple[bytes, dict[bytes, bytes]]]:
        client: Any = redis.asyncio.Redis(port=self.server.port)
        for key in sorted(await client.keys("bronze:*")):
            last = b"-"
            while entries := await client.xrange(key, last, count=5000):
                for _, fields in entries:
                    yield key, fields
                last = b"(" + entries[-1][0]
        await client.aclose()


class KafkaBus:
    """A topic of its own on a broker that tests share, for brokers take long to start."""

    slow = False

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        self._topic = f"bronze.{uuid.uuid4().hex}"

    def options(self) -> list[str]:
        return [
            *("--kafka-brokers", self.server.brokers, "--kafka-topic", self._topic),
            *("--kafka-key-template", "{{exchange}}|{{symbol}}"),
        ]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        for record in await asyncio.to_thread(read_topic, self.server.brokers, self._topic):
            yield record.key.decode(), dict(record.headers)["eventId"].decode()

    async def envelopes(self) -> AsyncIterator[tuple[str, bytes]]:
        for record in await asyncio.to_thread(read_topic, self.server.brokers, self._topic):
            yield record.key.decode(), record.value

    async def headers(self) -> list[dict[str, str]]:
        records = await asyncio.to_thread(read_topic, self.server.brokers, self._topic)
        return [{name: value.decode() for name, value in record.headers} for record in records]


class KinesisBus:
    """A stream of the emulator. The server is a proxy before it: the emulator forgets when it is killed."""

    slow = True  # a call has one record of each of the five symbols
    more_options: Sequence[str] = ()

    def __init__(self, emulator: Endpoint, server: Relay) -> None:
        self.server = server
        self._stream = f"bronze-{uuid.uuid4().hex}"
        self._client = aws_client("kinesis", emulator.url)
        self._client.create_stream(StreamName=self._stream, ShardCount=2)
        self._client.get_waiter("stream_exists").wait(StreamName=self._stream)

    def options(self) -> list[str]:
        # Small writes, so that a kill meets one half way.
        small = ("--kinesis-max-batch-size", "100")
        reached = reach("kinesis", self.server.url)
        return ["--kinesis-stream", self._stream, *small, *self.more_options, *reached]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        for record in events_in(await asyncio.to_thread(self._records)):
            event = NormalizedEvent.FromString(record["Data"])
            yield record["PartitionKey"], event.meta["event_id"]

    async def headers(self) -> list[dict[str, str]]:
        """Return the meta of every envelope: Kinesis has no headers."""
        records = events_in(await asyncio.to_thread(self._records))
        return [dict(NormalizedEvent.FromString(record["Data"]).meta) for record in records]

    def _records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for shard in self._client.list_shards(StreamName=self._stream)["Shards"]:
            start = {"StreamName": self._stream, "ShardId": shard["ShardId"]}
            answer = self._client.get_shard_iterator(**start, ShardIteratorType="TRIM_HORIZON")
            iterator = answer["ShardIterator"]
            while iterator:
                answer = self._client.get_records(ShardIterator=iterator, Limit=10_000)
                found += answer["Records"]
                iterator = answer["NextShardIterator"] if answer["Records"] else None
        return found


class AggregatedKinesisBus(KinesisBus):
    """The same, with many events in a record."""

    more_options = ("--kinesis-aggregation",)


class SqsBus:
    """A FIFO queue of the emulator; the server is a proxy before it."""

    slow = True  # a call has one message of each of the five symbols

    def __init__(self, emulator: Endpoint, server: Relay) -> None:
        self.server = server
        name = f"bronze-{uuid.uuid4().hex}.fifo"
        self._client = aws_client("sqs", emulator.url)
        self._client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
        self._queue = f"{emulator.url}/{ACCOUNT}/{name}"
        self._read: list[dict[str, Any]] = []

    def options(self) -> list[str]:
        small = ("--sqs-max-batch-size", "100")
        return ["--sqs-queue-url", self._queue, *small, *reach("sqs", self.server.url)]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        await asyncio.to_thread(self._take_messages)
        for message in self._read:
            facts = message["Attributes"]
            yield facts["MessageGroupId"], facts["MessageDeduplicationId"]

    async def headers(self) -> list[dict[str, str]]:
        await asyncio.to_thread(self._take_messages)
        return [
            {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
            for message in self._read
        ]

    def _take_messages(self) -> None:
        """Move what is in the queue to what was read: a message that was read must be deleted."""
        all_of_it = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        wanted = {**all_of_it, "MaxNumberOfMessages": 10}
        while messages := self._client.receive_message(QueueUrl=self._queue, **wanted).get("Messages"):
            self._read += messages
            done = [
                {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
                for index, message in enumerate(messages)
            ]
            self._client.delete_message_batch(QueueUrl=self._queue, Entries=done)


NAMES = ("nats", "redis", "kafka", "kinesis", "kinesis-aggregated", "sqs")


def bus_named(name: str, fixture: Callable[[str], Any]) -> Bus:
    """Return a back end with a server to kill and freeze, made of the fixtures of tests."""
    if name == "nats":
        return NatsBus(fixture("start_nats")())
    if name == "redis":
        return RedisBus(fixture("start_redis")(append_only=True))
    if name == "kafka":
        return KafkaBus(fixture("own_kafka"))
    kinds: dict[str, Callable[..., Bus]] = {
        "kinesis": KinesisBus,
        "kinesis-aggregated": AggregatedKinesisBus,
        "sqs": SqsBus,
    }
    return kinds[name](fixture("aws_emulator"), fixture("aws_relay"))


async def assert_complete(bus: Bus, streams: dict[str, int], *, duplicates_allowed: bool = True) -> int:
    """Every position of every stream is on the bus, in order per destination; return the duplicates.

    Where the end of a stream is there as well, it is the right one.
    """
    seen: dict[str, list[str]] = defaultdict(list)
    total = 0
    ends: set[str] = set()
    async for destination, event_id in bus.read():
        if "~end:" in event_id:
            ends.add(event_id)
            continue
        seen[destination].append(event_id)
        total += 1
    assert ends <= {f"{stream}~end:{count}" for stream, count in streams.items()}
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
