"""What every query of the silver job has in common, and how one is started.

Each has its own checkpoint, named after it. Each table recognizes a batch that Spark repeats after a crash by
the query's id and the batch's number, and does not store it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from bronze_pipeline.bronze.job import QUERY_ID
from bronze_pipeline.silver.checkpoints import Checkpoint
from bronze_pipeline.silver.follow import NAME, TableSource, TableStreamReader
from bronze_pipeline.silver.logs import FellBehind
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.tables.tables import OtherColumnsError, TableError

# The API that keeps the books requires this one; it also holds more bars than memory can.
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

ANEW = "Have everything made anew from bronze: with a new --to, and a new --checkpoint if one is given."
CONTINUE = (
    "To begin anew with what the table has now, set --on-data-loss to continue; rows that are already stored"
    " are not stored twice."
)


@dataclass(frozen=True)
class Outcome:
    """What a query did with one micro-batch."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """Rows that each table got."""
    duplicates: int = 0
    faults: int = 0


class Query(Protocol):
    """A streaming query from one table to others."""

    output_mode: str

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str:
        """URL of the table to follow."""

    def open(self, spark: SparkSession) -> None:
        """Open its tables, creating them if necessary."""

    def read(self, files: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch, from the files of the source."""

    def write(self, rows: DataFrame, job: str, batch: int) -> Outcome | None:
        """Store a micro-batch; return None if the tables already have it."""


@dataclass(frozen=True)
class SilverBatchReport:
    """What became of one micro-batch."""

    query: str
    batch: int
    outcome: Outcome | None
    """None if the tables already had it."""
    seconds: float

    def __str__(self) -> str:
        head = f"{self.query}, batch {self.batch}: "
        if self.outcome is None:
            return head + "the tables already have it"
        rows = ", ".join(f"{count} {name}" for name, count in self.outcome.rows.items()) or "nothing"
        counts = f"{self.outcome.duplicates} duplicates, {self.outcome.faults} faults"
        return f"{head}{rows}, {counts}, {self.seconds:.1f} s"


@dataclass(frozen=True)
class QuerySettings:
    """How queries run."""

    checkpoints: str
    available_now: bool
    trigger: str
    max_records: int
    on_batch: Callable[[SilverBatchReport], None]
    goes_on_after_loss: bool = False
    """Whether a query that has fallen behind its table begins anew, with what the table has now."""
    note: Callable[[str], None] = print


def start(spark: SparkSession, query: Query, how: QuerySettings) -> StreamingQuery:
    """Start a query."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    spark.dataSource.register(TableSource)
    try:
        query.open(spark)
    except OtherColumnsError as error:
        raise TableError(f"{error} {ANEW}") from error
    _catch_up(query, Checkpoint(spark, f"{how.checkpoints}/{query.name}"), how)
    options = {"table": query.source, "maxRecordsPerBatch": str(how.max_records)}
    files = spark.readStream.format(NAME).options(**options).load()

    def write_batch(rows: DataFrame, batch: int) -> None:
        began = time.monotonic()
        job = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if job is None:
            raise RuntimeError("Spark does not give the id of the streaming query")
        outcome = query.write(rows, job, batch)
        how.on_batch(SilverBatchReport(query.name, batch, outcome, time.monotonic() - began))

    writer = query.read(files).writeStream.foreachBatch(write_batch).outputMode(query.output_mode)
    writer = writer.queryName(query.name).option("checkpointLocation", f"{how.checkpoints}/{query.name}")
    return writer.trigger(
        **({"availableNow": True} if how.available_now else {"processingTime": how.trigger})
    ).start()


def _catch_up(query: Query, checkpoint: Checkpoint, how: QuerySettings) -> None:
    """See that the table still has what the query reads next; otherwise let it begin anew, or refuse."""
    stored, planned = checkpoint.stored(), checkpoint.planned()
    if planned < 0:
        return
    reader = TableStreamReader(query.source, how.max_records)
    start = reader.initialOffset() if stored < 0 else checkpoint.offset(stored)
    end = checkpoint.offset(planned)
    if start is None or end is None:
        return
    try:
        # A batch that was planned and not stored comes again as it was.
        reader.look(reader.look(start, end) if planned > stored else start)
    except FellBehind as error:
        if not how.goes_on_after_loss:
            raise OptionError(f"{query.name}: {error}. {CONTINUE}") from error
        checkpoint.set_aside()
        how.note(f"{query.name}: {error}; it begins anew, with what the table has now")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a frame's columns as a table's; any may be NULL."""
    fields = to_arrow_schema(schema, timezone="UTC")
    return pa.schema([each.with_nullable(True) for each in fields])
