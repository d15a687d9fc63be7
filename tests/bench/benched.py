"""The back ends that are measured, each with a server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import nats
import redis
from aws_servers import ACCOUNT, AwsEmulator, aws_client, reach
from kafka_servers import KafkaServer, create_topic
from servers import NativeServer, NatsServer, RedisServer
from shapes import SHAPES

HERE = Path(__file__).parent
RUN = ("-m", "bronze_sidecar", "run")
DESTINATION = "bronze.{{exchange}}.{{symbol}}.{{payloadCase}}"
NAME = "bronze"
PARTITIONS = 4
IN_PYTHON = "--native=false"


@dataclass(frozen=True)
class Scale:
    """How much a server can take."""

    batches: Sequence[int]
    """Sizes of the producers' batches; a quick run has the first alone."""
    window: int
    """Most batches on the way when as many as possible are sent."""
    rates: Sequence[int]
    """Events a second at which latency is measured."""
    paced_events: int
    """Most events on the way then."""
    is_emulated: bool = False


FAST = Scale(batches=(256, 1024), window=16, rates=(10_000, 50_000), paced_events=40_000)
# Four writes, as of the others: it writes four times as much at once.
KAFKA = replace(FAST, window=64)
# What is on the way when a run ends has to be waited for.
EMULATED = Scale(batches=(256,), window=8, rates=(500,), paced_events=2_000, is_emulated=True)
STRICT_ORDER_NOTE = (
    "kinesis: unless strict order is off, a call has one record of each key, so that order is kept whatever"
    " fails;\nthe library's calls are like those with strict order off; with aggregation that record has many"
    " events"
)
IS_EMULATED = "{}: the server is an emulator, and it is the bound; what counts is the CPU time of an event"


@dataclass(frozen=True)
class Bus:
    """A back end with its server, if it has one."""

    name: str
    program: Sequence[str]
    options: Sequence[str] = ()
    server: NativeServer | None = None
    library: str = ""
    """How its client library is used on its own."""
    scale: Scale = FAST
    empty: Callable[[], None] = lambda: None
    """Forgets what was stored, so that no run is slower for the ones before it."""
    shapes: Sequence[str] = ()
    """Kinds of JSON that it is measured with beside the mixed one."""
    variants: Sequence[str] = ()
    """Options with each of which the sidecar is measured once more."""
    variant_kinds: Sequence[str] = ("envelopes",)
    notes: Sequence[str] = ()
    """What is to be said about its figures."""


@contextmanager
def serving(name: str, folder: Path) -> Iterator[Bus]:
    """Start a back end's server, stop it in the end; raise Unavailable if this machine has none."""
    with ExitStack() as stack:
        yield BUSES[name](stack, folder / name)


def _start(stack: ExitStack, server: NativeServer) -> None:
    stack.callback(server.stop)
    server.start()


def _null(_stack: ExitStack, _folder: Path) -> Bus:
    program = (str(HERE / "null_sidecar.py"),)
    return Bus(
        "null", program, shapes=tuple(SHAPES), variants=(IN_PYTHON,), variant_kinds=("envelopes", "json")
    )


def _nats(stack: ExitStack, folder: Path) -> Bus:
    server = NatsServer(folder)
    _start(stack, server)
    options = (
        f"--nats-servers={server.url}",
        "--nats-stream=BENCH",
        "--nats-subject=bronze.other",
        f"--nats-subject-template={DESTINATION}",
    )

    async def purge() -> None:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        if await stream.streams_info():
            await stream.purge_stream("BENCH")
        else:
            await stream.add_stream(name="BENCH", subjects=["bronze.>"], allow_batched=True)
        await client.close()

    idiom = "library: publish_async, 1,024 on the way"
    return Bus(
        "nats",
        RUN,
        options,
        server,
        idiom,
        empty=lambda: asyncio.run(purge()),
        shapes=tuple(SHAPES),
        variants=(IN_PYTHON,),
    )


def _redis(stack: ExitStack, folder: Path) -> Bus:
    server = RedisServer(folder)
    _start(stack, server)
    options = (f"--redis-url={server.url}", f"--redis-stream={DESTINATION}")

    def flush() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.flushall()

    idiom = "library: pipelines of 1,024 XADD"
    return Bus("redis", RUN, options, server, idiom, empty=flush, variants=(IN_PYTHON,))


KAFKA_KEEPS_BYTES = 64 << 20
"""Of each partition."""


def _kafka(stack: ExitStack, folder: Path) -> Bus:
    server = KafkaServer(folder, "log.retention.check.interval.ms=1000")
    _start(stack, server)
    # The broker does not get slower; it only must not fill the disk.
    kept = {
        "retention_bytes": str(KAFKA_KEEPS_BYTES),
        "segment_bytes": str(16 << 20),
        "file_delete_delay_ms": "0",
    }
    create_topic(server.brokers, NAME, PARTITIONS, copies=1, **kept)
    options = (f"--kafka-brokers={server.brokers}", f"--kafka-topic={NAME}")
    idiom = "library: a send_batch for each partition"
    return Bus("kafka", RUN, options, server, idiom, KAFKA, variants=(IN_PYTHON,))


def _kinesis(stack: ExitStack, folder: Path) -> Bus:
    server = AwsEmulator(folder)
    _start(stack, server)
    client = aws_client("kinesis", server.url)

    def renew() -> None:
        if client.list_streams()["StreamNames"]:
            client.delete_stream(StreamName=NAME)
        client.create_stream(StreamName=NAME, ShardCount=PARTITIONS)
        client.get_waiter("stream_exists").wait(StreamName=NAME)

    options = (f"--kinesis-stream={NAME}", *reach("kinesis", server.url))
    return Bus(
        "kinesis",
        RUN,
        options,
        server,
        "library: PutRecords of 500, 8 in flight",
        EMULATED,
        renew,
        variants=("--kinesis-strict-order=false", "--kinesis-aggregation"),
        notes=(IS_EMULATED.format("kinesis"), STRICT_ORDER_NOTE),
    )


def _sqs(stack: ExitStack, folder: Path) -> Bus:
    server = AwsEmulator(folder)
    _start(stack, server)
    client = aws_client("sqs", server.url)
    queue = f"{server.url}/{ACCOUNT}/{NAME}"

    def renew() -> None:
        if client.list_queues().get("QueueUrls"):
            client.delete_queue(QueueUrl=queue)
        client.create_queue(QueueName=NAME)

    options = (f"--sqs-queue-url={queue}", *reach("sqs", server.url))
    idiom = "library: SendMessageBatch of 10, 16 in flight"
    return Bus("sqs", RUN, options, server, idiom, EMULATED, renew, notes=[IS_EMULATED.format("sqs")])


BUSES: dict[str, Callable[[ExitStack, Path], Bus]] = {
    "null": _null,
    "nats": _nats,
    "redis": _redis,
    "kafka": _kafka,
    "kinesis": _kinesis,
    "sqs": _sqs,
}
