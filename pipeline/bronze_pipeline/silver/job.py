"""Runs the silver queries, and counts what they do.

With `available_now`, the records come first and then what is made from them, so that one run carries
everything through. Otherwise all queries run side by side, each following the table before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bronze_pipeline.commands.silver import SilverPlan
from bronze_pipeline.jars import jars_in
from bronze_pipeline.running.folder_markers import remove_folder_markers
from bronze_pipeline.running.hadoop import prepare
from bronze_pipeline.running.streams import Watch, keep_running, run
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.book_query import BookQuery
from bronze_pipeline.silver.checks import BOOK_COLUMNS, SNAPSHOT_COLUMNS, book_checks, summary
from bronze_pipeline.silver.follow import table_frame
from bronze_pipeline.silver.queries import Query, QuerySettings, SilverBatchReport, start
from bronze_pipeline.silver.record_query import RecordQuery
from bronze_pipeline.silver.records import RECORDS


@dataclass
class SilverTotals:
    """What a run has done so far."""

    batches: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    faults: int = 0
    late: dict[tuple[str | None, int], int] = field(default_factory=dict)
    """Trades that were too late for their bars, by query and batch."""
    book_checks: list[dict[str, Any]] | None = None
    """How often the books match the source's snapshots, at the end of a run that can tell."""
    began: float = field(default_factory=time.monotonic)

    def add(self, report: SilverBatchReport) -> None:
        self.batches += 1
        if report.outcome:
            self.rows.update(report.outcome.rows)
            self.duplicates += report.outcome.duplicates
            self.faults += report.outcome.faults

    def look(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            dropped = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            if dropped:
                self.late[query.name, progress.batchId] = dropped

    def status(self) -> str:
        parts = [f"batch {self.batches}", f"{self.rows.total():,} rows"]
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates")
        if self.faults:
            parts.append(f"{self.faults:,} faults")
        return " · ".join(parts)

    def share(self) -> float | None:
        return None

    def outcome(self) -> str:
        return f"{self.rows.total():,} rows stored in {self.batches} batches"

    def summary(self) -> dict[str, Any]:
        found = {
            "batches": self.batches,
            "rows": dict(sorted(self.rows.items())),
            "duplicates": self.duplicates,
            "faults": self.faults,
            "late": sum(self.late.values()),
            "seconds": round(time.monotonic() - self.began, 3),
        }
        return found if self.book_checks is None else found | {"book_checks": self.book_checks}


def stages(plan: SilverPlan) -> list[list[Query]]:
    """Return the queries; those of a stage follow tables of the previous one."""
    options = plan.options
    schemas = {record.table: record.schema() for record in RECORDS}
    made: list[Query] = [
        BarQuery(
            plan.lake,
            each.label,
            each.words,
            schemas["trades"],
            options.watermark.words if options.watermark else None,
        )
        for each in options.bars
    ]
    if options.book_depth:
        every = options.book_interval
        made.append(
            BookQuery(
                plan.lake,
                schemas["book_changes"],
                options.book_depth,
                every.label if every else None,
                every.microseconds if every else None,
            )
        )
    return [[RecordQuery(plan.bronze, plan.lake)], made]


def run_silver(plan: SilverPlan) -> int:
    """Run until everything is done, a signal comes, or it fails; print a summary as JSON on stdout."""
    options, totals = plan.options, SilverTotals()

    def work(spark: SparkSession, watch: Watch) -> None:
        how = QuerySettings(
            prepare(spark, plan.checkpoints),
            options.available_now,
            options.trigger.words,
            options.max_records_per_batch,
            watch.on_batch,
            goes_on_after_loss=options.on_data_loss == "continue",
            note=watch.progress.note,
        )
        first, second = stages(plan)
        try:
            for stage in [first, second] if options.available_now else [first + second]:
                keep_running(partial(_start, spark, stage, how), watch, retries=options.retries)
            remove_folder_markers(how.checkpoints)
        finally:
            if totals.late:
                watch.progress.note("Some trades came later than --watermark allows and are not in any bar.")
        if (
            options.available_now
            and options.book_depth
            and not options.book_interval
            and not watch.stop.is_set()
        ):
            totals.book_checks = _check_books(spark, plan)

    return run(work, totals, cores=options.cores, jars=jars_in(options.storage_jars))


def _start(spark: SparkSession, stage: Sequence[Query], how: QuerySettings) -> Iterator[StreamingQuery]:
    return (start(spark, query, how) for query in stage)


def _check_books(spark: SparkSession, plan: SilverPlan) -> list[dict[str, Any]]:
    """Compare the books with the source's snapshots, if it sent any."""
    book, snapshots = (
        table_frame(spark, plan.lake.table_url(name), columns)
        for name, columns in (("book_top", BOOK_COLUMNS), ("book_snapshots", SNAPSHOT_COLUMNS))
    )
    return [row.asDict() for row in summary(book_checks(book, snapshots, plan.options.book_depth)).collect()]
