"""No plan of Spark's, and no error of a source, shows a secret: options only name files that hold them."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
import pytest
from aws_servers import REGION, SECRET_KEY, aws_client
from bronze_pipeline.sources import BUS_BY_SCHEME, BUSES
from pipeline_jobs import run
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from servers import Endpoint, NatsServer, RedisServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

WORD = "s3cr3t-word"


def options(*arguments: str) -> dict[str, str]:
    """Make a source's options as the command line does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="origin")
    for bus in BUSES:
        bus.add_flags(parser)
    flags = parser.parse_args(arguments)
    url = urlsplit(flags.origin)
    return BUS_BY_SCHEME[url.scheme].options(url, flags)


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
    with pytest.raises(StreamingQueryException, match="refuses the log-in") as raised:
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
