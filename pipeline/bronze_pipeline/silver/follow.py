"""Follows a Delta table: `bronze.delta`, a data source of Spark whose rows are the files that were added.

Rows are read from the files by `rows_of`, in the tasks and only the columns that are asked for. A new
checkpoint begins with the files that the table has, the oldest first, and goes on with each commit.
Commits are read from the table's log: files that compaction writes change no data and are passed over, and
removed ones are no concern of an append-only table. A commit is never divided between micro-batches, so
what bronze stored together stays together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.files import NULL_PARTITION, Folder
from bronze_pipeline.sources.base import ROWS_IN_BATCH, OptionError, SourceOptions, most

NAME = "bronze.delta"
FILES = pa.schema([("path", pa.string()), ("partition", pa.string())])
"""A file, relative to the table's folder, and its partition's values as JSON."""

NEW_CHECKPOINT = "Use a new checkpoint; rows that the silver tables have already are not stored twice."


@dataclass(frozen=True)
class Added(InputPartition):
    """A file that was added to the table."""

    path: str
    partition: str
    rows: int


class DeltaSource(DataSource):
    """`bronze.delta`, with the option `table` (a URL) and optionally `maxRecordsPerBatch`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(FILES)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's name
        options = SourceOptions(NAME, self.options)
        return DeltaStreamReader(options.required("table"), options.max_records)


class DeltaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table from a checkpoint on.

    An offset says which files of the `snapshot`, the version with which the checkpoint began, are read
    (`files`), and which version comes `next`.
    """

    def __init__(self, url: str, max_records: int) -> None:
        self._log = Log(url)
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
                f"the table at {self._log.url} was made anew after the checkpoint was. {NEW_CHECKPOINT}"
            )


class Log:
    """The log of a Delta table."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._table: deltalake.DeltaTable | None = None

    def version(self) -> int:
        """Return the newest version."""
        table = self._open()
        table.update_incremental()
        return table.version()

    def table_id(self) -> str:
        return str(self._open().metadata().id)

    def snapshot(self, version: int) -> list[Added]:
        """Return the files that the table had at a version, in the order in which their events happened."""
        try:
            actions = pa.table(deltalake.DeltaTable(self.url, version).get_add_actions())
        except deltalake.exceptions.DeltaError as error:
            raise OptionError(
                f"version {version} of the table at {self.url} is gone. {NEW_CHECKPOINT}"
            ) from error
        return [_described(row) for row in sorted(actions.to_pylist(), key=_order)]

    def added(self, version: int) -> list[Added]:
        """Return the files that a version added."""
        system, root = Folder(self.url, ()).open()
        try:
            with system.open_input_stream(f"{root}/_delta_log/{version:020}.json") as stream:
                actions = [json.loads(line) for line in stream.read().splitlines() if line]
        except FileNotFoundError as error:
            raise OptionError(
                f"version {version} of the table at {self.url} is no longer in its log. {NEW_CHECKPOINT}"
            ) from error
        adds = [each["add"] for each in actions if "add" in each]
        return [
            Added(unquote(add["path"]), json.dumps(add["partitionValues"]), _rows(add))
            for add in adds
            if add["dataChange"]
        ]

    def _open(self) -> deltalake.DeltaTable:
        # Only when it is asked: the reader travels to the workers, and a table does not.
        if self._table is None:
            try:
                self._table = deltalake.DeltaTable(self.url)
            except deltalake.exceptions.TableNotFoundError as error:
                raise OptionError(f"there is no Delta table at {self.url}.") from error
        return self._table

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_table": None}


def table_frame(spark: SparkSession, url: str, columns: Sequence[str]) -> DataFrame:
    """Return what a table has now, as an ordinary frame."""
    log = Log(url)
    schema = pa.schema(deltalake.DeltaTable(url).schema().to_arrow())
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
    """What a worker does to read rows of files; it travels there."""

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
                    # A batch without columns would lose its rows.
                    yield self._complete(rows.cast(stored) if stored.names else rows, known)
        except FileNotFoundError as error:
            raise OptionError(
                f"the file {path} of the table at {self.url} is gone. {NEW_CHECKPOINT}"
            ) from error

    def _complete(self, rows: pa.RecordBatch, known: dict[str, pa.Scalar]) -> pa.RecordBatch:
        columns = [
            pa.repeat(known[name], len(rows)) if name in known else rows[name] for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind) if text in (None, NULL_PARTITION) else pc.cast(pa.scalar(text), kind)


def _rows(add: dict[str, Any]) -> int:
    return int(json.loads(add["stats"] or "{}").get("numRecords", 0)) if "stats" in add else 0


def _described(row: dict[str, Any]) -> Added:
    partition = {
        name: None if value is None else str(value) for name, value in (row["partition"] or {}).items()
    }
    return Added(unquote(row["path"]), json.dumps(partition), row["num_records"] or 0)


def _order(row: dict[str, Any]) -> tuple[str, int, Any, str]:
    # Positions of a stream grow with its dates, so that each stream is in order.
    lowest = (row.get("min") or {}).get("position")
    date = str((row["partition"] or {}).get("date"))
    return date, -1 if lowest is None else lowest, row["modification_time"], row["path"]
