"""Follows a table: `bronze.table`, a Spark data source whose rows are the files that were added.

`rows_of` reads rows from the files, in the tasks and only the requested columns. A new checkpoint begins with
the files that the table has, oldest first, and continues with each commit in the table's log. A commit is
never split between micro-batches, so what bronze stored together stays together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from bronze_cli.options import option
from bronze_cli.values import Text
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.silver.logs import NEW_CHECKPOINT, Added, DeltaLog, log_of
from bronze_pipeline.sources.base import ROWS_IN_BATCH, most
from bronze_pipeline.sources.options import OptionError, StreamOptions, read_options
from bronze_pipeline.tables.files import NULL_PARTITION, Folder
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import TableError, in_one_line

NAME = "bronze.table"
FILES = pa.schema([("path", pa.string()), ("partition", pa.string())])
"""A file, relative to the table's folder, and its partition values as JSON."""


@dataclass(frozen=True)
class TableOptions(StreamOptions):
    """What the source takes."""

    table: str = option(Text(), "URL of the table.", required=True)


class TableSource(DataSource):
    """`bronze.table`, with the option `table` (a URL) and optionally `maxRecordsPerBatch`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(FILES)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's name
        options = read_options(TableOptions, NAME, self.options)
        return TableStreamReader(options.table, options.max_records_per_batch)


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table from a checkpoint onwards.

    An offset says how many files of the `snapshot`, the version at which the checkpoint began, have been
    read (`files`), and which version comes `next`.
    """

    def __init__(self, url: str, max_records: int) -> None:
        self._log = log_of(url)
        self._max_records = max_records
        self._target: int | None = None
        self._snapshot: list[Added] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        version = self._log.version()
        return {"table": self._log.table_id(), "snapshot": version, "files": 0, "next": version + 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._log.version()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._check(start)
        room = most(limit)
        end = dict(start)
        rows = 0
        for file in self._files(start)[start["files"] :]:
            if rows and room is not None and rows + file.rows > room:
                return end
            rows += file.rows
            end["files"] += 1
        latest = self._log.version() if self._target is None else self._target
        while end["next"] <= latest:
            added = sum(file.rows for file in self._log.added(end["next"]))
            if rows and room is not None and rows + added > room:
                return end
            rows += added
            end["next"] += 1
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        files = self._files(start)[start["files"] : end["files"]]
        for version in range(start["next"], end["next"]):
            files += self._log.added(version)
        return files

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Added)  # noqa: S101 - from `partitions`
        yield pa.RecordBatch.from_pylist([{"path": partition.path, "partition": partition.partition}], FILES)

    def _files(self, offset: dict[str, Any]) -> list[Added]:
        if self._snapshot is None:
            self._snapshot = self._log.snapshot(offset["snapshot"])
        return self._snapshot

    def _check(self, offset: dict[str, Any]) -> None:
        if offset["table"] != self._log.table_id():
            raise OptionError(
                f"the table at {self._log.url} was recreated after the checkpoint was made. {NEW_CHECKPOINT}"
            )


def table_frame(spark: SparkSession, url: str, columns: Sequence[str]) -> DataFrame:
    """Return what a Delta table has now, as an ordinary frame."""
    log = DeltaLog(url)
    schema = pa.schema(deltalake.DeltaTable(url, storage_options=storage_options(url)).schema().to_arrow())
    files = [(file.path, file.partition) for file in log.snapshot(log.version())]
    listed = spark.createDataFrame(files, from_arrow_schema(FILES)).repartition(max(1, len(files)))
    return rows_of(listed, url, schema, columns)


def rows_of(
    files: DataFrame, url: str, schema: pa.Schema, columns: Sequence[str], where: ds.Expression | None = None
) -> DataFrame:
    """Return rows of the files, with some columns of the table's schema."""
    wanted = pa.schema([schema.field(name) for name in columns])
    return files.mapInArrow(ReadFiles(url, wanted, where), from_arrow_schema(wanted))


@dataclass(frozen=True)
class ReadFiles:
    """What a worker does to read rows of files; it is sent there."""

    url: str
    schema: pa.Schema
    where: ds.Expression | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                yield from self._read(file["path"], json.loads(file["partition"]))

    def _read(self, path: str, partition: dict[str, str | None]) -> Iterator[pa.RecordBatch]:
        system, root = Folder(self.url, ()).open()
        target = f"{root}/{path}"
        stored = pa.schema([field for field in self.schema if field.name not in partition])
        known = {
            name: _partition_value(value, self.schema.field(name).type)
            for name, value in partition.items()
            if name in self.schema.names
        }
        try:
            file = ds.dataset(target, filesystem=system, format="parquet")
            for rows in file.to_batches(columns=stored.names, filter=self.where, batch_size=ROWS_IN_BATCH):
                if len(rows):
                    # Casting a batch without columns would lose its rows.
                    yield self._complete(rows.cast(stored) if stored.names else rows, known)
        except FileNotFoundError as error:
            raise OptionError(
                f"the file {path} of the table at {self.url} is gone. {NEW_CHECKPOINT}"
            ) from error
        except pa.ArrowInvalid as error:
            raise TableError(
                f"the file {path} of the table at {self.url} is damaged: {in_one_line(error)}"
            ) from error
        except OSError as error:
            # Damaged inside, or a store that does not answer now.
            raise OSError(
                f"cannot read the file {path} of the table at {self.url}: {in_one_line(error)}"
            ) from error

    def _complete(self, rows: pa.RecordBatch, known: dict[str, pa.Scalar]) -> pa.RecordBatch:
        columns = [
            pa.repeat(known[name], len(rows)) if name in known else rows[name] for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind) if text in (None, NULL_PARTITION) else pc.cast(pa.scalar(text), kind)
