"""Silver queries that fail: they go on from their checkpoints, or the run ends; with real Spark."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bronze_cli.program import CommandFailed
from bronze_cli.progress import Progress
from bronze_pipeline.running.streams import Watch, keep_running
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.job import SilverTotals
from bronze_pipeline.silver.queries import Query, QuerySettings, start
from bronze_pipeline.silver.record_query import RecordQuery
from bronze_pipeline.silver.records import RECORDS
from bronze_pipeline.tables.lake import Lake
from pyspark.sql import SparkSession
from silver_frames import Bronze, stored, trade

pytestmark = pytest.mark.timeout(600)

LONGEST_SECONDS = 200.0


class Run:
    """Trades and their bars, side by side, and what is said of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.bronze = Bronze(folder / "bronze")
        self.silver = folder / "silver"
        self.lake = Lake(str(self.silver))
        self.totals = SilverTotals()
        self.stop = threading.Event()
        self._said = io.StringIO()
        self._spark = spark
        self._checkpoints = str(folder / "checkpoints")

    def __call__(self, *, retries: int) -> None:
        schemas = {record.table: record.schema() for record in RECORDS}
        bars = BarQuery(self.lake, "1m", "1 minutes", schemas["trades"])
        stage: list[Query] = [RecordQuery(self.bronze.url, self.lake), bars]
        watch = Watch(self.totals, Progress(self._said), self.stop)
        how = QuerySettings(self._checkpoints, False, "100 milliseconds", 500_000, watch.on_batch)
        keep_running(lambda: (start(self._spark, query, how) for query in stage), watch, retries=retries)

    @contextmanager
    def in_background(self) -> Iterator[None]:
        thread = threading.Thread(target=self, kwargs={"retries": 20})
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join(LONGEST_SECONDS)
            self.stop.clear()
        assert not thread.is_alive()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.1)

    @property
    def said(self) -> str:
        return self._said.getvalue()

    @property
    def restarts(self) -> int:
        return self.said.count("restarting in")


def newest_file(table: Path) -> Path:
    return max(table.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def make_unreadable(file: Path) -> bytes:
    """Damage a file as a failing store would, so that it may be whole another time; return its content."""
    content = file.read_bytes()
    footer = pq.read_metadata(file).serialized_size + 8
    file.write_bytes(content[:4] + b"\xff" * (len(content) - 4 - footer) + content[-footer:])
    return content


def test_after_a_passing_failure_queries_go_on_from_their_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, tmp_path)
    run.bronze.add(trade("r:0", "10", "1", 0), trade("r:1", "12", "1", 61))
    with run.in_background():
        run.wait_for(lambda: run.totals.rows["bars_1m"] == 2)
    run.bronze.add(trade("r:2", "9", "2", 1), trade("r:3", "13", "1", 62))
    file = newest_file(tmp_path / "bronze")
    content = make_unreadable(file)
    with run.in_background():
        run.wait_for(lambda: run.restarts > 0)
        file.write_bytes(content)
        run.wait_for(lambda: run.totals.rows["bars_1m"] == 4)
    assert run.totals.rows["trades"] == 4
    assert run.totals.duplicates == 0
    assert stored(run.lake, "trades", ["event_id"]) == [("r:0",), ("r:1",), ("r:2",), ("r:3",)]
    assert stored(run.lake, "bars_1m", ["open", "low", "close", "volume"]) == [
        (Decimal(10), Decimal(9), Decimal(9), Decimal(3)),
        (Decimal(12), Decimal(12), Decimal(13), Decimal(2)),
    ]


def test_a_query_that_fails_for_good_ends_the_run_though_others_work(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run(spark, tmp_path)
    run.bronze.add(trade("r:0", "10", "1", 0))
    with run.in_background():
        run.wait_for(lambda: run.totals.rows["bars_1m"] == 1)
    run.bronze.add(trade("r:1", "12", "1", 61))
    file = newest_file(tmp_path / "bronze")
    make_unreadable(file)
    with pytest.raises(CommandFailed, match=f"cannot read the file .*{file.name}"):
        run(retries=1)
    assert run.restarts == 1
    file.write_bytes(b"no Parquet")
    with pytest.raises(CommandFailed, match=rf"^the file .*{file.name} of the table at .* is damaged: "):
        run(retries=1)
    assert run.restarts == 1
