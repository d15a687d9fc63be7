"""NATS: a subject for each event, confirmed by JetStream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bronze_buses.tls import TlsFiles
from bronze_cli.options import option
from bronze_cli.problems import Fault, control_character, shorten
from bronze_cli.values import Choice, File, ListOf, Scalar, Secret, Switch, Text, host_port_fault, is_loopback

from bronze_sidecar.routing.naming import Target
from bronze_sidecar.routing.rules import Rules
from bronze_sidecar.routing.template import Template
from bronze_sidecar.routing.values import Destination, Headers, Routing
from bronze_sidecar.sinks.base import (
    Backend,
    Sink,
    batch_size,
    both_or_neither,
    dead_letter_doc,
    meta_prefix,
    meta_prefix_faults,
    tls_faults,
)

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route

# The server allows longer subjects; its documentation advises staying below this.
SUBJECT_LIMIT = 255


def subject_fault(subject: str) -> str | None:
    found = control_character(subject) or ("a space" if any(map(str.isspace, subject)) else None)
    if found:
        return f"it contains {found}"
    if "*" in subject or ">" in subject:
        return "it contains a wildcard, '*' or '>', and nothing can be published to a wildcard"
    if "" in subject.split("."):
        return "it has an empty token: a '.' at the start or end, or two in a row"
    if subject.startswith("$"):
        return "subjects that begin with '$' belong to NATS itself"
    return f"it has more than {SUBJECT_LIMIT} characters" if len(subject) > SUBJECT_LIMIT else None


def stream_fault(stream: str) -> str | None:
    for character in " .*>/\\":
        if character in stream:
            return f"it contains '{character}'"
    return control_character(stream)


def header_fault(name: str) -> str | None:
    if name.lower().startswith("nats-"):
        return f"header '{shorten(name)}' is reserved: names that begin with 'Nats-' belong to NATS itself"
    if ":" in name or not name.isascii() or not name.isprintable() or " " in name:
        what = "it has a space, a ':' or a character that is not ASCII"
        return f"header '{shorten(name)}' is not a header name: {what}"
    return None


SUBJECT = Target(noun="NATS subject", limit=SUBJECT_LIMIT, text_fault=subject_fault)


class NatsServer(Scalar):
    """A NATS server as host:port, nats:// or tls:// URL."""

    metavar = "URL"

    def read(self, text: str) -> str | list[Fault]:
        address = text
        if "://" in text:
            try:
                parts = urlsplit(text)
            except ValueError:
                return [Fault("is not a valid URL.", "It looks like nats://host:4222.")]
            if "@" in parts.netloc:
                return [Fault("holds credentials.", "Use --nats-user and --nats-pass, or --nats-token.")]
            if (
                not text.startswith(("nats://", "tls://"))
                or parts.path not in {"", "/"}
                or parts.query
                or parts.fragment
            ):
                return [Fault("is not a valid URL.", "It looks like nats://host:4222 or tls://host:4222.")]
            address = parts.netloc
        fault = host_port_fault(address)
        return [fault] if fault else text


class StreamName(Scalar):
    """The name of a JetStream stream."""

    metavar = "NAME"

    def read(self, text: str) -> str | list[Fault]:
        what = stream_fault(text) if text else "it is empty"
        return [Fault(f"is not a stream name: {what}.")] if what else text


@dataclass(frozen=True)
class Nats(TlsFiles, Backend):
    """Options of the NATS back end."""

    name = "nats"
    title = "NATS"

    servers: tuple[str, ...] = option(
        ListOf(NatsServer()),
        "Servers to connect to, as host:port or as nats:// or tls:// URLs.",
        required=True,
    )
    subject: Template = option(
        Destination(SUBJECT), "Default subject; the template and the routing override it.", required=True
    )
    subject_routing: dict[str, Template] | None = option(
        Routing(SUBJECT), "Subjects by payload case; override the template."
    )
    subject_template: Template | None = option(
        Destination(SUBJECT), "Subject template; overrides the default subject."
    )
    dead_letter_subject: Template | None = option(Destination(SUBJECT), dead_letter_doc("Subject"))
    static_headers: dict[str, str] | None = option(Headers(header_fault), "Headers to add to every message.")
    meta_headers_prefix: str = meta_prefix("")
    user: str | None = option(Text(), "User name.")
    pass_: str | None = option(Secret(), "Password.", secret=True)
    token: str | None = option(Secret(), "Token, instead of user and password.", secret=True)
    creds_file: Path | None = option(File(), "Credentials file with the user's JWT and key.")
    tls: bool = option(
        Switch(), "Encrypt the connection with TLS; a tls:// URL does the same.", default=False
    )
    jetstream: bool = option(
        Switch(),
        "Publish through JetStream, which confirms every message. Core NATS does not.",
        default=True,
    )
    stream: str | None = option(
        StreamName(), "JetStream stream; created if it does not exist, checked if it does."
    )
    batching: str = option(
        Choice("auto", "off"),
        "Publish a write as one batch, in strict order, where the stream allows it (allow_batched).",
        default="auto",
    )
    max_batch_size: int = batch_size(4096)

    @property
    def is_encrypted(self) -> bool:
        return self.tls or any(server.startswith("tls://") for server in self.servers)

    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Connect, and check that a stream accepts our subjects."""
        # Imported here: a process loads only the client libraries of back ends that are on.
        from bronze_sidecar.sinks.nats.sink import open_nats  # noqa: PLC0415

        return open_nats(self, route)

    def rules(self) -> Rules:
        return Rules(
            destination=self.subject,
            template=self.subject_template,
            routing=self.subject_routing or {},
            include=self.include_payloads,
            dead_letter=self.dead_letter_subject,
            id_header="Nats-Msg-Id",
            static_headers=self.static_headers or {},
            meta_prefix=self.meta_headers_prefix,
        )

    def exposed_secrets(self) -> Iterator[str]:
        addresses = [server.rpartition("//")[2] for server in self.servers]
        if not self.is_encrypted and not all(map(is_loopback, addresses)):
            for secret, option_name in ((self.pass_, "--nats-pass"), (self.token, "--nats-token")):
                if secret:
                    yield option_name

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from tls_faults(self, encrypted=self.is_encrypted)
        yield from both_or_neither(self, "user", "pass_")
        ways = [name for name in ("user", "token", "creds_file") if getattr(self, name) is not None]
        for name in ways[1:]:
            yield (
                name,
                Fault(
                    f"cannot be combined with --nats-{ways[0].replace('_', '-')}.",
                    "Choose one way to log in.",
                ),
            )
        if self.stream and not self.jetstream:
            yield "stream", Fault("has no effect without JetStream.", "Remove it, or --nats-jetstream=false.")
        if self.meta_headers_prefix:
            what = header_fault(self.meta_headers_prefix)
            if what:
                yield "meta_headers_prefix", Fault(f"{what}.")
        yield from meta_prefix_faults(self.static_headers, self.meta_headers_prefix)
