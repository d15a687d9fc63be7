"""Measures the pipeline: decoding by itself and in Spark, and from each bus to the bronze table.

What counts is the processor time of Python, the JVM and the workers together; servers are not in it. Rates
are those of one run after a short one, for Kafka after one that is as long, beginning with the start of the
stream; for buses there is also the rate with the start of Spark, as an operator sees it. Kafka has a part of
the events twice: who writes them to files, leaves out the repetitions too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import aws_servers
import bench
import benched
import market
import ptars
import pyarrow as pa
import pyarrow.parquet as pq
from bronze_client import connect
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.bronze.job import BronzeBatchReport, BronzeJob
from bronze_pipeline.bronze.task import Task
from bronze_pipeline.commands import bronze as command
from bronze_pipeline.decoding import envelope
from bronze_pipeline.decoding.schema import ARRIVED, EVENTS, PARTITION_COLUMNS, QUARANTINE_PARTITION_COLUMNS
from bronze_pipeline.running.session import NoJava, open_session
from bronze_pipeline.tables.files import Folder
from bronze_pipeline.tables.lake import Lake
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from machine import Watched
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.pandas.types import from_arrow_schema
from servers import Unavailable
from sidecar_process import sidecar

MESSAGES, QUICK_MESSAGES = 200_000, 50_000
# The share of them that a bus gets whose emulator takes a minute for a few thousand.
SHARES = {"sqs": 0.04}
COPIES = 4
"""How often the workers get the rows: starting a job costs as much as many rows."""
ROWS_IN_BATCH = 10_000
LIBS = Path(__file__).parents[2] / ".cache/spark-jars/libs"
DRIVER_MEMORY = "4g"
PROTOBUF_JAR = "spark-protobuf"
SCHEMAS = Path(__file__).parents[2] / "proto/released.binpb"
MESSAGE = "lakehouse.bronze.v1.NormalizedEvent"
SENT_AGAIN = 0.1
"""The share of the messages that Kafka has twice."""
KAFKA_KEEPS_BYTES = 4 << 30
EVENT_ID = "value.meta['event_id']"
HEADS = (
    "part", "what", "events", "events/s", "with Spark's start", "CPU µs/event", "events per CPU second",
    "of the floor",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What all runs share."""

    spark: SparkSession
    place: Path
    jars: Path
    notes: list[str]
    start_seconds: float
    """How long Spark took to start."""


@dataclass(frozen=True)
class Measured:
    """What a run cost."""

    what: str
    how: str
    events: int
    seconds: float
    cpu: float
    start_seconds: float | None = None
    """How long Spark took to start before, where that is part of the work."""

    def row(self, floor: Measured) -> tuple[str, ...]:
        ratio = (self.events / self.cpu) / (floor.events / floor.cpu)
        return (
            self.what,
            self.how,
            f"{self.events:,}",
            f"{self.events / self.seconds:,.0f}",
            "" if self.start_seconds is None else f"{self.events / (self.seconds + self.start_seconds):,.0f}",
            f"{self.cpu / self.events * 1e6:.1f}",
            f"{self.events / self.cpu:,.0f}",
            f"{ratio:.2f}",
        )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="fewer events")
    arguments.add_argument("--messages", type=int, help=f"for the buses ({MESSAGES:,} if not given)")
    arguments.add_argument("--only", nargs="*", choices=tuple(URLS), help="these buses alone")
    arguments.add_argument("--jars", type=Path, default=LIBS, help="folder of jars for Kafka (%(default)s)")
    chosen = arguments.parse_args()
    # Spark's own processes inherit what is set when it starts.
    os.environ["AWS_ACCESS_KEY_ID"] = aws_servers.ACCESS_KEY
    os.environ["AWS_SECRET_ACCESS_KEY"] = aws_servers.SECRET_KEY
    print(f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f} before the start.")
    jars = ",".join(map(str, sorted(chosen.jars.glob("*.jar"))))
    # Spark keeps the ids that it has seen in the memory of its driver, and is not to lack that.
    given = f"--jars {jars} " if jars else ""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{given}--driver-memory {DRIVER_MEMORY} pyspark-shell"
    usual = QUICK_MESSAGES if chosen.quick else MESSAGES
    messages = list(market.replay(chosen.messages or usual))
    arrived = list(arrivals(messages[:usual]))
    began = time.monotonic()
    try:
        spark = open_session("bench")
    except NoJava as reason:
        print(reason)
        return 1
    start_seconds = time.monotonic() - began
    notes = [f"Spark took {start_seconds:.1f} s to start"]
    if not has_protobuf(chosen.jars):
        notes.append(
            f"from_protobuf is left out: there is no {PROTOBUF_JAR} jar in --jars"
            " (org.apache.spark:spark-protobuf_2.13:4.2.0)"
        )
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="bronze-bench-") as folder:
        place = Path(folder)
        setting = Setting(spark, place, chosen.jars, notes, start_seconds)
        found = decoding(arrived)
        rows += [each.row(found[0]) for each in found]
        found = decoding_in_spark(setting, arrived)
        rows += [each.row(found[0]) for each in found]
        decoded_and_written = found[-1]
        warm_up(spark, place)
        for name in chosen.only or URLS:
            try:
                found = from_bus(setting, name, messages)
            except Unavailable as reason:
                notes.append(f"{name}: left out, {reason}")
            else:
                rows += [each.row(decoded_and_written) for each in found]
    spark.stop()
    print(
        "\nRatios are those of events per CPU second. The floor of decoding is the first row of its part;"
        "\nthat of the buses is decoding and writing files in Spark\n"
    )
    bench.table(HEADS, rows)
    print("".join(f"\n{note}" for note in notes))
    return 0


# -- decoding


def arrivals(messages: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Return the messages' envelopes as a source gives them."""
    mapper = Mapper(StreamContext(stream_id="bench", source="bench/1", origin=2))
    values = [
        event.envelope for place, each in enumerate(messages) for event in mapper.events(each, place, b"")
    ]
    for first in range(0, len(values), ROWS_IN_BATCH):
        part = values[first : first + ROWS_IN_BATCH]
        rows = [
            {"destination": "bronze", "bus_position": str(first + n), "value": v} for n, v in enumerate(part)
        ]
        yield pa.RecordBatch.from_pylist(rows, ARRIVED)


def use(way: str) -> None:
    """Decode by `ptars` or by the Protobuf runtime from now on, in this process."""
    envelope.ptars = None if way == "upb" else ptars  # type: ignore[attr-defined,assignment]
    envelope._columns.cache_clear()


def decoding(arrived: Sequence[pa.RecordBatch]) -> list[Measured]:
    """Measure one process without Spark."""

    def parse() -> None:
        for batch in arrived:
            for value in batch["value"].to_pylist():
                NormalizedEvent.FromString(value)

    def decode(way: str) -> None:
        use(way)
        for batch in arrived:
            envelope.decode(batch, "bench")

    ways: dict[str, Callable[[], None]] = {
        "FromString of upb alone": parse,
        "ptars to Arrow": partial(decode, "ptars"),
        "upb to Arrow": partial(decode, "upb"),
    }
    found = []
    for how, work in ways.items():
        began, cpu = time.monotonic(), time.process_time()
        work()
        spent = time.monotonic() - began, time.process_time() - cpu
        found.append(Measured("decode, outside Spark", how, sum(map(len, arrived)), *spent))
    use("ptars")
    return found


def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (_count(len(batch)) for batch in batches)


def decode_batches(way: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    use(way)
    yield from (_count(len(envelope.decode(batch, "bench").events)) for batch in batches)


def decode_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    use("ptars")
    for batch in batches:
        empty = {name: pa.nulls(len(batch), ARRIVED.field(name).type) for name in ARRIVED.names}
        rows = pa.RecordBatch.from_pydict({**empty, "value": batch["value"]}, ARRIVED)
        yield envelope.decode(rows, "bench").events


def write_files(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    use("ptars")
    yield from (_count(len(results)) for results in task(batches))


def _count(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rows": [rows]}, pa.schema([("rows", pa.int64())]))


def has_protobuf(jars: Path) -> bool:
    return any(jars.glob(f"{PROTOBUF_JAR}*.jar"))


def by_from_protobuf(frame: DataFrame) -> DataFrame:
    from pyspark.sql.protobuf.functions import from_protobuf  # noqa: PLC0415 - of use with its jar alone

    return frame.withColumn("value", from_protobuf("value", MESSAGE, str(SCHEMAS)))


def decoding_in_spark(setting: Setting, arrived: Sequence[pa.RecordBatch]) -> list[Measured]:
    """Measure decoding of rows that Spark reads from a file: in workers, and by Spark itself."""
    spark, place = setting.spark, setting.place
    file = place / "arrived.parquet"
    pq.write_table(pa.Table.from_batches(arrived), file, row_group_size=ROWS_IN_BATCH)
    lake = Lake(str(place))
    events = Folder(lake.table_url("files"), PARTITION_COLUMNS)
    refused = Folder(lake.table_url("refused"), QUARANTINE_PARTITION_COLUMNS)
    task = Task("bench", events, refused, keep_raw=False, watches=False)
    ways: dict[str, Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]] = {
        "rows to the worker alone": pass_on,
        "ptars to Arrow": partial(decode_batches, "ptars"),
        "upb to Arrow": partial(decode_batches, "upb"),
        "ptars, and Parquet files": partial(write_files, task),
    }
    count = sum(map(len, arrived)) * COPIES
    frame = spark.read.parquet(*[str(file)] * COPIES).repartition(2)
    frame.mapInArrow(ways["ptars to Arrow"], "rows long").collect()
    found = [
        measured(spark, "decode, in Spark", how, count, frame.mapInArrow(work, "rows long").collect)
        for how, work in ways.items()
    ]
    if has_protobuf(setting.jars):
        # Its sink takes every row, and drops it.
        writer = by_from_protobuf(frame).write.format("noop").mode("overwrite")
        writer.save()
        found.insert(-1, measured(spark, "decode, in Spark", "from_protobuf of Spark", count, writer.save))
    return found


# -- buses

URLS: dict[str, Callable[[benched.Bus], tuple[str, ...]]] = {
    "nats": lambda bus: (f"{_server(bus).url}/BENCH",),
    "redis": lambda bus: (f"{_server(bus).url}/0?keys=bronze*",),
    "kafka": lambda bus: (f"kafka://{_server(bus).brokers}/{benched.NAME}",),
    "kinesis": lambda bus: (
        f"kinesis://{benched.NAME}?region={aws_servers.REGION}",
        f"--kinesis-endpoint-url={_server(bus).url}",
    ),
    "sqs": lambda bus: (
        f"sqs://{benched.NAME}?region={aws_servers.REGION}",
        f"--sqs-endpoint-url={_server(bus).url}",
    ),
}


def _server(bus: benched.Bus) -> Any:
    return bus.server


def from_bus(setting: Setting, name: str, messages: Sequence[bytes]) -> list[Measured]:
    """Measure the job from a bus to the table; for Kafka beside what Spark does by itself."""
    with ExitStack() as stack:
        # What is read more than once has to stay.
        benched.KAFKA_KEEPS_BYTES = KAFKA_KEEPS_BYTES
        bus = stack.enter_context(benched.serving(name, setting.place / "servers"))
        bus.empty()
        sent = messages[: int(len(messages) * SHARES.get(name, 1))]
        if bus.scale.is_emulated:
            setting.notes.append(benched.IS_EMULATED.format(name))
        asyncio.run(fill(bus, sent))
        if name != "kafka":
            return [to_bronze(setting, name, URLS[name](bus))]
        # The same stream from its beginning: the same ids.
        asyncio.run(fill(bus, sent[: int(len(sent) * SENT_AGAIN)]))
        # Each way runs once before it is measured: the first run pays for what Java has to compile.
        for each in ("first", "second"):
            place = setting.place / each
            place.mkdir()
            there = replace(setting, place=place)
            theirs = list(by_spark(there, _server(bus).brokers))
            ours = to_bronze(there, name, URLS[name](bus))
            shutil.rmtree(place)
        return [*(replace(each, events=ours.events) for each in theirs), ours]


def warm_up(spark: SparkSession, place: Path) -> None:
    """Run a short stream: the first of a session costs more than later ones."""
    rate = spark.readStream.format("rate").load()
    copied(spark, "", rate, 1, place / "warm")


async def fill(bus: benched.Bus, messages: Sequence[bytes]) -> None:
    # The order in which the bus gets them is not what is measured.
    quicker = ["--kinesis-strict-order=false"] if bus.name == "kinesis" else []
    with sidecar(*bus.options, *quicker) as process:
        process.wait_until_ready()
        async with connect(process.address, stream_id="bench", on_full="wait", max_wait=600.0) as publisher:
            for message in messages:
                await publisher.publish_wait(message)
            await publisher.flush()


def to_bronze(setting: Setting, name: str, flags: Sequence[str]) -> Measured:
    spark, place = setting.spark, setting.place
    chosen = command.plan(["--from", *flags, "--to", str(place / f"lake-{name}")])
    reports: list[BronzeBatchReport] = []
    job = BronzeJob(chosen.bus, chosen.source_options, chosen.lake, on_batch=reports.append)

    def work() -> None:
        job.start(spark, str(place / f"checkpoint-{name}"), available_now=True).awaitTermination()

    found = measured(spark, f"{name} to bronze", "bronze-pipeline, Delta", 1, work)
    events = sum(report.events for report in reports)
    return replace(found, events=events, start_seconds=setting.start_seconds)


def by_spark(setting: Setting, brokers: str) -> Iterator[Measured]:
    """Measure Spark's connector and its own Parquet sink: the bytes as they are, and distinct events.

    Workers of ours decode for the second, for those who do not have the jar of `from_protobuf`.
    """
    spark, place = setting.spark, setting.place
    options = {"kafka.bootstrap.servers": brokers, "subscribe": benched.NAME, "startingOffsets": "earliest"}
    arrived = spark.readStream.format("kafka").options(**options).load()
    plain = arrived.selectExpr("topic", "partition", "offset", "value")
    ways = {"Spark alone, bytes to Parquet": plain}
    if has_protobuf(setting.jars):
        decoded = by_from_protobuf(plain).withColumn("event_id", expr(EVENT_ID))
        ways["Spark alone, from_protobuf to Parquet, distinct"] = decoded.dropDuplicates(["event_id"])
    by_workers = plain.select("value").mapInArrow(decode_events, from_arrow_schema(EVENTS))
    ways["Spark alone, mapInArrow to Parquet, distinct"] = by_workers.dropDuplicates(["event_id"])
    for number, (how, frame) in enumerate(ways.items()):
        found = copied(spark, how, frame, 1, place / f"by-spark-{number}")
        yield replace(found, start_seconds=setting.start_seconds)


def copied(spark: SparkSession, how: str, frame: DataFrame, events: int, place: Path) -> Measured:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{place}-checkpoint")

    def work() -> None:
        writer.trigger(availableNow=True).start(str(place)).awaitTermination()

    return measured(spark, "kafka to files", how, events, work)


# -- measuring


def measured(spark: SparkSession, what: str, how: str, events: int, work: Callable[[], object]) -> Measured:
    began, before = time.monotonic(), cpu_seconds(spark)
    work()
    return Measured(what, how, events, time.monotonic() - began, cpu_seconds(spark) - before)


def cpu_seconds(spark: SparkSession) -> float:
    """Return the processor time of this process, of the JVM, and of all that the JVM started."""
    gateway: Any = spark.sparkContext._gateway
    return watched(gateway.proc.pid).seconds()


@cache
def watched(pid: int) -> Watched:
    return Watched(pid)


if __name__ == "__main__":
    sys.exit(main())
