"""Redis Streams: the contract, and what is Redis' own."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend, Failed, Sink
from bronze_sidecar.sinks.redis import connection as redis_connection
from bronze_sidecar.sinks.redis import link as redis_link
from bronze_sidecar.sinks.redis.durability import Durability
from bronze_sidecar.sinks.redis.link import SingleServer
from bronze_sidecar.sinks.redis.sink import Encoder, RedisSink
from configurations import backend_of
from contract.contract import (
    Peer,
    SinkContract,
    Stored,
    becomes,
    event,
    headed_event,
    price,
    records,
    trade,
    write_all,
)
from servers import Certificates, Endpoint, RedisCluster, RedisServer, tls_proxy

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
        monkeypatch.setattr(redis_link, "ANSWER_SECONDS", 1.0)
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
        server = start_redis("--user", "writer", "on", ">correct-horse", "~*", "+@all")
        return peer_at(
            server.url,
            (*reach(server.port), "--redis-username=writer", "--redis-password=correct-horse"),
            wrong_flags=(*reach(server.port), "--redis-username=writer", "--redis-password=battery-staple"),
            secrets=("correct-horse", "battery-staple"),
            options=("--redis-username", "--redis-password"),
        )

    @pytest.fixture
    async def tls_peer(self, start_redis: StartRedis, certificates: Certificates) -> AsyncIterator[Peer]:
        server = start_redis()
        async with tls_proxy(server.port, certificates.server_context()) as port:
            encrypted = (*reach(port), "--redis-tls")
            yield peer_at(
                server.url,
                (*encrypted, f"--redis-tls-ca-file={certificates.ca_file}"),
                wrong_flags=(*encrypted, f"--redis-tls-ca-file={certificates.other_ca_file}"),
                options=("--redis-tls-ca-file",),
            )


# -- what is Redis' own


def backend_at(port: int, prefix: str, *more: str) -> Backend:
    backend: Backend = backend_of(*reach(port), *addressing(prefix), *more)
    return backend


async def write_once(backend: Backend, *events: Any) -> list[Failed]:
    async with backend.open(Route(backend.rules())) as sink:
        return list(await sink.write(records(backend, events)))


async def prices(url: str, key: str) -> list[int]:
    async with client(url) as connected:
        return [price(each) for each in await read_stream(connected, key)]


async def refusal(backend: Backend) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        async with backend.open(Route(backend.rules())):
            pass
    return caught.value


async def test_entries_are_those_that_the_library_would_write(redis_server: Endpoint) -> None:
    flags = (f"--redis-url={redis_server.url}", "--redis-static-headers=env:prod,région:Île")
    backend: Backend = backend_of(*flags, *addressing("reference"))
    route = Route(backend.rules())
    events = [
        headed_event(),
        event("BTC-USDT", 1, b"", data_type="", meta={}),
        event("BTC-USDT", 2, b"\0\r\n", meta={"a": "", "": "b", "é\r\n": "$5"}),
        event("BTC-USDT", 3, b"x" * 100_000, id="é" * 300, meta={str(n): "v" * n for n in range(300)}),
    ]
    async with client(redis_server.url) as connected:
        await connected.delete("reference.BTC-USDT", "plain")
        for each in events:
            await connected.xadd("plain", {"data": each.envelope, **dict(route.headers(each))})
        assert not await write_once(backend, *events)
        plain: Any = await connected.xrange("plain")
        ours: Any = await connected.xrange("reference.BTC-USDT")
    assert [fields for _, fields in ours] == [fields for _, fields in plain]


async def test_an_entry_with_thousands_of_meta_entries_fails_alone(start_redis: StartRedis) -> None:
    server = start_redis()
    backend = backend_at(server.port, "meta")
    most, more = ({str(number): "v" for number in range(count)} for count in (3000, 3001))
    failures = await write_once(
        backend, event("A", 1, b"1", meta=most), event("A", 2, b"2", meta=more), event("A", 3, b"3")
    )
    assert [(place, type(error)) for place, error in failures] == [(1, Permanent)]
    async with client(server.url) as connected:
        assert [each.data for each in await read_stream(connected, "meta.A")] == [b"1", b"3"]


async def test_trims_streams(start_redis: StartRedis) -> None:
    server = start_redis()
    backend = backend_at(server.port, "trimmed", "--redis-maxlen=1000")
    assert not await write_once(backend, *(trade("A", number) for number in range(5000)))
    kept = await prices(server.url, "trimmed.A")
    # The server drops whole nodes of a hundred entries.
    assert 1000 <= len(kept) <= 1100
    assert kept == list(range(5000 - len(kept), 5000))


async def test_writes_to_a_database(start_redis: StartRedis) -> None:
    server = start_redis()
    assert not await write_once(backend_at(server.port, "db", "--redis-db=3"), trade("A", 1))
    by_url: Backend = backend_of(f"--redis-url={server.url}/4", *addressing("db"))
    assert not await write_once(by_url, trade("A", 2))
    assert await prices(f"{server.url}/3", "db.A") == [1]
    assert await prices(f"{server.url}/4", "db.A") == [2]
    assert await prices(server.url, "db.A") == []


async def test_a_database_that_is_not_there(start_redis: StartRedis) -> None:
    server = start_redis()
    error = await refusal(backend_at(server.port, "db", "--redis-db=99"))
    assert isinstance(error, Permanent)
    assert "database 99 from --redis-db" in str(error)
    error = await refusal(backend_of(f"--redis-url={server.url}/99", *addressing("db")))
    assert isinstance(error, Permanent)
    assert "database 99 from --redis-url" in str(error)


async def test_a_password_that_was_not_given(start_redis: StartRedis) -> None:
    server = start_redis("--requirepass", "correct-horse")
    error = await refusal(backend_at(server.port, "login"))
    assert isinstance(error, Permanent)
    assert "--redis-password" in str(error)


async def test_credentials_in_the_url(start_redis: StartRedis) -> None:
    server = start_redis("--user", "writer", "on", ">p@ss/word", "~*", "+@all")
    right = f"--redis-url=redis://writer:p%40ss%2Fword@127.0.0.1:{server.port}"
    assert not await write_once(backend_of(right, *addressing("login")), trade("A", 1))
    wrong = f"--redis-url=redis://writer:battery-staple@127.0.0.1:{server.port}"
    error = await refusal(backend_of(wrong, *addressing("login")))
    assert isinstance(error, Permanent)
    assert "--redis-url" in str(error)
    assert "battery-staple" not in str(error)


# -- access control lists


async def test_a_user_who_may_write_to_some_keys_alone(start_redis: StartRedis) -> None:
    server = start_redis("--user", "writer", "on", ">secret", "~acl.A", "~acl.C", "+@all")
    login = ("--redis-username=writer", "--redis-password=secret")
    events = [trade("ABC"[number % 3], number) for number in range(9)]
    failures = await write_once(backend_at(server.port, "acl", *login), *events)
    assert [(place, isinstance(error, Permanent)) for place, error in failures] == [
        (1, True),
        (4, True),
        (7, True),
    ]
    assert "'acl.B'" in str(failures[0].error)
    assert await prices(server.url, "acl.A") == [0, 3, 6]
    assert await prices(server.url, "acl.B") == []
    assert await prices(server.url, "acl.C") == [2, 5, 8]


async def test_a_user_who_may_do_nothing_but_add(start_redis: StartRedis) -> None:
    server = start_redis("--user", "writer", "on", ">secret", "~acl.A", "~acl.C", "-@all", "+xadd")
    login = ("--redis-username=writer", "--redis-password=secret", "--redis-static-headers=env:prod")
    backend = backend_at(server.port, "acl", *login)
    events = [trade("ABC"[number % 3], number) for number in range(300)]
    async with backend.open(Route(backend.rules())) as sink:
        await sink.ping()
        failures = await sink.write(records(backend, events))
        assert not await sink.write(records(backend, [headed_event()])[:0])
    assert [place for place, _ in failures] == list(range(1, 300, 3))
    assert all(isinstance(error, Permanent) for _, error in failures)
    assert "'acl.B'" in str(failures[0].error)
    assert await prices(server.url, "acl.A") == list(range(0, 300, 3))
    assert await prices(server.url, "acl.C") == list(range(2, 300, 3))
    async with client(server.url) as connected:
        first = (await read_stream(connected, "acl.A"))[0]
    assert first.headers == {
        "payloadCase": "trade",
        "dataType": "trade",
        "env": "prod",
        "eventId": "stream:0",
    }


async def test_a_user_who_may_run_scripts_no_more(start_redis: StartRedis) -> None:
    server = start_redis("--user", "writer", "on", ">secret", "~*", "+@all")
    login = ("--redis-username=writer", "--redis-password=secret")
    backend = backend_at(server.port, "acl", *login)
    async with backend.open(Route(backend.rules())) as sink, client(server.url) as connected:
        await connected.execute_command("ACL", "SETUSER", "writer", "-@scripting")
        with pytest.raises(Disconnected):
            await sink.write(records(backend, [trade("A", 1), trade("B", 2)]))
    assert not await write_once(backend, trade("A", 1), trade("B", 2))
    assert await prices(server.url, "acl.A") == [1]


async def test_an_oversized_record_where_the_limit_is_not_told(start_redis: StartRedis) -> None:
    server = start_redis(
        *("--proto-max-bulk-len", "1mb", "--user", "writer", "on", ">secret", "~*", "+@all", "-config")
    )
    login = ("--redis-username=writer", "--redis-password=secret")
    backend = backend_at(server.port, "large", *login)
    events = [trade("A", 0), event("A", 1, b"x" * (1024 * 1024 + 1)), trade("A", 2), trade("B", 3)]
    errors = await write_all(backend, records(backend, events))
    assert {place: type(error) for place, error in errors.items()} == {1: Permanent}
    assert await prices(server.url, "large.A") == [0, 2]
    assert await prices(server.url, "large.B") == [3]


# -- keys and servers that take no entries


async def test_a_key_of_another_type_stops_its_own_records_alone(start_redis: StartRedis) -> None:
    server = start_redis()
    backend = backend_at(server.port, "types")
    async with client(server.url) as connected:
        await connected.set("types.B", "no stream")
    events = [trade(symbol, number) for number, symbol in enumerate("ABABCA")]
    failures = await write_once(backend, *events)
    assert [(place, isinstance(error, Permanent)) for place, error in failures] == [(1, True), (3, True)]
    assert "stream 'types.B': WRONGTYPE" in str(failures[0].error)
    assert await prices(server.url, "types.A") == [0, 2, 5]
    assert await prices(server.url, "types.C") == [4]


async def test_a_stream_that_can_grow_no_more_refuses_its_own_records_alone(
    start_redis: StartRedis,
) -> None:
    server = start_redis()
    backend = backend_at(server.port, "full")
    async with client(server.url) as connected, backend.open(Route(backend.rules())) as sink:
        await connected.xadd("full.B", {"data": b"the last"}, id=f"{2**64 - 1}-{2**64 - 1}")
        failures = await sink.write(
            records(backend, [trade(symbol, number) for number, symbol in enumerate("ABABC")])
        )
    assert [(place, isinstance(error, Permanent)) for place, error in failures] == [(1, True), (3, True)]
    assert "stream 'full.B': ERR The stream has exhausted the last possible ID" in str(failures[0].error)
    assert await prices(server.url, "full.A") == [0, 2]
    assert await prices(server.url, "full.C") == [4]


NO_WAIT = Durability(aof=False, replicas=0)
ALL = ("--user", "writer", "on", ">secret", "~*", "+@all")
PLAIN = ("--user", "writer", "on", ">secret", "~*", "-@all", "+xadd")
LOGIN = ("--redis-username=writer", "--redis-password=secret")


@pytest.mark.parametrize("user", [ALL, PLAIN], ids=["script", "plain"])
async def test_of_a_write_for_which_there_is_no_memory_each_entry_is_reported(
    start_redis: StartRedis, user: tuple[str, ...]
) -> None:
    server = start_redis("--maxmemory-policy", "noeviction", *user)
    backend = backend_at(server.port, "memory", *LOGIN)
    async with client(server.url) as connected, backend.open(Route(backend.rules())) as sink:
        batch = records(backend, [trade("A", 1), trade("B", 2), trade("A", 3)])
        assert not await sink.write(batch)
        await connected.config_set("maxmemory", "100kb")
        failures = await sink.write(batch)
        assert [(place, type(error)) for place, error in failures] == [
            (0, Transient),
            (1, Transient),
            (2, NotTried),
        ]
        assert str(failures[0].error).startswith("OOM ")
        await connected.config_set("maxmemory", "0")
        assert not await sink.write(batch)
    assert await prices(server.url, "memory.A") == [1, 3, 1, 3]


async def test_a_lost_connection_is_the_whole_write(start_redis: StartRedis) -> None:
    server = start_redis(*PLAIN)
    backend = backend_at(server.port, "lost", *LOGIN)
    async with client(server.url) as connected, backend.open(Route(backend.rules())) as sink:
        await connected.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(Disconnected):
            await sink.write(records(backend, [trade("A", 1), trade("A", 2), trade("B", 3)]))


async def test_a_proxy_that_hides_a_cluster(start_redis: StartRedis) -> None:
    """It says that it is one server, and refuses a call for keys of several nodes."""
    server = start_redis("--cluster-enabled", "yes")
    backend = backend_at(server.port, "hidden")
    connection = redis.asyncio.Connection(host="127.0.0.1", port=server.port, protocol=2)
    async with client(server.url) as connected:
        await connected.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        async with asyncio.timeout(60):
            while b"cluster_state:ok" not in await connected.execute_command("CLUSTER", "INFO"):
                pass
    await connection.connect()  # type: ignore[no-untyped-call]
    try:
        sink = RedisSink(SingleServer(connection, NO_WAIT), Encoder("", None, 1024), scripted=True)
        for first in (0, 6):
            events = [trade("ABC"[number % 3], number) for number in range(first, first + 6)]
            assert not await sink.write(records(backend, events))
    finally:
        await connection.disconnect()
    assert await prices(server.url, "hidden.B") == [1, 4, 7, 10]


# -- records that break the connection


async def test_a_value_that_would_fill_the_query_buffer_fails_alone(start_redis: StartRedis) -> None:
    server = start_redis("--client-query-buffer-limit", "1mb")
    backend = backend_at(server.port, "large")
    most = b"x" * (1024 * 1024 - 2)
    failures = await write_once(
        backend, trade("A", 0), event("A", 1, most + b"x"), event("B", 2, most), trade("A", 3)
    )
    assert [(place, type(error)) for place, error in failures] == [(1, Permanent)]
    assert str(failures[0].error) == "the event has 1048575 bytes; the server allows 1048574"
    assert await prices(server.url, "large.A") == [0, 3]
    async with client(server.url) as connected:
        assert [each.data for each in await read_stream(connected, "large.B")] == [most]


async def test_a_value_that_fills_a_query_buffer_whose_limit_is_not_told(start_redis: StartRedis) -> None:
    server = start_redis("--client-query-buffer-limit", "1mb", *ALL, "-config")
    backend = backend_at(server.port, "large", *LOGIN)
    batch = records(backend, [trade("A", 0), event("A", 1, b"x" * 2 * 1024 * 1024), trade("B", 2)])
    async with backend.open(Route(backend.rules())) as sink:
        with pytest.raises(Disconnected):
            await sink.write(batch)
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write([batch[0], batch[2]])
    assert await prices(server.url, "large.A") == [0]
    assert await prices(server.url, "large.B") == [2]


async def test_without_scripts_a_value_that_is_too_large_fails_alone(start_redis: StartRedis) -> None:
    server = start_redis("--proto-max-bulk-len", "1mb", *PLAIN)
    backend = backend_at(server.port, "large", *LOGIN)
    # The larger one was not sent yet, and must not be blamed.
    sizes = [1024 * 1024 + 1, 1024 * 1024 + 2]
    events = [*(event("A", number, b"x" * size) for number, size in enumerate(sizes)), trade("A", 2)]
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, events))
    assert [(place, type(error)) for place, error in failures] == [
        (0, Permanent),
        (1, NotTried),
        (2, NotTried),
    ]
    errors = await write_all(backend, records(backend, events))
    assert {place: type(error) for place, error in errors.items()} == {0: Permanent, 1: Permanent}
    assert await prices(server.url, "large.A") == [2]


async def test_a_server_that_forgot_the_script(start_redis: StartRedis) -> None:
    server = start_redis()
    backend = backend_at(server.port, "script")
    async with client(server.url) as connected, backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, [trade("A", 1)]))
        await connected.script_flush()
        assert not await sink.write(records(backend, [trade("A", 2)]))
        assert not await sink.write(records(backend, [trade("A", 3)]))
    assert await prices(server.url, "script.A") == [1, 2, 3]


async def test_a_replica_takes_no_writes(start_redis: StartRedis) -> None:
    first = start_redis()
    second = start_redis("--replicaof", "127.0.0.1", str(first.port))
    error = await refusal(backend_at(second.port, "replica"))
    assert isinstance(error, Transient)
    assert "replica" in str(error)
    backend = backend_at(first.port, "replica")
    async with client(first.url) as connected, backend.open(Route(backend.rules())) as sink:
        await connected.replicaof("127.0.0.1", second.port)
        with pytest.raises(Disconnected, match="READONLY"):
            await sink.write(records(backend, [trade("A", 1), trade("B", 2)]))


# -- TLS


async def test_shows_its_certificate(start_redis: StartRedis, certificates: Certificates) -> None:
    async with tls_proxy(start_redis().port, certificates.server_context(ask_clients=True)) as port:
        encrypted = ("--redis-tls", f"--redis-tls-ca-file={certificates.ca_file}")
        own = (
            f"--redis-tls-cert-file={certificates.client_cert_file}",
            f"--redis-tls-key-file={certificates.client_key_file}",
        )
        assert not await write_once(backend_at(port, "mutual", *encrypted, *own), trade("A", 1))
        error = await refusal(backend_at(port, "mutual", *encrypted))
        assert isinstance(error, Transient)


async def test_a_url_asks_for_tls(start_redis: StartRedis, certificates: Certificates) -> None:
    async with tls_proxy(start_redis().port, certificates.server_context()) as port:
        flags = (f"--redis-url=rediss://localhost:{port}", f"--redis-tls-ca-file={certificates.ca_file}")
        assert not await write_once(backend_of(*flags, *addressing("rediss")), trade("A", 1))


async def test_tls_to_a_server_without(start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_connection, "CONNECT_SECONDS", 1.0)
    error = await refusal(backend_at(start_redis().port, "tls", "--redis-tls"))
    assert isinstance(error, Transient)
    assert "--redis-tls" in str(error)


async def test_a_file_that_holds_no_certificates(start_redis: StartRedis, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing of use")
    flags = ("--redis-tls", f"--redis-tls-ca-file={tmp_path / 'ca.pem'}")
    error = await refusal(backend_at(start_redis().port, "tls", *flags))
    assert isinstance(error, Permanent)
    assert "--redis-tls-ca-file" in str(error)


# -- clusters


async def cluster_prices(url: str, key: str) -> list[int]:
    connected = redis.asyncio.RedisCluster.from_url(url, protocol=2)
    try:
        return [price(each) for each in await read_stream(connected, key)]
    finally:
        await connected.aclose()


async def test_writes_to_a_cluster(start_redis_cluster: Callable[..., RedisCluster]) -> None:
    cluster = start_redis_cluster("--cluster-require-full-coverage", "no")
    backend: Backend = backend_of(f"--redis-url={cluster.url}", *addressing("cluster"))
    symbols = [f"S{number}" for number in range(30)]
    async with backend.open(Route(backend.rules())) as sink:
        await sink.ping()
        for first in range(0, 3000, 1000):
            events = [trade(symbols[number % 30], number) for number in range(first, first + 1000)]
            assert not await sink.write(records(backend, events))
        for first, symbol in enumerate(symbols):
            assert await cluster_prices(cluster.url, f"cluster.{symbol}") == list(range(first, 3000, 30))

        await a_slot_moves(cluster, sink, backend)
        await a_node_fails(cluster, sink, backend)
    await becomes(lambda: len(asyncio.all_tasks()), 1)


async def a_slot_moves(cluster: RedisCluster, sink: Sink, backend: Backend) -> None:
    """Entries follow a slot, while it moves (ASK) and afterwards (MOVED)."""
    async with client(cluster.nodes[0].url) as first, client(cluster.nodes[1].url) as second:
        symbol, slot = await a_symbol_within(first, range(5461))
        ids = [(await each.execute_command("CLUSTER", "MYID")).decode() for each in (first, second)]
        await second.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        await first.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        assert not await sink.write(records(backend, [trade(symbol, 1), trade("S1", 3000)]))
        await second.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        await first.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        assert not await sink.write(records(backend, [trade(symbol, 2), trade("S1", 3001)]))
        assert [price(each) for each in await read_stream(second, f"cluster.{symbol}")] == [1, 2]


async def a_node_fails(cluster: RedisCluster, sink: Sink, backend: Backend) -> None:
    """The entries of other nodes are stored; those of the failed one when it is back."""
    async with client(cluster.nodes[0].url) as first:
        here, _ = await a_symbol_within(first, range(5461))
        there, _ = await a_symbol_within(first, range(10923, 16384))
    cluster.nodes[2].kill()
    batch = records(backend, [trade(here, 1), trade(there, 2), trade(here, 3), trade(there, 4)])
    failures = await sink.write(batch)
    assert [(place, type(error)) for place, error in failures] == [(1, Disconnected), (3, Disconnected)]
    cluster.nodes[2].start()
    again = [batch[place] for place, _ in failures]
    async with asyncio.timeout(60):
        while again:
            try:
                again = [again[place] for place, _ in await sink.write(again)]
            except Transient:
                await asyncio.sleep(0.1)
    assert await cluster_prices(cluster.url, f"cluster.{there}") == [2, 4]


async def a_symbol_within(connected: Any, slots: range) -> tuple[str, int]:
    """Return a symbol that was not used yet, whose stream lies in one of the slots."""
    for number in itertools.count():
        symbol = f"{slots.start}-{uuid.uuid4().hex}-{number}"
        slot = await connected.execute_command("CLUSTER", "KEYSLOT", f"cluster.{symbol}")
        if slot in slots:
            return symbol, slot
    raise AssertionError


async def test_a_cluster_has_one_database(start_redis_cluster: Callable[..., RedisCluster]) -> None:
    cluster = start_redis_cluster("--cluster-databases", "4")
    error = await refusal(backend_of(f"--redis-url={cluster.url}", *addressing("db"), "--redis-db=1"))
    assert isinstance(error, Permanent)
    assert "--redis-db" in str(error)


async def test_a_cluster_whose_user_may_not_ask_for_its_slots(
    start_redis_cluster: Callable[..., RedisCluster],
) -> None:
    cluster = start_redis_cluster("--user", "writer", "on", ">secret", "~*", "-@all", "+xadd", "+@scripting")
    login = ("--redis-username=writer", "--redis-password=secret")
    error = await refusal(backend_of(f"--redis-url={cluster.url}", *addressing("acl"), *login))
    assert isinstance(error, Permanent)
    assert "CLUSTER SLOTS" in str(error)
