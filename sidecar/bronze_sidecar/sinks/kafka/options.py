"""Apache Kafka: one topic or many, keyed records, headers."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bronze_buses.tls import TlsFiles
from bronze_cli.options import option
from bronze_cli.problems import Fault, control_character, not_among
from bronze_cli.values import (
    Broker,
    Choice,
    File,
    ListOf,
    Secret,
    Switch,
    Text,
    Url,
    is_loopback,
    is_plain_and_remote,
)

from bronze_sidecar.routing.naming import Target, text_fault_above
from bronze_sidecar.routing.rules import DEFAULT_KEY, Rules
from bronze_sidecar.routing.template import Template, trusted
from bronze_sidecar.routing.values import Destination, Headers, Routing
from bronze_sidecar.sinks.base import (
    Backend,
    Sink,
    batch_delay,
    batch_size,
    both_or_neither,
    dead_letter_doc,
    meta_prefix,
    meta_prefix_faults,
    tls_faults,
)

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route

EVENT_ID_HEADER = "eventId"
ACKS = {"-1": "all", "1": "leader", "0": "none"}
# org.apache.kafka.common.internals.Topic: legal characters, the longest name, and Kafka's own topics.
TOPIC_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
TOPIC_LIMIT = 249
TOPICS_OF_KAFKA = {
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
}
# Kafka sets no limit; a key longer than this is a mistake.
KEY_LIMIT = 1024


def topic_fault(topic: str) -> str | None:
    illegal = not_among(topic, TOPIC_CHARACTERS)
    if illegal:
        return f"it contains {illegal}; only letters, digits, '.', '_' and '-' are allowed"
    if topic in {".", ".."}:
        return "Kafka does not allow this name"
    if topic in TOPICS_OF_KAFKA:
        return "this topic belongs to Kafka itself"
    return f"it has more than {TOPIC_LIMIT} characters" if len(topic) > TOPIC_LIMIT else None


def header_fault(name: str) -> str | None:
    if name == EVENT_ID_HEADER:
        return f"header '{name}' is reserved: the sidecar writes it itself"
    found = control_character(name)
    return f"a header's name contains {found}" if found else None


TOPIC = Target(
    noun="Kafka topic",
    limit=TOPIC_LIMIT,
    text_fault=topic_fault,
    escape_character="_",
    harmless=frozenset("-"),
)
KEY = Target(noun="Kafka record key", limit=KEY_LIMIT, text_fault=text_fault_above(KEY_LIMIT))


@dataclass(frozen=True)
class Kafka(TlsFiles, Backend):
    """Options of the Kafka back end."""

    name = "kafka"
    title = "Kafka"
    spellings: ClassVar = {
        "tls": "ssl",
        "tls_ca_file": "ssl_ca_file",
        "tls_cert_file": "ssl_cert_file",
        "tls_key_file": "ssl_key_file",
    }

    brokers: tuple[str, ...] = option(
        ListOf(Broker()), "Brokers to contact first, as host:port.", required=True
    )
    topic: Template = option(
        Destination(TOPIC), "Default topic; the template and the routing override it.", required=True
    )
    topic_routing: dict[str, Template] | None = option(
        Routing(TOPIC), "Topics by payload case; override the template."
    )
    topic_template: Template | None = option(
        Destination(TOPIC), "Topic template; overrides the default topic."
    )
    dead_letter_topic: Template | None = option(Destination(TOPIC), dead_letter_doc("Topic"))
    key_template: Template = option(
        Destination(KEY),
        "Record key; records with the same key stay in order.",
        default=trusted(DEFAULT_KEY, KEY),
    )
    static_headers: dict[str, str] | None = option(Headers(header_fault), "Headers to add to every record.")
    meta_headers_prefix: str = meta_prefix("")
    client_id: str = option(Text(), "Client name for the brokers' logs and quotas.", default="bronze-sidecar")
    tls: bool = option(Switch(), "Encrypt the connection with TLS.", default=False)
    sasl_mechanism: str | None = option(
        Choice("plain", "scram-sha-256", "scram-sha-512"), "How to log in; no login if not given."
    )
    sasl_username: str | None = option(Text(), "User name for SASL.")
    sasl_password: str | None = option(Secret(), "Password for SASL.", secret=True)
    compression: str = option(
        Choice("none", "gzip", "snappy", "lz4", "zstd"), "Compression of record batches.", default="none"
    )
    acks: str = option(
        Choice("all", "leader", "none", "1", "0", "-1"),
        "Which brokers confirm a record: all in-sync replicas, the leader, or none.",
        default="all",
    )
    idempotent: bool | None = option(
        Switch(),
        "Let the broker drop duplicates caused by retries; on by default with acks all, otherwise off.",
    )
    schema_registry_url: str | None = option(
        Url(), "Confluent Schema Registry; values are framed in its wire format."
    )
    schema_registry_ca_file: Path | None = option(
        File(), "CA certificates to trust for the registry instead of the system's."
    )
    schema_registry_auth_username: str | None = option(Text(), "User name for the registry.")
    schema_registry_auth_password: str | None = option(Secret(), "Password for the registry.", secret=True)
    max_batch_size: int = batch_size(4096)
    max_batch_delay_ms: int = batch_delay(5)

    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Connect, and check that the brokers and the registry let us in."""
        # Imported here: a process loads only the client libraries of back ends that are on.
        from bronze_sidecar.sinks.kafka.sink import open_kafka  # noqa: PLC0415

        return open_kafka(self, route)

    def rules(self) -> Rules:
        return Rules(
            destination=self.topic,
            template=self.topic_template,
            routing=self.topic_routing or {},
            include=self.include_payloads,
            dead_letter=self.dead_letter_topic,
            key=self.key_template,
            id_header=EVENT_ID_HEADER,
            static_headers=self.static_headers or {},
            meta_prefix=self.meta_headers_prefix,
        )

    def exposed_secrets(self) -> Iterator[str]:
        if self.sasl_password and not self.tls and not all(map(is_loopback, self.brokers)):
            yield "--kafka-sasl-password"
        registry = self.schema_registry_url or ""
        if self.schema_registry_auth_password and is_plain_and_remote(registry, "http"):
            yield "--kafka-schema-registry-auth-password"

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from tls_faults(self, encrypted=self.tls)
        yield from both_or_neither(self, "sasl_username", "sasl_password")
        yield from both_or_neither(self, "sasl_mechanism", "sasl_username")
        yield from both_or_neither(self, "schema_registry_auth_username", "schema_registry_auth_password")
        if self.schema_registry_auth_username and not self.schema_registry_url:
            yield "schema_registry_auth_username", Fault("has no effect.", "Add --kafka-schema-registry-url.")
        if self.schema_registry_ca_file and not (self.schema_registry_url or "").startswith("https:"):
            yield (
                "schema_registry_ca_file",
                Fault("has no effect.", "Give --kafka-schema-registry-url with https."),
            )
        if self.idempotent and ACKS.get(self.acks, self.acks) != "all":
            yield (
                "idempotent",
                Fault(f"cannot be combined with acks '{self.acks}'.", "Set --kafka-acks to all."),
            )
        yield from meta_prefix_faults(self.static_headers, self.meta_headers_prefix)
