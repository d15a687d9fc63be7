"""Measures the queue on disk: what it costs beside the queue in memory, and how much room an event takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import Plan, loading, running
from benched import serving
from machine import PinnedSidecar, cpu_seconds

HEADS = ("what", "events/s", "CPU µs/event", "of memory only")


def measure_spool(folder: Path, plan: Plan) -> tuple[list[tuple[str, ...]], str]:
    """Return the rows of a table, and what is to be said below it."""
    with serving("nats", folder) as bus, tempfile.TemporaryDirectory(prefix="bronze-bench-") as disk:
        assert bus.server
        bus.empty()
        with running(bus) as sidecar, loading(sidecar, bus.server) as load:
            memory = load.run(seconds=plan.seconds, window=bus.scale.window)
        bus.empty()
        options = ("--nats-when-full=spill", f"--spool-dir={disk}", "--spool-max-bytes=8Gi")
        with running(bus, *options) as sidecar, loading(sidecar, bus.server) as load:
            unused = load.run(seconds=plan.seconds, window=bus.scale.window)
            bus.server.freeze()
            # More than memory holds before it spills, so that producers are not held up by it.
            spilling = load.run(seconds=plan.seconds, window=bus.scale.window * 20)
            stored = sidecar.metric("bronze_spool_events")
            size = sum(path.stat().st_size for path in Path(disk).iterdir())
            envelopes = sidecar.metric("bronze_spool_bytes")
            bus.server.thaw()
            rate, cpu = drained(sidecar)
    rows = [
        row("memory only", memory["rate"], memory["cpu"], memory["rate"]),
        row("spill, the bus takes everything", unused["rate"], unused["cpu"], memory["rate"]),
        row("spill, the bus is frozen", spilling["rate"], spilling["cpu"], memory["rate"]),
        row("from disk, the bus is back", rate, cpu, memory["rate"]),
    ]
    note = (
        f"{stored:,.0f} events of {envelopes / stored:.0f} bytes took {size / stored:.0f} bytes each on disk."
    )
    return rows, note


def drained(sidecar: PinnedSidecar) -> tuple[float, float]:
    """Wait until nothing is on disk; return events a second and microseconds of processor time for each."""
    before = next(left for left in levels(sidecar) if left)
    # The first ones may take a while, for the connection may have to be made anew.
    first = next(left for left in levels(sidecar) if left < before)
    began, cpu = time.monotonic(), cpu_seconds(sidecar.pid)
    next(left for left in levels(sidecar) if not left)
    seconds, cpu = time.monotonic() - began, cpu_seconds(sidecar.pid) - cpu
    return first / seconds, cpu / first * 1e6


def levels(sidecar: PinnedSidecar) -> Iterator[float]:
    while True:
        yield sidecar.metric("bronze_spool_events")
        time.sleep(0.05)


def row(what: str, rate: float, cpu: float, reference: float) -> tuple[str, ...]:
    return what, f"{rate:,.0f}", f"{cpu:.2f}", f"{rate / reference:.2f}"
