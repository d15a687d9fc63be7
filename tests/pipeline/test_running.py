"""A stream that failed is started again, or ends the job; with real Spark, and a server that goes away."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import nats
import pytest
from bronze_cli.program import CommandFailed
from bronze_cli.progress import Progress
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.bronze.command import BronzeTotals
from bronze_pipeline.bronze.job import BronzeJob
from bronze_pipeline.running.streams import Watch, keep_running
from bronze_pipeline.sources import BUS_BY_SCHEME
from bronze_pipeline.tables.lake import Lake
from pipeline_jobs import JobProcess, publish, rows
from pyspark.sql import SparkSession
from servers import NatsServer

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

LONGEST_SECONDS = 200.0


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
    totals: BronzeTotals = field(default_factory=lambda: BronzeTotals(BUS_BY_SCHEME["nats"]))
    said: io.StringIO = field(default_factory=io.StringIO)

    def __call__(self, *, retries: int, available_now: bool = True) -> None:
        options = {"servers": self.server.url, "stream": "S"}
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
