"""Apache Kafka: one topic or many, keyed records, headers."""

from __future__ import annotations

import importlib.util
import string
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bronze_buses.aws import Region
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
    batch_size,
    both_or_neither,
    dead_letter_doc,
    flag,
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
# How to log in with a token, and which options that needs; and all that are of no other use.
TOKENS = {
    "oauthbearer": ("oauth_token_url", "oauth_client_id", "oauth_client_secret"),
    "aws_msk_iam": ("aws_region",),
}
TOKENS_ONLY = {**TOKENS, "oauthbearer": (*TOKENS["oauthbearer"], "oauth_scope", "oauth_ca_file")}
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
        Choice("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws_msk_iam"),
        "How to log in; no login if not given.",
    )
    sasl_username: str | None = option(Text(), "User name for SASL.")
    sasl_password: str | None = option(Secret(), "Password for SASL.", secret=True)
    oauth_token_url: str | None = option(
        Url(), "Where oauthbearer gets its tokens, by OAuth's client credentials."
    )
    oauth_client_id: str | None = option(Text(), "Client id for the token server.")
    oauth_client_secret: str | None = option(Secret(), "Client secret for the token server.", secret=True)
    oauth_scope: str | None = option(Text(), "Scope to ask the token server for.")
    oauth_ca_file: Path | None = option(
        File(), "CA certificates to trust for the token server instead of the system's."
    )
    aws_region: str | None = option(Region(), "AWS region of the cluster, for aws_msk_iam.")
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
        if self.sasl_mechanism in TOKENS and not self.tls and not all(map(is_loopback, self.brokers)):
            yield "--kafka-sasl-mechanism"
        if self.oauth_client_secret and is_plain_and_remote(self.oauth_token_url or "", "http"):
            yield "--kafka-oauth-client-secret"
        registry = self.schema_registry_url or ""
        if self.schema_registry_auth_password and is_plain_and_remote(registry, "http"):
            yield "--kafka-schema-registry-auth-password"

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from tls_faults(self, encrypted=self.tls)
        yield from both_or_neither(self, "sasl_username", "sasl_password")
        if self.sasl_mechanism not in TOKENS:
            yield from both_or_neither(self, "sasl_mechanism", "sasl_username")
        yield from self._token_faults()
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

    def _token_faults(self) -> Iterator[tuple[str, Fault]]:
        """Yield what is missing, or has no effect, where a token takes the place of a password."""
        mechanism = self.sasl_mechanism
        needed = TOKENS.get(mechanism or "", ())
        missing = [flag(self, name) for name in needed if getattr(self, name) is None]
        if missing:
            yield "sasl_mechanism", Fault(f"'{mechanism}' needs more.", f"Add {' and '.join(missing)}.")
        if mechanism in TOKENS and self.sasl_username is not None:
            yield "sasl_username", Fault(f"has no effect with '{mechanism}'.", "Leave it out.")
        for other, names in TOKENS_ONLY.items():
            given = [name for name in names if getattr(self, name) is not None] if other != mechanism else []
            for name in given:
                yield name, Fault("has no effect.", f"Set {flag(self, 'sasl_mechanism')}={other}.")
        if self.oauth_ca_file and not (self.oauth_token_url or "https:").startswith("https:"):
            yield "oauth_ca_file", Fault("has no effect.", "Give --kafka-oauth-token-url with https.")
        if mechanism == "aws_msk_iam" and importlib.util.find_spec("aws_msk_iam_sasl_signer") is None:
            yield (
                "sasl_mechanism",
                Fault("'aws_msk_iam' needs AWS' signer.", "Install bronze-sidecar[server,msk]."),
            )
