"""A disk that is full, gone or damaged under its queue: nothing is lost, the log says so, and it goes on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from buses import RedisBus, assert_complete, trade
from servers import RedisServer, Unavailable
from sidecar_process import SidecarProcess, sidecar
from small_disk import SidecarOnDisk, SmallDisk, small_disk
from spooling import on_disk, publish, spilling, until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]


@pytest.fixture
def bus(start_redis: Callable[..., RedisServer]) -> RedisBus:
    return RedisBus(start_redis(append_only=True))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk", "48m") as disk:
            yield disk
    except Unavailable as reason:
        # Also where real servers are required: no installation can change what the kernel allows.
        pytest.skip(str(reason))


def large_trade(position: int) -> bytes:
    return trade(position).replace(b'"id":"', b'"id":"' + b"x" * 2000)


def complaints(process: SidecarProcess) -> list[str]:
    return [
        line["reason"]
        for line in process.log_lines()
        if line["event"] == "the disk queue cannot be written; producers wait"
    ]


async def test_a_full_disk_holds_producers_up_until_there_is_room(bus: RedisBus, disk: SmallDisk) -> None:
    with sidecar(*spilling(bus, disk.folder, 2000), kind=partial(SidecarOnDisk, disk)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 10_000)
        disk.fill()
        producer = asyncio.create_task(publish(process.address, 10_000, 30_000))
        await until(lambda: complaints(process) != [])
        assert complaints(process)[0].startswith(
            f"the disk of {disk.folder} (--spool-dir) is full: make room there, 16 MiB at least"
        )
        (backend,) = process.status()["backends"].values()
        assert backend["disk"] in complaints(process)
        # A disk without a free byte keeps no sidecar from starting: it holds what is to be delivered.
        process.kill()
        await asyncio.to_thread(process.start)
        assert on_disk(process) >= 10_000
        await until(lambda: len(complaints(process)) > 1)
        assert not producer.done()
        disk.make_room()
        await producer
        assert on_disk(process) >= 30_000
        assert any(line["event"] == "the disk queue can be written again" for line in process.log_lines())
        await asyncio.to_thread(bus.server.start)
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 30_000})


async def test_a_queue_that_fills_its_disk_itself_is_delivered(bus: RedisBus, disk: SmallDisk) -> None:
    """Nobody makes room: what is delivered does."""
    with sidecar(*spilling(bus, disk.folder, 2000), kind=partial(SidecarOnDisk, disk)) as process:
        process.wait_until_ready()
        bus.server.kill()
        producer = asyncio.create_task(publish(process.address, 0, 30_000, large_trade))
        await until(lambda: complaints(process) != [])
        assert not producer.done()
        await asyncio.to_thread(bus.server.start)
        await producer
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 30_000})
        await until(lambda: process.status()["backends"]["redis"]["disk"] == "ready")


async def test_a_full_disk_does_not_keep_events_from_a_bus_that_is_back(
    bus: RedisBus, disk: SmallDisk
) -> None:
    with sidecar(*spilling(bus, disk.folder, 2000), kind=partial(SidecarOnDisk, disk)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 10_000)
        disk.fill()
        producer = asyncio.create_task(publish(process.address, 10_000, 30_000))
        await until(lambda: complaints(process) != [])
        await asyncio.to_thread(bus.server.start)
        await producer
        await assert_complete(bus, {"s": 30_000})
        disk.make_room()
        await until(lambda: on_disk(process) == 0)


async def test_a_folder_that_vanishes_takes_nothing_with_it(bus: RedisBus, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    with sidecar(*spilling(bus, folder, 2000)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 10_000)
        shutil.rmtree(folder)
        producer = asyncio.create_task(publish(process.address, 10_000, 20_000))
        await until(lambda: complaints(process) != [])
        assert f"{folder / 'redis.spool'} (--spool-dir) was moved or deleted" in complaints(process)[0]
        assert not producer.done()
        await asyncio.to_thread(bus.server.start)
        await producer
        await until(lambda: on_disk(process) == 0)
        # With an empty folder it goes on.
        folder.mkdir()
        bus.server.kill()
        await publish(process.address, 20_000, 30_000)
        assert on_disk(process) >= 10_000
        process.kill()
        await asyncio.to_thread(bus.server.start)
        await asyncio.to_thread(process.start)
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 30_000})


def test_a_read_only_folder_is_refused(bus: RedisBus, disk: SmallDisk, tmp_path: Path) -> None:
    disk.run("mount", "-o", "remount,ro", str(disk.folder))
    process = SidecarOnDisk(disk, tmp_path / "s", *spilling(bus, disk.folder))
    process._launch()
    assert process.wait(30) == 2
    first, second = process.log.read_text().splitlines()
    assert first == "bronze-sidecar: 1 problem in the configuration"
    assert second.startswith("  --spool-dir: the folder '/")
    assert second.endswith("' is not writable by this user.")


async def test_a_byte_that_changed_on_disk_is_noticed(bus: RedisBus, tmp_path: Path) -> None:
    with sidecar(*spilling(bus, tmp_path, 2000)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 3000)
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0
        queue = tmp_path / "redis.spool"
        content = queue.read_bytes()
        assert content.count(b"XBTUSD") > 100
        place = content.index(b"XBTUSD", len(content) // 2)
        queue.write_bytes(content[:place] + b"Y" + content[place + 1 :])
        await asyncio.to_thread(bus.server.start)
        process._launch()
        assert await asyncio.to_thread(process.wait) == 1
        (line,) = [line for line in process.log_lines() if line["event"] == "cannot publish"]
        assert line["reason"].startswith(f"the disk queue {queue} is damaged (the checksum of chunk ")


async def test_a_byte_that_changed_in_the_log_is_noticed(bus: RedisBus, tmp_path: Path) -> None:
    """SQLite alone would start with what is before it, and forget the rest."""
    with sidecar(*spilling(bus, tmp_path, 2000)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(process.address, 0, 6000)
        process.kill()
        log = tmp_path / "redis.spool-wal"
        whole = log.read_bytes()
        assert whole.count(b"XBTUSD") > 1000
        place = len(whole) // 50
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        log.write_bytes(damaged)
        process._launch()
        assert await asyncio.to_thread(process.wait) == 1
        assert (
            f"the log redis.spool-wal of the disk queue {tmp_path / 'redis.spool'} is damaged"
            in process.log.read_text()
        )
        # It is left as it is, for whoever has a copy or can mend it.
        assert log.read_bytes() == damaged
        log.write_bytes(whole)
        await asyncio.to_thread(bus.server.start)
        await asyncio.to_thread(process.start)
        await until(lambda: on_disk(process) == 0)
        await assert_complete(bus, {"s": 6000})
