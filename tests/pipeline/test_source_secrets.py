"""Nothing that a job shows or leaves behind has a secret in it: options only name files that hold them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import redis
from aws_servers import REGION, SECRET_KEY, aws_client
from bronze_pipeline.sources import BUS_BY_SCHEME
from pipeline_jobs import JobProcess, run
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from servers import Endpoint, NatsServer, RedisServer
from source_readers import source_options

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

WORD = "s3cr3t-word"


def options(_: str, url: str, *flags: str) -> dict[str, str]:
    """Make a source's options as the command line does: `--from`, the URL, and flags."""
    return source_options(url, *flags)


def shown(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    """Return all that Spark tells of a plan."""
    capsys.readouterr()
    frame.explain(extended=True)
    execution: Any = frame._jdf.queryExecution()  # type: ignore[operator]
    return f"{capsys.readouterr().out}{execution.toString()}"


def assert_no_secret(
    spark: SparkSession, bus: str, given: dict[str, str], capsys: pytest.CaptureFixture[str], *, batch: bool
) -> None:
    assert WORD not in str(given)
    frames = [BUS_BY_SCHEME[bus].stream(spark, given)]
    if batch:
        frames.append(spark.read.format(f"bronze.{bus}").options(**given).load())
    for frame in frames:
        plan = shown(frame, capsys)
        # The source's name for ours, the class of its relation for Kafka's.
        assert bus in plan.lower()
        assert WORD not in plan
        assert SECRET_KEY not in plan


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{WORD}\n")
    return file


def test_nats(
    spark: SparkSession,
    start_nats: Callable[..., NatsServer],
    password_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = start_nats(config=f'authorization {{ user: reader, password: "{WORD}" }}')

    async def make_stream() -> None:
        client = await nats.connect(server.url, user="reader", password=WORD)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.close()

    asyncio.run(make_stream())
    flags = ("--from", f"{server.url}/S", "--nats-password-file", str(password_file), "--nats-user")
    assert_no_secret(spark, "nats", options(*flags, "reader"), capsys, batch=True)
    # A user whom the server does not know.
    with pytest.raises(StreamingQueryException, match="refuses the login") as raised:
        run(spark, "nats", options(*flags, "nobody"), tmp_path)
    assert WORD not in str(raised.value)


def test_redis(
    spark: SparkSession,
    start_redis: Callable[..., RedisServer],
    password_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = start_redis("--requirepass", WORD)
    flags = ("--from", f"{server.url}/0?keys=bronze:*", "--redis-password-file", str(password_file))
    assert_no_secret(spark, "redis", options(*flags), capsys, batch=True)
    with pytest.raises(StreamingQueryException, match=r"(?i)username-password|wrongpass") as raised:
        run(spark, "redis", options(*flags, "--redis-username", "nobody"), tmp_path)
    assert WORD not in str(raised.value)


@pytest.mark.parametrize("bus", ["kinesis", "sqs"])
def test_aws(
    spark: SparkSession, aws_emulator: Endpoint, capsys: pytest.CaptureFixture[str], bus: str
) -> None:
    # Spark's processes have the secret key in their environment; see conftest.py.
    name = "bronze-secrets"
    if bus == "kinesis":
        client = aws_client("kinesis", aws_emulator.url)
        client.create_stream(StreamName=name, ShardCount=1)
        client.get_waiter("stream_exists").wait(StreamName=name)
        client.close()
    given = options(*("--from", f"{bus}://{name}?region={REGION}", f"--{bus}-endpoint-url", aws_emulator.url))
    assert_no_secret(spark, bus, given, capsys, batch=bus == "kinesis")


def test_kafka(spark: SparkSession, jars: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(f'security.protocol=SASL_SSL\nsasl.jaas.config=x required password="{WORD}";\n')
    given = options(
        *("--from", "kafka://127.0.0.1:1/topic", "--kafka-jars", jars, "--kafka-properties-file", str(file))
    )
    assert_no_secret(spark, "kafka", given, capsys, batch=False)


# -- as an operator runs it

LONGEST_SECONDS = 200.0


def command_lines() -> bytes:
    """Return what `ps` shows of all processes."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # a process may end meanwhile
            found.append(place.read_bytes())
    return b"\n".join(found)


@contextlib.contextmanager
def watched_processes() -> Iterator[set[bytes]]:
    """Note the command lines of all processes for as long as this lasts."""
    seen: set[bytes] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.2):
            seen.update(command_lines().splitlines())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let Spark write down its plans, and all else that its history server would show."""
    folder, settings = tmp_path / "events", tmp_path / "settings"
    folder.mkdir()
    settings.mkdir()
    facts = {"enabled": "true", "dir": folder.as_uri(), "compress": "false"}
    lines = [f"spark.eventLog.{name} {value}\n" for name, value in facts.items()]
    (settings / "spark-defaults.conf").write_text("".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    return folder


class Secret:
    """A password that is nowhere else, and what a job that gets it shows of it."""

    def __init__(self, folder: Path, events: Path) -> None:
        self.word = f"s3cr3t-{uuid.uuid4().hex}"
        self._folder, self._events = folder, events

    def run(self, *arguments: str, password: str) -> tuple[int, str]:
        """Run a job; return its status and log, when there is no password in anything."""
        file, lake, log = self._folder / "password", self._folder / "lake", self._folder / "log"
        file.write_text(f"{password}\n")
        lake.mkdir()
        with watched_processes() as processes:
            job = JobProcess(log, *arguments, str(file), "--to", str(lake), "--available-now", "--cores", "1")
            try:
                status, _ = job.finish(LONGEST_SECONDS)
            finally:
                job.kill()
        plans = b"".join(each.read_bytes() for each in self._events.rglob("*") if each.is_file())
        kept = {each: each.read_bytes() for each in lake.rglob("*") if each.is_file()}
        assert str(file).encode() in b"".join(processes)
        assert b"SparkListenerApplicationStart" in plans
        assert any("checkpoint" in str(path) for path in kept)
        shown: dict[Any, bytes] = {"stdout": job.output, "stderr": log.read_bytes(), "events": plans, **kept}
        shown["processes"] = b"\n".join(processes)
        assert [place for place, content in shown.items() if password.encode() in content] == []
        return status, log.read_text()


@pytest.fixture
def secret(java: None, tmp_path: Path, events: Path) -> Secret:
    return Secret(tmp_path, events)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_job_that_reads_nats(start_nats: Callable[..., NatsServer], secret: Secret, is_right: bool) -> None:
    server = start_nats(config=f'authorization {{ user: reader, password: "{secret.word}" }}')

    async def publish() -> None:
        client = await nats.connect(server.url, user="reader", password=secret.word)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.jetstream().publish("s", b"no envelope")
        await client.close()

    asyncio.run(publish())
    flags = ("--from", f"{server.url}/S", "--nats-user", "reader", "--nats-password-file")
    status, log = secret.run(*flags, password=secret.word if is_right else f"wrong-{uuid.uuid4().hex}")
    assert_ended(status, log, is_right=is_right)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_job_that_reads_redis(
    start_redis: Callable[..., RedisServer], secret: Secret, tmp_path: Path, is_right: bool
) -> None:
    # By a file, for the server's own command line is seen as well.
    users = tmp_path / "users.acl"
    users.write_text(f"user default on >{secret.word} ~* +@all\n")
    server = start_redis("--aclfile", str(users))
    with redis.Redis(port=server.port, password=secret.word) as client:
        client.xadd("bronze", {"data": b"no envelope"})
    flags = ("--from", f"{server.url}/0?keys=bronze", "--redis-password-file")
    status, log = secret.run(*flags, password=secret.word if is_right else f"wrong-{uuid.uuid4().hex}")
    assert_ended(status, log, is_right=is_right)


def assert_ended(status: int, log: str, *, is_right: bool) -> None:
    assert (status, "1 quarantined" in log) == ((0, True) if is_right else (1, False))
    assert ("refuses the login" in log) is not is_right
    assert "restarting in" not in log
