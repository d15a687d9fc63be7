"""Redis Streams: one stream key or many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bronze_buses.tls import TlsFiles
from bronze_cli.options import option
from bronze_cli.problems import Fault, control_character
from bronze_cli.values import (
    Broker,
    Host,
    Integer,
    ListOf,
    Secret,
    Switch,
    Text,
    Url,
    is_loopback,
    is_plain_and_remote,
)

from bronze_sidecar.routing.naming import Target, text_fault_above
from bronze_sidecar.routing.rules import Rules
from bronze_sidecar.routing.template import Template
from bronze_sidecar.routing.values import Destination, Headers, Routing
from bronze_sidecar.sinks.base import (
    Backend,
    Sink,
    both_or_neither,
    dead_letter_doc,
    flag,
    meta_prefix,
    meta_prefix_faults,
    needs_switch,
    tls_faults,
)

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route

EVENT_ID_FIELD = "eventId"
DATA_FIELD = "data"
# Redis allows 512 MB; a key longer than this is a mistake.
KEY_LIMIT = 1024


def field_fault(name: str) -> str | None:
    if name in {DATA_FIELD, EVENT_ID_FIELD}:
        return f"header '{name}' is reserved: the sidecar writes it itself"
    found = control_character(name)
    return f"a header's name contains {found}" if found else None


STREAM = Target(noun="Redis stream key", limit=KEY_LIMIT, text_fault=text_fault_above(KEY_LIMIT))


@dataclass(frozen=True)
class Redis(TlsFiles, Backend):
    """Options of the Redis Streams back end."""

    name = "redis"
    title = "Redis"

    host: str | None = option(
        Host(),
        "Server's host name or address; not needed with a URL or with sentinels.",
        required=True,
        alternatives=("url", "sentinels"),
    )
    url: str | None = option(
        Url(schemes=("redis", "rediss"), credentials=True),
        "Server as a redis:// or rediss:// URL, which may include user, password and database.",
        secret=True,
    )
    stream: Template = option(
        Destination(STREAM), "Default stream key; the template and the routing override it.", required=True
    )
    port: int = option(Integer(1, 65_535), "Server's port.", default=6379)
    password: str | None = option(Secret(), "Password.", secret=True)
    username: str | None = option(Text(), "User name, if the server uses access control lists.")
    tls: bool = option(
        Switch(), "Encrypt the connection with TLS; a rediss:// URL does the same.", default=False
    )
    sentinels: tuple[str, ...] | None = option(
        ListOf(Broker()), "Sentinels to ask for the primary, instead of a host or URL."
    )
    sentinel_name: str | None = option(Text(), "Name under which the sentinels know the primary.")
    sentinel_username: str | None = option(Text(), "User name at the sentinels.")
    sentinel_password: str | None = option(Secret(), "Password at the sentinels.", secret=True)
    wait_aof: bool = option(
        Switch(),
        "Confirm events only when the server says that its append-only file is synced (WAITAOF).",
        default=False,
    )
    wait_replicas: int = option(
        Integer(0, 100), "Confirm events only when so many replicas have them (WAIT).", default=0
    )
    db: int = option(Integer(0, 2**31 - 1), "Database number.", default=0)
    stream_routing: dict[str, Template] | None = option(
        Routing(STREAM), "Stream keys by payload case; override the template."
    )
    stream_template: Template | None = option(
        Destination(STREAM), "Stream key template; overrides the default key."
    )
    dead_letter_stream: Template | None = option(Destination(STREAM), dead_letter_doc("Stream key"))
    static_headers: dict[str, str] | None = option(Headers(field_fault), "Fields to add to every entry.")
    meta_headers_prefix: str = meta_prefix("meta.")
    maxlen: int | None = option(
        Integer(1, 2**53), "Trim each stream to about this many entries; no trimming if not given."
    )

    @property
    def is_encrypted(self) -> bool:
        return self.tls or (self.url or "").startswith("rediss:")

    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Connect to the server or cluster."""
        # Imported here: a process loads only the client libraries of back ends that are on.
        from bronze_sidecar.sinks.redis.sink import open_redis  # noqa: PLC0415

        return open_redis(self, route)

    def rules(self) -> Rules:
        return Rules(
            destination=self.stream,
            template=self.stream_template,
            routing=self.stream_routing or {},
            include=self.include_payloads,
            dead_letter=self.dead_letter_stream,
            id_header=EVENT_ID_FIELD,
            static_headers=self.static_headers or {},
            meta_prefix=self.meta_headers_prefix,
            headers_noun="fields",
        )

    def exposed_secrets(self) -> Iterator[str]:
        if self.url and "@" in self.url and is_plain_and_remote(self.url, "redis"):
            yield "--redis-url"
        # A primary is wherever its sentinels are.
        servers = self.sentinels or ((f"{self.host}:0",) if self.host else ())
        if self.is_encrypted or all(map(is_loopback, servers)):
            return
        if self.password:
            yield "--redis-password"
        if self.sentinel_password:
            yield "--redis-sentinel-password"

    def faults(self) -> Iterator[tuple[str, Fault]]:
        if self.host is not None and self.url is not None:
            yield "url", Fault("cannot be combined with --redis-host.", "Choose one of them.")
        yield from self._sentinel_faults()
        yield from tls_faults(self, encrypted=self.is_encrypted)
        if self.username is not None and self.password is None:
            yield "username", Fault("has no effect on its own.", f"Add {flag(self, 'password')}.")
        yield from meta_prefix_faults(self.static_headers, self.meta_headers_prefix)

    def _sentinel_faults(self) -> Iterator[tuple[str, Fault]]:
        yield from both_or_neither(self, "sentinels", "sentinel_name")
        yield from needs_switch(self, "sentinels", "sentinel_username", "sentinel_password")
        for other in ("host", "url"):
            if self.sentinels is not None and getattr(self, other) is not None:
                yield (
                    "sentinels",
                    Fault(f"cannot be combined with {flag(self, other)}.", "Choose one of them."),
                )
        if self.sentinel_username is not None and self.sentinel_password is None:
            yield (
                "sentinel_username",
                Fault("has no effect on its own.", f"Add {flag(self, 'sentinel_password')}."),
            )
