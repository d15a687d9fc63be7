"""Apache Kafka: one topic or many, keyed records, headers."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bronze_buses.tls import TlsFiles
from bronze_cli.options import option
from bronze_cli.problems import Fault, control_character, not_among
from bronze_cli.values import Broker, Choice, ListOf, Secret, Switch, Text, Url

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
# Kafka sets no limit of its own; a key longer than this is no key.
KEY_LIMIT = 1024


def topic_fault(topic: str) -> str | None:
    illegal = not_among(topic, TOPIC_CHARACTERS)
    if illegal:
        return f"it contains {illegal}; allowed are letters, digits, '.', '_' and '-'"
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

    brokers: tuple[str, ...] = option(ListOf(Broker()), "Brokers to ask first, as host:port.", required=True)
    topic: Template = option(Destination(TOPIC), "Topic forevery event without another one.", required=True)
    topic_routing: dict[str, Template] | None = option(Routing(TOPIC), "Topics by payload case.")
    topic_template: Template | None = option(Destination(TOPIC), "Topic by template; beats the plain topic.")
    key_template: Template = option(
        Destination(KEY),
        "Record key; order is kept among records of one key.",
        default=trusted(DEFAULT_KEY, KEY),
    )
    static_headers: dict[str, str] | None = option(Headers(header_fault), "Headers added to every record.")
    meta_headers_prefix: str = meta_prefix("")
    client_id: str = option(
        Text(), "Name of this client in the brokers' logs and quotas.", default="bronze-sidecar"
    )
    tls: bool = option(Switch(), "Encrypts the connection with TLS.", default=False)
    sasl_mechanism: str | None = option(
        Choice("plain", "scram-sha-256", "scram-sha-512"), "How to log in; no log-in if not given."
    )
    sasl_username: str | None = option(Text(), "User name for SASL.")
    sasl_password: str | None = option(Secret(), "Password for SASL.", secret=True)
    compression: str = option(
        Choice("none", "gzip", "snappy", "lz4", "zstd"), "Codec of the record batches.", default="none"
    )
    acks: str = option(
        Choice("all", "leader", "none", "1", "0", "-1"),
        "Which brokers confirm a record: all in-sync replicas, the leader, or none.",
        default="all",
    )
    idempotent: bool | None = option(
        Switch(), "Lets the broker drop records that a retry repeats; on unless acks say otherwise."
    )
    schema_registry_url: str | None = option(
        Url(), "Confluent Schema Registry; frames values in its wire format."
    )
    schema_registry_auth_username: str | None = option(Text(), "User name for the registry.")
    schema_registry_auth_password: str | None = option(Secret(), "Password for the registry.", secret=True)
    max_batch_size: int = batch_size(4096)
    max_batch_delay_ms: int = batch_delay(5)

    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Connect, and see that the brokers and the registry let us in."""
        # Only now: a process pays for the client libraries of the back ends that are on.
        from bronze_sidecar.sinks.kafka.sink import open_kafka  # noqa: PLC0415

        return open_kafka(self, route)

    def rules(self) -> Rules:
        return Rules(
            destination=self.topic,
            template=self.topic_template,
            routing=self.topic_routing or {},
            include=self.include_payloads,
            key=self.key_template,
            id_header=EVENT_ID_HEADER,
            static_headers=self.static_headers or {},
            meta_prefix=self.meta_headers_prefix,
        )

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from tls_faults(self, encrypted=self.tls)
        yield from both_or_neither(self, "sasl_username", "sasl_password")
        yield from both_or_neither(self, "sasl_mechanism", "sasl_username")
        yield from both_or_neither(self, "schema_registry_auth_username", "schema_registry_auth_password")
        if self.schema_registry_auth_username and not self.schema_registry_url:
            yield "schema_registry_auth_username", Fault("has no effect.", "Add --kafka-schema-registry-url.")
        if self.idempotent and ACKS.get(self.acks, self.acks) != "all":
            yield "idempotent", Fault(f"does not go with acks '{self.acks}'.", "Set --kafka-acks to all.")
        yield from meta_prefix_faults(self.static_headers, self.meta_headers_prefix)
