"""Compares the sidecar with others that write the same records to the same server: `make bench-peers`.

Two routers, Dapr and Redpanda Connect, are built of their own Go modules. A loop in Go over prepared records
shows what the server takes; a Python library, used as one would, what the obvious program reaches. The server
confirms everything, except where queues on disk are compared. What is measured has one core to itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bare import GATHERED_SECONDS, prepared_records
from bench import FULL, QUICK, Findings, Plan, bare_findings, describe_machine, loading, running
from benched import Bus, serving
from bronze_sidecar.configuration.config import load
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from calls import measured
from chaos.cell import Findings as Outcome
from disk import router_on_disk, sidecar_on_disk
from guarantees import (
    router_killed_on_disk,
    router_killed_once,
    sidecar_killed_on_disk,
    sidecar_killed_once,
)
from machine import CORES, OTHER_CORES, pinned
from routers import BufferedConnect, Connect, Dapr, Router, calls_of
from scaling import HEADS as SCALING_HEADS
from scaling import measure_scaling
from servers import Unavailable

ADDRESS_OPTIONS = ("--redis-url=", "--nats-servers=", "--kafka-brokers=")
TITLES = {"redis": "Redis", "nats": "JetStream", "kafka": "Kafka"}
WORKERS = "workers"
DISK = "disk"
RECORDS = 50_000
RATE = 5_000
EVENTS_A_CALL = 256
KILLED_EVENTS, KILLED_EVENTS_QUICK = 25_000, 12_500
PROGRAM_SECONDS = 60
LOOP = "loop in Go, prepared records"
HEADS = ("bus", "what", "events/s", "of the loop in Go", "CPU, µs an event", "p50, ms", "p99, ms")
KILLED_HEADS = ("bus", "what", "sent", "lost", "doubled", "out of order", "not confirmed within a minute")
DISK_HEADS = (
    *("what", "bus frozen: events/s", "CPU, µs an event", "events on disk then", "bytes of each"),
    *("bus back: events/s", "CPU, µs an event"),
)
Row = Sequence[str]
Found = TypeVar("Found")


class NotBuilt(Exception):  # noqa: N818 - named for what it says
    """There is no Go, or something could not be compiled: the line above says which."""


@dataclass(frozen=True)
class Peer:
    """A router in one configuration."""

    title: str
    kind: type[Router]
    program: Path
    lines: int
    """How many calls are made at once."""
    in_order: bool
    """Whether this is how one would have order."""

    def made(self, bus: str, folder: Path, address: str) -> Router:
        return self.kind(folder, self.program, bus, address, in_order=self.in_order)


def peers(programs: Path) -> list[Peer]:
    dapr, connect = programs / "dapr", programs / "connect"
    return [
        Peer("Dapr, bulk of 256, one call at a time", Dapr, dapr, 1, in_order=True),
        Peer("Dapr, bulk of 256, 8 calls at once", Dapr, dapr, 8, in_order=False),
        Peer("Redpanda Connect, in order", Connect, connect, 1, in_order=True),
        Peer("Redpanda Connect, 16 calls at once", Connect, connect, 16, in_order=False),
    ]


def peers_with_disk(programs: Path) -> list[Peer]:
    connect = programs / "connect"
    return [
        Peer("Redpanda Connect, in order", BufferedConnect, connect, 1, in_order=True),
        Peer("Redpanda Connect, 16 calls at once", BufferedConnect, connect, 16, in_order=False),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--programs", type=Path, required=True, help="where what is written in Go is, compiled"
    )
    parser.add_argument("--quick", action="store_true", help="a short run, less exact")
    parser.add_argument(
        "--only", choices=[*TITLES, DISK, WORKERS], help="one bus, queues on disk, or the workers, alone"
    )
    options = parser.parse_args()
    programs = options.programs.resolve()
    began = time.monotonic()
    describe_machine()
    print(f"{time.strftime('%Y-%m-%d')}, {len(CORES)} cores, {processor()}.")
    plan = replace(QUICK, seconds=1.5) if options.quick else replace(FULL, steps=1, seconds=4.0)
    figures: list[Row] = []
    killed: list[Row] = []
    spooled: list[Row] = []
    survived: list[Row] = []
    scaling: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bronze-peers-") as folder:
        for name in TITLES:
            if options.only in {None, name}:
                try:
                    figures += compare(name, Path(folder, "compared"), programs, plan)
                    killed += kill(name, Path(folder, "killed"), programs, plan)
                except Unavailable as error:
                    say(f"{name} is left out: {error}")
        if options.only in {None, DISK}:
            try:
                spooled += compare_disks(Path(folder, "disks"), programs, plan)
                survived += kill_on_disk(Path(folder, "survived"), programs)
            except Unavailable as error:
                say(f"queues on disk are left out: {error}")
        if options.only in {None, WORKERS}:
            # With every core, also for the processes that it starts.
            os.sched_setaffinity(0, CORES)
            found = attempted(
                WORKERS, "1, and one for each core", lambda: measure_scaling(Path(folder), plan.seconds)
            )
            scaling += found if isinstance(found, list) else []
    show(
        f"Events confirmed by the bus, as many as possible; and latency at {RATE:,} events a second",
        HEADS,
        figures,
    )
    show("Ordered events while the bus is killed once, and started again", KILLED_HEADS, killed)
    show("Queues on disk before JetStream: acknowledged from there, and delivered", DISK_HEADS, spooled)
    show(
        "Ordered events while what acknowledged them from disk is killed, with JetStream frozen",
        KILLED_HEADS,
        survived,
    )
    show("JSON into Redis, and into nothing; all share all cores", SCALING_HEADS, scaling)
    print(f"\nAll of it took {time.monotonic() - began:.0f} s.")
    return 0


def processor() -> str:
    """Return the kind of processor, as far as the system tells."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def say(text: str) -> None:
    """Tell at once how far it is."""
    print(text, file=sys.stderr, flush=True)


def attempted(bus: str, what: str, measure: Callable[[], Found]) -> Found | str:
    """Return what is found, or in one line why nothing is; the others go on."""
    began = time.monotonic()
    found: Found | str
    try:
        found = measure()
    except Unavailable:
        raise
    except NotBuilt:
        found = "not built"
    except Exception as error:  # noqa: BLE001 - whatever a peer does
        reason = " ".join(str(error).split())[:200]
        found = f"failed: {type(error).__name__}: {reason}"
    say(f"{bus}: {what}: {told(found)} ({time.monotonic() - began:.0f} s)")
    return found


def told(found: object) -> str:
    """Return the most important figures."""
    if isinstance(found, dict):
        last = f"p50 {found['p50']:.1f} ms" if "p50" in found else f"then {found['delivered']:,.0f} events/s"
        return f"{found['rate']:,.0f} events/s, {found['cpu']:.1f} µs, {last}"
    if isinstance(found, Outcome):
        return f"{found.lost} lost, {found.duplicates} doubled, {found.reordered} out of order"
    return found if isinstance(found, str) else "done"


# -- throughput and latency


def compare(name: str, folder: Path, programs: Path, plan: Plan) -> list[Row]:
    """Measure every way to one bus."""
    found: dict[str, Findings | str] = {}
    with serving(name, folder) as bus:
        (backend,) = load(bus.options, {}).backends
        records = prepared_records(Route(backend.rules()), RECORDS)
        ways: dict[str, Callable[[], Findings]] = {
            LOOP: lambda: loop_in_go(bus, programs / "raw", records, folder, plan),
            bus.library: lambda: both(*(bare_findings(bus, plan, "library", rate) for rate in (0, RATE))),
            "sidecar, envelopes": lambda: through_sidecar(bus, plan, "envelopes"),
            "sidecar, JSON": lambda: through_sidecar(bus, plan, "json"),
        }
        for what, measure in ways.items():
            found[what] = attempted(name, what, measure)
        for peer in peers(programs):
            found[peer.title] = attempted(name, peer.title, partial(through_router, bus, peer, records, plan))
    return [row(TITLES[name], what, each, found[LOOP]) for what, each in found.items()]


def both(fast: Findings, paced: Findings) -> Findings:
    """Join what was found at full speed with the latencies at a steady rate."""
    return {**fast, "p50": paced["p50"], "p99": paced["p99"], "paced": paced["rate"]}


def encoded(record: Record) -> bytes:
    """Return the fields that the loop in Go needs, each behind its length."""
    address, event = record.address, record.event
    texts = (address.destination, address.key, event.payload_case, event.data_type)
    fields: Iterable[bytes] = (*(text.encode() for text in texts), event.envelope)
    return b"".join(struct.pack(">I", len(field)) + field for field in fields)


def loop_in_go(bus: Bus, program: Path, records: Sequence[Record], folder: Path, plan: Plan) -> Findings:
    needs(program)
    path = folder / "records"
    path.write_bytes(b"".join(map(encoded, records)))

    def run(rate: int) -> Findings:
        bus.empty()
        figures = (str(path), str(plan.seconds), str(rate))
        command = pinned([str(program), bus.name, address_of(bus), *figures])
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=PROGRAM_SECONDS).stdout
        found: Findings = json.loads(output)
        return found

    return both(run(0), run(RATE))


def needs(program: Path) -> None:
    if not program.exists():
        raise NotBuilt


def address_of(bus: Bus) -> str:
    (option,) = (each for each in bus.options if each.startswith(ADDRESS_OPTIONS))
    return option.partition("=")[2]


def through_sidecar(bus: Bus, plan: Plan, kind: str) -> Findings:
    with running(bus) as sidecar, loading(sidecar, bus.server) as process:
        bus.empty()
        fast = process.run(seconds=plan.seconds, kind=kind, batch=EVENTS_A_CALL, window=bus.scale.window)
        bus.empty()
        batch = int(RATE * GATHERED_SECONDS)
        window = bus.scale.paced_events // batch
        return both(fast, process.run(seconds=plan.seconds, kind=kind, batch=batch, window=window, rate=RATE))


def through_router(bus: Bus, peer: Peer, records: Sequence[Record], plan: Plan) -> Findings:
    needs(peer.program)
    server = bus.server
    assert server
    with tempfile.TemporaryDirectory(prefix="bronze-peer-") as folder:
        router = peer.made(bus.name, Path(folder), f"127.0.0.1:{server.port}")
        router.start()
        try:

            def run(size: int, rate: int) -> Findings:
                bus.empty()
                return measured(
                    router,
                    server,
                    [*calls_of(records, size, is_sorted=router.is_sorted)],
                    lines=peer.lines,
                    seconds=plan.seconds,
                    rate=rate,
                )

            return both(run(EVENTS_A_CALL, 0), run(int(RATE * GATHERED_SECONDS), RATE))
        finally:
            router.kill()


def row(bus: str, what: str, found: Findings | str, loop: Findings | str) -> Row:
    if isinstance(found, str):
        return (bus, what, found, "", "", "", "")
    share = "" if isinstance(loop, str) else f"{found['rate'] / loop['rate']:.2f}"
    latencies = [f"{found[each]:,.1f}" for each in ("p50", "p99")]
    if found["paced"] < 0.95 * RATE:
        latencies[0] += f" (only {found['paced']:,.0f}/s)"
    return (bus, what, f"{found['rate']:,.0f}", share, f"{found['cpu']:.1f}", *latencies)


# -- queues on disk


def compare_disks(folder: Path, programs: Path, plan: Plan) -> list[Row]:
    """Measure every queue on disk."""
    with serving("nats", folder) as bus:
        (backend,) = load(bus.options, {}).backends
        records = prepared_records(Route(backend.rules()), RECORDS)
        what = "sidecar, envelopes"
        found = {what: attempted(DISK, what, lambda: sidecar_on_disk(bus, plan))}
        for peer in peers_with_disk(programs):
            found[peer.title] = attempted(DISK, peer.title, partial(on_disk, bus, peer, records, plan))
    return [disk_row(what, each) for what, each in found.items()]


def on_disk(bus: Bus, peer: Peer, records: Sequence[Record], plan: Plan) -> Findings:
    needs(peer.program)
    assert bus.server
    with tempfile.TemporaryDirectory(prefix="bronze-peer-") as folder:
        router = peer.made(bus.name, Path(folder), f"127.0.0.1:{bus.server.port}")
        assert isinstance(router, BufferedConnect)
        return router_on_disk(bus, router, records, size=EVENTS_A_CALL, lines=peer.lines, plan=plan)


def disk_row(what: str, found: Findings | str) -> Row:
    if isinstance(found, str):
        return (what, found, "", "", "", "", "")
    filled = (f"{found['rate']:,.0f}", f"{found['cpu']:.1f}")
    spooled = (f"{found['waiting']:,.0f}", f"{found['size']:,.0f}")
    return (what, *filled, *spooled, f"{found['delivered']:,.0f}", f"{found['delivered_cpu']:.1f}")


# -- guarantees


def kill(name: str, folder: Path, programs: Path, plan: Plan) -> list[Row]:
    """Kill a bus once for each way that is to keep order."""
    count = KILLED_EVENTS_QUICK if plan.is_quick else KILLED_EVENTS
    what = "sidecar"
    found = {
        what: attempted(name, f"killed, {what}", lambda: sidecar_killed_once(name, folder / what, count))
    }
    for number, peer in enumerate(each for each in peers(programs) if each.in_order):

        def killed(peer: Peer = peer, place: Path = folder / str(number)) -> Outcome:
            needs(peer.program)
            return router_killed_once(name, place, lambda *where: peer.made(name, *where), count)

        found[peer.title] = attempted(name, f"killed, {peer.title}", killed)
    return [killed_row(TITLES[name], what, each) for what, each in found.items()]


def kill_on_disk(folder: Path, programs: Path) -> list[Row]:
    """Kill once whatever is to keep order and has a queue on disk."""
    what = "sidecar"
    count = KILLED_EVENTS
    found = {what: attempted(DISK, f"killed, {what}", lambda: sidecar_killed_on_disk(folder / what, count))}
    for peer in (each for each in peers_with_disk(programs) if each.in_order):

        def killed(peer: Peer = peer) -> Outcome:
            needs(peer.program)
            return router_killed_on_disk(folder / "peer", partial(peer.made, "nats"), count)

        found[peer.title] = attempted(DISK, f"killed, {peer.title}", killed)
    return [killed_row(TITLES["nats"], what, each) for what, each in found.items()]


def killed_row(bus: str, what: str, found: Outcome | str) -> Row:
    if isinstance(found, str):
        return (bus, what, found, "", "", "", "")
    counts = (found.sent, found.lost, found.duplicates, found.reordered, found.unsettled)
    return (bus, what, *(f"{count:,}" for count in counts))


# -- showing


def show(title: str, heads: Row, rows: Sequence[Row]) -> None:
    """Print a table as Markdown."""
    if rows:
        print(f"\n{title}:\n")
        for each in (heads, ["---"] * len(heads), *rows):
            print(f"| {' | '.join(each)} |")


if __name__ == "__main__":
    os.sched_setaffinity(0, OTHER_CORES)
    sys.exit(main())
