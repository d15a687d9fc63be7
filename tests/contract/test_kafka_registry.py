"""Kafka values in the wire format of Confluent Schema Registry, read by Confluent's own deserializer.

The registry itself is a stand-in, written after the documented HTTP API: the real one is not to be had from
the package registries that tests may use. The broker and the deserializer are real.
"""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import ssl
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pytest
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.errors import DeliveryError, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend, Failed
from configurations import backend_of
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from contract.contract import records, trade
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from kafka_servers import KafkaEndpoint, Kept, read_topic
from servers import Certificates, free_port

pytestmark = pytest.mark.servers

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Registry(http.server.ThreadingHTTPServer):
    """Keeps Protobuf schemas by subject, as Confluent's does; answers and codes are those of its API."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.scheme = "http"
        self.credentials: str | None = None
        self.incompatible: set[str] = set()
        self.is_read_only = False
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def find(self, subject: str, schema: str) -> int | None:
        numbers = self.subjects.get(subject, [])
        return next((number for number in numbers if self.schemas[number - 1] == schema), None)

    def register(self, subject: str, schema: str) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        self.subjects.setdefault(subject, []).append(number)
        return number


class Answering(http.server.BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"
    errors: ClassVar = {
        40101: "Unauthorized",
        404: "HTTP 404 Not Found",
        40401: "Subject not found.",
        40403: "Schema not found",
        409: 'Schema being registered is incompatible with an earlier schema; reason "FIELD_KIND_CHANGED"',
        42201: "Either the input schema or one its references is invalid",
        42205: "Subject is in read-only mode",
    }

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(lambda: self._get(urlsplit(self.path).path.strip("/").split("/")))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        self._serve(lambda: self._post(path, body))

    def _serve(self, answer: Any) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        wanted = self.server.credentials
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        if wanted is not None and base64.b64decode(given).decode() != wanted:
            status, content = self._error(40101)
        else:
            status, content = answer()
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", MEDIA_TYPE)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _error(self, code: int) -> tuple[int, Any]:
        return int(str(code)[:3]), {"error_code": code, "message": self.errors[code]}

    def _get(self, path: list[str]) -> tuple[int, Any]:
        if path == ["schemas", "types"]:
            return 200, ["JSON", "PROTOBUF", "AVRO"]
        if path[:2] != ["schemas", "ids"]:
            return self._error(404)  # what newer registries know, and Confluent's client tries first
        schema = self.server.schemas[int(path[2]) - 1]
        return 200, {"schemaType": "PROTOBUF", "schema": schema}

    def _post(self, path: list[str], body: Any) -> tuple[int, Any]:
        registry, subject = self.server, path[1]
        assert self.headers["Content-Type"] == MEDIA_TYPE
        assert path[0] == "subjects"
        assert body["schemaType"] == "PROTOBUF"
        file = FileDescriptorProto.FromString(base64.b64decode(body["schema"], validate=True))
        # The registry knows the well-known types; anything else would have to be a reference.
        assert all(each.startswith("google/protobuf/") for each in file.dependency)
        if path[2:] == ["versions"]:
            if registry.is_read_only:
                return self._error(42205)
            if subject in registry.incompatible:
                return self._error(409)
            return 200, {"id": registry.register(subject, body["schema"])}
        assert len(path) == 2
        if subject not in registry.subjects:
            return self._error(40401)
        number = registry.find(subject, body["schema"])
        return (200, {"subject": subject, "version": 1, "id": number}) if number else self._error(40403)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def topic() -> str:
    return f"registry.{uuid.uuid4().hex}"


def at(server: KafkaEndpoint, registry: Registry, topic: str, *flags: str) -> Backend:
    reach = (f"--kafka-brokers={server.brokers}", f"--kafka-schema-registry-url={registry.url}")
    backend: Backend = backend_of(*reach, f"--kafka-topic={topic}", *flags)
    return backend


async def write(backend: Backend, symbols: Sequence[str]) -> Sequence[Failed]:
    async with backend.open(Route(backend.rules())) as sink:
        events = [trade(symbol, position) for position, symbol in enumerate(symbols)]
        return await sink.write(records(backend, events))


async def read(server: KafkaEndpoint, topic: str) -> list[Kept]:
    return await asyncio.to_thread(read_topic, server.brokers, topic)


async def opening_error(backend: Backend) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        async with backend.open(Route(backend.rules())):
            pass
    return caught.value


async def test_confluents_deserializer_reads_every_record(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    assert not await write(at(kafka_server, registry, topic), ["A"] * 100)
    kept = await read(kafka_server, topic)
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        deserialize = ProtobufDeserializer(NormalizedEvent, {"use.deprecated.format": False}, client)
        decoded = [await asyncio.to_thread(deserialize, each.value, context) for each in kept]
    assert [each.trade.price_str for each in decoded] == [str(position) for position in range(100)]


async def test_a_value_is_magic_byte_schema_id_message_index_and_envelope(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    registry.schemas = ["another schema"] * 258
    assert not await write(at(kafka_server, registry, topic), ["A"])
    (kept,) = await read(kafka_server, topic)
    assert kept.value[:6] == b"\x00\x00\x00\x01\x03\x00"
    assert kept.value[6:] == trade("A", 0).envelope


async def test_each_topic_has_its_subject_and_is_asked_for_once(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    backend = at(kafka_server, registry, f"{topic}.{{{{symbol}}}}")
    assert not await write(backend, ["A", "B", "A", "C/D"])
    assert not await write(backend, ["A", "B", "A", "C/D"])
    assert registry.subjects == {f"{topic}.{symbol}-value": [1] for symbol in ("A", "B", "C_2FD")}
    assert len(registry.requests) == 1 + 2 * 3


async def test_a_schema_that_is_there_is_looked_up_where_nothing_may_be_registered(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    registry.is_read_only = True
    schema = base64.b64encode(NormalizedEvent.DESCRIPTOR.file.serialized_pb).decode()
    registry.register(f"{topic}.A-value", schema)
    failures = await write(at(kafka_server, registry, f"{topic}.{{{{symbol}}}}"), ["A", "B"])
    assert [(failure.place, type(failure.error)) for failure in failures] == [(1, Permanent)]
    assert "read-only" in str(failures[0].error)


async def test_an_incompatible_schema_is_refused_with_the_registrys_words(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    registry.incompatible = {f"{topic}.B-value"}
    failures = await write(at(kafka_server, registry, f"{topic}.{{{{symbol}}}}"), ["A", "B", "A"])
    assert [(failure.place, type(failure.error)) for failure in failures] == [(1, Permanent)]
    assert f"'{topic}.B-value'" in str(failures[0].error)
    assert "FIELD_KIND_CHANGED" in str(failures[0].error)
    assert len(await read(kafka_server, f"{topic}.A")) == 2


def credentials(password: str) -> tuple[str, str]:
    return (
        "--kafka-schema-registry-auth-username=me",
        f"--kafka-schema-registry-auth-password={password}",
    )


async def test_logs_in_to_the_registry(kafka_server: KafkaEndpoint, registry: Registry, topic: str) -> None:
    registry.credentials = "me:correct-horse"
    assert not await write(at(kafka_server, registry, topic, *credentials("correct-horse")), ["A"])


async def test_wrong_credentials_of_the_registry_name_the_options(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    registry.credentials = "me:correct-horse"
    error = await opening_error(at(kafka_server, registry, topic, *credentials("battery-staple")))
    assert isinstance(error, Permanent)
    assert "--kafka-schema-registry-auth-username and --kafka-schema-registry-auth-password" in str(error)
    assert "battery" not in str(error)


async def test_a_registry_that_cannot_be_reached_is_waited_for(
    kafka_server: KafkaEndpoint, topic: str
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    flags = (f"--kafka-brokers={kafka_server.brokers}", f"--kafka-topic={topic}")
    error = await opening_error(backend_of(*flags, f"--kafka-schema-registry-url={url}"))
    assert isinstance(error, Transient)
    assert "--kafka-schema-registry-url" in str(error)


async def test_a_registry_that_goes_away_holds_back_only_new_topics(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str
) -> None:
    backend = at(kafka_server, registry, f"{topic}.{{{{symbol}}}}")
    assert not await write(backend, ["A"])
    registry.socket.close()
    failures = await write(backend, ["A", "B"])
    assert [(failure.place, type(failure.error)) for failure in failures] == [(1, Transient)]
    assert "cannot be reached" in str(failures[0].error)


async def test_encrypts_to_the_registry(
    kafka_server: KafkaEndpoint,
    registry: Registry,
    topic: str,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.socket = certificates.server_context().wrap_socket(registry.socket, server_side=True)
    registry.scheme = "https"
    for flags in ((), (f"--kafka-schema-registry-ca-file={certificates.other_ca_file}",)):
        error = await opening_error(at(kafka_server, registry, topic, *flags))
        assert isinstance(error, Permanent)
        assert str(error).startswith("the registry: the server's certificate is not trusted (")
        assert str(error).endswith("): check --kafka-schema-registry-ca-file")
    private = f"--kafka-schema-registry-ca-file={certificates.ca_file}"
    assert not await write(at(kafka_server, registry, topic, private), ["A"])
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))  # what the system trusts
    assert ssl.get_default_verify_paths().cafile == str(certificates.ca_file)
    monkeypatch.setattr("bronze_sidecar.sinks.kafka.registry._numbers", {})
    assert not await write(at(kafka_server, registry, topic), ["A"])


async def test_a_file_that_holds_no_certificates_is_named(
    kafka_server: KafkaEndpoint, registry: Registry, topic: str, tmp_path: Path
) -> None:
    registry.scheme = "https"
    (tmp_path / "ca.pem").write_text("nothing")
    file = f"--kafka-schema-registry-ca-file={tmp_path / 'ca.pem'}"
    error = await opening_error(at(kafka_server, registry, topic, file))
    assert isinstance(error, Permanent)
    assert str(error).startswith("--kafka-schema-registry-ca-file cannot be used: ")
