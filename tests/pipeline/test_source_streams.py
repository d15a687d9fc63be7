"""From each bus to the bronze tables: real servers, a real sidecar, and real Spark."""

from __future__ import annotations

import asyncio
import socketserver
import threading
import uuid
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from aws_servers import ACCOUNT, REGION, aws_client, reach
from bronze_client import connect
from bronze_pipeline.bronze.job import BronzeBatchReport
from bronze_pipeline.running.failures import lasting_error
from bronze_pipeline.sources.kafka.bus import KafkaBus
from buses import trade
from confluent_kafka import TopicPartition
from kafka_servers import PASSWORD, SCOPE, USER, KafkaServer, admin, create_topic
from pipeline_jobs import run
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from servers import Certificates, Endpoint, free_port
from sidecar_process import sidecar
from token_server import token_server

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

COUNT, NEW = 60, 10
EVENT_IDS = [f"s:{position}" for position in range(COUNT)]


async def publish(address: str, first: int, last: int, stream: str = "s") -> None:
    async with connect(address, stream_id=stream, close_timeout=60.0) as publisher:
        for position in range(first, last):
            publisher.publish(trade(position))
        await publisher.flush(timeout=60)
        # More comes under the same ids: this is not the end.
        await publisher.close(ended=False)


@pytest.fixture
def name() -> str:
    """Return a name for a stream, queue or topic that no other test uses."""
    return f"bronze-{uuid.uuid4().hex}"


def table(folder: Path, name: str = "bronze") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(deltalake.DeltaTable(folder / name).to_pyarrow_table()).to_pylist()
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


def assert_only_what_is_new_comes(reports: list[BronzeBatchReport], rows: list[dict[str, Any]]) -> None:
    """The run went on from the checkpoint, with the ten events of another stream."""
    assert sum(report.events for report in reports) == NEW
    assert sum(report.duplicates for report in reports) == 0
    assert reports[0].batch > 0
    new = {row["event_id"] for row in rows} - set(EVENT_IDS)
    assert new == {f"new:{position}" for position in range(NEW)}
    assert len(rows) == COUNT + NEW


def test_redis(spark: SparkSession, redis_server: Endpoint, name: str, tmp_path: Path) -> None:
    options = {"url": redis_server.url, "keys": f"{name}:*", "maxRecordsPerBatch": "25"}
    reach_redis = ("--redis-host", redis_server.host, "--redis-port", str(redis_server.port))
    with sidecar(*reach_redis, "--redis-stream", name + ":{{symbol}}") as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, COUNT))
        reports = run(spark, "redis", options, tmp_path)
        assert [report.events for report in reports] == [25, 25, 10]
        rows = table(tmp_path)
        assert_all_are_there(rows, entry_number)
        assert {row["bus"] for row in rows} == {"redis"}
        assert {row["destination"] for row in rows} == {
            f"{name}:{symbol}" for symbol in ("XBTUSD", "ETHUSD", "BTC%2FUSDT", "SOL%2EP", "ADA_USD")
        }
        asyncio.run(publish(process.address, 0, NEW, "new"))
    assert_only_what_is_new_comes(run(spark, "redis", options, tmp_path), table(tmp_path))


def test_kinesis(spark: SparkSession, aws_emulator: Endpoint, name: str, tmp_path: Path) -> None:
    client = aws_client("kinesis", aws_emulator.url)
    client.create_stream(StreamName=name, ShardCount=2)
    client.get_waiter("stream_exists").wait(StreamName=name)
    client.close()
    options = {"stream": name, "endpointUrl": aws_emulator.url, "region": REGION}
    with sidecar("--kinesis-stream", name, *reach("kinesis", aws_emulator.url)) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, COUNT))
        reports = run(spark, "kinesis", options, tmp_path)
        assert sum(report.events for report in reports) == COUNT
        rows = table(tmp_path)
        assert_all_are_there(rows, int)
        assert {(row["bus"], row["destination"]) for row in rows} == {("kinesis", name)}
        asyncio.run(publish(process.address, 0, NEW, "new"))
    assert_only_what_is_new_comes(run(spark, "kinesis", options, tmp_path), table(tmp_path))


def test_sqs_messages_are_deleted_when_they_are_stored(
    spark: SparkSession, aws_emulator: Endpoint, name: str, tmp_path: Path
) -> None:
    client = aws_client("sqs", aws_emulator.url)
    url = client.create_queue(QueueName=name)["QueueUrl"]
    queue = f"{aws_emulator.url}/{ACCOUNT}/{name}"
    with sidecar("--sqs-queue-url", queue, *reach("sqs", aws_emulator.url)) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, COUNT))
    options = {"queue": name, "endpointUrl": aws_emulator.url, "region": REGION}
    reports = run(spark, "sqs", options, tmp_path)
    assert sum(report.events for report in reports) == COUNT
    assert {row["event_id"] for row in table(tmp_path)} == set(EVENT_IDS)
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    client.close()
    assert [left[name] for name in names] == ["0", "0"]


# -- Kafka


def test_kafka_with_tls_and_a_password(  # noqa: PLR0917 - fixtures
    spark: SparkSession,
    jars: str,
    kafka_broker: KafkaServer,
    certificates: Certificates,
    name: str,
    tmp_path: Path,
) -> None:
    create_topic(kafka_broker.brokers, name, 2)
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
        "topics": name,
        "propertiesFile": str(file),
        "jars": jars,
        "maxRecordsPerBatch": "40",
    }
    with sidecar("--kafka-brokers", kafka_broker.brokers, "--kafka-topic", name) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, COUNT))
        reports = run(spark, "kafka", options, tmp_path)
        assert len(reports) == 2
        assert sum(report.events for report in reports) == COUNT
        rows = table(tmp_path)
        assert_all_are_there(rows, int)
        assert {(row["bus"], row["destination"]) for row in rows} == {("kafka", name)}
        asyncio.run(publish(process.address, 0, NEW, "new"))
    assert_only_what_is_new_comes(run(spark, "kafka", options, tmp_path), table(tmp_path))


def test_kafka_with_a_token(
    spark: SparkSession, jars: str, kafka_broker: KafkaServer, name: str, tmp_path: Path
) -> None:
    create_topic(kafka_broker.brokers, name, 1)
    file = tmp_path / "kafka.properties"
    package = "org.apache.kafka.common.security.oauthbearer"
    # Kafka's own handler that makes tokens itself: the broker takes only those without a signature.
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class="
        f"{package}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler\n"
        f"sasl.jaas.config={package}.OAuthBearerLoginModule required"
        f' unsecuredLoginStringClaim_sub="app" unsecuredLoginStringClaim_scope="{SCOPE}";\n'
    )
    options = {
        "brokers": kafka_broker.listener("OAUTH"),
        "topics": name,
        "propertiesFile": str(file),
        "jars": jars,
    }
    with sidecar("--kafka-brokers", kafka_broker.brokers, "--kafka-topic", name) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, 10))
    assert sum(report.events for report in run(spark, "kafka", options, tmp_path)) == 10


def test_kafka_asks_a_token_server(
    spark: SparkSession, jars: str, kafka_broker: KafkaServer, name: str, tmp_path: Path
) -> None:
    """What comes is not accepted by Kafka's client, for it has no signature."""
    file = tmp_path / "kafka.properties"
    package = "org.apache.kafka.common.security.oauthbearer"
    client = ("plain-client", "plain-secret")
    with token_server(*client) as tokens:
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=OAUTHBEARER\n"
            f"sasl.login.callback.handler.class={package}.OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={tokens.url}\n"
            f"sasl.jaas.config={package}.OAuthBearerLoginModule required"
            f' clientId="{client[0]}" clientSecret="{client[1]}" scope="{SCOPE}";\n'
        )
        options = {
            "brokers": kafka_broker.listener("OAUTH"),
            "topics": name,
            "propertiesFile": str(file),
            "jars": jars,
        }
        with pytest.raises(StreamingQueryException):
            run(spark, "kafka", options, tmp_path)
        assert tokens.given
        assert tokens.asked[0] == {"grant_type": "client_credentials", "scope": SCOPE}


def test_kafka_sends_no_password_to_a_server_without_tls(
    spark: SparkSession, jars: str, certificates: Certificates, name: str, tmp_path: Path
) -> None:
    received: list[bytes] = []

    class Listener(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            received.append(self.request.recv(65_536))

    file = tmp_path / "kafka.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificates.ca_file}\n"
        "request.timeout.ms=1500\ndefault.api.timeout.ms=3000\n"
    )
    with socketserver.ThreadingTCPServer(("127.0.0.1", free_port()), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "brokers": f"127.0.0.1:{server.server_address[1]}",
            "topics": name,
            "propertiesFile": str(file),
            "jars": jars,
        }
        with pytest.raises(StreamingQueryException):
            run(spark, "kafka", options, tmp_path)
        server.shutdown()
    assert received
    assert all(first.startswith(b"\x16\x03") for first in received if first)  # a TLS handshake
    assert not any(PASSWORD.encode() in first for first in received)


def test_kafka_records_that_expired_are_a_loss(
    spark: SparkSession, jars: str, kafka_broker: KafkaServer, name: str, tmp_path: Path
) -> None:
    create_topic(kafka_broker.brokers, name, 1)
    options = {"brokers": kafka_broker.brokers, "topics": name, "jars": jars}
    with sidecar("--kafka-brokers", kafka_broker.brokers, "--kafka-topic", name) as process:
        process.wait_until_ready()
        asyncio.run(publish(process.address, 0, 10))
        run(spark, "kafka", options, tmp_path)
        asyncio.run(publish(process.address, 10, 20, "other"))
    client = admin(kafka_broker.brokers)
    for done in client.delete_records([TopicPartition(name, 0, 15)]).values():
        done.result(30)
    with pytest.raises(StreamingQueryException) as raised:
        run(spark, "kafka", options, tmp_path)
    said = lasting_error(str(raised.value), KafkaBus())
    assert said is not None
    assert said.startswith("Kafka no longer has records that were not read: ")
    assert f"{name}-0" in said
    assert "set --on-data-loss to continue" in said

    [report] = run(spark, "kafka", {**options, "onDataLoss": "continue"}, tmp_path)
    assert (report.events, report.quarantined) == (5, 1)
    offsets = sorted(int(row["bus_position"]) for row in table(tmp_path))
    assert offsets == [*range(10), *range(15, 20)]
    [lost] = table(tmp_path, "quarantine")
    assert (lost["destination"], lost["bus_partition"], lost["bus_position"]) == (name, "0", "10")
    assert lost["reason"] == f"offsets 10 to 14 are no longer in partition 0 of the topic {name}"
