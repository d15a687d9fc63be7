"""Several workers behind one address: what one of them crashes with, and what they say together."""

from __future__ import annotations

import asyncio
import os
import signal
import urllib.request
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from bronze_client import Publisher, channel, connect
from buses import NatsBus, RedisBus, assert_complete, trade
from servers import HOST, NatsServer, RedisServer, free_port
from sidecar_process import SidecarProcess, sidecar
from spooling import until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(240)]
COUNT = 3000


@pytest.fixture
def bus(start_nats: Callable[..., NatsServer]) -> NatsBus:
    return NatsBus(start_nats())


def workers(process: SidecarProcess) -> dict[int, int]:
    """Return each worker's process."""
    return {each["worker"]: each["pid"] for each in process.status()["workers"]}


def worker_of(process: SidecarProcess) -> dict[str, int]:
    """Return which worker has each stream that is connected."""
    producers = process.status()["producers"]
    return {each["stream_id"]: each["worker"] for each in producers if each["connected"]}


async def on_both(process: SidecarProcess, address: str, stack: AsyncExitStack) -> dict[str, Publisher]:
    """Open streams until each worker has one."""
    publishers: dict[str, Publisher] = {}
    async with asyncio.timeout(120):
        while {*worker_of(process).values()} != {0, 1}:
            stream = f"s{len(publishers)}"
            # As from another process, for streams of one share its connection.
            for shared in [*channel._channels.values()]:
                shared.retire()
            opened = connect(address, stream_id=stream, close_timeout=60.0, on_full="wait", max_wait=100.0)
            publishers[stream] = await stack.enter_async_context(opened)
            publishers[stream].publish(trade(0))
            await until(lambda: stream in worker_of(process))  # noqa: B023
    return publishers


async def publish(publishers: dict[str, Publisher], first: int, last: int) -> None:
    for position in range(first, last):
        for publisher in publishers.values():
            await publisher.publish_wait(trade(position))
        if position % 100 == 0:
            await asyncio.sleep(0)


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
async def test_streams_are_spread_over_workers_and_each_is_whole(bus: NatsBus, scheme: str) -> None:
    port = free_port()
    with sidecar(*bus.options(), "--workers", "2", "--listen", f"{HOST}:{port}") as process:
        process.wait_until_ready()
        address = f"{HOST}:{port}" if scheme == "tcp" else process.address
        async with AsyncExitStack() as stack:
            publishers = await on_both(process, address, stack)
            await publish(publishers, 1, COUNT)
            for publisher in publishers.values():
                await publisher.flush(timeout=60)
            total = COUNT * len(publishers)
            assert process.metric("bronze_events_received_total") == total
            assert process.metric("bronze_events_published_total") == total
            assert process.metric("bronze_backend_ready") == 1
            assert process.metric("bronze_workers") == 2
            status = process.status()
            assert status["received"]["messages"] == total
            assert status["backends"]["nats"]["published_events"] == total
            assert status["streams"]["open"] == len(publishers)
            assert "NATS" in process.get("/")[1]
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0
        # Nothing but the log is left.
        assert [path.name for path in process.log.parent.iterdir()] == [process.log.name]
        await assert_complete(bus, dict.fromkeys(publishers, COUNT), duplicates_allowed=False)


async def test_a_crash_takes_the_streams_of_one_worker_alone(bus: NatsBus) -> None:
    with sidecar(*bus.options(), "--workers", "2") as process:
        process.wait_until_ready()
        async with AsyncExitStack() as stack:
            publishers = await on_both(process, process.address, stack)
            await publish(publishers, 1, COUNT)
            for publisher in publishers.values():
                await publisher.flush(timeout=60)
            before = process.metric("bronze_events_received_total")
            assert before == COUNT * len(publishers)
            owners, pids = worker_of(process), workers(process)
            sending = asyncio.create_task(publish(publishers, COUNT, 2 * COUNT))
            await until(lambda: process.metric("bronze_events_received_total") > before)
            os.kill(pids[0], signal.SIGKILL)
            await sending
            for publisher in publishers.values():
                await publisher.flush(timeout=60)
            await until(lambda: process.metric("bronze_workers") == 2)
            connected_again = {name for name, each in publishers.items() if each.stats.reconnects}
            assert connected_again == {name for name, worker in owners.items() if worker == 0}
            assert workers(process)[0] != pids[0]
            assert workers(process)[1] == pids[1]
            assert process.metric("bronze_worker_restarts_total") == 1
            # What the dead worker was seen to have counted counts on.
            assert process.metric("bronze_events_received_total") >= before
        await assert_complete(bus, dict.fromkeys(publishers, 2 * COUNT))


async def test_what_was_reached_once_stays_so_while_a_worker_is_started_again(bus: NatsBus) -> None:
    """Or an outage would take a pod out of service that has proved to be set up well."""
    with sidecar(*bus.options(), "--workers", "2") as process:
        process.wait_until_ready()
        assert process.get("/reached") == (200, "reached\n")
        pids = workers(process)
        bus.server.kill()
        os.kill(pids[0], signal.SIGKILL)
        await until(lambda: workers(process).get(0, pids[0]) != pids[0])
        await until(lambda: process.get("/readyz")[0] == 503)
        assert process.get("/reached") == (200, "reached\n")


async def test_workers_end_with_the_process_above_them(bus: NatsBus, tmp_path: Path) -> None:
    with sidecar(*bus.options(), "--workers", "2") as process:
        process.wait_until_ready()
        pids = workers(process).values()
        process.kill()
        await until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in pids))
        await asyncio.to_thread(process.start)
        process.wait_until_ready()
        assert await asyncio.to_thread(Path(process.address.removeprefix("unix://")).is_socket)


def test_a_back_end_that_can_never_be_opened_ends_all(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    bus = RedisBus(start_redis())
    process = SidecarProcess(tmp_path, *bus.options(), "--redis-wait-aof", "--workers", "2")
    process._launch()
    assert process.wait() == 1
    assert "--redis-wait-aof needs Redis 7.2 or newer" in process.log.read_text()
    assert "is started again" not in process.log.read_text()


def test_a_port_that_is_taken_is_not_shared_with_another_sidecar(tmp_path: Path) -> None:
    port = free_port()
    options = ("--workers", "2", "--listen", f"{HOST}:{port}")
    with sidecar(*options) as first:
        first.wait_until_ready()
        second = SidecarProcess(tmp_path, *options)
        second._launch()
        assert second.wait() == 1
        assert f"{HOST}:{port}: Address already in use" in second.log.read_text()
        assert urllib.request.urlopen(f"http://{HOST}:{first.port}/readyz").status == 200
