"""What tests of the queue on disk share: a sidecar that spills, and a producer that waits for everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from bronze_client import connect
from buses import Bus, trade
from sidecar_process import SidecarProcess


def spilling(bus: Bus, folder: Path, most_events: int = 100_000) -> tuple[str, ...]:
    """Return options for a sidecar that spills, when half of so many events wait in memory."""
    name = bus.options()[0].split("-")[2]
    memory = ("--max-queue-events", str(most_events))
    return (*bus.options(), f"--{name}-when-full=spill", "--spool-dir", str(folder), *memory)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def on_disk(process: SidecarProcess) -> int:
    return int(process.metric("bronze_spool_events"))


async def publish(
    address: str, first: int, last: int, event: Callable[[int], bytes] = trade, stream: str = "s"
) -> None:
    """Publish trades under their positions, and wait until all are acknowledged."""
    options = {"stream_id": stream, "on_full": "wait", "max_wait": 200.0, "close_timeout": 100.0}
    async with connect(address, **options) as publisher:  # type: ignore[arg-type]
        publisher._buffer.position = publisher._buffer._open.first_position = first
        for position in range(first, last):
            await publisher.publish_wait(event(position))
            if position % 500 == 0:
                await asyncio.sleep(0)
        await publisher.flush(timeout=200)
        assert publisher.stats.dropped == 0
        await publisher.close(ended=False)
