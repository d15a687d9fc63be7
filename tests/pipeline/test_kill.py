"""The bronze job as an operator runs it, killed at any moment: each event is in the table exactly once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_servers
import deltalake
import nats
import pyarrow as pa
import pytest
from aws_servers import ACCOUNT, REGION, Relay, aws_client, delta_options, keys_in, reach
from buses import trade
from kafka_servers import KafkaServer, create_topic
from nats.js.api import StreamConfig
from pipeline_jobs import JobProcess
from servers import Endpoint, NatsServer
from sidecar_process import PROGRAM, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

COUNT = 30_000
# The emulator of AWS takes hundreds of events a second.
FEW = 2_000
# Long enough that messages stay hidden while a batch is stored, short enough to wait for.
HIDDEN_SECONDS = 30
# On a busy machine Spark takes minutes to start; nothing is measured here.
START_SECONDS = 400.0


@dataclass(frozen=True)
class Case:
    """A bus, and how the sidecar and the job reach it."""

    sidecar: list[str]
    job: list[str]
    count: int = COUNT
    batch: int = 5_000
    bucket: str | None = None
    """Where the tables and the checkpoint are, instead of a folder."""


@pytest.fixture
def name() -> str:
    return f"bronze-{uuid.uuid4().hex}"


@pytest.fixture
def nats_case(start_nats: Callable[..., NatsServer], bucket: str, s3_options: list[str], jars: str) -> Case:
    """Return JetStream, and tables in S3."""
    server = start_nats()

    async def make_stream() -> None:
        client = await nats.connect(server.url)
        # The shortest time for which the server leaves out repeated ids: they are to come twice here.
        settings = StreamConfig(name="S", subjects=["bronze.>"], duplicate_window=0.1)
        await client.jetstream().add_stream(settings)
        await client.close()

    asyncio.run(make_stream())
    options = ["--nats-servers", server.url, "--nats-stream", "S", "--nats-subject", "bronze.{{symbol}}"]
    job = ["--from", f"{server.url}/S", *s3_options, "--storage-jars", jars]
    return Case(options, job, bucket=bucket)


@pytest.fixture
def kafka_case(kafka_broker: KafkaServer, jars: str, name: str) -> Case:
    create_topic(kafka_broker.brokers, name, 2)
    return Case(
        ["--kafka-brokers", kafka_broker.brokers, "--kafka-topic", name],
        ["--from", f"kafka://{kafka_broker.brokers}/{name}", "--kafka-jars", jars],
    )


@pytest.fixture
def redis_case(redis_server: Endpoint, name: str) -> Case:
    server = ["--redis-host", redis_server.host, "--redis-port", str(redis_server.port)]
    return Case(
        [*server, "--redis-stream", f"{name}:{{{{symbol}}}}"],
        ["--from", f"{redis_server.url}/0?keys={name}:*"],
    )


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", aws_servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", aws_servers.SECRET_KEY)


@pytest.fixture
def kinesis_case(aws_keys: None, aws_emulator: Endpoint, name: str) -> Case:
    client = aws_client("kinesis", aws_emulator.url)
    client.create_stream(StreamName=name, ShardCount=2)
    client.get_waiter("stream_exists").wait(StreamName=name)
    client.close()
    return Case(
        ["--kinesis-stream", name, "--kinesis-strict-order=false", *reach("kinesis", aws_emulator.url)],
        [
            *("--from", f"kinesis://{name}?region={REGION}"),
            *("--kinesis-endpoint-url", aws_emulator.url),
        ],
        count=4 * FEW,
        batch=FEW,
    )


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[[Case], JobProcess]]:
    """Return a function that starts a job; none outlives the test."""
    with ExitStack() as stack:

        def start(case: Case) -> JobProcess:
            job = JobProcess(
                tmp_path / "log",
                *(*case.job, "--to", f"s3://{case.bucket}/lake" if case.bucket else str(tmp_path / "lake")),
                *("--available-now", "--cores", "2"),
                *("--max-records-per-batch", str(case.batch)),
            )
            stack.callback(job.kill)
            return job

        yield start


class Table:
    """The table as others see it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "lake" / "bronze"

    def keys(self) -> list[str]:
        """Return the paths of all files."""
        every = (path for path in self._folder.rglob("*") if path.is_file())
        return [path.relative_to(self._folder).as_posix() for path in every]

    def open(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._folder)

    def files(self) -> int:
        return sum(1 for key in self.keys() if key.endswith(".parquet") and key.startswith("date="))

    def commits(self) -> int:
        return sum(1 for key in self.keys() if key.startswith("_delta_log/") and key.endswith(".json"))

    def count(self) -> int:
        return int(self.open().to_pyarrow_table(columns=["event_id"]).num_rows)

    def rows(self) -> list[tuple[str, str]]:
        """Return ids and prices."""
        if not self.commits():
            return []
        table = self.open().to_pyarrow_table(columns=["event_id", "trade"])
        # The end of the stream is no trade.
        rows = [row for row in pa.table(table).to_pylist() if row["trade"]]
        return [(row["event_id"], row["trade"]["price_str"]) for row in rows]


class TableInS3(Table):
    """The same in a bucket."""

    def __init__(self, url: str, bucket: str) -> None:
        self._url, self._bucket = url, bucket

    def keys(self) -> list[str]:
        return [key.removeprefix("lake/bronze/") for key in keys_in(self._url, self._bucket, "lake/bronze/")]

    def open(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(
            f"s3://{self._bucket}/lake/bronze", storage_options=delta_options(self._url)
        )


def digest(rows: Iterator[tuple[str, str]]) -> str:
    """Return a digest that does not depend on the order."""
    total = 0
    for event_id, price in rows:
        total ^= int.from_bytes(hashlib.sha256(f"{event_id} {price}".encode()).digest())
    return f"{total:x}"


def assert_exact(table: Table, count: int) -> None:
    rows = table.rows()
    assert len(rows) == count
    expected = ((f"replay:{position}", f"{position}.5") for position in range(count))
    assert digest(iter(rows)) == digest(expected)


def publish_twice(case: Case) -> None:
    """Send the same replay two times, under the same ids."""
    lines = b"".join(trade(position) + b"\n" for position in range(case.count))
    with sidecar(*case.sidecar) as process:
        process.wait_until_ready()
        for _ in range(2):
            send = [PROGRAM, "send", "-", "--to", process.address, "--stream-id", "replay"]
            subprocess.run(send, input=lines, check=True, capture_output=True)
            time.sleep(0.2)  # longer than JetStream remembers ids here


def test_kill_9_three_times(
    java: None,
    nats_case: Case,
    aws_emulator: Endpoint,
    start_job: Callable[[Case], JobProcess],
    tmp_path: Path,
) -> None:
    """The job as an operator runs it, with tables and checkpoint in S3."""
    publish_twice(nats_case)
    assert nats_case.bucket
    table = TableInS3(aws_emulator.url, nats_case.bucket)
    # As soon as a task has written a file, which no commit holds yet.
    job = start_job(nats_case)
    job.wait_for(lambda: table.files() > 0, START_SECONDS)
    job.kill()
    # As soon as a batch is in the table, about when Spark notes that.
    job, commits = start_job(nats_case), table.commits()
    job.wait_for(lambda: table.commits() > commits, START_SECONDS)
    job.kill()

    assert len(table.rows()) < nats_case.count
    status, summary = start_job(nats_case).finish(START_SECONDS * 2)
    assert status == 0, (tmp_path / "log").read_text()
    assert summary["quarantined"] == 0
    # The second replay was on the bus, all of it.
    assert summary["duplicates"] >= nats_case.count
    assert_exact(table, nats_case.count)


# Runs the jobs of several buses side by side, and ends when each has come to the same moment.
TOGETHER = """
import json, os, signal, sys, threading
from collections import Counter
from pathlib import Path
from bronze_pipeline.bronze import job as bronze
from bronze_pipeline.commands.bronze import plan
from bronze_pipeline.ledger.ledger import Ledger
from bronze_pipeline.running.session import open_session

moment, skipped, *jobs = json.loads(sys.argv[1])
plans = [plan(flags) for flags in jobs]
jars = [Path(jar) for each in plans for jar in each.bus.jars(each.source_options)]
together = threading.Barrier(len(plans), lambda: os.killpg(0, signal.SIGKILL), timeout=300)
reached = Counter()

def arrive(name, job):
    if name == moment:
        reached[job] += 1
        if reached[job] > skipped:
            together.wait()

commit, advance = bronze.commit_new, Ledger.advance

def committing(table, files, job, *given, **named):
    # The quarantine's commit is not meant.
    if table.folder.url.endswith("/bronze"):
        arrive("written", job)
    return commit(table, files, job, *given, **named)

def noting(self, own=None):
    if own is not None:
        arrive("committed", own.job)
    advance(self, own)
    if own is not None:
        arrive("noted", own.job)

bronze.commit_new, Ledger.advance = committing, noting
spark = open_session("kill", cores=2, jars=jars)
reports = {each.bus.name: [] for each in plans}
queries = []
for each in plans:
    told = reports[each.bus.name].append
    job = bronze.BronzeJob(each.bus, each.source_options, each.lake, on_batch=told)
    # A session has one query of a name.
    queries.append(job.start(spark.newSession(), each.checkpoint, available_now=True))
for query in queries:
    query.awaitTermination()
names = ("events", "duplicates", "quarantined")
found = {
    bus: {name: sum(getattr(report, name) for report in told) for name in names}
    for bus, told in reports.items()
}
print(json.dumps(found))
"""


def test_kill_9_of_the_jobs_of_three_buses_at_exact_moments(
    java: None, kafka_case: Case, redis_case: Case, kinesis_case: Case, tmp_path: Path
) -> None:
    cases = {"kafka": kafka_case, "redis": redis_case, "kinesis": kinesis_case}
    for case in cases.values():
        publish_twice(case)
    log = tmp_path / "log"
    jobs = [
        [*case.job, "--to", str(tmp_path / name / "lake"), "--max-records-per-batch", str(case.batch)]
        for name, case in cases.items()
    ]

    def run(moment: str, skipped: int) -> JobProcess:
        arguments = json.dumps([moment, skipped, *jobs])
        return JobProcess(log, program=[sys.executable, "-c", TOGETHER, arguments])

    tables = {name: Table(tmp_path / name) for name in cases}
    # Files are written and in no commit; a batch is in the table, and the ledger, or Spark, has not noted it.
    for moment, skipped, commits in (
        ("written", 0, 1),
        ("committed", 0, 2),
        ("noted", 1, 4),
        ("written", 1, 5),
    ):
        assert run(moment, skipped).finish(START_SECONDS)[0] == -signal.SIGKILL, log.read_text()
        assert {table.commits() for table in tables.values()} == {commits}
    for name, table in tables.items():
        assert 0 < len(table.rows()) < cases[name].count
    status, summary = run("never", 0).finish(START_SECONDS * 2)
    assert status == 0, log.read_text()
    for name, table in tables.items():
        assert summary[name]["quarantined"] == 0
        # The second replay was on the bus; where one shard is ahead, an earlier run met some of it.
        assert summary[name]["duplicates"] >= cases[name].count // 2
        assert_exact(table, cases[name].count)


def test_sqs_messages_that_were_stored_and_not_deleted_come_again(  # noqa: PLR0917 - fixtures
    java: None,
    aws_keys: None,
    aws_emulator: Endpoint,
    aws_relay: Relay,
    start_job: Callable[[Case], JobProcess],
    name: str,
    tmp_path: Path,
) -> None:
    client = aws_client("sqs", aws_emulator.url)
    url = client.create_queue(QueueName=name)["QueueUrl"]

    def left() -> tuple[int, int]:
        """Return how many messages can be received, and how many are hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found: dict[str, Any] = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    case = Case(
        ["--sqs-queue-url", f"{aws_emulator.url}/{ACCOUNT}/{name}", *reach("sqs", aws_emulator.url)],
        [
            *("--from", f"sqs://{name}?region={REGION}", "--sqs-endpoint-url", aws_relay.url),
            *("--sqs-visibility-seconds", str(HIDDEN_SECONDS)),
        ],
        count=FEW,
        batch=500,
    )
    publish_twice(case)
    assert sum(left()) == 2 * (FEW + 1)  # with the end of the stream, twice
    table = Table(tmp_path)
    # As soon as a task has written a file, which no commit holds yet.
    job = start_job(case)
    job.wait_for(lambda: table.files() > 0, START_SECONDS)
    job.kill()
    # When a batch is in the table, and its messages are not deleted, for nothing reaches the queue any more.
    job, files, commits = start_job(case), table.files(), table.commits()
    job.wait_for(lambda: table.files() > files, START_SECONDS)
    aws_relay.freeze()
    job.wait_for(lambda: table.commits() > commits, START_SECONDS)
    job.kill()
    aws_relay.thaw()
    assert len(table.rows()) > 0
    assert sum(left()) == 2 * (FEW + 1)  # with the end of the stream, twice
    # While messages are deleted.
    job = start_job(case)
    job.wait_for(lambda: sum(left()) < 2 * FEW, START_SECONDS)
    job.kill()

    deadline = time.monotonic() + START_SECONDS
    while left()[1]:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    # With the end of the stream.
    rest, waiting = FEW + 1 - table.count(), sum(left())
    status, summary = start_job(case).finish(START_SECONDS * 2)
    assert status == 0, (tmp_path / "log").read_text()
    assert (summary["events"], summary["quarantined"]) == (rest, 0)
    assert summary["duplicates"] == waiting - rest
    client.close()
    assert_exact(table, FEW)
