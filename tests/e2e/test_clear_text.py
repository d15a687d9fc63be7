"""Encrypted means encrypted: a plain listener in the middle never gets to see a secret."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from bronze_buses.errors import BusError
from bronze_client import PublishError
from bronze_pipeline.sources.base import BusSource
from bronze_pipeline.sources.kinesis.bus import KinesisSource
from bronze_pipeline.sources.nats.bus import NatsSource
from bronze_pipeline.sources.redis.bus import RedisSource
from bronze_pipeline.sources.sqs.bus import SqsSource
from bronze_sidecar.errors import DeliveryError
from bronze_sidecar.routing.route import Route
from clients import ClientUnderTest
from configurations import backend_of
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType
from servers import Certificates, free_port
from sidecar_process import sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

SECRET = "correct-horse-battery"  # noqa: S105 - of a test
INFO = {"server_id": "x", "version": "2.10.0", "max_payload": 1048576, "headers": True, "auth_required": True}


class Listener:
    """Accepts connections, greets as a NATS server without TLS does, and keeps what it gets."""

    def __init__(self, greeting: bytes) -> None:
        self.port = free_port()
        self.received = b""
        self._greeting = greeting
        self._writers: list[asyncio.StreamWriter] = []
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            # It was accepted at the last moment.
            writer.transport.abort()
            return
        self._writers.append(writer)
        with contextlib.suppress(OSError):
            writer.write(self._greeting)
            while piece := await reader.read(65_536):
                self.received += piece
                if not self._greeting:
                    break  # as a server does that does not understand what it got
                writer.write(b"PONG\r\n")
        writer.close()


@contextlib.asynccontextmanager
async def listening(greeting: bytes = b"") -> AsyncIterator[Listener]:
    listener = Listener(greeting)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", listener.port)
    try:
        yield listener
    finally:
        server.close()
        await listener.close()
        await asyncio.sleep(0.1)  # for what was accepted at the last moment


def seen(listener: Listener) -> bool:
    """Tell whether a listener can read the secret in what it got."""
    hidden = base64.b64encode(f"u:{SECRET}".encode())
    return SECRET.encode() in listener.received or hidden in listener.received


def greeting() -> bytes:
    return b"INFO " + json.dumps(INFO).encode() + b"\r\n"


SINKS: dict[str, Callable[[int], tuple[str, ...]]] = {
    "nats url": lambda port: (
        f"--nats-servers=tls://127.0.0.1:{port}",
        "--nats-user=u",
        f"--nats-pass={SECRET}",
    ),
    "nats switch": lambda port: (f"--nats-servers=127.0.0.1:{port}", "--nats-tls", f"--nats-token={SECRET}"),
    "redis": lambda port: (
        "--redis-host=127.0.0.1",
        f"--redis-port={port}",
        "--redis-tls",
        f"--redis-password={SECRET}",
    ),
    "redis url": lambda port: (f"--redis-url=rediss://u:{SECRET}@127.0.0.1:{port}",),
    "kafka": lambda port: (
        *(f"--kafka-brokers=127.0.0.1:{port}", "--kafka-ssl", "--kafka-sasl-mechanism=plain"),
        *("--kafka-sasl-username=u", f"--kafka-sasl-password={SECRET}"),
    ),
    "kafka registry": lambda port: (
        *("--kafka-brokers=127.0.0.1:1", f"--kafka-schema-registry-url=https://127.0.0.1:{port}"),
        *("--kafka-schema-registry-auth-username=u", f"--kafka-schema-registry-auth-password={SECRET}"),
    ),
    "kinesis": lambda port: (
        *("--kinesis-region=eu-central-1", f"--kinesis-endpoint-url=https://127.0.0.1:{port}"),
        *("--kinesis-access-key=k", f"--kinesis-secret-key={SECRET}"),
    ),
    "sqs": lambda port: (
        *("--sqs-region=eu-central-1", f"--sqs-endpoint-url=https://127.0.0.1:{port}"),
        *("--sqs-access-key=k", f"--sqs-secret-key={SECRET}"),
    ),
}
DESTINATIONS = {
    "nats": "--nats-subject=s",
    "redis": "--redis-stream=s",
    "kafka": "--kafka-topic=s",
    "kinesis": "--kinesis-stream=s",
    "sqs": "--sqs-queue-url=https://sqs.eu-central-1.amazonaws.com/123456789012/s",
}


@pytest.mark.parametrize("name", SINKS)
async def test_a_sink_sends_nothing_in_clear_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bronze_sidecar.sinks.aws.service.ANSWER_SECONDS", 1.0)
    monkeypatch.setattr("bronze_sidecar.sinks.kafka.connection.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("bronze_sidecar.sinks.redis.connection.CONNECT_SECONDS", 1.0)
    bus = name.partition(" ")[0]
    async with listening(greeting() if bus == "nats" else b"") as listener:
        backend = backend_of(*SINKS[name](listener.port), DESTINATIONS[bus])
        with pytest.raises(DeliveryError) as refused:
            async with backend.open(Route(backend.rules())):
                pass
    # A client that encrypts from the start begins a handshake; the NATS client waits to be asked for one.
    assert listener.received[:2] in {b"", b"\x16\x03"}
    assert not seen(listener)
    assert SECRET not in str(refused.value)
    if bus == "nats":
        assert "the server does not offer TLS" in str(refused.value)


def look_for_events(source: BusSource) -> None:
    reader = source.streamReader(StructType())
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))


async def test_sources_send_nothing_in_clear_text(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bronze_pipeline.sources.aws.ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    file = tmp_path / "secret"
    file.write_text(SECRET)
    files = {"passwordFile": str(file), "tlsCaFile": str(certificates.ca_file)}
    ca_file = {"tlsCaFile": str(certificates.ca_file), "region": "eu-central-1"}
    async with (
        listening(greeting()) as nats,
        listening() as redis,
        listening() as kinesis,
        listening() as sqs,
    ):
        sources: list[BusSource] = [
            NatsSource({"servers": f"tls://127.0.0.1:{nats.port}", "stream": "S", "user": "u", **files}),
            RedisSource({"url": f"rediss://127.0.0.1:{redis.port}", "keys": "k", **files}),
            KinesisSource({"stream": SECRET, "endpointUrl": f"https://127.0.0.1:{kinesis.port}", **ca_file}),
            SqsSource({"queue": SECRET, "endpointUrl": f"https://127.0.0.1:{sqs.port}", **ca_file}),
        ]
        for source, listener in zip(sources, [nats, redis, kinesis, sqs], strict=True):
            with pytest.raises(BusError):
                await asyncio.to_thread(look_for_events, source)
            assert listener.received[:2] in {b"", b"\x16\x03"}
            assert not seen(listener)


@pytest.mark.parametrize("greets", [False, True])
async def test_a_client_sends_nothing_in_clear_text(
    client: ClientUnderTest, greets: bool, certificates: Certificates
) -> None:
    # As a gRPC server without TLS greets: with its settings.
    async with listening(b"\0\0\0\x04\0\0\0\0\0" if greets else b"") as listener:
        with pytest.raises(PublishError) as caught:
            async with client.connect(
                f"localhost:{listener.port}",  # a name, as certificates have
                tls_ca_file=certificates.ca_file,
                close_timeout=1.0,
                source=SECRET,
            ) as publisher:
                await publisher.publish({"type": "trade", "exchange": SECRET})
    assert caught.value.unacknowledged == 1
    assert listener.received[:2] == b"\x16\x03"
    assert not seen(listener)


def test_secrets_without_encryption_and_sockets_in_public_folders_are_warned_of(tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    options = (
        *("--redis-host=192.0.2.1", "--redis-stream=s", f"--redis-password={SECRET}"),
        *("--nats-servers=192.0.2.1:4222", "--nats-subject=s", "--nats-user=u", f"--nats-pass={SECRET}"),
        *("--kafka-brokers=127.0.0.1:1", "--kafka-topic=t", "--kafka-sasl-mechanism=plain"),
        *("--kafka-sasl-username=u", f"--kafka-sasl-password={SECRET}"),
        *("--kafka-schema-registry-url=http://192.0.2.1:8081", "--kafka-schema-registry-auth-username=u"),
        f"--kafka-schema-registry-auth-password={SECRET}",
        f"--listen=unix://{public}/s",
    )
    with sidecar(*options) as process:
        text = process.log.read_text()
        warned = [line["option"] for line in process.log_lines() if "encryption" in line["event"]]
        assert sorted(warned) == [
            "--kafka-schema-registry-auth-password",
            "--nats-pass",
            "--redis-password",
        ]
        (public_socket,) = [line for line in process.log_lines() if "name of this socket" in line["event"]]
        assert public_socket["path"] == f"{public}/s"
        assert SECRET not in text
