"""The bronze job: from a bus to the tables `bronze` and `quarantine`, each event exactly once.

    source -> task.py: decode, leave out repeats, write Parquet files -> driver: leave out duplicates, commit

Rows never leave the worker that decoded them; the driver gets only descriptions of files. What the table has
already is known by its ledger, which follows the table's log. Spark's checkpoint holds the offsets. A table
recognizes a batch that Spark repeats after a crash by its number and does not add it again; files of a killed
attempt are in no commit, and readers never see them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from bronze_pipeline.bronze.task import EVENTS_NAME, QUARANTINE_NAME, RESULT_SCHEMA, Task
from bronze_pipeline.decoding.envelope import decode
from bronze_pipeline.decoding.schema import QUARANTINE
from bronze_pipeline.ledger.ledger import Own
from bronze_pipeline.running.few_tasks import FewTasks
from bronze_pipeline.sources.base import Bus
from bronze_pipeline.tables.files import FileWriter, Written
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.table_duplicates import Distinct, distinct
from bronze_pipeline.tables.tables import TableError, commit_new

# Spark sets it for everything that a streaming query runs; it stays the same for a checkpoint.
QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class BronzeBatchReport:
    """What became of one micro-batch."""

    batch: int
    events: int
    duplicates: int
    quarantined: int
    seconds: float
    repeated: bool = False
    """Whether the tables already had it."""

    def __str__(self) -> str:
        if self.repeated:
            return f"batch {self.batch}: the tables already have it"
        return (
            f"batch {self.batch}: {self.events} events, {self.duplicates} duplicates,"
            f" {self.quarantined} quarantined, {self.seconds:.1f} s"
        )


@dataclass
class BronzeJob:
    """Reads a bus into a lake."""

    bus: Bus
    options: dict[str, str]
    """Options of the bus's data source."""
    lake: Lake
    keep_raw: bool = False
    on_batch: Callable[[BronzeBatchReport], None] = field(default=lambda _: None)
    say: Callable[[str], None] = field(default=lambda _: None)
    """Told what takes long, and what was mended."""
    _tasks: FewTasks = field(default_factory=FewTasks)
    _is_continued: bool = False
    """Whether the table was seen to have the last batch before this run."""

    def start(
        self, spark: SparkSession, checkpoint: str, *, trigger: str | None = None, available_now: bool = False
    ) -> StreamingQuery:
        """Start the stream; with `available_now` it ends when what the bus has now is in the tables."""
        self._events, self._quarantine = self.lake.events(), self.lake.quarantine()
        self._ledger = self.lake.ledger(self.say)
        self._checkpoint = checkpoint
        self._is_continued = False
        frame = self.bus.stream(spark, self.options)
        writer: DataStreamWriter = frame.writeStream.foreachBatch(self.write_batch)
        writer = writer.queryName("bronze").option("checkpointLocation", checkpoint)
        if available_now:
            return writer.trigger(availableNow=True).start()
        return (writer.trigger(processingTime=trigger) if trigger else writer).start()

    def write_batch(self, frame: DataFrame, batch: int) -> None:
        """Write one micro-batch."""
        began = time.monotonic()
        job = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if job is None:
            raise RuntimeError("Spark does not give the id of the streaming query")
        # Always called: the tables also remove what a killed attempt left behind.
        is_stored, has_refused = self._events.has(job, batch), self._quarantine.has(job, batch)
        # If a repeated batch may have other rows, its number means nothing; only the events' ids decide.
        if self.bus.repeats and is_stored:
            self._is_continued = True
            self.on_batch(BronzeBatchReport(batch, 0, 0, 0, time.monotonic() - began, repeated=True))
            return
        self._require_last(job, batch)
        watches = self.bus.watches(self.options)
        task = Task(
            self.bus.name, self._events.staging, self._quarantine.staging, self.keep_raw, watches=watches
        )
        results = self._tasks.of(frame).mapInArrow(task, RESULT_SCHEMA).collect()
        files = {
            name: [Written.from_json(row["file"]) for row in results if row["name"] == name and row["file"]]
            for name in (EVENTS_NAME, QUARANTINE_NAME)
        }
        repeats = sum(row["repeats"] for row in results)
        self._tasks.note(repeats + sum(map(_rows, files.values())))
        # The events come last: their commit, even an empty one, completes the batch.
        refused = files[QUARANTINE_NAME]
        if watches:
            refused += self._lost(
                frame.sparkSession, batch, [row for each in results for row in each["firsts"] or ()]
            )
        if refused and not (self.bus.repeats and has_refused):
            commit_new(
                self._quarantine, refused, job, batch, lambda files: files, is_numbered=self.bus.repeats
            )
        written = files[EVENTS_NAME]
        fresh = self._store(written, job, batch)
        receipts = [receipt for row in results for receipt in row["receipts"] or ()]
        self.bus.settle(frame.sparkSession, self.options, receipts)
        self.on_batch(
            BronzeBatchReport(
                batch,
                events=_rows(fresh),
                duplicates=_rows(written) - _rows(fresh) + repeats,
                quarantined=_rows(refused),
                seconds=time.monotonic() - began,
            )
        )

    def _require_last(self, job: str, batch: int) -> None:
        """Raise TableError if the table lacks what Spark's checkpoint counts as stored."""
        # Batches of a bus that does not repeat them leave no number if they have nothing new.
        if self.bus.repeats and batch and not self._is_continued and not self._events.has(job, batch - 1):
            raise TableError(
                f"the table at {self._events.folder.url} does not have what this checkpoint has stored: it"
                " was made anew since then, or the checkpoint belongs to another table. Use a new checkpoint;"
                " events that the table has are not stored twice."
            )
        self._is_continued = True

    def _store(self, written: Sequence[Written], job: str, batch: int) -> Sequence[Written]:
        """Commit what the table does not have of new files, and note that in the ledger."""
        found: list[Distinct] = []

        def new(files: Sequence[Written]) -> Sequence[Written]:
            self._ledger.advance()
            found.append(distinct(self._events, self._ledger, files))
            return found[-1].files

        stored = commit_new(self._events, written, job, batch, new, is_numbered=self.bus.repeats)
        if stored or (stored is not None and self.bus.repeats):
            self._ledger.advance(Own(job, batch, found[-1].entry))
        return stored or ()

    def _lost(self, spark: SparkSession, batch: int, firsts: Sequence[Row]) -> list[Written]:
        """Record what the bus lost, if its source does not."""
        by_place: dict[tuple[str, str], int] = {}
        for row in firsts:
            place = (row["destination"], row["partition"])
            by_place[place] = min(row["position"], by_place.get(place, row["position"]))
        writer = FileWriter(self._quarantine.staging, QUARANTINE, "part")
        for each in self.bus.losses(spark, self._checkpoint, batch, by_place):
            writer.write(decode(each, self.bus.name).quarantined)
        return writer.finish()


def _rows(files: Iterable[Written]) -> int:
    return sum(file.rows for file in files)
