"""Runs a streaming job in the foreground: progress, signals, a summary, and errors that say what to do.

A stream that failed is started again, from its checkpoint: buses restart, and Spark gives a worker process
ten seconds to start, which no setting changes and a busy machine may need. What the operator has to decide
(wrong options, lost records, a table of another kind) ends the job at once.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from bronze_sidecar.progress import Progress
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bronze_pipeline.bronze import BatchReport, BronzeJob
from bronze_pipeline.commands.base import Failed
from bronze_pipeline.failures import lasting_error, our_error
from bronze_pipeline.session import open_session
from bronze_pipeline.sources.base import Bus, OptionError
from bronze_pipeline.tables import TableError

POLL_SECONDS = 1
RATE_WINDOW = 10
LONGEST_PAUSE_SECONDS = 30


@dataclass
class Totals:
    """What a run did so far."""

    batches: int = 0
    events: int = 0
    duplicates: int = 0
    quarantined: int = 0
    triggers: int = 0
    """Grows while streams work; without new records there are no batches."""
    began: float = field(default_factory=time.monotonic)
    recent: deque[BatchReport] = field(default_factory=lambda: deque(maxlen=RATE_WINDOW))

    def add(self, report: BatchReport) -> None:
        self.batches += 1
        self.triggers += 1
        self.events += report.events
        self.duplicates += report.duplicates
        self.quarantined += report.quarantined
        self.recent.append(report)

    @property
    def rate(self) -> float:
        """Records a second while batches are written, of the last few."""
        seconds = sum(each.seconds for each in self.recent)
        return sum(each.events + each.duplicates for each in self.recent) / seconds if seconds else 0.0

    def summary(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.began, 3)
        counts = {name: getattr(self, name) for name in ("batches", "events", "duplicates", "quarantined")}
        return {**counts, "seconds": seconds}


@dataclass(frozen=True)
class Pace:
    """How a job is run."""

    checkpoint: str
    trigger: str
    available_now: bool
    retries: int
    """How often in a row a stream that failed is started again."""


def run_stream(job: BronzeJob, pace: Pace, *, cores: int | None) -> int:
    """Run until all is done, a signal comes, or it fails; print a summary as JSON on stdout."""
    progress = Progress(sys.stderr)
    progress.show("starting Spark")
    totals = Totals()
    stop = threading.Event()
    session = open_session("bronze-pipeline", cores=cores, jars=job.bus.jars(job.options))
    # Not before: opening a session installs a handler of PySpark's own.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:

        def on_batch(report: BatchReport) -> None:
            totals.add(report)
            if not progress.is_shown:
                progress.note(_batch_line(report))

        job.on_batch = on_batch
        keep_running(session, job, pace, Watch(totals, progress, stop))
    finally:
        progress.end(f"{totals.events} events stored in {totals.batches} batches")
        print(json.dumps(totals.summary()), flush=True)
        session.stop()
    return 0


@dataclass(frozen=True)
class Watch:
    """What is seen of a job, and how it is told to stop."""

    totals: Totals
    progress: Progress
    stop: threading.Event


def keep_running(session: SparkSession, job: BronzeJob, pace: Pace, watch: Watch) -> None:
    """Run a job until it is done or told to stop; raise Failed if that cannot be."""
    failures = 0
    totals, stop = watch.totals, watch.stop
    while not stop.is_set():
        worked_before = totals.triggers
        try:
            query = job.start(
                session, pace.checkpoint, trigger=pace.trigger, available_now=pace.available_now
            )
            _follow(query, job.bus, watch)
        except (TableError, OptionError) as error:
            raise Failed(str(error)) from error
        except PySparkException as error:
            lasting = lasting_error(str(error), job.bus)
            if lasting is not None:
                raise Failed(lasting) from error
            failures = 1 if totals.triggers > worked_before else failures + 1
            if failures > pace.retries:
                raise Failed(explain(error)) from error
            pause = min(2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
            reason = explain(error).splitlines()[0]
            watch.progress.note(f"{reason}; starting again in {pause} s ({failures} of {pace.retries})")
            stop.wait(pause)
        else:
            return


def _follow(query: StreamingQuery, bus: Bus, watch: Watch) -> None:
    while not query.awaitTermination(POLL_SECONDS):
        if query.lastProgress is not None:
            watch.totals.triggers += 1
        if watch.stop.is_set():
            query.stop()
            return
        watch.progress.show(_status_line(query, bus, watch.totals))


def _status_line(query: StreamingQuery, bus: Bus, totals: Totals) -> str:
    lag = _lag(query, bus)
    parts = [f"batch {totals.batches}", f"{totals.events:,} events", f"{totals.rate:,.0f}/s"]
    if lag is not None:
        parts.append(f"{lag:,} behind")
    if totals.duplicates:
        parts.append(f"{totals.duplicates:,} duplicates")
    if totals.quarantined:
        parts.append(f"{totals.quarantined:,} quarantined")
    return " · ".join(parts)


def _lag(query: StreamingQuery, bus: Bus) -> int | None:
    last = query.lastProgress
    source = last.sources[0] if last and last.sources else None
    if source is None or not source.endOffset or not source.latestOffset:
        return None
    end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
    return bus.lag(end, latest) if end and latest else None


def _batch_line(report: BatchReport) -> str:
    if report.repeated:
        return f"batch {report.batch}: the tables have it already"
    return (
        f"batch {report.batch}: {report.events} events, {report.duplicates} duplicates,"
        f" {report.quarantined} quarantined, {report.seconds:.1f} s"
    )


def explain(error: Exception) -> str:
    return our_error(str(error)) or str(error)
