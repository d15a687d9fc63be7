"""The query from the book changes to the best levels over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bronze_pipeline.silver.book_history import NAME, BookHistory
from bronze_pipeline.silver.book_rows import AGAIN, Shape
from bronze_pipeline.silver.book_stream import CHANGE_COLUMNS, INTERVAL_KEY, KEY, book_top
from bronze_pipeline.silver.follow import rows_of
from bronze_pipeline.silver.queries import Outcome, arrow_schema
from bronze_pipeline.silver.upserts import UpsertTable
from bronze_pipeline.tables.files import FileWriter, Folder, Written, delete_file
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import ATTEMPTS, TableChanged

RESULT = pa.schema([("file", pa.string()), ("again", pa.binary())])
RESULT_SCHEMA = "file string, again binary"


@dataclass
class BookQuery:
    """Keeps the books, and stores their best levels."""

    lake: Lake
    changes: pa.Schema
    """Of the table `book_changes`."""
    depth: int
    label: str | None = None
    """The interval as used in names, such as 1s; None for a row after each message."""
    interval_us: int | None = None
    output_mode: str = "append"

    @property
    def name(self) -> str:
        return f"book_top_{self.label}" if self.label else "book_top"

    @property
    def source(self) -> str:
        return self.lake.table_url(NAME)

    def open(self, spark: SparkSession) -> None:
        columns = pa.schema([self.changes.field(name) for name in CHANGE_COLUMNS])
        empty = spark.createDataFrame([], from_arrow_schema(columns))
        schema = self._top(empty).drop(AGAIN).schema
        key = INTERVAL_KEY if self.interval_us else KEY
        self._upserts = UpsertTable(self.lake, self.name, arrow_schema(schema), key)
        self._table = self.lake.open(self.name, arrow_schema(schema), (key[0],))

    def read(self, files: DataFrame) -> DataFrame:
        return self._top(rows_of(files, self.source, self.changes, CHANGE_COLUMNS))

    def _top(self, changes: DataFrame) -> DataFrame:
        return book_top(changes, Shape(self.depth, self.interval_us), BookHistory(self.lake, self.changes))

    def write(self, rows: DataFrame, job: str, batch: int) -> Outcome | None:
        # Written even if the table has it: Spark's state must get there too. Two commits, each once: few rows
        # are replaced, and new ones require a look at the table only if another checkpoint left rows there.
        results = rows.mapInArrow(
            WriteBooks(self._table.staging, self._table.schema), RESULT_SCHEMA
        ).collect()
        again = [pa.ipc.open_stream(row["again"]).read_all() for row in results if row["again"]]
        files = [Written.from_json(row["file"]) for row in results if row["file"]]
        if again:
            self._upserts.put(pa.concat_tables(again), f"{job}-again", batch)
        if not self._add(files, job, batch):
            return None
        return Outcome({self.name: sum(file.rows for file in files)})

    def _add(self, files: Sequence[Written], job: str, batch: int) -> bool:
        """Commit new rows; return whether the table did not have the batch."""
        for _ in range(ATTEMPTS):
            if self._table.has(job, batch):
                for file in files:
                    delete_file(self._table.staging, file.path)
                return False
            if not files:
                return True
            if self._upserts.is_shared(job):
                self._upserts.put_files(files, job, batch)
                return True
            with suppress(TableChanged):
                self._table.commit(files, job, batch)
                return True
        raise TableChanged(self._table.folder.url)


@dataclass(frozen=True)
class WriteBooks:
    """What a worker does with rows of books: new ones go to files, the others back to the driver."""

    folder: Folder
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        new = FileWriter(self.folder, self.schema, "part")
        again: list[pa.RecordBatch] = []
        for batch in batches:
            rows = batch.drop_columns([AGAIN]).cast(self.schema)
            new.write(rows.filter(pc.invert(batch[AGAIN])))
            again.append(rows.filter(batch[AGAIN]))
        results: list[dict[str, str | bytes | None]] = [
            {"file": file.to_json(), "again": None} for file in new.finish()
        ]
        if any(len(each) for each in again):
            results.append({"file": None, "again": _encoded(pa.Table.from_batches(again, self.schema))})
        yield pa.RecordBatch.from_pylist(results, RESULT)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
