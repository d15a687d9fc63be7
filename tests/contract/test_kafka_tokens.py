"""Kafka: logging in with tokens, from an OAuth server or signed by AWS' own package."""

from __future__ import annotations

import asyncio
import base64
import socket
import time
import uuid
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from bronze_sidecar.errors import DeliveryError, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend
from configurations import backend_of
from contract.contract import Stored, price, records, trade
from kafka_servers import SCOPE, KafkaServer, create_topic, read_topic
from servers import HOST
from sidecar_process import sidecar
from token_server import CLIENT_ID, CLIENT_SECRET, TokenServer, token_server

pytestmark = pytest.mark.servers


@pytest.fixture
def topic() -> str:
    return f"test.{uuid.uuid4().hex}"


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    with token_server() as server:
        yield server


def oauth(
    server: KafkaServer, tokens: TokenServer, topic: str, secret: str = CLIENT_SECRET, scope: str = SCOPE
) -> list[str]:
    return [
        f"--kafka-brokers={server.listener('OAUTH')}",
        f"--kafka-topic={topic}",
        "--kafka-sasl-mechanism=OAUTHBEARER",
        f"--kafka-oauth-token-url={tokens.url}",
        f"--kafka-oauth-client-id={CLIENT_ID}",
        f"--kafka-oauth-client-secret={secret}",
        f"--kafka-oauth-scope={scope}",
    ]


async def opening_error(flags: list[str]) -> DeliveryError:
    backend: Backend = backend_of(*flags)
    with pytest.raises(DeliveryError) as caught:
        async with backend.open(Route(backend.rules())):
            pass
    return caught.value


async def numbers_in(server: KafkaServer, topic: str) -> list[int]:
    kept = await asyncio.to_thread(read_topic, server.brokers, topic)
    return [price(Stored(each.value, {})) for each in kept]


async def test_a_token_of_an_oauth_server_lets_us_in(
    kafka_broker: KafkaServer, tokens: TokenServer, topic: str
) -> None:
    create_topic(kafka_broker.brokers, topic)
    backend = backend_of(*oauth(kafka_broker, tokens, topic))
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, [trade("A", 1)]))
    assert await numbers_in(kafka_broker, topic) == [1]
    # One token serves all connections.
    assert tokens.asked == [{"grant_type": "client_credentials", "scope": SCOPE}]


async def test_a_token_is_renewed_when_it_ends_and_nothing_is_lost(
    kafka_broker: KafkaServer, tokens: TokenServer, topic: str
) -> None:
    """The broker ends a connection when the token has, and asks for another on the next one."""
    create_topic(kafka_broker.brokers, topic)
    tokens.seconds = 2.0
    backend = backend_of(*oauth(kafka_broker, tokens, topic))
    async with backend.open(Route(backend.rules())) as sink:
        until, count = time.monotonic() + 7, 0
        while time.monotonic() < until:
            assert not await sink.write(records(backend, [trade("A", count)]))
            count += 1
            await asyncio.sleep(0.05)
    assert len(tokens.given) > 2
    assert await numbers_in(kafka_broker, topic) == list(range(count))


async def test_a_token_that_the_broker_refuses_is_an_error_with_its_options(
    kafka_broker: KafkaServer, tokens: TokenServer
) -> None:
    error = await opening_error(oauth(kafka_broker, tokens, "t", scope="something-else"))
    assert isinstance(error, Permanent)
    assert "the broker refuses the token" in str(error)
    assert "--kafka-oauth-scope" in str(error)
    assert tokens.given[0] not in str(error)


async def test_a_wrong_client_secret_is_an_error_with_its_options(
    kafka_broker: KafkaServer, tokens: TokenServer
) -> None:
    error = await opening_error(oauth(kafka_broker, tokens, "t", "battery-staple"))
    assert isinstance(error, Permanent)
    assert "--kafka-oauth-client-id, --kafka-oauth-client-secret or --kafka-oauth-scope" in str(error)
    assert "invalid_client no such client" in str(error)
    assert "battery" not in str(error)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ((503, b"busy"), Transient, "--kafka-oauth-token-url answers 503"),
        ((200, b"<html>"), Transient, "--kafka-oauth-token-url gives no access token"),
        ((200, b'{"access_token": "a\\u0001b"}'), Transient, "--kafka-oauth-token-url gives no access token"),
        ((404, b""), Permanent, "--kafka-oauth-token-url answers 404"),
    ],
)
async def test_a_token_server_that_gives_none(
    kafka_broker: KafkaServer,
    tokens: TokenServer,
    answer: tuple[int, bytes],
    kind: type[DeliveryError],
    says: str,
) -> None:
    tokens.answer = answer
    error = await opening_error(oauth(kafka_broker, tokens, "t"))
    assert type(error) is kind
    assert says in str(error)


async def test_a_token_server_that_is_away_is_waited_for(
    kafka_broker: KafkaServer, tokens: TokenServer
) -> None:
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    flags = oauth(kafka_broker, tokens, "t")
    flags[3] = f"--kafka-oauth-token-url=http://{HOST}:{port}/token"
    error = await opening_error(flags)
    assert isinstance(error, Transient)
    assert "--kafka-oauth-token-url cannot be reached" in str(error)


async def test_another_mechanism_than_the_brokers_is_named(
    kafka_broker: KafkaServer, tokens: TokenServer
) -> None:
    flags = oauth(kafka_broker, tokens, "t")
    flags[0] = f"--kafka-brokers={kafka_broker.listener('SASL')}"
    error = await opening_error(flags)
    assert isinstance(error, Permanent)
    assert "the broker does not accept --kafka-sasl-mechanism=oauthbearer" in str(error)


# -- Amazon MSK


class Listener:
    """Stands before a broker and keeps what a client says."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._serving: set[asyncio.Task[None]] = set()
        self.heard = b""

    async def close(self) -> None:
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0.05)  # until the connections are closed

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        inner_reader, inner_writer = await asyncio.open_connection(HOST, self._port)

        async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter, *, keeps: bool) -> None:
            while chunk := await source.read(1 << 16):
                self.heard += chunk if keeps else b""
                to.write(chunk)
            to.close()

        try:
            await asyncio.gather(
                carry(reader, inner_writer, keeps=True), carry(inner_reader, writer, keeps=False)
            )
        finally:
            writer.transport.abort()
            inner_writer.transport.abort()
            self._serving.discard(task)


ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


async def test_the_signed_token_of_aws_reaches_the_broker(
    kafka_broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker here can check it, so it is refused, and what was sent is looked at."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    listener = Listener(kafka_broker.ports["OAUTH"])
    async with await asyncio.start_server(listener.serve, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        flags = [f"--kafka-brokers={HOST}:{port}", "--kafka-topic=t", "--kafka-sasl-mechanism=AWS_MSK_IAM"]
        error = await opening_error([*flags, "--kafka-aws-region=eu-central-1"])
        await listener.close()
    assert isinstance(error, Permanent)
    assert "the broker refuses the token" in str(error)
    assert "--kafka-aws-region" in str(error)
    assert "kafka-cluster:Connect" in str(error)
    token = listener.heard.partition(b"auth=Bearer ")[2].partition(b"\x01")[0]
    url = urlsplit(base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode())
    assert url.netloc == "kafka.eu-central-1.amazonaws.com"
    fields = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert fields["Action"] == "kafka-cluster:Connect"
    key, _, *scope = fields["X-Amz-Credential"].split("/")
    assert (key, scope) == (ACCESS_KEY, ["eu-central-1", "kafka-cluster", "aws4_request"])
    assert fields["X-Amz-Expires"] == "900"
    assert len(fields["X-Amz-Signature"]) == 64
    assert SECRET_KEY.encode() not in listener.heard
    assert SECRET_KEY not in str(error)
    assert token.decode() not in str(error)


async def test_without_credentials_of_aws_there_is_no_token(
    kafka_broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    flags = [f"--kafka-brokers={kafka_broker.listener('OAUTH')}", "--kafka-topic=t"]
    error = await opening_error(
        [*flags, "--kafka-sasl-mechanism=aws_msk_iam", "--kafka-aws-region=eu-central-1"]
    )
    assert isinstance(error, Permanent)
    assert "no AWS credentials were found" in str(error)


def test_no_token_and_no_secret_is_logged(
    kafka_broker: KafkaServer, tokens: TokenServer, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    create_topic(kafka_broker.brokers, topic)
    secret = tmp_path_factory.mktemp("secret") / "client-secret"
    secret.write_text(CLIENT_SECRET)
    flags = [each for each in oauth(kafka_broker, tokens, topic) if "client-secret" not in each]
    with sidecar(*flags, f"--kafka-oauth-client-secret-file={secret}", "--log-level=debug") as process:
        process.wait_until_ready()
        log = process.log.read_text()
    assert "connected" in log
    assert CLIENT_SECRET not in log
    assert not any(token[:20] in log for token in tokens.given)
