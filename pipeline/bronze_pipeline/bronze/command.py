"""The command's part of the bronze job: what is counted and shown."""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bronze_pipeline.bronze.job import BronzeBatchReport, BronzeJob
from bronze_pipeline.commands.bronze import BronzePlan
from bronze_pipeline.running.streams import Watch, keep_running, run
from bronze_pipeline.sources.base import Bus

RATE_WINDOW = 10


@dataclass
class BronzeTotals:
    """What a run has done so far."""

    bus: Bus
    ends: bool = False
    """Whether the run ends when it has read what the bus has now."""
    batches: int = 0
    events: int = 0
    duplicates: int = 0
    quarantined: int = 0
    lag: int | None = None
    """How many more records the bus had, when last known."""
    records_in_all: int | None = None
    """How many records a run that ends will have read, when last known."""
    began: float = field(default_factory=time.monotonic)
    first_began: float | None = None
    """When the first batch began; before that, Spark started."""
    records_after: dict[int, int] = field(default_factory=dict)
    """How many records were read at the end of each of the last batches."""
    recent: deque[BronzeBatchReport] = field(default_factory=lambda: deque(maxlen=RATE_WINDOW))

    def add(self, report: BronzeBatchReport) -> None:
        self.batches += 1
        self.events += report.events
        self.duplicates += report.duplicates
        self.quarantined += report.quarantined
        self.recent.append(report)
        if self.first_began is None:
            self.first_began = time.monotonic() - report.seconds
        self.records_after[report.batch] = self.records
        self.records_after.pop(report.batch - RATE_WINDOW, None)

    @property
    def records(self) -> int:
        return self.events + self.duplicates + self.quarantined

    def look(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        source = last.sources[0] if last and last.sources else None
        self.lag = None
        if source is not None and source.endOffset and source.latestOffset:
            end, latest = json.loads(source.endOffset), json.loads(source.latestOffset)
            self.lag = self.bus.lag(end, latest) if end and latest else None
        if last and self.lag is not None:
            # Spark may tell of a batch when the next one is already counted.
            self.records_in_all = self.records_after.get(last.batchId, self.records) + self.lag

    @property
    def rate(self) -> float:
        """Records per second while batches are written, over the last few."""
        seconds = sum(each.seconds for each in self.recent)
        return sum(each.events + each.duplicates for each in self.recent) / seconds if seconds else 0.0

    def share(self) -> float | None:
        """Return how much of a run that ends is done."""
        if not self.ends or not self.records_in_all:
            return None
        return min(1.0, self.records / self.records_in_all)

    def seconds_left(self) -> float | None:
        """Return how long a run that ends will go on, if it goes on as fast as until now."""
        share = self.share()
        if not share or self.first_began is None:
            return None
        return (time.monotonic() - self.first_began) * (1 - share) / share

    def status(self) -> str:
        left = self.seconds_left()
        if left is not None and self.records_in_all is not None:
            parts = [f"{self.records:,} of {max(self.records, self.records_in_all):,} records"]
            parts += [f"{self.rate:,.0f}/s", f"{_in_words(left)} left"]
        else:
            parts = [f"batch {self.batches}", f"{self.events:,} events", f"{self.rate:,.0f}/s"]
            if self.lag is not None:
                parts.append(f"{self.lag:,} behind")
        if self.duplicates:
            parts.append(f"{self.duplicates:,} duplicates")
        if self.quarantined:
            parts.append(f"{self.quarantined:,} quarantined")
        return " · ".join(parts)

    def outcome(self) -> str:
        return f"{self.events:,} events stored in {self.batches} batches"

    def summary(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.began, 3)
        counts = {name: getattr(self, name) for name in ("batches", "events", "duplicates", "quarantined")}
        return {**counts, "seconds": seconds}


def _in_words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def run_bronze(plan: BronzePlan) -> int:
    """Run until everything is done, a signal comes, or it fails; print a summary as JSON on stdout."""

    bus, source_options, options = plan.bus, plan.source_options, plan.options

    def work(spark: SparkSession, watch: Watch) -> None:
        job = BronzeJob(
            bus,
            source_options,
            plan.lake,
            keep_raw=options.keep_raw,
            on_batch=watch.on_batch,
            say=watch.progress.note,
        )

        def start() -> list[StreamingQuery]:
            trigger = options.trigger.words
            return [job.start(spark, plan.checkpoint, trigger=trigger, available_now=options.available_now)]

        keep_running(start, watch, retries=options.retries, bus=bus)

    return run(
        work, BronzeTotals(bus, options.available_now), cores=options.cores, jars=bus.jars(source_options)
    )
