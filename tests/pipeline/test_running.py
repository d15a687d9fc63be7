"""A stream that failed is started again, or ends the job; with real Spark, and a server that goes away."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats
import pytest
from bronze_cli.program import CommandFailed
from bronze_cli.progress import Progress
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.bronze.command import BronzeTotals
from bronze_pipeline.bronze.job import BronzeBatchReport, BronzeJob
from bronze_pipeline.running.streams import Watch, keep_running
from bronze_pipeline.sources import BUS_BY_SCHEME
from bronze_pipeline.tables.lake import Lake
from pipeline_jobs import JobProcess, publish, rows
from pyspark.sql import SparkSession
from servers import NatsServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

LONGEST_SECONDS = 200.0


class Terminal(io.StringIO):
    """Remembers what a terminal would show."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("it has no size")


def trade(event_id: str) -> bytes:
    event = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    event.trade.price_str = "1"
    event.meta["event_id"] = event_id
    return event.SerializeToString()


@dataclass
class Run:
    """A job, and what it says."""

    spark: SparkSession
    server: NatsServer
    place: Path
    stop: threading.Event = field(default_factory=threading.Event)
    totals: BronzeTotals = field(default_factory=lambda: BronzeTotals(BUS_BY_SCHEME["nats"], ends=True))
    said: io.StringIO = field(default_factory=io.StringIO)

    def __call__(self, *, retries: int, available_now: bool = True, **more: str) -> None:
        options = {"servers": self.server.url, "stream": "S", **more}
        job = BronzeJob(BUS_BY_SCHEME["nats"], options, Lake(str(self.place)), on_batch=self.totals.add)
        start = partial(
            job.start,
            self.spark,
            str(self.place / "checkpoint"),
            trigger="100 milliseconds",
            available_now=available_now,
        )
        watch = Watch(self.totals, Progress(self.said), self.stop)
        keep_running(lambda: [start()], watch, retries=retries, bus=job.bus)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.said.getvalue()
            time.sleep(0.1)

    def restarts(self) -> int:
        return self.said.getvalue().count("restarting in")


def test_a_bus_that_is_absent_and_goes_away_is_waited_for(
    spark: SparkSession, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    asyncio.run(publish(server.url, "S", trade("s:0"), trade("s:1")))
    server.stop()
    run = Run(spark, server, tmp_path)
    thread = threading.Thread(target=run, kwargs={"retries": 20, "available_now": False})
    thread.start()
    try:
        run.wait_for(lambda: run.restarts() > 0)
        server.start()
        run.wait_for(lambda: run.totals.events == 2)
        before = run.restarts()
        server.kill()
        run.wait_for(lambda: run.restarts() > before)
        server.start()
        asyncio.run(publish(server.url, "S", trade("s:2")))
        run.wait_for(lambda: run.totals.events == 3)
    finally:
        run.stop.set()
        thread.join(LONGEST_SECONDS)
    assert not thread.is_alive()
    assert "cannot connect to nats://127.0.0.1" in run.said.getvalue()
    assert "restarting in 1 s (1 of 20)" in run.said.getvalue()
    assert [row["event_id"] for row in rows(tmp_path)] == ["s:0", "s:1", "s:2"]


def test_it_gives_up_after_so_many_failures_in_a_row(
    spark: SparkSession, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    server.stop()
    run = Run(spark, server, tmp_path)
    with pytest.raises(CommandFailed, match=r"^cannot connect to nats://127\.0\.0\.1"):
        run(retries=1)
    assert run.restarts() == 1


def test_what_the_operator_has_to_decide_ends_it_at_once(
    spark: SparkSession, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    async def delete(*numbers: int) -> None:
        client = await nats.connect(server.url)
        for number in numbers:
            await client.jetstream().delete_msg("S", number)
        await client.close()

    server = start_nats()
    asyncio.run(publish(server.url, "S", *(trade(f"s:{position}") for position in range(3))))
    asyncio.run(delete(2))
    run = Run(spark, server, tmp_path)
    lost = "sequence numbers 2 to 2 were deleted from the stream S"
    with pytest.raises(CommandFailed, match=f"^{lost}. To continue without them and have this recorded, set"):
        run(retries=20)
    (tmp_path / "bronze" / "_delta_log").rename(tmp_path / "log")
    (tmp_path / "bronze" / "_delta_log").write_text("no folder")
    with pytest.raises(CommandFailed, match="cannot open the Delta table at"):
        run(retries=20)
    assert run.restarts() == 0


def test_a_terminal_shows_how_much_of_a_run_is_done(
    spark: SparkSession, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    # Two of them twice, and one that is no event.
    values = [trade(f"s:{position % 58}") for position in range(60)]
    asyncio.run(publish(server.url, "S", b"no envelope", *values))
    run = Run(spark, server, tmp_path, said=Terminal())
    run(retries=0, maxRecordsPerBatch="20")
    # After each micro-batch but the last, Spark may or may not have been quick enough to be asked.
    totals = run.totals
    assert (totals.records, totals.records_in_all, totals.lag) == (61, 61, 0)
    assert (totals.events, totals.duplicates, totals.quarantined) == (58, 2, 1)
    shown = re.split(r"[\r\n]", run.said.getvalue())[-1].strip()
    assert re.fullmatch(
        r"\[#+\] 100%  61 of 61 records · [\d,]+/s · 0 s left · 2 duplicates · 1 quarantined", shown
    )


def test_how_much_is_left_while_a_run_goes_on() -> None:
    totals = BronzeTotals(BUS_BY_SCHEME["nats"], ends=True)

    def told(batch: int, end: int) -> Any:
        source = SimpleNamespace(endOffset=f'{{"sequence": {end}}}', latestOffset='{"sequence": 401}')
        return SimpleNamespace(lastProgress=SimpleNamespace(batchId=batch, sources=[source]))

    totals.look(SimpleNamespace(lastProgress=None))  # type: ignore[arg-type] # as before the first batch
    assert (totals.share(), totals.seconds_left()) == (None, None)
    totals.add(BronzeBatchReport(0, events=90, duplicates=10, quarantined=0, seconds=60.0))
    totals.look(told(0, 101))
    assert totals.share() == 0.25
    left = totals.seconds_left()
    assert left is not None
    assert 180 <= left < 200
    assert re.fullmatch(r"100 of 400 records · \d+/s · 3 min \d+ s left · 10 duplicates", totals.status())
    # Spark has not told of this one yet.
    totals.add(BronzeBatchReport(1, events=100, duplicates=0, quarantined=0, seconds=1.0))
    totals.look(told(0, 101))
    assert totals.share() == 0.5
    # A run without an end says how far behind it is.
    totals.ends = False
    assert totals.share() is None
    assert "batch 2 · 190 events" in totals.status()
    assert "300 behind" in totals.status()


def java_of(job: JobProcess, seconds: float = LONGEST_SECONDS) -> int:
    """Return the id of the Java process that a job has started, or will start."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert job.runs, job.log.read_text()
        listed = subprocess.run(
            ["ps", "-o", "pid=,comm=", "--ppid", str(job.pid)], capture_output=True, text=True, check=False
        )
        for line in listed.stdout.splitlines():
            pid, name = line.split(maxsplit=1)
            if name == "java":
                return int(pid)
        time.sleep(0.05)
    raise AssertionError("no Java process was started")


@pytest.mark.parametrize("is_at_work", [False, True], ids=["at the start", "after a batch"])
def test_when_java_dies_only_what_to_do_is_said(
    java: None, start_nats: Callable[..., NatsServer], tmp_path: Path, is_at_work: bool
) -> None:
    server = start_nats()
    asyncio.run(publish(server.url, "S", *(trade(f"s:{position}") for position in range(10))))
    log = tmp_path / "log"
    job = JobProcess(
        log, "--from", f"{server.url}/S", "--to", str(tmp_path / "lake"), "--cores", "1", "--trigger", "100ms"
    )

    try:
        process = java_of(job)
        while is_at_work and "batch 0: " not in log.read_text():
            assert job.runs, log.read_text()
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
        status, _ = job.finish(LONGEST_SECONDS)
    finally:
        job.kill()
    assert status == 1
    said = [line for line in log.read_text().splitlines() if not line.startswith("batch 0: ")]
    assert "\n".join(said) == (
        "bronze-pipeline: Spark's Java process has ended: it was killed, or ran out of memory."
        " Start the command again; it resumes where it stopped."
    )


def test_kafka_without_its_connector_says_what_to_do(java: None, tmp_path: Path) -> None:
    # A process of its own, for the session of other tests has the connector.
    log = tmp_path / "log"
    job = JobProcess(log, "--from", "kafka://127.0.0.1:1/bronze", "--to", str(tmp_path), "--cores", "1")
    status, _ = job.finish(LONGEST_SECONDS)
    assert status == 1
    assert (
        "Start the job through spark-submit with --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0,"
        " or name a folder with its jars in --kafka-jars." in log.read_text()
    )
    assert "restarting in" not in log.read_text()
