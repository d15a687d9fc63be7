"""Runs the silver queries in the foreground: progress, signals, a summary, and errors that say what to do.

With `available_now` the records come first and then what is made of them, so that one run takes everything
through. Otherwise all queries run side by side, each following the table before it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bronze_sidecar.progress import Progress
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bronze_pipeline.commands.base import Failed
from bronze_pipeline.commands.bronze import DEFAULT_RETRIES as RETRIES
from bronze_pipeline.commands.silver import Plan
from bronze_pipeline.failures import LASTING_ERRORS
from bronze_pipeline.running import LONGEST_PAUSE_SECONDS, POLL_SECONDS, explain
from bronze_pipeline.session import open_session
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.book_query import BookQuery
from bronze_pipeline.silver.checks import BOOK_COLUMNS, SNAPSHOT_COLUMNS, book_checks, summary
from bronze_pipeline.silver.follow import table_frame
from bronze_pipeline.silver.queries import BatchReport, Query, Start, start
from bronze_pipeline.silver.record_query import RecordQuery, table_schema
from bronze_pipeline.silver.records import RECORDS
from bronze_pipeline.tables import TableError


@dataclass
class Totals:
    """What a run did so far."""

    batches: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    faults: int = 0
    late: dict[tuple[str | None, int], int] = field(default_factory=dict)
    """Trades that were too late for their bars, of each query and batch."""
    began: float = field(default_factory=time.monotonic)

    def add(self, report: BatchReport) -> None:
        self.batches += 1
        if report.outcome:
            self.rows.update(report.outcome.rows)
            self.duplicates += report.outcome.duplicates
            self.faults += report.outcome.faults

    def look(self, query: StreamingQuery) -> None:
        """Note what Spark says about the last batches of a query."""
        for progress in query.recentProgress:
            dropped = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            if dropped:
                self.late[query.name, progress.batchId] = dropped

    def summary(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "rows": dict(sorted(self.rows.items())),
            "duplicates": self.duplicates,
            "faults": self.faults,
            "late": sum(self.late.values()),
            "seconds": round(time.monotonic() - self.began, 3),
        }


def stages(spark: SparkSession, plan: Plan) -> list[list[Query]]:
    """Return the queries; those of a stage follow tables of the one before."""
    schemas = {record.table: table_schema(spark, record) for record in RECORDS}
    made: list[Query] = [
        BarQuery(
            plan.lake,
            each.label,
            each.words,
            schemas["trades"],
            plan.watermark.words if plan.watermark else None,
        )
        for each in plan.bars
    ]
    if plan.book_depth:
        every = plan.book_interval
        made.append(
            BookQuery(
                plan.lake,
                schemas["book_changes"],
                plan.book_depth,
                every.label if every else None,
                every.microseconds if every else None,
            )
        )
    return [[RecordQuery(plan.bronze, plan.lake)], made]


def run_silver(plan: Plan) -> int:
    """Run until all is done, a signal comes, or it fails; print a summary as JSON on stdout."""
    progress = Progress(sys.stderr)
    progress.show("starting Spark")
    totals = Totals()
    stop = threading.Event()
    _heed_signals(stop)
    spark = open_session("bronze-pipeline", cores=plan.cores)
    # Opening it, PySpark takes Ctrl-C for itself.
    _heed_signals(stop)
    report: dict[str, Any] = {}
    try:

        def on_batch(each: BatchReport) -> None:
            totals.add(each)
            if not progress.is_shown:
                progress.note(_batch_line(each))

        how = Start(plan.checkpoints, plan.available_now, plan.trigger.words, plan.max_records, on_batch)
        first, second = stages(spark, plan)
        for stage in [first, second] if plan.available_now else [first + second]:
            _keep_running(spark, stage, how, Watch(totals, progress, stop))
        if plan.available_now and plan.book_depth and not plan.book_interval and not stop.is_set():
            report["book_checks"] = _check_books(spark, plan)
    except (StreamingQueryException, TableError) as error:
        # Workers get Ctrl-C as well, and a batch that was cut short counts as failed.
        if not stop.is_set():
            raise Failed(explain(error)) from error
    finally:
        progress.end(f"{totals.rows.total():,} rows stored in {totals.batches} batches")
        if totals.late:
            progress.note("Some trades were later than --watermark allows, and are in no bar.")
        print(json.dumps(totals.summary() | report), flush=True)
        spark.stop()
    return 0


@dataclass(frozen=True)
class Watch:
    """What is seen of a job, and how it is told to stop."""

    totals: Totals
    progress: Progress
    stop: threading.Event


def _keep_running(spark: SparkSession, stage: Sequence[Query], how: Start, watch: Watch) -> None:
    """Run queries to their end; those that failed for a reason that may pass go on from their checkpoints."""
    failures = 0
    while not watch.stop.is_set():
        batches = watch.totals.batches
        queries: list[StreamingQuery] = []
        try:
            queries += (start(spark, query, how) for query in stage)
            _watch(queries, watch)
        except StreamingQueryException as error:
            for query in queries:
                query.stop()
            failures = 1 if watch.totals.batches > batches else failures + 1
            if LASTING_ERRORS.search(str(error)) or failures > RETRIES:
                raise
            pause = min(2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
            reason = explain(error).splitlines()[0]
            watch.progress.note(f"{reason}; starting again in {pause} s ({failures} of {RETRIES})")
            watch.stop.wait(pause)
        else:
            return


def _heed_signals(stop: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())


def _watch(queries: Sequence[StreamingQuery], watch: Watch) -> None:
    totals = watch.totals
    running = list(queries)
    while running:
        for query in running:
            # Raises what the query failed with.
            query.awaitTermination(POLL_SECONDS)
            totals.look(query)
        if watch.stop.is_set():
            for query in running:
                query.stop()
            return
        running = [query for query in running if query.isActive]
        watch.progress.show(_status_line(totals))
    for query in queries:
        query.awaitTermination()
        totals.look(query)


def _check_books(spark: SparkSession, plan: Plan) -> list[dict[str, Any]]:
    """Compare the books with the snapshots of the source, where it sent any."""
    book, snapshots = (
        table_frame(spark, plan.lake.table_url(name), columns)
        for name, columns in (("book_top", BOOK_COLUMNS), ("book_snapshots", SNAPSHOT_COLUMNS))
    )
    return [row.asDict() for row in summary(book_checks(book, snapshots, plan.book_depth)).collect()]


def _status_line(totals: Totals) -> str:
    parts = [f"batch {totals.batches}", f"{totals.rows.total():,} rows"]
    if totals.duplicates:
        parts.append(f"{totals.duplicates:,} duplicates")
    if totals.faults:
        parts.append(f"{totals.faults:,} faults")
    return " · ".join(parts)


def _batch_line(report: BatchReport) -> str:
    head = f"{report.query}, batch {report.batch}: "
    if report.outcome is None:
        return head + "the tables have it already"
    rows = ", ".join(f"{count} {name}" for name, count in report.outcome.rows.items()) or "nothing"
    counts = f"{report.outcome.duplicates} duplicates, {report.outcome.faults} faults"
    return f"{head}{rows}, {counts}, {report.seconds:.1f} s"
