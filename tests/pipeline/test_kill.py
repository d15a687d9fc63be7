"""The bronze job as an operator runs it, killed at any moment: each event is in the table exactly once."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from buses import trade
from pipeline_jobs import JobProcess
from servers import NatsServer
from sidecar_process import PROGRAM, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

COUNT = 200_000
# On a busy machine Spark takes minutes to start; nothing is measured here.
START_SECONDS = 400.0


@pytest.fixture
def start_job() -> Iterator[Callable[..., JobProcess]]:
    """Return a function that starts a job; none outlives the test."""
    with ExitStack() as stack:

        def start(log: Path, *arguments: str) -> JobProcess:
            job = JobProcess(log, *arguments)
            stack.callback(job.kill)
            return job

        yield start


def digest(rows: Iterator[tuple[str, str]]) -> str:
    """Return a digest of ids and prices that does not depend on their order."""
    total = 0
    for event_id, price in rows:
        total ^= int.from_bytes(hashlib.sha256(f"{event_id} {price}".encode()).digest())
    return f"{total:x}"


def stored(place: Path) -> pa.Table | None:
    if not deltalake.DeltaTable.is_deltatable(str(place / "bronze")):
        return None
    table = deltalake.DeltaTable(place / "bronze")
    return pa.table(table.to_pyarrow_table(columns=["event_id", "trade"]))


def wait_for(condition: Callable[[], bool], job: JobProcess) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert job.runs, job.log.read_text()
        assert time.monotonic() < deadline, job.log.read_text()
        time.sleep(0.05)


def test_kill_9_three_times(
    java: None, start_nats: Callable[..., NatsServer], start_job: Callable[..., JobProcess], tmp_path: Path
) -> None:
    server = start_nats()
    with sidecar(
        "--nats-servers", server.url, "--nats-stream", "S", "--nats-subject", "bronze.{{symbol}}"
    ) as process:
        process.wait_until_ready()
        lines = b"".join(trade(position) + b"\n" for position in range(COUNT))
        send = [PROGRAM, "send", "-", "--to", process.address, "--stream-id", "replay"]
        subprocess.run(send, input=lines, check=True, capture_output=True)
    place = tmp_path / "lake"
    arguments = [
        *("--from", f"{server.url}/S", "--to", str(place), "--available-now", "--cores", "2"),
        *("--max-records-per-batch", "25000", "--partitions", "2"),
    ]

    def start() -> JobProcess:
        return start_job(tmp_path / "log", *arguments)

    def files() -> int:
        return sum(1 for _ in place.glob("bronze/date=*/*/*.parquet"))

    def batches() -> int:
        return tmp_path.joinpath("log").read_text().count("events,")

    # As soon as a task has written a file, which no commit holds yet.
    job = start()
    wait_for(lambda: files() > 0, job)
    job.kill()
    # As soon as a batch is in the table, about when Spark notes that.
    job, before = start(), batches()
    wait_for(lambda: batches() > before, job)
    job.kill()
    # As soon as the next batch's files appear.
    job, before = start(), files()
    wait_for(lambda: files() > before, job)
    job.kill()

    rows = stored(place)
    assert rows is None or len(rows) < COUNT
    status, summary = start().finish(START_SECONDS * 2)
    assert status == 0, (tmp_path / "log").read_text()
    assert summary["quarantined"] == 0

    rows = stored(place)
    assert rows is not None
    assert len(rows) == COUNT
    found = ((row["event_id"], row["trade"]["price_str"]) for row in rows.to_pylist())
    expected = ((f"replay:{position}", f"{position}.5") for position in range(COUNT))
    assert digest(found) == digest(expected)
