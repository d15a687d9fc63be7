"""How much more several workers take than one, on the cores that there are.

Broker, producers and sidecar share all cores, as on a node. What an event costs the broker and the producers
is measured as well, for they need their part of the cores whatever the sidecar does. Without a broker events
are mapped and discarded, which shows what the sidecar alone gains.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import HERE
from benched import IN_PYTHON, Bus, serving
from machine import CORES, Family, cpu_seconds
from servers import HOST, free_port
from sidecar_process import SidecarProcess, sidecar

PRODUCERS = 4
BATCH = 256
HEADS = (
    "into",
    "hot path",
    "workers",
    "events/s",
    "of one worker",
    "CPU of the sidecar, µs/event",
    "of broker and producers",
    "cores used",
)
WAYS: dict[str, Sequence[str]] = {"compiled": (), "Python": (IN_PYTHON,)}
TRIES = 20
START_SECONDS = 60.0


@dataclass(frozen=True)
class Found:
    """What was seen of one number of workers."""

    rate: float
    sidecar: float
    """Microseconds of processor time for an event,"""
    others: float
    """and of the broker and the producers."""

    @property
    def cores(self) -> float:
        return self.rate * (self.sidecar + self.others) / 1e6


def measure_scaling(folder: Path, seconds: float) -> list[tuple[str, ...]]:
    """Return a table of JSON into nothing and into Redis, by one worker and by one for each core."""
    with serving("redis", folder) as bus:
        return [*scaling_rows("nothing", None, seconds), *scaling_rows("Redis", bus, seconds)]


def scaling_rows(into: str, bus: Bus | None, seconds: float) -> list[tuple[str, ...]]:
    rows = []
    for way, options in WAYS.items():
        one = scaled(bus, 1, seconds, options)
        for workers in (1, max(2, len(CORES))):
            found = one if workers == 1 else scaled(bus, workers, seconds, options)
            rows.append((into, *row(way, workers, found, one)))
    return rows


def row(way: str, workers: int, found: Found, one: Found) -> tuple[str, ...]:
    return (
        way,
        str(workers),
        f"{found.rate:,.0f}",
        f"{found.rate / one.rate:.2f}",
        f"{found.sidecar:.1f}",
        f"{found.others:.1f}",
        f"{found.cores:.2f}",
    )


def scaled(bus: Bus | None, workers: int, seconds: float, options: Sequence[str]) -> Found:
    server = bus.server.pid if bus and bus.server else None
    if bus:
        bus.empty()
        options = (*bus.options, *options)
    address = f"{HOST}:{free_port()}"
    more = ("--listen", address, "--workers", str(workers), "--log-level=error")
    counted = f"bronze_events_{'published' if bus else 'filtered'}_total"
    with sidecar(*options, *more) as process:
        process.wait_until_ready()
        with producing(process, address, workers, seconds) as producers:
            family = Family(process.pid)
            loads = [Family(each.pid) for each in producers]

            def used() -> tuple[float, float, float]:
                others = sum(each.look() for each in loads) + cpu_seconds(server)
                return process.metric(counted), family.look(), others

            began, before = time.monotonic(), used()
            time.sleep(seconds)
            passed = time.monotonic() - began
            events, mine, theirs = (last - first for first, last in zip(before, used(), strict=True))
    return Found(events / passed, mine / events * 1e6, theirs / events * 1e6)


@contextmanager
def producing(
    process: SidecarProcess, address: str, workers: int, seconds: float
) -> Iterator[list[subprocess.Popen[str]]]:
    """Let producers send until the end, as many to each worker as to any other."""
    running: list[subprocess.Popen[str]] = []
    with ExitStack() as stack:
        for _ in range(TRIES):
            started = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(HERE / "load.py"), str(process.pid), ""],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    text=True,
                )
            )
            stack.callback(started.kill)
            assert started.stdin
            scenario = {"address": address, "seconds": 1000 * seconds, "kind": "json", "batch": BATCH}
            print(json.dumps(scenario), file=started.stdin, flush=True)
            counts = connected(process, len(running) + 1)
            if max(counts.values()) > PRODUCERS // workers:
                # The kernel chooses which worker gets a connection.
                started.kill()
                connected(process, len(running))
                continue
            running.append(started)
            if len(running) == PRODUCERS:
                yield running
                return
        raise RuntimeError(f"{TRIES} connections did not come to {workers} workers in equal parts")


def connected(process: SidecarProcess, count: int) -> dict[int, int]:
    """Wait until so many producers are connected; return how many each worker has."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        counts: dict[int, int] = {}
        for each in process.status()["producers"]:
            if each["connected"]:
                counts[each.get("worker", 0)] = counts.get(each.get("worker", 0), 0) + 1
        if sum(counts.values()) == count:
            return counts
        time.sleep(0.05)
    raise RuntimeError(f"{count} producers did not connect")
