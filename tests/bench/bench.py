"""Measures the sidecar: throughput and processor time beside bare loops, latency, memory, blocks.

The sidecar, and each bare loop, has one core to itself; servers and load have the others. Figures are what
this machine gives at this moment; the ratios to the bare loops in the same run say most.
"""

from __future__ import annotations

import argparse
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

from bare import GATHERED_SECONDS
from benched import BUSES, Bus, serving
from machine import CORES, OTHER_CORES, SUBJECT_CORES, PinnedSidecar, memory_mib, pinned
from servers import NativeServer, Unavailable

HERE = Path(__file__).parent
Findings = dict[str, float]
SPOOL, WATCHED = "spool", "watched"
# More than the sidecar will hold: three producers, each with about as many batches as it may send.
FROZEN_LOADS, FROZEN_WINDOW = 3, 390


@dataclass(frozen=True)
class Plan:
    """How much is measured, and for how long."""

    steps: int
    """How many sizes of batches, and how many rates."""
    seconds: float
    frozen_seconds: float
    watched_rounds: int
    watched_seconds: float
    is_quick: bool = False
    """Nothing is measured twice, and no emulator frozen."""


FULL = Plan(steps=2, seconds=2.5, frozen_seconds=4.0, watched_rounds=12, watched_seconds=3.0)
QUICK = Plan(steps=1, seconds=1.0, frozen_seconds=2.0, watched_rounds=6, watched_seconds=2.0, is_quick=True)


@dataclass
class Results:
    """Rows of the three tables, and what is to be said about them."""

    throughput: list[tuple[str, ...]] = field(default_factory=list)
    latency: list[tuple[str, ...]] = field(default_factory=list)
    memory: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a short run, less exact")
    arguments.add_argument(
        "--only",
        choices=[*BUSES, SPOOL, WATCHED],
        help="one back end, the queue on disk, or what it costs to be looked at, alone",
    )
    chosen = arguments.parse_args()
    describe_machine()
    os.sched_setaffinity(0, OTHER_CORES)
    began = time.monotonic()
    results = Results()
    plan = QUICK if chosen.quick else FULL
    with tempfile.TemporaryDirectory(prefix="bronze-bench-") as folder:
        if chosen.only in {None, SPOOL}:
            show_spool(Path(folder), plan)
        if chosen.only in {None, WATCHED}:
            show_watched(Path(folder), plan)
        for name in (each for each in BUSES if chosen.only in {None, each}):
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            try:
                with serving(name, Path(folder)) as bus:
                    measure(bus, plan, results)
            except Unavailable as error:
                results.left_out.append(f"{name} is left out: {error}")
    if chosen.only not in {SPOOL, WATCHED}:
        show(results)
        show_blocks()
    print(f"\nAll of it took {time.monotonic() - began:.0f} s.")
    return 0


# -- measuring


def measure(bus: Bus, plan: Plan, results: Results) -> None:
    scale = bus.scale
    ways = {"sink": "bare loop", "library": bus.library} if bus.server else {}
    compared = {way: bare_findings(bus, plan, way) for way in ways}
    rows: list[tuple[str, str, Findings]] = []
    bus.empty()
    with running(bus) as sidecar, loading(sidecar, bus.server) as load:
        at_rest = memory_mib(sidecar.pid)
        for kind in ("envelopes", "json"):
            for batch in scale.batches[: plan.steps]:
                bus.empty()
                found = load.run(seconds=plan.seconds, kind=kind, batch=batch, window=scale.window)
                rows.append((kind, str(batch), found))
        for shape in bus.shapes:
            bus.empty()
            batch = scale.batches[0]
            found = load.run(seconds=plan.seconds, kind=shape, batch=batch, window=scale.window)
            rows.append((shape, str(batch), found))
        under_load = memory_mib(sidecar.pid, "VmHWM")
        for rate in scale.rates[: plan.steps]:
            bus.empty()
            batch = int(rate * GATHERED_SECONDS)
            window = scale.paced_events // batch
            found = load.run(seconds=plan.seconds, rate=rate, batch=batch, window=window)
            figures = f"{rate:,}", f"{found['rate']:,.0f}", f"{found['p50']:.1f}", f"{found['p99']:.1f}"
            results.latency.append((bus.name, *figures))
        sizes = [f"{at_rest:.0f}", f"{under_load:.0f}"]
        if bus.server and not (plan.is_quick and scale.is_emulated):
            bus.empty()
            sizes += frozen(bus.server, sidecar, load, plan.frozen_seconds)
        results.memory.append((bus.name, *sizes, *[""] * (5 - len(sizes))))
    for variant in bus.variants:
        with running(bus, variant) as sidecar, loading(sidecar, bus.server) as load:
            for kind in bus.variant_kinds:
                bus.empty()
                batch = scale.batches[0]
                found = load.run(seconds=plan.seconds, kind=kind, batch=batch, window=scale.window)
                rows.append((f"{kind}, {variant}", str(batch), found))
    if bus.server and not plan.is_quick and not scale.is_emulated:
        # Once more: what else the machine does should not favour either side.
        again = bare_findings(bus, plan, "sink")
        compared["sink"] = max(compared["sink"], again, key=lambda found: found["best"])
    rows = [*((name, "", compared[way]) for way, name in ways.items()), *rows]
    results.throughput += [throughput_row(bus, *row, list(compared.values())) for row in rows]
    results.notes += bus.notes


def bare_findings(bus: Bus, plan: Plan, way: str, rate: int = 0) -> Findings:
    """Measure what the sidecar is compared with; as fast as possible unless a rate is given."""
    assert bus.server
    bus.empty()
    figures = (str(plan.seconds), str(rate), str(bus.server.pid))
    program = [sys.executable, str(HERE / "bare.py"), way, *figures, *bus.options]
    found: Findings = json.loads(subprocess.run(pinned(program), check=True, stdout=subprocess.PIPE).stdout)
    return found


def throughput_row(
    bus: Bus, way: str, batch: str, found: Findings, compared: Sequence[Findings]
) -> tuple[str, ...]:
    messages = f"{found['messages']:,.0f}" if "messages" in found else ""
    rates = messages, f"{found['rate']:,.0f}", f"{found['best']:,.0f}"
    figures = *rates, f"{found['cpu']:.2f}", f"{found['busy']:.0%}"
    if not bus.server:
        return bus.name, way, batch, *figures, "", "", ""
    ratios = (f"{found['best'] / other['best']:.2f}" for other in compared)
    return bus.name, way, batch, *figures, f"{found['server_busy']:.0%}", *ratios


def frozen(
    server: NativeServer, sidecar: PinnedSidecar, first_load: LoadProcess, seconds: float
) -> list[str]:
    """Let the server answer nothing; return the most memory in either half of that time, and what waits."""
    with ExitStack() as stack:
        others = [stack.enter_context(loading(sidecar, server)) for _ in range(1, FROZEN_LOADS)]
        for load in (first_load, *others):
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
def running(bus: Bus, *more_options: str) -> Iterator[PinnedSidecar]:
    with tempfile.TemporaryDirectory(prefix="bronze-bench-") as folder:
        sidecar = PinnedSidecar(Path(folder), bus.program, *bus.options, *more_options)
        sidecar.start()
        try:
            sidecar.wait_until_ready()
            yield sidecar
        finally:
            # It may hold more than it could write before it would have to end.
            sidecar.kill()


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
        "the ratios are those of the best half seconds, `busy` of one core.\n"
        "A message is an envelope or a JSON object; a book change becomes an event for each level"
    )
    print("".join(f"{note}\n" for note in results.notes))
    heads: tuple[str, ...] = (
        *("back end", "what", "batch", "messages/s", "events/s", "best half second"),
        *("CPU µs/event", "busy", "server busy", "of bare loop", "of library"),
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
    if results.left_out:
        print()
    for line in results.left_out:
        print(line)


def show_spool(folder: Path, plan: Plan) -> None:
    """Measure the queue on disk, on the disk of temporary files, and show what was found."""
    from spool import HEADS, measure_spool  # noqa: PLC0415 - it is made of what is here

    print("measuring the queue on disk ...", file=sys.stderr, flush=True)
    rows, note = measure_spool(folder, plan)
    print("\nThe queue on disk, before NATS: events acknowledged, and events delivered from it\n")
    table(HEADS, rows)
    print(f"\n  {note}")


def show_watched(folder: Path, plan: Plan) -> None:
    """Measure what those cost who look at the sidecar, and show what was found."""
    from watched import HEADS, measure_watched  # noqa: PLC0415 - it is made of what is here

    print("measuring the page, top and tap ...", file=sys.stderr, flush=True)
    rows = measure_watched(folder, plan)
    print("\nLooked at, without a bus: as many events as possible, in turn; medians, and those of ratios\n")
    table(HEADS, rows)


def show_blocks() -> None:
    """Show for how long hostile messages hold the event loop; measured in a process of its own."""
    print("\nThe longest that the event loop is held by a message, in milliseconds of processor time\n")
    found = subprocess.run(
        pinned([sys.executable, str(HERE / "blocks.py")]), stdout=subprocess.PIPE, check=True, text=True
    )
    table(("message", "ms"), json.loads(found.stdout))


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
