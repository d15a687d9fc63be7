"""Other routers, beside which the sidecar is measured: how each is started, and given events.

Each is built of its own Go modules (`tests/bench/dapr`, `tests/bench/connect`) with what is needed of it. It
is spared what the sidecar does with an event: where it belongs is told, and nothing in it has to be read.
"""

from __future__ import annotations

import http.client
import json
import struct
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import grpc
from bronze_sidecar.envelope.wire import delimited, heads, map_entry, string_field
from bronze_sidecar.routing.rules import Record
from machine import pinned
from servers import HOST, NativeServer

SECONDS = 60.0
"""How long a call may take."""


class NotConfirmed(Exception):  # noqa: N818 - named for what it says
    """A call failed, in part or as a whole, or nobody knows."""


def calls_of(
    records: Iterable[Record], size: int, *, is_sorted: bool, with_rest: bool = False
) -> Iterator[Sequence[Record]]:
    """Yield calls of so many events, in the order in which they get full; what is left only if wanted.

    Sorted, a call has one destination.
    """
    gathered: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        which = record.address.destination if is_sorted else ""
        gathered[which].append(record)
        if len(gathered[which]) == size:
            yield gathered.pop(which)
    if with_rest:
        yield from gathered.values()


Send = Callable[[bytes], None]
"""Returns when everything that was prepared is confirmed; raises NotConfirmed."""


class Router(NativeServer):
    """Another router's process, on the measured core."""

    title: ClassVar[str]
    scheme = "http"

    def __init__(self, directory: Path, program: Path, bus: str, address: str, *, in_order: bool) -> None:
        super().__init__(directory)
        self._program = program
        self._bus = bus
        self._address = address
        """Where the bus is, without a scheme."""
        self._in_order = in_order

    @property
    def is_sorted(self) -> bool:
        """Whether a call must have one destination."""
        return False

    @abstractmethod
    def prepared(self, call: Sequence[Record]) -> bytes:
        """Return what is sent, as far as it can be made before."""

    @abstractmethod
    def line(self) -> AbstractContextManager[Send]:
        """Open a connection for one call at a time."""


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


# -- Dapr

REQUEST_PUBSUB, REQUEST_TOPIC, ENTRY, REQUEST_METADATA = (heads(number) for number in (1, 2, 3, 4))
ENTRY_ID, ENTRY_EVENT, ENTRY_METADATA = (heads(number) for number in (1, 2, 4))
PUBLISH = "/dapr.proto.runtime.v1.Dapr/BulkPublishEventAlpha1"
PUBSUB = "bus"
DAPR_COMPONENTS: dict[str, tuple[str, Callable[[str], dict[str, str]]]] = {
    "redis": ("pubsub.redis", lambda address: {"redisHost": address}),
    "nats": ("pubsub.jetstream", lambda address: {"natsURL": f"nats://{address}"}),
    "kafka": (
        "pubsub.kafka",
        lambda address: {
            "brokers": address,
            "authType": "none",
            "excludeHeaderMetaRegex": "^(rawPayload|partitionKey)$",
        },
    ),
}


class Dapr(Router):
    """Bulk publishing by gRPC, of events as they are: not in the envelopes of CloudEvents."""

    title = "Dapr"
    port_count = 3

    def command(self) -> Sequence[str]:
        # JSON is YAML.
        kind, settings = DAPR_COMPONENTS[self._bus]
        resources = self.directory / "resources"
        resources.mkdir(parents=True, exist_ok=True)
        metadata = [{"name": name, "value": value} for name, value in settings(self._address).items()]
        _write_resource(
            resources / "bus.yaml", "Component", PUBSUB, {"type": kind, "version": "v1", "metadata": metadata}
        )
        resolution = {"component": "nameformat", "configuration": {"format": "{appid}"}}
        _write_resource(
            self.directory / "dapr.yaml", "Configuration", "peers", {"nameResolution": resolution}
        )
        return pinned(
            [
                str(self._program),
                *("--app-id", "peers", "--log-level", "error", "--enable-metrics=false"),
                *("--config", str(self.directory / "dapr.yaml"), "--resources-path", str(resources)),
                *("--dapr-listen-addresses", HOST, "--dapr-internal-grpc-listen-address", HOST),
                *("--dapr-http-port", str(self.port), "--dapr-grpc-port", str(self.port + 1)),
                *("--dapr-internal-grpc-port", str(self.port + 2), "--dapr-graceful-shutdown-seconds", "1"),
            ]
        )

    def answers(self) -> bool:
        return _status(self.port, "/v1.0/healthz/outbound") == http.HTTPStatus.NO_CONTENT

    @property
    def is_sorted(self) -> bool:
        # With Kafka, every event has the same.
        return True

    def prepared(self, call: Sequence[Record]) -> bytes:
        return b"".join(
            [
                string_field(REQUEST_PUBSUB, PUBSUB),
                string_field(REQUEST_TOPIC, call[0].address.destination),
                *(delimited(ENTRY, self._entry(str(number), record)) for number, record in enumerate(call)),
                map_entry(REQUEST_METADATA, "rawPayload", "true"),
            ]
        )

    def _entry(self, number: str, record: Record) -> bytes:
        fields = string_field(ENTRY_ID, number) + delimited(ENTRY_EVENT, record.event.envelope)
        if self._bus != "kafka":
            return fields  # the others know neither keys nor headers
        said = {"partitionKey": record.address.key, **dict(record.address.headers)}
        return fields + b"".join(map_entry(ENTRY_METADATA, name, value) for name, value in said.items())

    @contextmanager
    def line(self) -> Iterator[Send]:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
        with grpc.insecure_channel(f"{HOST}:{self.port + 1}", options) as channel:
            publish: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PUBLISH)

            def send(body: bytes) -> None:
                try:
                    failed = publish(body, timeout=SECONDS)
                except grpc.RpcError as error:
                    raise NotConfirmed(str(error)) from error
                if failed:
                    raise NotConfirmed("a part of the entries")

            yield send


def _write_resource(path: Path, kind: str, name: str, spec: Mapping[str, Any]) -> None:
    described = {"apiVersion": "dapr.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    path.write_text(json.dumps(described))


# -- Redpanda Connect

FASTEST_IN_FLIGHT = {"redis": 64, "nats": 1024, "kafka": 10}
"""What these outputs have by default."""
# Each message begins with a line that says where it belongs; taking it apart is the least that routing costs.
MAPPING = r"""
let end = content().index_of("\n")
let told = content().slice(0, $end).string().split("\t")
meta = {"destination": $told.0, "key": $told.1, "payloadCase": $told.2, "dataType": $told.3}
root = content().slice($end + 1)
"""
HEADERS = ["payloadCase", "dataType"]


class Connect(Router):
    """A batch for each request to its HTTP server, which answers when the output has confirmed all of it."""

    title = "Redpanda Connect"

    def command(self) -> Sequence[str]:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "connect.yaml"
        config.write_text(json.dumps(self._config()))
        return pinned([str(self._program), "run", str(config)])

    def _config(self) -> dict[str, Any]:
        server = {"address": f"{HOST}:{self.port}", "path": "/post", "timeout": f"{SECONDS:g}s"}
        return {
            "http": {"enabled": False},
            "logger": {"level": "ERROR"},
            "metrics": {"none": {}},
            "shutdown_timeout": "1s",
            "input": {"http_server": server, "processors": [{"unarchive": {"format": "binary"}}]},
            "pipeline": {"threads": 1, "processors": [{"mapping": MAPPING}]},
            "output": self._output(),
        }

    def _output(self) -> dict[str, Any]:
        in_flight = 1 if self._in_order else FASTEST_IN_FLIGHT[self._bus]
        to: dict[str, Any]
        destination, headers = "${! @destination }", {"include_prefixes": HEADERS}
        if self._bus == "redis":
            to = {"url": f"redis://{self._address}", "stream": destination, "body_key": "data"}
            others = {"exclude_prefixes": ["destination", "key"]}
            return {"redis_streams": {**to, "metadata": others, "max_in_flight": in_flight}}
        if self._bus == "nats":
            to = {"urls": [f"nats://{self._address}"], "subject": destination}
            return {"nats_jetstream": {**to, "metadata": headers, "max_in_flight": in_flight}}
        to = {"seed_brokers": [self._address], "topic": destination, "key": "${! @key }"}
        safe = {"partitioner": "murmur2_hash", "idempotent_write": True, "compression": "none"}
        return {"kafka_franz": {**to, **safe, "metadata": headers, "max_in_flight": in_flight}}

    def answers(self) -> bool:
        return _status(self.port, "/post") == http.HTTPStatus.METHOD_NOT_ALLOWED

    def prepared(self, call: Sequence[Record]) -> bytes:
        messages = [self._message(record) for record in call]
        parts = (struct.pack(">I", len(message)) + message for message in messages)
        return struct.pack(">I", len(messages)) + b"".join(parts)

    def _told(self, record: Record) -> Sequence[str]:
        address, event = record.address, record.event
        return address.destination, address.key, event.payload_case, event.data_type

    def _message(self, record: Record) -> bytes:
        return "\t".join(self._told(record)).encode() + b"\n" + record.event.envelope

    @contextmanager
    def line(self) -> Iterator[Send]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=SECONDS)

        def send(body: bytes) -> None:
            try:
                connection.request("POST", "/post", body)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                # Another request makes a new connection.
                connection.close()
                raise NotConfirmed(str(error)) from error
            if response.status != http.HTTPStatus.OK:
                raise NotConfirmed(answer.decode(errors="replace"))

        try:
            yield send
        finally:
            connection.close()


# An id is there before an event is on disk, and so the same whenever it is written.
MAPPING_WITH_ID = MAPPING + "meta id = $told.4.not_empty().catch(uuid_v4())\n"


class BufferedConnect(Connect):
    """Answers when its buffer in SQLite has a batch, and writes from there to JetStream.

    What is written in vain is written again by the output, before what follows it, and JetStream knows it by
    its id. Events leave the buffer singly, so that one that fails is not followed by those of its batch.
    """

    @property
    def disk(self) -> Path:
        """Return the folder of the buffer."""
        return self.directory / "disk"

    def _config(self) -> dict[str, Any]:
        self.disk.mkdir(exist_ok=True)
        config = super()._config()
        # Before the buffer, which would store the request's headers with each event.
        config["input"]["processors"].append({"mapping": MAPPING_WITH_ID})
        config["buffer"] = {
            "sqlite": {"path": str(self.disk / "buffer.db"), "post_processors": [{"split": {}}]}
        }
        config["pipeline"]["processors"] = []
        return config

    def _output(self) -> dict[str, Any]:
        output = super()._output()
        output["nats_jetstream"]["headers"] = {"Nats-Msg-Id": "${! @id }"}
        return {"retry": {"output": output}}

    def _told(self, record: Record) -> Sequence[str]:
        return *super()._told(record), record.event.id
