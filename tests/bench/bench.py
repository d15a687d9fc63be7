"""Measures the sidecar: throughput and processor time beside a bare loop, latency, memory.

The sidecar, and each bare loop, has one core to itself; servers and load have the others. Figures are what
this machine gives at this moment; the ratio to the bare loop in the same run says most.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nats
import redis
from machine import CORES, OTHER_CORES, SUBJECT_CORES, SidecarProcess, memory_mib, pinned
from servers import NativeServer, NatsServer, RedisServer

HERE = Path(__file__).parent
SUBJECT = "bronze.{{exchange}}.{{symbol}}.{{payloadCase}}"
RATES = (10_000, 50_000)
# What a client gathers before it sends.
GATHERED_SECONDS = 0.005
# More than the sidecar will hold: three producers, each with as many batches as one may send.
FROZEN_LOADS = 3
FROZEN_WINDOW = ("--batch=256", "--window=390")


@dataclass(frozen=True)
class Plan:
    """How long everything takes."""

    batches: Sequence[int]
    seconds: float
    frozen_seconds: float


FULL = Plan(batches=(256, 1024), seconds=4.0, frozen_seconds=8.0)
QUICK = Plan(batches=(256,), seconds=1.2, frozen_seconds=3.0)


@dataclass(frozen=True)
class Bus:
    """A back end with its server, if it has one."""

    name: str
    program: Sequence[str]
    options: Sequence[str]
    server: NativeServer | None
    idiom: str
    """What its client library shows first."""

    def empty(self) -> None:
        """Forget what was stored, so that no run is slower for the ones before it."""
        if isinstance(self.server, NatsServer):
            asyncio.run(_purge(self.server.url))
        elif isinstance(self.server, RedisServer):
            with redis.Redis.from_url(self.server.url) as client:
                client.flushall()


async def _purge(url: str) -> None:
    client = await nats.connect(url)
    stream = client.jetstream()
    if await stream.streams_info():
        await stream.purge_stream("BENCH")
    else:
        await stream.add_stream(name="BENCH", subjects=["bronze.>"])
    await client.close()


@contextmanager
def buses(folder: Path) -> Iterator[list[Bus]]:
    nats_server = NatsServer(folder / "nats")
    redis_server = RedisServer(folder / "redis")
    run = ("-m", "bronze_sidecar", "run")
    try:
        nats_server.start()
        redis_server.start()
        nats_options = (
            f"--nats-servers={nats_server.url}",
            "--nats-stream=BENCH",
            "--nats-subject=bronze.other",
            f"--nats-subject-template={SUBJECT}",
        )
        redis_options = (f"--redis-url={redis_server.url}", f"--redis-stream={SUBJECT}")
        yield [
            Bus("null", (str(HERE / "null_sidecar.py"),), (), None, ""),
            Bus("nats", run, nats_options, nats_server, "publish_async, 1,024 on the way"),
            Bus("redis", run, redis_options, redis_server, "pipelines of 1,024 XADD"),
        ]
    finally:
        nats_server.stop()
        redis_server.stop()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a short run, less exact")
    arguments.add_argument("--only", choices=("null", "nats", "redis"), help="one back end alone")
    chosen = arguments.parse_args()
    plan = QUICK if chosen.quick else FULL
    describe_machine()
    os.sched_setaffinity(0, OTHER_CORES)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bronze-bench-") as folder, buses(Path(folder)) as all_buses:
        wanted = [bus for bus in all_buses if chosen.only in {None, bus.name}]
        print("\nEvents into the sidecar, acknowledged after the back end confirmed them")
        row("back end", "way", "batch", "events/s", "CPU us/event", "core busy", "of bare loop")
        for bus in wanted:
            throughput(bus, plan, Path(folder))
        print(
            "\nFrom sending a batch to its acknowledgement, at a steady rate; a batch is what a client"
            f" gathers in {GATHERED_SECONDS * 1000:g} ms"
        )
        row("back end", "events/s", "batch", "p50 ms", "p99 ms")
        for bus in wanted:
            latency(bus, plan, Path(folder))
        print("\nResident memory of the sidecar, MiB")
        row("back end", "at rest", "under load", "frozen, 1st half", "2nd half", "at most")
        for bus in wanted:
            memory(bus, plan, Path(folder))
    print(f"\n{time.monotonic() - began:.0f} s")
    return 0


def describe_machine() -> None:
    load = os.getloadavg()[0]
    print(
        f"Python {platform.python_version()}, {len(CORES)} cores, load average {load:.1f} before the start."
    )
    if len(CORES) > 1:
        print(f"What is measured has core {min(SUBJECT_CORES)} to itself, as far as others leave it.")
    else:
        print("There is only one core, which everything shares.")
    if load > 0.5:
        print("The machine is not idle: rates are lower bounds, latencies upper ones.")


def row(*cells: object) -> None:
    """Print one line of a table."""
    first, *others = (f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    widths = (38, 6, 10, 14, 11, 14) if len(cells) == 7 else (14,) * len(others)
    print(
        f"  {first:<10}" + "".join(f"{text:>{width}}" for text, width in zip(others, widths, strict=True)),
        flush=True,
    )


def throughput(bus: Bus, plan: Plan, folder: Path) -> None:
    bare = 0.0
    if bus.server:
        for way, name in (("sink", "bare loop, 1,024 a write"), ("library", bus.idiom)):
            bus.empty()
            found = findings(
                pinned([sys.executable, str(HERE / "bare.py"), way, str(plan.seconds), *bus.options])
            )
            bare = bare or found["rate"]
            ratio = f"{found['rate'] / bare:.2f}"
            row(bus.name, name, "", f"{found['rate']:,.0f}", found["cpu"], f"{found['busy']:.0%}", ratio)
    with running(bus, folder) as sidecar:
        for kind in ("envelopes", "json"):
            for batch in plan.batches:
                bus.empty()
                found = load(sidecar, plan.seconds, "--kind", kind, "--batch", str(batch))
                ratio = f"{found['rate'] / bare:.2f}" if bare else ""
                row(
                    bus.name,
                    kind,
                    batch,
                    f"{found['rate']:,.0f}",
                    found["cpu"],
                    f"{found['busy']:.0%}",
                    ratio,
                )


def latency(bus: Bus, plan: Plan, folder: Path) -> None:
    with running(bus, folder) as sidecar:
        for rate in RATES:
            bus.empty()
            batch = int(rate * GATHERED_SECONDS)
            found = load(sidecar, plan.seconds, "--batch", str(batch), "--rate", str(rate))
            row(bus.name, f"{found['rate']:,.0f}", batch, found["p50"], found["p99"])


def memory(bus: Bus, plan: Plan, folder: Path) -> None:
    bus.empty()
    with running(bus, folder) as sidecar:
        at_rest = memory_mib(sidecar.pid)
        load(sidecar, plan.seconds, "--batch", "256")
        figures: list[object] = [at_rest, memory_mib(sidecar.pid, "VmHWM")]
        if bus.server:
            figures += frozen(bus.server, sidecar, plan.frozen_seconds)
        else:
            figures += ["", ""]
        row(bus.name, *figures, memory_mib(sidecar.pid, "VmHWM"))


def frozen(server: NativeServer, sidecar: SidecarProcess, seconds: float) -> list[float]:
    """Return the most memory in either half of a time in which the server answers nothing."""
    command = load_command(sidecar, 1000.0, *FROZEN_WINDOW)
    loads = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(FROZEN_LOADS)]
    try:
        time.sleep(2.0)
        server.freeze()
        halves = []
        for _ in range(2):
            samples = []
            until = time.monotonic() + seconds / 2
            while time.monotonic() < until:
                time.sleep(0.05)
                samples.append(memory_mib(sidecar.pid))
            halves.append(max(samples))
        return halves
    finally:
        for each in loads:
            each.kill()
            each.wait()
        server.thaw()


@contextmanager
def running(bus: Bus, folder: Path) -> Iterator[SidecarProcess]:
    bus.empty()
    with tempfile.TemporaryDirectory(dir=folder) as own:
        sidecar = SidecarProcess(Path(own), bus.program, *bus.options)
        try:
            yield sidecar.start()
        finally:
            sidecar.kill()


def load(sidecar: SidecarProcess, seconds: float, *options: str) -> dict[str, float]:
    return findings(load_command(sidecar, seconds, *options))


def load_command(sidecar: SidecarProcess, seconds: float, *options: str) -> list[str]:
    program = [sys.executable, str(HERE / "load.py"), sidecar.socket]
    return [*program, "--pid", str(sidecar.pid), "--seconds", str(seconds), *options]


def findings(command: Sequence[str]) -> dict[str, float]:
    """Run a program that prints its findings."""
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
