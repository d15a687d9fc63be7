"""The queue on disk: an outage neither stops producers nor loses or reorders anything, whatever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from bronze_client import connect
from buses import NAMES, Bus, NatsBus, RedisBus, assert_complete, bus_named, trade
from servers import NativeServer, NatsServer, RedisServer
from sidecar_process import SidecarProcess, sidecar
from spooling import on_disk, publish, spilling, until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]


@pytest.fixture(params=NAMES)
def bus(request: pytest.FixtureRequest) -> Bus:
    return bus_named(request.param, request.getfixturevalue)


@pytest.fixture(params=["nats", "redis"])
def quick_bus(request: pytest.FixtureRequest) -> Bus:
    return bus_named(request.param, request.getfixturevalue)


async def test_an_outage_is_acknowledged_from_disk_and_delivered_in_order(bus: Bus, tmp_path: Path) -> None:
    count, few = (600, 200) if bus.slow else (40_000, 2000)
    with sidecar(*spilling(bus, tmp_path, few)) as process:
        process.wait_until_ready()
        await publish(process.address, 0, 100)
        bus.server.kill()
        # More than memory may hold: everything is acknowledged while nothing can be delivered.
        await publish(process.address, 100, count)
        assert on_disk(process) >= count - 100
        (waiting,) = (each["waiting_events"] for each in process.status()["backends"].values())
        assert waiting <= few
        await asyncio.to_thread(bus.server.start)
        await publish(process.address, count, count + 100)
        await until(lambda: on_disk(process) == 0)
        assert await assert_complete(bus, {"s": count + 100}) <= few


async def test_what_is_on_disk_survives_kills_of_the_sidecar(bus: Bus, tmp_path: Path) -> None:
    """Killed at random moments, before, while and after the bus is back: complete, and in order per key."""
    chance = random.Random(bus.options()[0])  # noqa: S311
    count, few = (900, 200) if bus.slow else (60_000, 2000)
    with sidecar(*spilling(bus, tmp_path, few)) as process:
        process.wait_until_ready()
        bus.server.kill()
        producer = asyncio.create_task(publish(process.address, 0, count))
        for kill in range(6):
            await asyncio.sleep(0.3 + chance.random())
            if kill == 3:
                await asyncio.to_thread(bus.server.start)
            process.kill()
            await asyncio.to_thread(process.start)
        await producer
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": count})


@pytest.mark.parametrize("seed", [1, 2])
async def test_one_back_end_spills_beside_one_that_waits(
    start_redis: Callable[..., RedisServer],
    start_nats: Callable[..., NatsServer],
    tmp_path: Path,
    seed: int,
) -> None:
    """Both servers and the sidecar are killed at random moments, and the queue on disk is small or large."""
    chance = random.Random(seed)  # noqa: S311
    spilling_bus, other = RedisBus(start_redis(append_only=True)), NatsBus(start_nats())
    options = (*spilling(spilling_bus, tmp_path, 2000), *other.options())
    count = 20_000
    with sidecar(*options, "--spool-max-bytes", "2Mi" if seed == 1 else "1Gi") as process:
        process.wait_until_ready()
        victims = [process, spilling_bus.server, spilling_bus.server, other.server]
        dead: set[NativeServer] = set()
        producers = [
            asyncio.create_task(publish(process.address, 0, count, stream=name)) for name in ("a", "b")
        ]
        for _ in range(20):
            await asyncio.sleep(chance.uniform(0, 0.6))
            victim = chance.choice(victims)
            if victim in dead:
                await asyncio.to_thread(victim.start)
            else:
                victim.kill()
            dead ^= {victim}
        for victim in dead:
            await asyncio.to_thread(victim.start)
        await asyncio.gather(*producers)
        await until(lambda: on_disk(process) == 0)
        for bus in (spilling_bus, other):
            await assert_complete(bus, {"a": count, "b": count})


async def test_stopping_keeps_what_could_not_be_delivered(bus: Bus, tmp_path: Path) -> None:
    with sidecar(*spilling(bus, tmp_path)) as process:
        process.wait_until_ready()
        bus.server.kill()
        async with connect(process.address, stream_id="s", close_timeout=60.0) as publisher:
            for position in range(300):
                publisher.publish(trade(position))
            await until(lambda: process.metric("bronze_queue_events") == 300)
            process.terminate()
            assert await asyncio.to_thread(process.wait) == 0
            (line,) = [line for line in process.log_lines() if "wait on disk" in line["event"]]
            assert list(line["events"].values()) == [300]
            await asyncio.to_thread(bus.server.start)
            await asyncio.to_thread(process.start)
            await until(lambda: on_disk(process) == 0)
            await publisher.flush(timeout=60)
        await assert_complete(bus, {"s": 300})


async def test_a_full_disk_queue_holds_producers_up(quick_bus: Bus, tmp_path: Path) -> None:
    bus = quick_bus
    with sidecar(*spilling(bus, tmp_path, 2000), "--spool-max-bytes", "2Mi") as process:
        process.wait_until_ready()
        bus.server.kill()
        producer = asyncio.create_task(publish(process.address, 0, 30_000))
        await until(lambda: process.metric("bronze_spool_bytes") > (3 << 19))
        await asyncio.sleep(1)
        assert not producer.done()
        assert process.metric("bronze_spool_bytes") <= process.metric("bronze_spool_bytes_limit") == 2 << 20
        await asyncio.to_thread(bus.server.start)
        await producer
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 30_000})


def test_a_queue_that_cannot_be_used_is_named(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    bus = RedisBus(start_redis())
    folder = tmp_path / "spool"
    folder.mkdir()
    options = spilling(bus, folder)
    with sidecar(*options) as first:
        first.wait_until_ready()
        second = SidecarProcess(tmp_path / "second", *options)
        second._launch()
        assert second.wait(30) == 1
        assert "another sidecar uses the disk queue" in second.log.read_text()
    (queue,) = folder.glob("redis.spool")
    with contextlib.closing(sqlite3.connect(queue)) as database:
        database.execute("PRAGMA user_version = 7")
    third = SidecarProcess(tmp_path / "third", *options)
    third._launch()
    assert third.wait(30) == 1
    assert "made by a newer version" in third.log.read_text()
    queue.write_bytes(b"no database at all" * 1000)
    fourth = SidecarProcess(tmp_path / "fourth", *options)
    fourth._launch()
    assert fourth.wait(30) == 1
    assert "is damaged" in fourth.log.read_text()
    assert str(queue) in fourth.log.read_text()


@pytest.mark.parametrize("is_emptied", [False, True], ids=["deleted", "emptied"])
async def test_a_log_without_its_queue_is_kept_and_named(
    start_redis: Callable[..., RedisServer], tmp_path: Path, is_emptied: bool
) -> None:
    bus = RedisBus(start_redis(append_only=True))
    with sidecar(*spilling(bus, tmp_path, 200)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 1000)
        process.kill()
        queue, log = tmp_path / "redis.spool", tmp_path / "redis.spool-wal"
        content, kept = queue.read_bytes(), log.read_bytes()
        assert len(kept) > 1000
        queue.write_bytes(b"") if is_emptied else queue.unlink()
        process._launch()
        assert await asyncio.to_thread(process.wait) == 1
        assert (
            f"the disk queue {queue} is missing, but its log redis.spool-wal is there"
            in process.log.read_text()
        )
        assert log.read_bytes() == kept
        queue.write_bytes(content)
        await asyncio.to_thread(bus.server.start)
        await asyncio.to_thread(process.start)
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 1000})


async def test_a_queue_of_a_back_end_that_spills_no_more_is_named(
    start_redis: Callable[..., RedisServer], start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    """What was acknowledged from it would otherwise stay there, and nobody would know."""
    bus, other = RedisBus(start_redis(append_only=True)), NatsBus(start_nats())
    told = "a queue on disk is left that no back end uses; what is in it is not delivered"
    with sidecar(*spilling(bus, tmp_path)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 60_000)
        held = on_disk(process)
        assert held > 0
        process.kill()
    with sidecar(*bus.options(), *spilling(other, tmp_path)) as process:
        (line,) = [line for line in process.log_lines() if line["event"] == told]
        assert (line["queue"], line["holds"]) == (str(tmp_path / "redis.spool"), f"{held} events")
        assert "--redis-when-full=spill" in line["remedy"]
    await asyncio.to_thread(bus.server.start)
    with sidecar(*spilling(bus, tmp_path)) as process:
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 60_000})
        process.kill()
    (tmp_path / "redis.spool").write_bytes(b"no database at all")
    (tmp_path / "redis.spool-wal").unlink()
    with sidecar(*bus.options(), *spilling(other, tmp_path)) as process:
        (line,) = [line for line in process.log_lines() if line["event"] == told]
        assert "is damaged" in line["holds"]
    (tmp_path / "redis.spool").unlink()
    with sidecar(*bus.options(), *spilling(other, tmp_path)) as process:
        assert not [line for line in process.log_lines() if line["event"] == told]
