"""What a bus will not let us do ends a job, with what to check; what passes by itself does not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
import redis
from aws_servers import ACCESS_KEY, REGION, SECRET_KEY, Call, FaultProxy, Refusal, fault_proxy
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from bronze_buses.errors import Refused, Unreachable
from bronze_buses.tls import certificate_fault
from bronze_pipeline.running.failures import lasting_error
from bronze_pipeline.sources.aws import meaning
from bronze_pipeline.sources.kafka.bus import KafkaBus
from bronze_pipeline.sources.kinesis.bus import KinesisSource
from bronze_pipeline.sources.nats.bus import NatsSource
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.sources.redis.bus import RedisSource
from bronze_pipeline.sources.sqs.bus import SqsSource
from kafka_servers import PASSWORD, USER, KafkaServer, create_topic
from pipeline_jobs import run
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from servers import Certificates, Endpoint, NatsServer, RedisCluster, RedisServer, free_port, tls_proxy
from source_readers import rows_from_the_start


def read(source: type[DataSource], options: dict[str, str]) -> list[dict[str, Any]]:
    return rows_from_the_start(source(options).streamReader(StructType()))


def file(folder: Path, text: str) -> str:
    path = folder / "secret"
    path.write_text(f"{text}\n")
    return str(path)


def test_a_server_that_asks_for_our_certificate(certificates: Certificates) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = certificates.server_context(ask_clients=True)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = ssl.create_default_context(cafile=str(certificates.ca_file)).wrap_bio(
        to_client, to_server, server_hostname="127.0.0.1"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    with contextlib.suppress(ssl.SSLWantReadError):
        server.do_handshake()
    client.do_handshake()
    with pytest.raises(ssl.SSLError):
        server.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        client.read()
    assert certificate_fault(ConnectionError(), "--nats-tls") is None
    assert certificate_fault(caught.value, "--nats-tls") == (
        "the server refuses our certificate (TLSV13_ALERT_CERTIFICATE_REQUIRED): check --nats-tls-cert-file"
        " and --nats-tls-key-file"
    )


# -- NATS

NATS_LOG_IN = "the NATS server refuses the login: check --nats-user and --nats-password-file"


@pytest.mark.servers
@pytest.mark.parametrize(
    ("authorization", "given"),
    [
        ('user: reader, password: "correct-horse"', {"user": "reader", "passwordFile": "wrong-horse"}),
        ('user: reader, password: "correct-horse"', {"user": "nobody", "passwordFile": "correct-horse"}),
        ('user: reader, password: "correct-horse"', {}),
        ('token: "correct-horse"', {"tokenFile": "wrong-horse"}),
    ],
)
def test_nats_refuses_the_log_in(
    start_nats: Callable[..., NatsServer], tmp_path: Path, authorization: str, given: dict[str, str]
) -> None:
    server = start_nats(config=f"authorization {{ {authorization} }}")
    secrets = {name: file(tmp_path, text) for name, text in given.items() if name.endswith("File")}
    with pytest.raises(Refused, match=NATS_LOG_IN) as caught:
        read(NatsSource, {"servers": server.url, "stream": "S"} | given | secrets)
    assert "horse" not in str(caught.value)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("permitted", "denied"),
    [
        ((), "publish to .*STREAM.INFO"),
        (("$JS.API.STREAM.INFO.S",), "publish to .*CONSUMER.CREATE"),
        (("$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.>"), "publish to .*CONSUMER.MSG.NEXT"),
    ],
)
def test_nats_does_not_permit_it(
    start_nats: Callable[..., NatsServer], tmp_path: Path, permitted: tuple[str, ...], denied: str
) -> None:
    rights = ", ".join(f'"{subject}"' for subject in ("nothing", *permitted))
    server = start_nats(
        config=f"""authorization {{ users = [
            {{ user: admin, password: admin }},
            {{ user: reader, password: "correct-horse", permissions: {{ publish: [{rights}] }} }}
        ] }}"""
    )

    async def publish() -> None:
        client = await nats.connect(server.url, user="admin", password="admin")  # noqa: S106
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.jetstream().publish("s", b"x")
        await client.close()

    asyncio.run(publish())
    options = {"user": "reader", "passwordFile": file(tmp_path, "correct-horse")}
    with pytest.raises(
        Refused, match=f"(?i)denies a permission that reading needs .*{denied}.* grant it to the user"
    ):
        read(NatsSource, {"servers": server.url, "stream": "S", **options})


@pytest.mark.servers
def test_certificates_of_nats(start_nats: Callable[..., NatsServer], certificates: Certificates) -> None:
    files = f'cert_file: "{certificates.server_cert_file}", key_file: "{certificates.server_key_file}"'
    server = start_nats(config=f"tls {{ {files} }}")
    options = {"servers": server.url.replace("nats://", "tls://"), "stream": "S", "tls": "true"}
    with pytest.raises(Refused, match=r"certificate is not trusted .*: check --nats-tls-ca-file"):
        read(NatsSource, options | {"tlsCaFile": str(certificates.other_ca_file)})
    with pytest.raises(OptionError, match="tlsCaFile: the file '/no/such/file' does not exist"):
        read(NatsSource, options | {"tlsCaFile": "/no/such/file"})


@pytest.mark.servers
def test_nats_may_come_and_a_stream_may_be_made(nats_server: Endpoint) -> None:
    with pytest.raises(Unreachable, match="cannot connect to nats://127"):
        read(NatsSource, {"servers": f"nats://127.0.0.1:{free_port()}", "stream": "S"})
    # The sidecar makes it when it starts.
    with pytest.raises(Unreachable, match="stream not found"):
        read(NatsSource, {"servers": nats_server.url, "stream": "NOT-YET"})


def test_a_file_with_a_secret_must_be_there() -> None:
    with pytest.raises(OptionError, match="tokenFile: the file '/no/such/file' does not exist"):
        read(NatsSource, {"servers": "nats://127.0.0.1:1", "stream": "S", "tokenFile": "/no/such/file"})


# -- Redis

REDIS_LOG_IN = r"refuses the login \(.*\): check --redis-username and --redis-password-file"


@pytest.mark.servers
def test_redis_refuses_the_log_in(start_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    server = start_redis("--requirepass", "correct-horse")
    options = {"url": server.url, "keys": "bronze"}
    wrong = options | {"passwordFile": file(tmp_path, "wrong-horse")}
    for each in (options, wrong, wrong | {"username": "nobody"}):
        with pytest.raises(Refused, match=f"^Redis at 127.0.0.1:{server.port} {REDIS_LOG_IN}") as caught:
            read(RedisSource, each)
        assert "horse" not in str(caught.value)


@pytest.mark.servers
def test_a_cluster_refuses_the_log_in(
    start_redis_cluster: Callable[..., RedisCluster], tmp_path: Path
) -> None:
    cluster = start_redis_cluster("--user", "reader", "on", ">correct-horse", "~*", "+@all")
    options = {"url": cluster.url, "keys": "bronze", "cluster": "true", "username": "reader"}
    with pytest.raises(Refused, match=REDIS_LOG_IN):
        read(RedisSource, options | {"passwordFile": file(tmp_path, "wrong-horse")})


@pytest.mark.servers
@pytest.mark.parametrize("command", ["xinfo", "xrange", "scan"])
def test_redis_does_not_permit_it(
    start_redis: Callable[..., RedisServer], tmp_path: Path, command: str
) -> None:
    rights = [f"+{each}" for each in ("@connection", "xinfo", "xrange", "scan") if each != command]
    server = start_redis("--user", "reader", "on", ">correct-horse", "~*", *rights)
    with redis.Redis(port=server.port) as client:
        client.xadd("bronze", {"data": b"x"})
    options = {"url": server.url, "keys": "bronze*", "username": "reader"}
    with pytest.raises(Refused, match=f"does not grant the user the permissions it needs: .*'{command}"):
        read(RedisSource, options | {"passwordFile": file(tmp_path, "correct-horse")})


@pytest.mark.servers
async def test_certificates_of_redis(redis_server: Endpoint, certificates: Certificates) -> None:
    async with tls_proxy(redis_server.port, certificates.server_context()) as port:
        options = {"url": f"rediss://127.0.0.1:{port}", "keys": "bronze"}
        for file, problem in [
            (certificates.other_ca_file, "certificate is not trusted .*: check --redis-tls-ca-file"),
            (certificates.server_key_file, "--redis-tls-ca-file cannot be used"),
        ]:
            with pytest.raises(Refused, match=problem):
                await asyncio.to_thread(read, RedisSource, options | {"tlsCaFile": str(file)})
        # The system's certificates, by which others might be trusted, are not.
        with pytest.raises(Refused, match="certificate is not trusted"):
            await asyncio.to_thread(read, RedisSource, options)


def test_redis_may_come() -> None:
    port = free_port()
    with pytest.raises(Unreachable, match=f"^Redis at 127.0.0.1:{port}: "):
        read(RedisSource, {"url": f"redis://127.0.0.1:{port}", "keys": "bronze"})


# -- AWS

AWS = [(KinesisSource, "kinesis", "stream"), (SqsSource, "sqs", "queue")]
EACH_SERVICE = pytest.mark.parametrize(("source", "service", "option"), AWS)


async def asked(proxy: FaultProxy, source: type[DataSource], option: str) -> str:
    options = {option: "bronze", "endpointUrl": proxy.url, "region": REGION}
    with pytest.raises(Refused) as caught:
        await asyncio.to_thread(read, source, options)
    return str(caught.value)


@EACH_SERVICE
@pytest.mark.parametrize(
    ("access_key", "secret_key", "code"),
    [
        ("AKIAOTHER", SECRET_KEY, "UnrecognizedClientException"),
        (ACCESS_KEY, "wrong-horse", "InvalidSignatureException"),
    ],
)
@pytest.mark.servers
async def test_aws_refuses_credentials(  # noqa: PLR0917 - parameters
    aws_emulator: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    source: type[DataSource],
    service: str,
    option: str,
    access_key: str,
    secret_key: str,
    code: str,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret_key)
    async with fault_proxy(aws_emulator.url) as proxy:
        proxy.checks_signatures = True
        said = await asked(proxy, source, option)
    assert said == (
        f"{service}: AWS refuses the credentials ({code}): check --{service}-region, --{service}-profile and"
        " the variables and files of the AWS tools"
    )


@EACH_SERVICE
@pytest.mark.servers
@pytest.mark.usefixtures("aws_credentials")
async def test_aws_does_not_permit_it(
    aws_emulator: Endpoint, source: type[DataSource], service: str, option: str
) -> None:
    def judge(call: Call) -> Refusal:
        return Refusal("AccessDeniedException", text=f"not authorized to perform: {service}:{call.operation}")

    async with fault_proxy(aws_emulator.url) as proxy:
        proxy.judge = judge
        said = await asked(proxy, source, option)
    assert said.startswith(f"{service}: the credentials lack a permission that reading needs: ")
    assert f"not authorized to perform: {service}:" in said


@EACH_SERVICE
@pytest.mark.servers
@pytest.mark.usefixtures("aws_credentials")
def test_aws_has_no_such_thing(
    aws_emulator: Endpoint, source: type[DataSource], service: str, option: str
) -> None:
    with pytest.raises(Refused, match=f"^{service}: check the name in --from, and --{service}-region: "):
        read(source, {option: "nowhere", "endpointUrl": aws_emulator.url, "region": REGION})


@EACH_SERVICE
@pytest.mark.servers
@pytest.mark.usefixtures("aws_credentials")
async def test_certificates_of_aws(
    aws_emulator: Endpoint,
    certificates: Certificates,
    source: type[DataSource],
    service: str,
    option: str,
) -> None:
    async with tls_proxy(aws_emulator.port, certificates.server_context()) as port:
        options = {option: "bronze", "endpointUrl": f"https://127.0.0.1:{port}", "region": REGION}
        other = {"tlsCaFile": str(certificates.other_ca_file)}
        with pytest.raises(Refused, match=f"certificate is not trusted .*: check --{service}-tls-ca-file"):
            await asyncio.to_thread(read, source, options | other)


@EACH_SERVICE
@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"region": REGION}, "Unable to locate credentials"),
        ({"region": REGION, "profile": "nobody"}, r"The config profile \(nobody\) could not be found"),
        ({}, "You must specify a region"),
    ],
)
def test_aws_cannot_be_asked(  # noqa: PLR0917 - parameters
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: type[DataSource],
    service: str,
    option: str,
    more: dict[str, str],
    problem: str,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(Refused, match=f"^{service}: {problem}.*: check --{service}-region, "):
        read(source, {option: "bronze", **more})


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "ReceiveMessage"),
        ClientError({"Error": {"Code": "LimitExceededException", "Message": "slow down"}}, "ListShards"),
        ClientError({"Error": {"Code": "InternalFailure", "Message": "sorry"}}, "GetRecords"),
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        ReadTimeoutError(endpoint_url="http://127.0.0.1:1"),
    ],
)
def test_aws_may_come_back(error: Exception) -> None:
    assert isinstance(meaning(error, "kinesis"), Unreachable)


# -- Kafka

KAFKA_LOG_IN = "check the user, its password and its permissions in --kafka-properties-file."


@pytest.mark.servers
@pytest.mark.timeout(400)
def test_kafka_refuses_the_log_in_and_certificates(
    spark: SparkSession, jars: str, kafka_broker: KafkaServer, certificates: Certificates, tmp_path: Path
) -> None:
    create_topic(kafka_broker.brokers, "refusals", 1)
    properties = tmp_path / "kafka.properties"
    options = {
        "brokers": kafka_broker.listener("SASLTLS"),
        "topics": "refusals",
        "propertiesFile": str(properties),
        "jars": jars,
    }
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"

    def said(password: str, ca_file: Path) -> str | None:
        properties.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={module} required username="{USER}" password="{password}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={ca_file}\n"
        )
        with pytest.raises(StreamingQueryException) as raised:
            run(spark, "kafka", options, tmp_path)
        return lasting_error(str(raised.value), KafkaBus())

    assert said("wrong-horse", certificates.ca_file) == (
        "Kafka refuses us (Authentication failed during authentication due to invalid credentials with SASL"
        f" mechanism SCRAM-SHA-256): {KAFKA_LOG_IN}"
    )
    assert said(PASSWORD, certificates.other_ca_file) == (
        "Kafka refuses us (SSL handshake failed): check its certificates in --kafka-properties-file."
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            "TopicAuthorizationException: Not authorized to access topics: [bronze]",
            f"Kafka refuses us (Not authorized to access topics: [bronze]): {KAFKA_LOG_IN}",
        ),
        ("TimeoutException: Timed out waiting for a node assignment. Call: listNodes", None),
        ("UnknownTopicOrPartitionException: This server does not host this topic-partition.", None),
    ],
)
def test_what_kafka_says_is_told_in_our_words(error: str, expected: str | None) -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
        f" org.apache.kafka.common.errors.{error} SQLSTATE: XXKST\n=== Streaming Query ===\n"
    )
    assert lasting_error(text, KafkaBus()) == expected
