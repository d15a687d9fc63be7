"""The query from bronze to the tables of typed records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bronze_pipeline.decoding.schema import EVENTS, PAYLOADS
from bronze_pipeline.silver.follow import ReadFiles, rows_of
from bronze_pipeline.silver.queries import Outcome, arrow_schema
from bronze_pipeline.silver.records import ENVELOPE, FAULTS, PARTITION_COLUMNS, RECORDS, RecordKind
from bronze_pipeline.silver.storing import (
    QUARANTINE,
    QUARANTINE_PARTITION_COLUMNS,
    UncommittedFiles,
    distinct,
    distinct_faults,
    prepare,
)
from bronze_pipeline.tables.files import Written
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import Table, commit_new

QUARANTINE_NAME = "quarantine"
CASES = pa.schema([EVENTS.field("payload_case")])


@cache
def table_schema(spark: SparkSession, record: RecordKind) -> pa.Schema:
    """Return the columns of a record's table."""
    bronze = pa.schema([EVENTS.field(name) for name in (*ENVELOPE, record.payload)])
    empty = spark.createDataFrame([], from_arrow_schema(bronze))
    return arrow_schema(record.transform(empty).drop(FAULTS).schema)


@dataclass
class RecordQuery:
    """Types and stores the events of bronze."""

    source: str
    lake: Lake
    name: str = "records"
    output_mode: str = "append"
    _tables: dict[str, Table] = field(default_factory=dict)

    def open(self, spark: SparkSession) -> None:
        self._tables = {
            record.table: self.lake.open(record.table, table_schema(spark, record), PARTITION_COLUMNS)
            for record in RECORDS
        }
        self._quarantine = self.lake.open(QUARANTINE_NAME, QUARANTINE, QUARANTINE_PARTITION_COLUMNS)

    def read(self, files: DataFrame) -> DataFrame:
        return files

    def write(self, rows: DataFrame, job: str, batch: int) -> Outcome | None:
        # The source is read once; the files are read for each kind of record, only with its columns.
        files = rows.sparkSession.createDataFrame(rows.collect(), rows.schema)
        occurring = self._occurring(files)
        left = [record for record in occurring if not self._tables[record.table].has(job, batch)]
        if occurring and not left:
            return None
        prepared = {record.table: self._prepare(files, record) for record in left}
        faults = [file for each in prepared.values() for file in each.faults]
        # Faults first: a repeated batch skips the tables that have it, and would not find their faults again.
        if faults and not self._quarantine.has(job, batch):
            commit_new(self._quarantine, faults, job, batch, partial(distinct_faults, self._quarantine))
        stored: dict[str, int] = {}
        for name, each in prepared.items():
            table = self._tables[name]
            stored[name] = _rows(commit_new(table, each.rows, job, batch, partial(distinct, table)) or ())
        found = sum(_rows(each.rows) for each in prepared.values())
        return Outcome(stored, found - sum(stored.values()), _rows(faults))

    def _occurring(self, files: DataFrame) -> list[RecordKind]:
        """Return the kinds of records in the files."""
        read = ReadFiles(self.source, CASES, None)
        found = files.mapInArrow(lambda batches: _distinct(read(batches)), from_arrow_schema(CASES)).collect()
        present = {row["payload_case"] for row in found}
        return [record for record in RECORDS if PAYLOADS[record.payload] in present]

    def _prepare(self, files: DataFrame, record: RecordKind) -> UncommittedFiles:
        has_payload = ds.field(record.payload).is_valid()
        events = rows_of(files, self.source, EVENTS, [*ENVELOPE, record.payload], has_payload)
        return prepare(record.transform(events), record.table, self._tables[record.table], self._quarantine)


def _distinct(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.unique(batch["payload_case"])], schema=CASES)


def _rows(files: Iterable[Written]) -> int:
    return sum(file.rows for file in files)
