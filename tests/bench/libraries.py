"""Each client library on its own, used well: nothing of the sidecar's sinks is in these loops.

Each imports its library by itself, for all of them together take seconds.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from bronze_sidecar.routing.rules import Record

Write = Callable[[Sequence[Record]], Awaitable[None]]
# Any: the options of a back end, each of another type.
Library = Callable[[Any], AbstractAsyncContextManager[Write]]

NATS_ON_THE_WAY = 1024
KAFKA_BATCH_BYTES = 1_000_000
KINESIS_CALL, KINESIS_CALLS = 500, 8
SQS_CALL, SQS_CALLS = 10, 16


@asynccontextmanager
async def publish_async(options: Any) -> AsyncIterator[Write]:
    import nats  # noqa: PLC0415

    client = await nats.connect(options.servers[0])
    stream = client.jetstream(publish_async_max_pending=NATS_ON_THE_WAY)

    async def write(batch: Sequence[Record]) -> None:
        for record in batch:
            headers = dict(record.address.headers) | {"Nats-Msg-Id": record.event.id}
            await stream.publish_async(record.address.destination, record.event.envelope, headers=headers)
        await stream.publish_async_completed()

    yield write
    await client.close()


@asynccontextmanager
async def pipelines(options: Any) -> AsyncIterator[Write]:
    import redis.asyncio  # noqa: PLC0415

    client = redis.asyncio.Redis.from_url(options.url)

    async def write(batch: Sequence[Record]) -> None:
        pipeline = client.pipeline(transaction=False)
        for record in batch:
            fields = {
                "data": record.event.envelope,
                **dict(record.address.headers),
                "eventId": record.event.id,
            }
            pipeline.xadd(record.address.destination, fields)  # type: ignore[arg-type]
        await pipeline.execute()

    yield write
    await client.aclose()


@asynccontextmanager
async def send_batch(options: Any) -> AsyncIterator[Write]:
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415
    from aiokafka.partitioner import murmur2  # noqa: PLC0415

    topic = options.topic.text
    producer = AIOKafkaProducer(
        bootstrap_servers=list(options.brokers),
        enable_idempotence=True,
        acks="all",
        max_batch_size=KAFKA_BATCH_BYTES,
    )
    await producer.start()
    partitions = len(await producer.partitions_for(topic))
    # Few keys and headers come again and again.
    known: dict[int, tuple[bytes, int, list[tuple[str, bytes]]]] = {}

    async def write(batch: Sequence[Record]) -> None:
        timestamp = int(time.time() * 1000)
        builders = [producer.create_batch() for _ in range(partitions)]
        for record in batch:
            address = record.address
            found = known.get(id(address))
            if found is None:
                key = address.key.encode()
                headers = [(name, value.encode()) for name, value in address.headers]
                partition = (murmur2(key) & 0x7FFF_FFFF) % partitions
                found = known[id(address)] = (key, partition, headers)
            key, partition, headers = found
            taken = builders[partition].append(
                timestamp=timestamp,
                key=key,
                value=record.event.envelope,
                headers=[*headers, ("eventId", record.event.id.encode())],
            )
            assert taken, "a write has no more than fits into a batch for each partition"
        sent = []
        for partition, builder in enumerate(builders):
            if builder.record_count():
                builder.close()
                sent.append(await producer.send_batch(builder, topic, partition=partition))
        await asyncio.gather(*sent)

    yield write
    await producer.stop()


@asynccontextmanager
async def put_records(options: Any) -> AsyncIterator[Write]:
    stream = options.stream.text
    async with _aws_client(options, KINESIS_CALLS) as client:

        async def put(records: Sequence[Record]) -> None:
            entries = [
                {"Data": record.event.envelope, "PartitionKey": record.address.key} for record in records
            ]
            answer = await client.put_records(StreamName=stream, Records=entries)
            assert not answer["FailedRecordCount"]

        async def write(batch: Sequence[Record]) -> None:
            await _at_once(KINESIS_CALLS, put, _cuts(batch, KINESIS_CALL))

        yield write


@asynccontextmanager
async def send_message_batch(options: Any) -> AsyncIterator[Write]:
    queue = options.queue_url.text
    async with _aws_client(options, SQS_CALLS) as client:

        async def send(records: Sequence[Record]) -> None:
            entries = [
                {
                    "Id": str(index),
                    "MessageBody": b64encode(record.event.envelope).decode(),
                    "MessageAttributes": {
                        name: {"DataType": "String", "StringValue": value}
                        for name, value in record.address.headers
                    },
                }
                for index, record in enumerate(records)
            ]
            answer = await client.send_message_batch(QueueUrl=queue, Entries=entries)
            assert not answer.get("Failed")

        async def write(batch: Sequence[Record]) -> None:
            await _at_once(SQS_CALLS, send, _cuts(batch, SQS_CALL))

        yield write


def _aws_client(options: Any, most_calls: int) -> Any:
    from aiobotocore.config import AioConfig  # noqa: PLC0415
    from aiobotocore.session import get_session  # noqa: PLC0415

    session: Any = get_session()  # its types know each service by its literal name
    return session.create_client(
        options.name,
        region_name=options.region,
        endpoint_url=options.endpoint_url,
        aws_access_key_id=options.access_key,
        aws_secret_access_key=options.secret_key,
        config=AioConfig(max_pool_connections=most_calls),
    )


def _cuts(batch: Sequence[Record], size: int) -> Iterable[Sequence[Record]]:
    return (batch[start : start + size] for start in range(0, len(batch), size))


async def _at_once(most: int, call: Write, parts: Iterable[Sequence[Record]]) -> None:
    """Make a call for each part, a few at a time."""
    left = iter(parts)

    async def work() -> None:
        for part in left:
            await call(part)

    await asyncio.gather(*(work() for _ in range(most)))


LIBRARIES: dict[str, Library] = {
    "nats": publish_async,
    "redis": pipelines,
    "kafka": send_batch,
    "kinesis": put_records,
    "sqs": send_message_batch,
}
# So many that all calls which may be in flight are.
LEAST_AT_ONCE = {"kinesis": KINESIS_CALL * KINESIS_CALLS}
