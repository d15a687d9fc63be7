"""Runs a streaming job in the foreground: progress, signals, a summary, and errors that say what to do."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from bronze_sidecar.progress import Progress
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from bronze_pipeline.bronze import BatchReport, BronzeJob
from bronze_pipeline.commands.base import Failed
from bronze_pipeline.session import open_session
from bronze_pipeline.sources.base import Bus
from bronze_pipeline.tables import TableError

POLL_SECONDS = 1
RATE_WINDOW = 10
# Errors of ours, as Spark quotes them from a worker's traceback.
OUR_ERRORS = re.compile(r"bronze_pipeline\.[\w.]*(?:DataLoss|Unreachable|OptionError|TableError): (.+)")


@dataclass
class Totals:
    """What a run did so far."""

    batches: int = 0
    events: int = 0
    duplicates: int = 0
    quarantined: int = 0
    began: float = field(default_factory=time.monotonic)
    recent: deque[BatchReport] = field(default_factory=lambda: deque(maxlen=RATE_WINDOW))

    def add(self, report: BatchReport) -> None:
        self.batches += 1
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


def run_stream(
    job: BronzeJob, checkpoint: str, *, trigger: str, available_now: bool, cores: int | None
) -> int:
    """Run until all is done, a signal comes, or it fails; print a summary as JSON on stdout."""
    progress = Progress(sys.stderr)
    progress.show("starting Spark")
    totals = Totals()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    session = open_session("bronze-pipeline", cores=cores)
    try:

        def on_batch(report: BatchReport) -> None:
            totals.add(report)
            if not progress.is_shown:
                progress.note(_batch_line(report))

        job.on_batch = on_batch
        query = job.start(session, checkpoint, trigger=trigger, available_now=available_now)
        _watch(query, job.bus, totals, progress, stop)
    except (StreamingQueryException, TableError) as error:
        raise Failed(explain(error)) from error
    finally:
        progress.end(f"{totals.events} events stored in {totals.batches} batches")
        print(json.dumps(totals.summary()), flush=True)
        session.stop()
    return 0


def _watch(
    query: StreamingQuery, bus: Bus, totals: Totals, progress: Progress, stop: threading.Event
) -> None:
    while not query.awaitTermination(POLL_SECONDS):
        if stop.is_set():
            query.stop()
            return
        progress.show(_status_line(query, bus, totals))


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
    ours = OUR_ERRORS.search(str(error))
    return ours[1] if ours else str(error)
