"""Redis Streams: the contract, and what is Redis' own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis.asyncio
from configurations import backend_of
from contract.contract import (
    Peer,
    SinkContract,
    Stored,
    event,
    headed_event,
    price,
    records,
    trade,
    write_all,
)
from servers import Certificates, Endpoint, RedisCluster, RedisServer, tls_proxy

from bronze_sidecar.errors import Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routes import Route
from bronze_sidecar.sinks import redis_connection
from bronze_sidecar.sinks.base import Backend, Failed

pytestmark = pytest.mark.servers

StartRedis = Callable[..., RedisServer]


@asynccontextmanager
async def client(url: str) -> AsyncIterator[redis.asyncio.Redis]:
    """Connect by the library's ordinary means."""
    connected = redis.asyncio.Redis.from_url(url, protocol=2)
    try:
        yield connected
    finally:
        await connected.aclose()


async def read_stream(connected: Any, key: str) -> list[Stored]:
    stored = []
    for _, fields in await connected.xrange(key):
        data = fields.pop(b"data")
        stored.append(Stored(data, {name.decode(): value.decode() for name, value in fields.items()}))
    return stored


def peer_at(url: str, flags: tuple[str, ...], **facts: Any) -> Peer:
    async def read_all(key: str) -> list[Stored]:
        async with client(url) as connected:
            return await read_stream(connected, key)

    return Peer(flags, read_all, **facts)


def reach(port: int) -> tuple[str, ...]:
    return "--redis-host=127.0.0.1", f"--redis-port={port}"


def addressing(prefix: str) -> tuple[str, ...]:
    return "--redis-stream=unused", f"--redis-stream-template={prefix}.{{{{symbol}}}}"


class TestRedis(SinkContract):
    """The contract."""

    headers = {  # noqa: RUF012 - it is declared as a class attribute
        "payloadCase": "tradeBar",
        "dataType": "trade_bar_1m",
        "env": "prod",
        "eventId": "stream:42",
        "meta.request_id": "r-1",
        "meta.city": "Zürich",
    }
    header_flags = ("--redis-static-headers=env:prod",)
    oversized_bytes = 1024 * 1024 + 1

    def addressing(self, prefix: str) -> tuple[str, ...]:
        return addressing(prefix)

    def be_impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redis_connection, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(redis_connection, "CONNECT_SECONDS", 1.0)

    @pytest.fixture
    def peer(self, redis_server: Endpoint) -> Peer:
        return peer_at(redis_server.url, (f"--redis-url={redis_server.url}",))

    @pytest.fixture
    def own_peer(self, start_redis: StartRedis) -> Peer:
        server = start_redis()
        return peer_at(server.url, reach(server.port), server=server)

    @pytest.fixture
    def small_peer(self, start_redis: StartRedis) -> Peer:
        server = start_redis("--proto-max-bulk-len", "1mb")
        return peer_at(server.url, reach(server.port), server=server)

    @pytest.fixture
    def password_peer(self, start_redis: StartRedis) -> Peer:
        server = start_redis("--user", "writer on >correct-horse ~* +@all")
        return peer_at(
            server.url,
            (*reach(server.port), "--redis-username=writer", "--redis-password=correct-horse"),
            wrong_flags=(*reach(server.port), "--redis-username=writer", "--redis-password=battery-staple"),
            secrets=("correct-horse", "battery-staple"),
            options=("--redis-username", "--redis-password"),
        )

    @pytest.fixture
    async def tls_peer(self, redis_server: Endpoint, certificates: Certificates) -> AsyncIterator[Peer]:
        async with tls_proxy(redis_server.port, certificates.server_context()) as port:
            encrypted = (*reach(port), "--redis-tls")
            yield peer_at(
                redis_server.url,
                (*encrypted, f"--redis-tls-ca-file={certificates.ca_file}"),
                wrong_flags=(*encrypted, f"--redis-tls-ca-file={certificates.other_ca_file}"),
                options=("--redis-tls-ca-file",),
            )
