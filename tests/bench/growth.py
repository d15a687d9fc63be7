"""Measures what the bronze job's driver does for a micro-batch, in an empty table and in one of years.

The large table is made synthetically: its log and its ledger, without data. What counts is the processor time
of the driver's own part: is the batch known, which of its events are, commit, and the ledger's entry. Tasks
that read and decode, and Spark itself, do not depend on the table and are not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import pyarrow as pa
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.ledger.entries import ID_COLUMNS
from bronze_pipeline.ledger.ledger import Ledger, Own
from bronze_pipeline.ledger.runs import of_ids
from bronze_pipeline.tables.checkpoints import write_checkpoint
from bronze_pipeline.tables.delta_log import DELTA_LOG, DeltaLog
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.lean_delta import ACTIONS_FOR_EACH_COMMIT, CHECKPOINT_EVERY
from bronze_pipeline.tables.table_duplicates import distinct
from grown import Size, grow, stream_name
from machine import memory_mib

FULL = Size(commits=50_000, files=1_000_000, streams=1_000, events=10**9)
QUICK = Size(commits=2_000, files=40_000, streams=1_000, events=10**7)
BATCHES = 150
"""More than the ledger keeps entries, so that one of its segments is made."""
MESSAGES = 4
"""Of each stream in a batch, half of them with levels."""
FILES = 4
RATIO, MEMORY_MIB, VERIFY_SECONDS = 1.5, 1024, 60


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a smaller table")
    for name in asdict(FULL):
        arguments.add_argument(f"--{name}", type=int, help=f"{getattr(FULL, name):,} if not given")
    arguments.add_argument("--batches", type=int, default=BATCHES, help="%(default)s if not given")
    arguments.add_argument("--drive", nargs=2, metavar=("PLACE", "POSITION"), help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    standard = asdict(QUICK if chosen.quick else FULL)
    size = Size(**{name: getattr(chosen, name) or value for name, value in standard.items()})
    if chosen.drive:
        place, position = chosen.drive
        print(json.dumps(drive(Lake(place), size.streams, int(position), chosen.batches)))
        return 0
    print(f"Load average {os.getloadavg()[0]:.1f} before the start.")
    with tempfile.TemporaryDirectory(prefix="bronze-growth-") as folder:
        return compare(Path(folder), size, chosen.batches)


def compare(folder: Path, size: Size, batches: int) -> int:
    empty, large = folder / "empty", folder / "large"
    began = time.monotonic()
    position = grow(Lake(str(large)), size)
    print(
        f"{size.commits:,} commits, {size.files:,} files, {size.streams:,} streams, {size.events:,} events"
        f" made in {time.monotonic() - began:.0f} s"
    )
    verified = verify(large / "bronze", size.events)
    found = {
        name: in_a_process(place, size.streams, start, batches)
        for name, place, start in (("empty", empty, 0), ("large", large, position))
    }
    rows = [
        (f"{label}, {unit}", *(f"{found[name][key]:.3f}" for name in found), _ratio(found, key))
        for key, label, unit in (
            ("open", "open table and ledger", "CPU s"),
            ("batch", "micro-batch, median", "CPU s"),
            ("mean", f"micro-batch, mean of {batches}", "CPU s"),
            ("checkpoint", "its share of a checkpoint", "CPU s"),
            ("whole", "micro-batch with that share", "CPU s"),
            ("memory", "most memory of the driver's Python", "MiB"),
        )
    ]
    for row in [("", "empty", "large", "ratio"), *rows]:
        print(f"{row[0]:44}", *(f"{cell:>10}" for cell in row[1:]))
    print(f"a batch of old positions of all streams is looked up in {found['large']['known']:.3f} CPU s")
    print(f"verify from the ledger: {verified['seconds']:.1f} s, {verified['memory']:.0f} MiB")
    return judge(found["large"]["whole"] / found["empty"]["whole"], found["large"]["memory"], verified)


def judge(ratio: float, memory: float, verified: dict[str, float]) -> int:
    """Say which goals are reached; return the exit status."""
    goals = [
        (f"micro-batch at most {RATIO} times that of an empty table", ratio <= RATIO, f"{ratio:.2f}"),
        (f"driver's memory below {MEMORY_MIB} MiB", memory < MEMORY_MIB, f"{memory:.0f}"),
        (
            f"verify in {VERIFY_SECONDS} s",
            verified["seconds"] < VERIFY_SECONDS,
            f"{verified['seconds']:.1f}",
        ),
    ]
    for goal, is_reached, figure in goals:
        print(f"{'reached' if is_reached else 'NOT reached'}: {goal} ({figure})")
    return 0 if all(is_reached for _, is_reached, _ in goals) else 1


def _ratio(found: dict[str, dict[str, float]], key: str) -> str:
    return f"{found['large'][key] / found['empty'][key]:.2f}"


def in_a_process(place: Path, streams: int, position: int, batches: int) -> dict[str, float]:
    """Drive a table in a process of its own, whose memory is that of nothing else."""
    command = [sys.executable, __file__, "--drive", str(place), str(position)]
    command += ["--streams", str(streams), "--batches", str(batches)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def drive(lake: Lake, streams: int, position: int, batches: int) -> dict[str, float]:
    """Do with batches what the driver does, and return what it cost."""
    began = time.process_time()
    events, quarantine, ledger = lake.events(), lake.quarantine(), lake.ledger(print)
    figures = {"open": time.process_time() - began}
    costs = []
    for number in range(batches):
        writer = FileWriter(events.staging, EVENTS, "part")
        for part in range(FILES):
            writer.write(rows(streams, position + number * MESSAGES, part))
        files = writer.finish()
        began = time.process_time()
        assert not events.has("bench", number)
        assert not quarantine.has("bench", number)
        ledger.advance()
        fresh = distinct(events, ledger, files)
        assert not fresh.duplicates
        events.commit(fresh.files, "bench", number)
        ledger.advance(Own("bench", number, fresh.entry))
        costs.append(time.process_time() - began)
    figures["batch"] = median(costs)
    figures["mean"] = sum(costs) / len(costs)
    if position:
        figures["known"] = known(ledger, streams, position // 2)
    log = DeltaLog(Path(lake.place, "bronze", DELTA_LOG))
    began = time.process_time()
    size = write_checkpoint(log.folder, log.version)
    figures["checkpoint"] = (time.process_time() - began) / max(
        CHECKPOINT_EVERY, size // ACTIONS_FOR_EACH_COMMIT
    )
    # An empty table's own checkpoints are in its mean already.
    figures["whole"] = figures["mean"] + (figures["checkpoint"] if size > 100 * batches else 0)
    figures["memory"] = memory_mib(os.getpid(), "VmHWM")
    return figures


def known(ledger: Ledger, streams: int, position: int) -> float:
    """Return what it costs to find that a batch of old positions of all streams is known in part."""
    ids = pa.Table.from_batches([rows(streams, position, part) for part in range(FILES)]).select(ID_COLUMNS)
    began = time.process_time()
    found = ledger.known(of_ids(ids["stream_id"], ids["position"], ids["level"]))
    assert found.any()
    return time.process_time() - began


def rows(streams: int, position: int, part: int) -> pa.RecordBatch:
    """Return some messages of a part of the streams."""
    found = []
    for stream in range(part, streams, FILES):
        for place in range(position, position + MESSAGES):
            for level in (None,) if place % 2 else range(place % 5 + 1):
                name = stream_name(stream)
                found.append(
                    {
                        "date": 0,
                        "exchange": f"exchange{part}",
                        "payload_case": "trade",
                        "event_id": f"{name}:{place}" + ("" if level is None else f".{level}"),
                        "stream_id": name,
                        "position": place,
                        "level": level,
                    }
                )
    return pa.RecordBatch.from_pylist(found, EVENTS)


VERIFY = """
import resource, sys, time
from bronze_pipeline.ledger.examining import examine_ledger
began = time.monotonic()
report = examine_ledger(sys.argv[1])
assert report.is_complete, [stream for stream in report.streams if not stream.is_complete][:2]
seconds = time.monotonic() - began
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(seconds, memory, sum(stream.events for stream in report.streams))
"""


def verify(place: Path, events: int) -> dict[str, float]:
    command = [sys.executable, "-c", VERIFY, place.absolute().as_uri()]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    seconds, memory, counted = map(float, done.stdout.split())
    print(f"verify counted {counted:,.0f} events of about {events:,}")
    return {"seconds": seconds, "memory": memory}


if __name__ == "__main__":
    sys.exit(main())
