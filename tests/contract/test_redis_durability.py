"""Redis: what is confirmed is on disk or on replicas, and a lost primary is replaced."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from bronze_sidecar.errors import Disconnected, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend
from bronze_sidecar.sinks.redis import durability, sentinels
from bronze_sidecar.sinks.redis.durability import Unconfirmed
from configurations import backend_of
from contract.contract import records, trade
from contract.test_redis import StartRedis, addressing, backend_at, client, prices, refusal
from redis_groups import DURABLE, NAME, RedisSentinels, ReplicatedCluster, until
from servers import HOST, RedisServer

pytestmark = pytest.mark.servers

EVERY_SECOND = ("--appendonly", "yes", "--appendfsync", "everysec")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "WAIT_SECONDS", 2.0)
    monkeypatch.setattr(sentinels, "SENTINEL_SECONDS", 1.0)


async def store(backend: Backend, *numbers: int) -> None:
    """Write until everything is confirmed, as a lane would."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Transient):
                async with backend.open(Route(backend.rules())) as sink:
                    while failures := await sink.write(records(backend, [trade("A", n) for n in numbers])):
                        assert all(isinstance(error, Transient) for _, error in failures)
                    return
            await asyncio.sleep(0.1)


# -- the append-only file


def appended(server: RedisServer) -> bytes:
    (file,) = Path(server.directory, "appendonlydir").glob("*.incr.aof")
    return file.read_bytes()


async def test_what_is_confirmed_is_in_the_file(start_redis: StartRedis) -> None:
    server = start_redis(*EVERY_SECOND)
    backend = backend_at(server.port, "aof", "--redis-wait-aof")
    async with backend.open(Route(backend.rules())) as sink:
        for number in range(3):
            assert not await sink.write(records(backend, [trade("A", number)]))
            assert f"stream:{number}".encode() in appended(server)
    async with client(server.url) as connected:
        assert (await connected.info("commandstats"))["cmdstat_waitaof"]["calls"] == 1 + 1 + 3


async def test_a_server_without_an_append_only_file(start_redis: StartRedis) -> None:
    error = await refusal(backend_at(start_redis().port, "aof", "--redis-wait-aof"))
    assert isinstance(error, Permanent)
    assert str(error) == (
        "--redis-wait-aof needs Redis 7.2 or newer, with `appendonly yes`: ERR WAITAOF cannot be used when"
        " numlocal is set but appendonly is disabled."
    )


@pytest.mark.parametrize("command", ["WAITAOF", "WAIT"])
async def test_a_server_that_does_not_know_the_command(start_redis: StartRedis, command: str) -> None:
    """As those before 7.2 do not know WAITAOF."""
    server = start_redis(*EVERY_SECOND, "--rename-command", command, "NO-SUCH-COMMAND")
    flag = {"WAITAOF": "--redis-wait-aof", "WAIT": "--redis-wait-replicas=1"}[command]
    error = await refusal(backend_at(server.port, "aof", flag))
    assert isinstance(error, Permanent)
    assert str(error).startswith(f"{flag.partition('=')[0]} needs ")
    assert f"unknown command '{command}'" in str(error)


async def test_a_user_who_may_not_wait(start_redis: StartRedis) -> None:
    server = start_redis("--user", "writer", "on", ">secret", "~*", "+@all", "-wait")
    login = ("--redis-username=writer", "--redis-password=secret")
    error = await refusal(backend_at(server.port, "acl", *login, "--redis-wait-replicas=1"))
    assert isinstance(error, Permanent)
    assert str(error).startswith("--redis-wait-replicas needs the permission to run WAIT: NOPERM")


# -- replicas


def a_replica_of(server: RedisServer, start: StartRedis) -> RedisServer:
    replica = start(*DURABLE)
    replica.tell(f"REPLICAOF {HOST} {server.port}")
    until(lambda: b"state=online" in server.tell("INFO replication"), "replicate")
    return replica


async def test_what_is_confirmed_is_on_a_replica(start_redis: StartRedis) -> None:
    server = start_redis(*DURABLE)
    replica = a_replica_of(server, start_redis)
    backend = backend_at(server.port, "copies", "--redis-wait-replicas=1")
    async with backend.open(Route(backend.rules())) as sink:
        for number in range(3):
            assert not await sink.write(records(backend, [trade("A", number)]))
            assert await prices(replica.url, "copies.A") == list(range(number + 1))


async def test_a_write_that_no_replica_confirms_may_be_stored_and_is_not_repeated_in_vain(
    start_redis: StartRedis,
) -> None:
    server = start_redis(*DURABLE)
    replica = a_replica_of(server, start_redis)
    backend = backend_at(server.port, "copies", "--redis-wait-replicas=1")
    batch = records(backend, [trade("A", 1), trade("B", 2)])
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(batch)
        replica.freeze()
        failures = await sink.write(batch)
        assert [type(error) for _, error in failures] == [Unconfirmed, Unconfirmed]
        assert str(failures[0].error) == "--redis-wait-replicas: 0 of 1 replicas confirmed"
        # It is stored, and stays so: nothing is added until the replica is back.
        for _ in range(2):
            assert [type(error) for _, error in await sink.write(batch)] == [Transient, Transient]
        assert await prices(server.url, "copies.A") == [1, 1]
        replica.thaw()
        async with asyncio.timeout(60):
            while await sink.write(batch):
                pass
    assert await prices(server.url, "copies.A") == [1, 1, 1]
    assert await prices(replica.url, "copies.B") == [2, 2, 2]


async def test_nothing_is_written_while_there_is_no_replica(start_redis: StartRedis) -> None:
    server = start_redis(*DURABLE)
    backend = backend_at(server.port, "copies", "--redis-wait-replicas=1")
    async with backend.open(Route(backend.rules())) as sink:
        batch = records(backend, [trade("A", 1), trade("B", 2)])
        assert [type(error) for _, error in await sink.write(batch)] == [Transient, Transient]
        assert await prices(server.url, "copies.A") == []
        a_replica_of(server, start_redis)
        async with asyncio.timeout(60):
            while await sink.write(batch):
                pass
    assert await prices(server.url, "copies.A") == [1]


async def test_a_cluster_holds_back_the_entries_of_a_node_without_replicas_alone(
    start_replicated_cluster: Callable[..., ReplicatedCluster],
) -> None:
    cluster = start_replicated_cluster()
    flags = (f"--redis-url={cluster.url}", "--redis-wait-replicas=1", "--redis-wait-aof")
    backend: Backend = backend_of(*flags, *addressing("cluster"))
    events = [trade(f"S{number % 20}", number) for number in range(200)]
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, events))
        cluster.replicas[1].kill()
        held = {place for place, _ in await sink.write(records(backend, events))}
        slots = [
            int(cluster.nodes[0].tell(f"CLUSTER KEYSLOT cluster.S{n}").split(b":")[1]) for n in range(20)
        ]
        behind = {place for place in range(200) if 5461 <= slots[place % 20] <= 10922}
        assert held == behind
        cluster.replicas[1].start()
        again = [records(backend, events)[place] for place in sorted(held)]
        async with asyncio.timeout(60):
            while again:
                again = [again[place] for place, _ in await sink.write(again)]


# -- sentinels


def watched(group: RedisSentinels, *more: str) -> Backend:
    flags = (f"--redis-sentinels={group.addresses}", f"--redis-sentinel-name={NAME}")
    backend: Backend = backend_of(*flags, *addressing("watched"), *more)
    return backend


async def test_the_sentinels_name_the_primary(
    start_redis_sentinels: Callable[..., RedisSentinels],
) -> None:
    group = start_redis_sentinels()
    backend = watched(group, "--redis-wait-replicas=1")
    await store(backend, 1, 2)
    first = group.primary()
    group.sentinels[0].freeze()
    async with backend.open(Route(backend.rules())) as sink:
        first.kill()
        with pytest.raises(Disconnected):
            await sink.write(records(backend, [trade("A", 3)]))
        await store(backend, 3)
    group.sentinels[0].thaw()
    until(lambda: group.primary() is not first, "replace the primary")
    second = group.primary()
    assert await prices(second.url, "watched.A") == [1, 2, 3]

    # The one that was lost comes back as a replica.
    first.start()
    until(lambda: second.tell("INFO replication").count(b"state=online") == 2, "replicate")
    await store(watched(group, "--redis-wait-replicas=2"), 4)
    assert await prices(first.url, "watched.A") == [1, 2, 3, 4]


async def test_a_primary_that_was_replaced_while_it_was_frozen_is_left(
    start_redis_sentinels: Callable[..., RedisSentinels],
) -> None:
    group = start_redis_sentinels()
    # Both replicas: one that has not heard of the change yet would go on confirming to the old primary.
    backend = watched(group, "--redis-wait-replicas=2")
    first = group.primary()
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, [trade("A", 1)]))
        first.freeze()
        until(lambda: group.primary() is not first, "replace the primary")
        # The sentinels would make it a replica as soon as it is back.
        for sentinel in group.sentinels[1:]:
            sentinel.freeze()
        first.thaw()
        # It does not know that it was replaced, unless the sentinel that is left is quick enough to tell it:
        # whatever it answers, nothing that only it has is taken for stored.
        is_stored = False
        with contextlib.suppress(Disconnected):
            is_stored = not await sink.write(records(backend, [trade("A", 2)]))
    for sentinel in group.sentinels[1:]:
        sentinel.thaw()
    if not is_stored:
        await store(backend, 2)
    # What was not confirmed at once may be there twice.
    assert sorted({*await prices(group.primary().url, "watched.A")}) == [1, 2]


async def test_sentinels_that_ask_for_a_password(
    start_redis_sentinels: Callable[..., RedisSentinels],
) -> None:
    group = start_redis_sentinels()
    for sentinel in group.sentinels:
        sentinel.tell("ACL SETUSER asker on >correct-horse +@all")
        sentinel.tell("ACL SETUSER default -sentinel")
    login = ("--redis-sentinel-username=asker", "--redis-sentinel-password=correct-horse")
    await store(watched(group, *login), 1)
    wrong = ("--redis-sentinel-username=asker", "--redis-sentinel-password=battery-staple")
    error = await refusal(watched(group, *wrong))
    assert isinstance(error, Permanent)
    assert "--redis-sentinel-username and --redis-sentinel-password" in str(error)
    assert "battery-staple" not in str(error)
    error = await refusal(watched(group))
    assert isinstance(error, Permanent)
    assert "does not grant the user the permissions it needs" in str(error)


async def test_a_name_that_no_sentinel_knows(
    start_redis_sentinels: Callable[..., RedisSentinels],
) -> None:
    group = start_redis_sentinels()
    flags = (f"--redis-sentinels={group.addresses}", "--redis-sentinel-name=other")
    backend: Backend = backend_of(*flags, *addressing("watched"))
    error = await refusal(backend)
    assert isinstance(error, Permanent)
    assert "knows no primary named 'other': check --redis-sentinel-name" in str(error)
    group.sentinels[2].kill()
    error = await refusal(backend)
    assert isinstance(error, Transient)
    assert f"the sentinel at {HOST}:{group.sentinels[2].port}" in str(error)


# -- a cluster


async def test_a_replica_takes_the_place_of_a_lost_primary(
    start_replicated_cluster: Callable[..., ReplicatedCluster],
) -> None:
    cluster = start_replicated_cluster()
    backend: Backend = backend_of(
        f"--redis-url={cluster.url}", "--redis-wait-replicas=1", *addressing("cluster")
    )
    events = [trade(f"S{number % 20}", number) for number in range(200)]
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, events))
    without = backend_of(f"--redis-url={cluster.nodes[0].url}", *addressing("cluster"))
    async with without.open(Route(without.rules())) as sink:
        assert not await sink.write(records(without, events))
        cluster.nodes[1].kill()
        again = records(without, events)
        async with asyncio.timeout(60):
            while again:
                with contextlib.suppress(Disconnected):
                    again = [again[place] for place, _ in await sink.write(again)]
                await asyncio.sleep(0.1)
    async with client(cluster.replicas[1].url) as connected:
        assert (await connected.info("replication"))["role"] == "master"
