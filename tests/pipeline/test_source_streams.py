"""From each bus to the bronze tables: real servers, a real sidecar, and real Spark."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from aws_servers import ACCOUNT, REGION, aws_client, reach
from bronze_client import connect
from bronze_pipeline.sources.base import Unreachable
from bronze_pipeline.sources.kafka import KafkaBus
from buses import trade
from confluent_kafka import TopicPartition
from kafka_servers import PASSWORD, USER, KafkaServer, admin, create_topic
from pipeline_jobs import run
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from servers import Certificates, Endpoint
from sidecar_process import sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

JARS = Path(__file__).parents[2] / ".cache/spark-jars/libs"
COUNT = 60
EVENT_IDS = [f"s:{position}" for position in range(COUNT)]


@dataclass(frozen=True)
class Place:
    """Where the events are, under one name on every bus."""

    name: str
    redis: Endpoint
    aws: Endpoint

    @property
    def aws_options(self) -> dict[str, str]:
        return {"endpointUrl": self.aws.url, "region": REGION}


async def publish(address: str, first: int, last: int, stream: str = "s") -> None:
    async with connect(address, stream_id=stream, close_timeout=60.0) as publisher:
        for position in range(first, last):
            publisher.publish(trade(position))
        await publisher.flush(timeout=60)


@pytest.fixture(scope="module")
def place(redis_server: Endpoint, aws_emulator: Endpoint) -> Iterator[Place]:
    """Put the events on Redis, Kinesis and SQS by the sidecar."""
    name = f"bronze-{uuid.uuid4().hex}"
    kinesis, sqs = aws_client("kinesis", aws_emulator.url), aws_client("sqs", aws_emulator.url)
    kinesis.create_stream(StreamName=name, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=name)
    sqs.create_queue(QueueName=name)
    options = [
        *("--redis-host", redis_server.host, "--redis-port", str(redis_server.port)),
        *("--redis-stream", name + ":{{symbol}}"),
        *("--kinesis-stream", name, *reach("kinesis", aws_emulator.url)),
        *("--sqs-queue-url", f"{aws_emulator.url}/{ACCOUNT}/{name}", *reach("sqs", aws_emulator.url)),
    ]
    with sidecar(*options) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, COUNT))
    yield Place(name, redis_server, aws_emulator)
    kinesis.close()
    sqs.close()


def table(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(
        deltalake.DeltaTable(folder / "bronze").to_pyarrow_table()
    ).to_pylist()
    return rows


def assert_all_are_there(rows: list[dict[str, Any]], number: Callable[[str], Any]) -> None:
    """Each event once, and along the positions of a bus the events of a symbol in their order."""
    assert sorted(row["position"] for row in rows) == list(range(COUNT))
    assert {row["event_id"] for row in rows} == set(EVENT_IDS)

    def along(row: dict[str, Any]) -> Any:
        return (row["symbol"], row["bus_partition"], number(row["bus_position"]))

    for _, group in groupby(sorted(rows, key=along), key=lambda row: (row["symbol"], row["bus_partition"])):
        positions = [row["position"] for row in group]
        assert positions == sorted(positions)


def entry_number(entry_id: str) -> tuple[int, ...]:
    return tuple(int(part) for part in entry_id.split("-"))


def test_redis(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    options = {"url": place.redis.url, "keys": f"{place.name}:*", "maxRecordsPerBatch": "25"}
    reports = run(spark, "redis", options, tmp_path)
    assert [report.events for report in reports] == [25, 25, 10]
    rows = table(tmp_path)
    assert_all_are_there(rows, entry_number)
    assert {row["bus"] for row in rows} == {"redis"}
    assert {row["destination"] for row in rows} == {
        f"{place.name}:{symbol}" for symbol in ("XBTUSD", "ETHUSD", "BTC%2FUSDT", "SOL%2EP", "ADA_USD")
    }


def test_kinesis(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    options = {"stream": place.name, **place.aws_options}
    reports = run(spark, "kinesis", options, tmp_path)
    assert sum(report.events for report in reports) == COUNT
    rows = table(tmp_path)
    assert_all_are_there(rows, int)
    assert {(row["bus"], row["destination"]) for row in rows} == {("kinesis", place.name)}


def test_sqs_messages_are_deleted_when_they_are_stored(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    options = {"queue": place.name, **place.aws_options}
    reports = run(spark, "sqs", options, tmp_path)
    assert sum(report.events for report in reports) == COUNT
    assert {row["event_id"] for row in table(tmp_path)} == set(EVENT_IDS)
    client = aws_client("sqs", place.aws.url)
    url = client.get_queue_url(QueueName=place.name)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    client.close()
    assert [left[name] for name in names] == ["0", "0"]


# -- Kafka


@pytest.fixture
def jars(spark: SparkSession) -> str:
    if not list(JARS.glob("*.jar")):
        pytest.skip("there is no Kafka connector in .cache/spark-jars: run tools/install-spark-jars.sh")
    return str(JARS)


def test_without_its_connector_kafka_says_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(
        Unreachable, match=r"--packages org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.2\.0, or"
    ):
        KafkaBus().stream(spark.newSession(), {"brokers": "127.0.0.1:1", "topics": "bronze"})


def test_kafka_with_tls_and_a_password(
    spark: SparkSession,
    jars: str,
    kafka_broker: KafkaServer,
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    topic = f"bronze.{uuid.uuid4().hex}"
    create_topic(kafka_broker.brokers, topic, 2)
    with sidecar("--kafka-brokers", kafka_broker.brokers, "--kafka-topic", topic) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, COUNT))
    file = tmp_path / "kafka.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.ca_file}\n"
    )
    options = {
        "brokers": kafka_broker.listener("SASLTLS"),
        "topics": topic,
        "propertiesFile": str(file),
        "jars": jars,
        "maxRecordsPerBatch": "40",
    }
    reports = run(spark, "kafka", options, tmp_path)
    assert len(reports) == 2
    assert sum(report.events for report in reports) == COUNT
    rows = table(tmp_path)
    assert_all_are_there(rows, int)
    assert {(row["bus"], row["destination"]) for row in rows} == {("kafka", topic)}
    plan = KafkaBus().stream(spark, options)._jdf.queryExecution().toString()  # type: ignore[operator]
    assert topic in plan
    assert PASSWORD not in plan


def test_kafka_records_that_expired_are_a_loss(
    spark: SparkSession, jars: str, kafka_broker: KafkaServer, tmp_path: Path
) -> None:
    topic = f"bronze.{uuid.uuid4().hex}"
    create_topic(kafka_broker.brokers, topic, 1)
    options = {"brokers": kafka_broker.brokers, "topics": topic, "jars": jars}
    with sidecar("--kafka-brokers", kafka_broker.brokers, "--kafka-topic", topic) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, 10))
        run(spark, "kafka", options, tmp_path)
        asyncio.run(publish(process.address, 10, 20, "other"))
    client = admin(kafka_broker.brokers)
    for done in client.delete_records([TopicPartition(topic, 0, 15)]).values():
        done.result(30)
    with pytest.raises(StreamingQueryException, match=r"(?i)data loss|lost|failOnDataLoss"):
        run(spark, "kafka", options, tmp_path)
    run(spark, "kafka", {**options, "onDataLoss": "continue"}, tmp_path)
    offsets = sorted(int(row["bus_position"]) for row in table(tmp_path))
    assert offsets == [*range(10), *range(15, 20)]
