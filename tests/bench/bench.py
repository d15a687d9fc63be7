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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nats
import redis
from machine import CORES, OTHER_CORES, SUBJECT_CORES, PinnedSidecar, memory_mib, pinned
from servers import NativeServer, NatsServer, RedisServer

HERE = Path(__file__).parent
Findings = dict[str, float]
DESTINATION = "bronze.{{exchange}}.{{symbol}}.{{payloadCase}}"
RATES = (10_000, 50_000)
# What a client gathers before it sends, and what it may have on the way at most.
GATHERED_SECONDS = 0.005
PACED_EVENTS_ON_THE_WAY = 40_000
# More than the sidecar will hold: three producers, each with about as many batches as it may send.
FROZEN_LOADS, FROZEN_WINDOW = 3, 390


@dataclass(frozen=True)
class Plan:
    """How much is measured, and for how long."""

    batches: Sequence[int]
    seconds: float
    frozen_seconds: float


FULL = Plan(batches=(256, 1024), seconds=3.0, frozen_seconds=6.0)
QUICK = Plan(batches=(256,), seconds=1.0, frozen_seconds=2.0)


@dataclass(frozen=True)
class Bus:
    """A back end with its server, if it has one."""

    name: str
    program: Sequence[str]
    options: Sequence[str] = ()
    server: NativeServer | None = None
    idiom: str = ""
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
    with ExitStack() as stack:
        nats_server = NatsServer(folder / "nats")
        redis_server = RedisServer(folder / "redis")
        for server in (nats_server, redis_server):
            stack.callback(server.stop)
            server.start()
        nats_options = (
            f"--nats-servers={nats_server.url}",
            "--nats-stream=BENCH",
            "--nats-subject=bronze.other",
            f"--nats-subject-template={DESTINATION}",
        )
        redis_options = (f"--redis-url={redis_server.url}", f"--redis-stream={DESTINATION}")
        run = ("-m", "bronze_sidecar", "run")
        yield [
            Bus("null", (str(HERE / "null_sidecar.py"),)),
            Bus("nats", run, nats_options, nats_server, "library: publish_async, 1,024 on the way"),
            Bus("redis", run, redis_options, redis_server, "library: pipelines of 1,024 XADD"),
        ]


@dataclass
class Results:
    """Rows of the three tables."""

    throughput: list[tuple[str, ...]] = field(default_factory=list)
    latency: list[tuple[str, ...]] = field(default_factory=list)
    memory: list[tuple[str, ...]] = field(default_factory=list)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a short run, less exact")
    arguments.add_argument("--only", choices=("null", "nats", "redis"), help="one back end alone")
    chosen = arguments.parse_args()
    describe_machine()
    os.sched_setaffinity(0, OTHER_CORES)
    began = time.monotonic()
    results = Results()
    with tempfile.TemporaryDirectory(prefix="bronze-bench-") as folder, buses(Path(folder)) as all_buses:
        for bus in all_buses:
            if chosen.only in {None, bus.name}:
                print(f"measuring {bus.name} ...", file=sys.stderr, flush=True)
                measure(bus, QUICK if chosen.quick else FULL, results)
    show(results)
    print(f"\nAll of it took {time.monotonic() - began:.0f} s.")
    return 0


# -- measuring


def measure(bus: Bus, plan: Plan, results: Results) -> None:
    rows: list[tuple[str, str, Findings]] = []
    if bus.server:
        rows.append(("bare loop, 1,024 a write", "", bare(bus, plan, "sink")))
        rows.append((bus.idiom, "", bare(bus, plan, "library")))
    bus.empty()
    with running(bus) as sidecar, loading(sidecar, bus.server) as load:
        at_rest = memory_mib(sidecar.pid)
        for kind in ("envelopes", "json"):
            for batch in plan.batches:
                bus.empty()
                found = load.run(seconds=plan.seconds, kind=kind, batch=batch)
                rows.append((kind, str(batch), found))
        under_load = memory_mib(sidecar.pid, "VmHWM")
        for rate in RATES:
            bus.empty()
            batch = int(rate * GATHERED_SECONDS)
            window = PACED_EVENTS_ON_THE_WAY // batch
            found = load.run(seconds=plan.seconds, rate=rate, batch=batch, window=window)
            figures = f"{rate:,}", f"{found['rate']:,.0f}", f"{found['p50']:.1f}", f"{found['p99']:.1f}"
            results.latency.append((bus.name, *figures))
        sizes = [f"{at_rest:.0f}", f"{under_load:.0f}"]
        if bus.server:
            bus.empty()
            sizes += frozen(bus.server, sidecar, plan.frozen_seconds)
        results.memory.append((bus.name, *sizes, *[""] * (5 - len(sizes))))
    if bus.server:
        # Once more: what else the machine does should not favour either side.
        again = bare(bus, plan, "sink")
        rows[0] = (*rows[0][:2], max(rows[0][2], again, key=lambda found: found["best"]))
    results.throughput += [throughput_row(bus, *row, compared_with=rows[0][2]) for row in rows]


def bare(bus: Bus, plan: Plan, way: str) -> Findings:
    """Measure what the sidecar is compared with."""
    assert bus.server
    bus.empty()
    figures = (str(plan.seconds), str(bus.server.pid))
    program = [sys.executable, str(HERE / "bare.py"), way, *figures, *bus.options]
    found: Findings = json.loads(subprocess.run(pinned(program), check=True, stdout=subprocess.PIPE).stdout)
    return found


def throughput_row(
    bus: Bus, way: str, batch: str, found: Findings, *, compared_with: Findings
) -> tuple[str, ...]:
    figures = f"{found['rate']:,.0f}", f"{found['best']:,.0f}", f"{found['cpu']:.2f}", f"{found['busy']:.0%}"
    if not bus.server:
        return bus.name, way, batch, *figures, "", ""
    ratio = f"{found['best'] / compared_with['best']:.2f}"
    return bus.name, way, batch, *figures, f"{found['server_busy']:.0%}", ratio


def frozen(server: NativeServer, sidecar: PinnedSidecar, seconds: float) -> list[str]:
    """Let the server answer nothing; return the most memory in either half of that time, and what waits."""
    with ExitStack() as stack:
        for _ in range(FROZEN_LOADS):
            load = stack.enter_context(loading(sidecar, server))
            load.start(seconds=1000.0, window=FROZEN_WINDOW)
        while sidecar.metric("bronze_streams") < FROZEN_LOADS:
            time.sleep(0.05)
        server.freeze()
        stack.callback(server.thaw)
        halves = []
        for _ in range(2):
            samples = []
            until = time.monotonic() + seconds / 2
            while time.monotonic() < until:
                time.sleep(0.05)
                samples.append(memory_mib(sidecar.pid))
            halves.append(f"{max(samples):.0f}")
        return [*halves, f"{sidecar.metric('bronze_queue_events'):,.0f}"]


@contextmanager
def running(bus: Bus) -> Iterator[PinnedSidecar]:
    with tempfile.TemporaryDirectory(prefix="bronze-bench-") as folder:
        sidecar = PinnedSidecar(Path(folder), bus.program, *bus.options)
        try:
            sidecar.start()
            sidecar.wait_until_ready()
            yield sidecar
        finally:
            sidecar.stop()


class LoadProcess:
    """A process that sends what it is told."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self._address = address

    def start(self, **scenario: float | str) -> None:
        """Let it begin."""
        assert self._process.stdin
        print(json.dumps({"address": self._address, **scenario}), file=self._process.stdin, flush=True)

    def run(self, **scenario: float | str) -> Findings:
        """Let it begin, and return what it measured."""
        self.start(**scenario)
        assert self._process.stdout
        found: Findings = json.loads(self._process.stdout.readline())
        return found


@contextmanager
def loading(sidecar: PinnedSidecar, server: NativeServer | None) -> Iterator[LoadProcess]:
    server_pid = str(server.pid) if server else ""
    command = [sys.executable, str(HERE / "load.py"), str(sidecar.pid), server_pid]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield LoadProcess(process, sidecar.address)
        finally:
            process.kill()


# -- showing


def describe_machine() -> None:
    load = os.getloadavg()[0]
    print(
        f"Python {platform.python_version()}, {len(CORES)} cores, load average {load:.1f} before the start."
    )
    if len(CORES) > 1:
        print(f"What is measured runs on core {min(SUBJECT_CORES)}, servers and load on the others.")
    else:
        print("There is only one core, which everything shares.")
    if load > 0.5:
        print("The machine is not idle: rates are lower bounds, latencies upper ones.")


def show(results: Results) -> None:
    print(
        "\nThroughput: events acknowledged after the back end confirmed them;\n"
        "the ratio is that of the best half seconds, `busy` of one core\n"
    )
    heads: tuple[str, ...] = (
        *("back end", "what", "batch", "events/s", "best half second"),
        *("CPU µs/event", "busy", "server busy", "of bare loop"),
    )
    table(heads, results.throughput)
    print(
        "\nLatency: from when a batch should be sent to its acknowledgement, at a steady rate;\n"
        f"a batch is what a client gathers in {GATHERED_SECONDS * 1000:g} ms\n"
    )
    table(("back end", "events/s", "reached", "p50 ms", "p99 ms"), results.latency)
    print("\nResident memory of the sidecar in MiB; the server frozen while producers send all they may\n")
    heads = ("back end", "at rest", "under load", "frozen, at first", "later", "events waiting")
    table(heads, results.memory)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    left = 2 if heads[1] == "what" else 1
    for row in (heads, *rows):
        cells = [
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
