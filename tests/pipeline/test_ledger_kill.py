"""The bronze job killed around the ledger's entry, with maintenance beside it: each event is there once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from bronze_client.schema import NormalizedEvent
from pipeline_jobs import PROGRAM, JobProcess, maintained, publish
from servers import NatsServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1200)]

MESSAGES = 300
END_SECONDS = 400.0
# Dies when the table has a batch and the ledger has not, or when both have it and Spark's checkpoint has not.
DYING = """
import os, signal, sys
from bronze_pipeline.cli import main
from bronze_pipeline.ledger.ledger import Ledger

advance = Ledger.advance
batches = int(sys.argv.pop(1))
noted = sys.argv.pop(1) == "noted"

def dying(self, own=None):
    global batches
    if own is not None:
        batches -= 1
    if own is not None and not batches:
        if noted:
            advance(self, own)
        os.killpg(0, signal.SIGKILL)
    advance(self, own)

Ledger.advance = dying
sys.exit(main(sys.argv[1:]))
"""


def envelopes() -> Iterator[tuple[str, bytes]]:
    """Yield messages, every third with three levels; their ids and bytes."""
    for position in range(MESSAGES):
        for level in ("",) if position % 3 else (".0", ".1", ".2"):
            event = NormalizedEvent(exchange="x", symbol="A")
            event.trade.price_str = "1"
            event_id = f"r:{position}{level}"
            event.meta["event_id"] = event_id
            yield event_id, event.SerializeToString()


def verify(place: Path, *flags: str) -> dict[str, Any]:
    done = subprocess.run(
        [PROGRAM, "verify", "--table", str(place), "--json", *flags], capture_output=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_kills_around_the_entry_with_maintenance_beside(
    java: None, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    events = list(envelopes())
    # Everything comes twice.
    asyncio.run(publish(server.url, "S", *(value for _, value in events + events)))
    place = tmp_path / "lake/bronze"
    arguments = (
        *("--from", f"{server.url}/S", "--to", str(tmp_path / "lake"), "--available-now"),
        *("--cores", "2", "--max-records-per-batch", "100"),
    )
    log = tmp_path / "log"
    for number, moment in ((2, "unnoted"), (1, "noted")):
        dying = JobProcess(log, *arguments, program=[sys.executable, "-c", DYING, str(number), moment])
        status, _ = dying.finish(END_SECONDS)
        assert status == -9, log.read_text()
        newest = deltalake.DeltaTable(place).version()
        entry = place / "_ledger" / f"{newest:020}.entry.parquet"
        assert entry.exists() == (moment == "noted")
        # Whoever asks is told of what the table has.
        assert verify(place) == verify(place, "--files")
    with maintained(place) as statuses:
        # Two more, at whatever moment of maintenance.
        for number, moment in ((1, "unnoted"), (1, "noted")):
            dying = JobProcess(log, *arguments, program=[sys.executable, "-c", DYING, str(number), moment])
            assert dying.finish(END_SECONDS)[0] == -9, log.read_text()
        status, summary = JobProcess(log, *arguments).finish(END_SECONDS)
    assert status == 0, log.read_text()
    assert summary["quarantined"] == 0
    assert set(statuses) <= {0, -9}
    assert 0 in statuses
    stored = deltalake.DeltaTable(place).to_pyarrow_table(columns=["event_id"])["event_id"].to_pylist()
    assert sorted(stored) == sorted(event_id for event_id, _ in events)
    report = verify(place)
    assert report == verify(place, "--files")
    assert report["complete"]
    assert [stream["events"] for stream in report["streams"]] == [500]
    assert "ledger" not in log.read_text()
