"""Compares the sidecar with others that write the same records to the same server: `make bench-peers`.

A loop in Go over prepared records shows what the server takes; a Python library, used as one would, what the
obvious program reaches. Everything is confirmed by the server. What is measured has one core to itself.
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
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bare import prepared_records
from bench import FULL, QUICK, Findings, Plan, bare_findings, describe_machine, loading, running, table
from benched import Bus, serving
from bronze_sidecar.configuration.config import load
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from machine import CORES, OTHER_CORES, pinned
from servers import Unavailable

ADDRESS_OPTIONS = ("--redis-url=", "--nats-servers=", "--kafka-brokers=")
COMPARED = ("redis", "nats", "kafka")
RECORDS = 50_000
HEADS = ("back end", "what", "events/s", "of the loop in Go", "CPU µs/event", "busy")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raw", required=True, metavar="PROGRAM", help="the loop in Go, compiled")
    parser.add_argument("--quick", action="store_true", help="a short run, less exact")
    parser.add_argument("--only", choices=COMPARED, help="one back end alone")
    options = parser.parse_args()
    describe_machine()
    print(f"{time.strftime('%Y-%m-%d')}, {len(CORES)} cores, {processor()}.")
    plan = QUICK if options.quick else replace(FULL, steps=1, seconds=5.0)
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="bronze-peers-") as folder:
        for name in [options.only] if options.only else COMPARED:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            try:
                with serving(name, Path(folder)) as bus:
                    rows += compare(bus, options.raw, plan, Path(folder, "records"))
            except Unavailable as error:
                print(f"{name} is left out: {error}")
    table(HEADS, rows)
    return 0


def processor() -> str:
    """Return the kind of processor, as far as the system tells."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def compare(bus: Bus, raw: str, plan: Plan, path: Path) -> list[tuple[str, ...]]:
    (backend,) = load(bus.options, {}).backends
    path.write_bytes(b"".join(map(encoded, prepared_records(Route(backend.rules()), RECORDS))))
    bus.empty()
    loop = loop_in_go(bus, raw, path, plan)
    found = {
        "loop in Go, prepared records": loop,
        bus.library: bare_findings(bus, plan, "library"),
        "sidecar, envelopes": through_sidecar(bus, plan, "envelopes"),
        "sidecar, JSON": through_sidecar(bus, plan, "json"),
    }
    return [row(bus.name, what, findings, loop) for what, findings in found.items()]


def encoded(record: Record) -> bytes:
    """Return the fields that the loop in Go needs, each behind its length."""
    address, event = record.address, record.event
    texts = (address.destination, address.key, event.payload_case, event.data_type)
    fields: Iterable[bytes] = (*(text.encode() for text in texts), event.envelope)
    return b"".join(struct.pack(">I", len(field)) + field for field in fields)


def loop_in_go(bus: Bus, raw: str, path: Path, plan: Plan) -> Findings:
    (option,) = (each for each in bus.options if each.startswith(ADDRESS_OPTIONS))
    command = [raw, bus.name, option.partition("=")[2], str(path), str(plan.seconds)]
    found: Findings = json.loads(subprocess.run(pinned(command), check=True, stdout=subprocess.PIPE).stdout)
    return found


def through_sidecar(bus: Bus, plan: Plan, kind: str) -> Findings:
    bus.empty()
    with running(bus) as sidecar, loading(sidecar, bus.server) as process:
        return process.run(seconds=plan.seconds, kind=kind, batch=256, window=bus.scale.window)


def row(name: str, what: str, findings: Findings, loop: Findings) -> tuple[str, ...]:
    share = findings["rate"] / loop["rate"]
    return (
        name,
        what,
        f"{findings['rate']:,.0f}",
        f"{share:.2f}",
        f"{findings['cpu']:.1f}",
        f"{findings['busy']:.0%}",
    )


if __name__ == "__main__":
    os.sched_setaffinity(0, OTHER_CORES)
    sys.exit(main())
