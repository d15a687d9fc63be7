"""Faults against buses, with the real process and real servers: what is lost, reordered, repeated.

Exits with 1 if a promise is broken: an event that was acknowledged and is not on the bus, one that is out of
order where order is promised, one that the producer never heard of, more memory than allowed.

Seconds count from the fault's end: `bus s` until the bus confirmed what another client wrote, `resumed s`
until an event of the sidecar's was acknowledged again, `recovery s` until all were that had waited. `late`,
which no promise excludes, means 5 seconds more than the bus itself took; the machine may have been busy.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from chaos.cell import Cell, Findings
from chaos.faults import FAULTS
from chaos.services import Kafka, Kinesis, SqsFifo, SqsStandard
from chaos.streams import Nats, Redis, RedisCluster, RedisWithSentinels, ReplicatedNats
from chaos.targets import NotPossible, Target
from clients import ClientUnderTest, NodeClient, NodeDriver, PythonClient
from servers import Unavailable

PLAIN, SPOOL, NODE = WAYS = ("plain", "spool", "node")
"""By the Python client; with a queue on disk; by the Node client."""
TARGETS: dict[str, type[Target]] = {
    "nats": Nats,
    "nats-r3": ReplicatedNats,
    "redis": Redis,
    "redis-sentinel": RedisWithSentinels,
    "redis-cluster": RedisCluster,
    "kafka": Kafka,
    "kinesis": Kinesis,
    "sqs-fifo": SqsFifo,
    "sqs": SqsStandard,
}


class Chosen(NamedTuple):
    """A cell of the campaign."""

    bus: str
    fault: str
    way: str = PLAIN

    def __str__(self) -> str:
        return f"{self.bus} {self.fault}" + ("" if self.way == PLAIN else f" ({self.way})")


SINGLE = ("nats", "redis", "kafka", "kinesis", "sqs-fifo", "sqs")
"""Each bus once, without its groups of servers: these also with a queue on disk, and by the Node client."""
ALL = (
    *(Chosen(bus, fault) for bus in TARGETS for fault in FAULTS),
    *(Chosen(bus, fault, way) for way in (SPOOL, NODE) for bus in SINGLE for fault in FAULTS),
)
QUICK = (
    Chosen("nats", "broker-kill"),
    Chosen("nats", "store-full"),
    Chosen("nats", "sidecar-kill", NODE),
    Chosen("redis", "slow-link"),
    Chosen("redis", "poison"),
    Chosen("redis", "broker-kill", SPOOL),
    Chosen("redis-sentinel", "broker-kill"),
    Chosen("sqs", "sidecar-kill"),
    Chosen("sqs-fifo", "partial"),
)
COLUMNS = (
    *("cell", "events", "lost", "reordered", "duplicates"),
    *("bus s", "resumed s", "recovery s", "peak MiB", "log lines", ""),
)


@dataclass(frozen=True)
class Row:
    """A cell's line in the table."""

    name: str
    findings: Findings | None = None
    remark: str = ""
    failure: str = ""
    """Why the cell came to no end."""

    @property
    def broken(self) -> list[str]:
        return self.findings.broken() if self.findings else [*filter(None, [self.failure])]

    def cells(self) -> Sequence[str]:
        found = self.findings
        if found is None:
            verdict = f"FAILED: {self.failure}" if self.failure else self.remark
            return self.name, "n/a", *[""] * (len(COLUMNS) - 3), verdict
        counts = (found.sent, found.lost, found.reordered, found.duplicates)
        times = (found.bus_seconds, found.resumed_seconds, found.recovery_seconds)
        seconds = [f"{each:.1f}" for each in times]
        rest = (*seconds, str(found.memory_bytes >> 20), str(found.log_lines))
        verdict = (
            ("BROKEN: " + ", ".join(self.broken) + found.examples[:200])
            if self.broken
            else found.is_late * "late"
        )
        return self.name, *map(str, counts), *rest, verdict


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a selection of about a minute")
    arguments.add_argument("--bus", action="append", choices=TARGETS, help="this bus; may be repeated")
    arguments.add_argument("--fault", action="append", choices=FAULTS, help="this fault; may be repeated")
    arguments.add_argument(
        "--way",
        action="append",
        choices=WAYS,
        help="by the Python client, with a queue on disk, by the Node client",
    )
    arguments.add_argument("--seed", type=int, default=0, help="decides on moments and on what is refused")
    chosen = arguments.parse_args()
    cells = [
        cell
        for cell in (QUICK if chosen.quick else ALL)
        if cell.bus in (chosen.bus or TARGETS)
        and cell.fault in (chosen.fault or FAULTS)
        and cell.way in (chosen.way or WAYS)
    ]
    rows = run(cells, seed=chosen.seed)
    show(rows)
    return 1 if any(row.broken for row in rows) else 0


def run(cells: Sequence[Chosen], *, seed: int = 0) -> list[Row]:
    """Run cells one after the other."""
    rows = []
    for cell in cells:
        began = time.monotonic()
        rows.append(_run(cell, seed))
        took = time.monotonic() - began
        print(f"{' | '.join(rows[-1].cells())} ({took:.0f} s)", file=sys.stderr, flush=True)
    return rows


@contextlib.contextmanager
def _client(way: str) -> Iterator[ClientUnderTest]:
    if way != NODE:
        yield PythonClient()
        return
    driver = NodeDriver()
    try:
        yield NodeClient(driver)
    finally:
        driver.stop()


def _run(chosen: Chosen, seed: int) -> Row:
    name = str(chosen)
    dice = random.Random(f"{seed} {name}")  # noqa: S311 - it must be the same again
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        with _client(chosen.way) as client:
            cell = Cell(TARGETS[chosen.bus](folder, dice), client, dice)
            running = cell.run(
                FAULTS[chosen.fault],
                is_slow_link=chosen.fault == "slow-link",
                is_poison=chosen.fault == "poison",
                has_spool=chosen.way == SPOOL,
            )
            return Row(name, asyncio.run(running))
    except NotPossible as reason:
        return Row(name, remark=str(reason))
    except Unavailable as reason:
        return Row(name, remark=f"left out: {reason}")
    except Exception as error:  # noqa: BLE001 - the other cells are still to come
        return Row(name, failure=f"{type(error).__name__}: {error}"[:300])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    lines = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for line in lines:
        print(" | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    broken = [row for row in rows if row.broken]
    print(f"\n{len(broken)} of {len(rows)} cells broke a promise.")


if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)
    sys.exit(main())
