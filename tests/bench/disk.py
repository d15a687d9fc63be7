"""Measures queues on disk: what they acknowledge while the bus is frozen, and deliver afterwards."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from bench import Findings, Plan, loading, running
from benched import Bus
from bronze_sidecar.routing.rules import Record
from calls import measured
from guarantees import MOST_SECONDS, levels
from machine import cpu_seconds
from routers import BufferedConnect, calls_of
from servers import NativeServer

STREAM = "BENCH"
BEGIN_EVENTS = 2_048
"""Delivery is measured after these: what waits for another attempt may hold the first ones up."""
SPILL = ("--nats-when-full=spill", "--spool-max-bytes=8Gi")


def sidecar_on_disk(bus: Bus, plan: Plan) -> Findings:
    server = bus.server
    assert server
    bus.empty()
    with (
        tempfile.TemporaryDirectory(prefix="bronze-peer-") as disk,
        running(bus, *SPILL, f"--spool-dir={disk}") as sidecar,
        loading(sidecar, server) as load,
    ):
        with frozen(server):
            # More than memory holds before it spills, so that producers are not held up by it.
            found = load.run(seconds=plan.seconds, window=bus.scale.window * 20)
            found |= waiting(sidecar.metric("bronze_spool_events"), Path(disk))
        return found | delivered(server, sidecar.pid, plan.seconds)


def router_on_disk(
    bus: Bus, router: BufferedConnect, records: Sequence[Record], *, size: int, lines: int, plan: Plan
) -> Findings:
    server = bus.server
    assert server
    bus.empty()
    # They are sent again and again, so their ids are not those of single events.
    nameless = [Record(each.address, msgspec.structs.replace(each.event, id="")) for each in records]
    calls = [*calls_of(nameless, size, is_sorted=router.is_sorted)]
    router.start()
    try:
        with router.line() as send:
            send(router.prepared(calls[0]))
        asyncio.run(_reached(server.url, size))
        with frozen(server):
            found = measured(router, server, calls, lines=lines, seconds=plan.seconds)
            found |= waiting(found["confirmed"], router.disk)
        return found | delivered(server, router.pid, plan.seconds)
    finally:
        router.stop()


@contextmanager
def frozen(server: NativeServer) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def waiting(events: float, folder: Path) -> Findings:
    """Return how many events are on disk, and how many bytes each has there, in all of the queue's files."""
    return {"waiting": events, "size": sum(path.stat().st_size for path in folder.iterdir()) / events}


def delivered(server: NativeServer, pid: int, seconds: float) -> Findings:
    """Return events a second from disk to the bus, and what an event costs the process."""
    return asyncio.run(_delivered(server.url, pid, seconds))


async def _delivered(url: str, pid: int, seconds: float) -> Findings:
    first: int | None = None
    seen: list[tuple[float, float, float]] = []
    """When there were more than before, how many, and the processor time until then."""
    until = time.monotonic() + MOST_SECONDS
    async for level in levels(url, STREAM):
        now = time.monotonic()
        first = level if first is None else first
        if level >= first + BEGIN_EVENTS and (not seen or level > seen[-1][1]):
            seen.append((now, level, cpu_seconds(pid)))
            until = seen[0][0] + seconds
        if now > until:
            break
    if len(seen) < 2:
        raise RuntimeError("hardly anything was delivered from disk")
    passed, events, cpu = (end - begin for begin, end in zip(seen[0], seen[-1], strict=True))
    return {"delivered": events / passed, "delivered_cpu": cpu / events * 1e6}


async def _reached(url: str, many: int) -> None:
    """Return when the bus has so many events."""
    async with asyncio.timeout(MOST_SECONDS):
        async for level in levels(url, STREAM):
            if level >= many:
                break
