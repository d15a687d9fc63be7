"""Follows a table: `bronze.table`, a Spark data source whose rows are the files that were added.

`rows_of` reads rows from the files, in the tasks and only the requested columns. A new checkpoint begins with
the files that the table has, oldest first, and continues with each commit in the table's log. A commit is
never split between micro-batches, so what bronze stored together stays together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from bronze_pipeline.silver.logs import Added, DeltaTableLog, FellBehind, log_of, shown
from bronze_pipeline.sources.base import ROWS_IN_BATCH, most
from bronze_pipeline.sources.options import OptionError, StreamOptions, read_options
from bronze_pipeline.tables.files import NULL_PARTITION, Folder
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import TableError, in_one_line

NAME = "bronze.table"
NEW_CHECKPOINT = "Use a new checkpoint; rows already in the silver tables are not stored twice."
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

    An offset says which version comes `next`; everything before it has been read, up to the time `until`.
    Only while the files that were there at the beginning are being read does it name their version,
    `snapshot`, and how many of them have been read, `files`: the log keeps no version forever.
    """

    def __init__(self, url: str, max_records: int) -> None:
        self._log = log_of(url)
        self._max_records = max_records
        self._target: int | None = None
        self._snapshot: tuple[int, list[Added]] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        # Always the same: Spark asks again when it repeats the first batch, and the table has grown.
        return {"table": self._log.table_id(), "next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._log.version()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self._check(start)
        latest = self._log.version() if self._target is None else self._target
        room = Room(most(limit))
        with self._naming_what_was_read(start):
            end = dict(start)
            if is_beginning(start):
                if latest < 0 or not self._files(latest):
                    return start
                end = {"table": start["table"], "snapshot": latest, "files": 0, "next": latest + 1}
            if is_in_snapshot(end):
                for file in self._rest(end):
                    if not room.takes(file.rows):
                        return end
                    end["files"] += 1
            end = {name: end[name] for name in ("table", "next", "until") if name in end}
            while end["next"] <= latest and room.takes(_rows(self._log.added(end["next"]))):
                end["next"] += 1
        if end == start:
            return start
        if until := self._log.time(end["next"] - 1):
            end["until"] = shown(until)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        with self._naming_what_was_read(start):
            if is_beginning(start):
                if "snapshot" not in end:
                    return [] if is_beginning(end) else self._files(end["next"] - 1)
                start = {**end, "files": 0, "next": end["snapshot"] + 1}
            files: list[Added] = []
            if is_in_snapshot(start):
                rest = self._rest(start)
                files = rest[: end["files"] - start["files"]] if is_in_snapshot(end) else rest
            for version in range(start["next"], end["next"]):
                files = files + self._log.added(version)
            return files

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Added)  # noqa: S101 - from `partitions`
        yield pa.RecordBatch.from_pylist([{"path": partition.path, "partition": partition.partition}], FILES)

    def look(self, start: dict[str, Any], end: dict[str, Any] | None = None) -> dict[str, Any]:
        """See that what a batch reads is still there; return where it ends. Raise FellBehind otherwise."""
        end = end or self.latestOffset(start, self.getDefaultReadLimit())
        files = [file.path for file in self.partitions(start, end) if isinstance(file, Added)]
        system, root = Folder(self._log.url, ()).open()
        for file, found in zip(
            files, system.get_file_info([f"{root}/{file}" for file in files]), strict=True
        ):
            if not found.is_file:
                raise FellBehind(_gone(file, self._log.url))
        return end

    def _rest(self, offset: dict[str, Any]) -> list[Added]:
        """Return the files of the snapshot that have not been read."""
        version, read = offset["snapshot"], offset["files"]
        try:
            return self._files(version)[read:]
        except FellBehind:
            # Offsets of the version before this one named a snapshot also when it had been read.
            if self._log.count(version) == read:
                return []
            raise

    def _files(self, version: int) -> list[Added]:
        if self._snapshot is None or self._snapshot[0] != version:
            self._snapshot = version, self._log.snapshot(version)
        return self._snapshot[1]

    @contextmanager
    def _naming_what_was_read(self, start: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except FellBehind as error:
            if "until" not in start:
                raise
            raise FellBehind(f"{error}; what was read before is of {start['until']}") from error

    def _check(self, offset: dict[str, Any]) -> None:
        if offset["table"] != self._log.table_id():
            raise OptionError(
                f"the table at {self._log.url} was recreated after the checkpoint was made. {NEW_CHECKPOINT}"
            )


def is_beginning(offset: dict[str, Any]) -> bool:
    """Return whether nothing has been read."""
    return bool(offset["next"] == 0)


def is_in_snapshot(offset: dict[str, Any]) -> bool:
    """Return whether the files that were there at the beginning are still being read, as far as it says."""
    return "snapshot" in offset and bool(offset["next"] == offset["snapshot"] + 1)


def _rows(files: Iterable[Added]) -> int:
    return sum(file.rows for file in files)


class Room:
    """The rows that a micro-batch may still get."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._rows = 0

    def takes(self, rows: int) -> bool:
        """Take rows if there is room for all of them; the first are always taken."""
        if self._rows and self._most is not None and self._rows + rows > self._most:
            return False
        self._rows += rows
        return True


def table_frame(spark: SparkSession, url: str, columns: Sequence[str]) -> DataFrame:
    """Return what a Delta table has now, as an ordinary frame."""
    log = DeltaTableLog(url)
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
        for file in listed(batches):
            yield from TableFile(self.url, self.schema, file).rows(self.schema.names, self.where)


def listed(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, str]]:
    """Yield rows of `FILES`."""
    for batch in batches:
        yield from batch.to_pylist()


class TableFile:
    """A file of a table; opened once, however often it is read."""

    def __init__(self, url: str, schema: pa.Schema, listed: Mapping[str, str]) -> None:
        self._url, self._path, self._schema = url, listed["path"], schema
        partition: dict[str, str | None] = json.loads(listed["partition"])
        self._known = {
            name: _partition_value(value, schema.field(name).type)
            for name, value in partition.items()
            if name in schema.names
        }
        stored = pa.schema([field for field in schema if field.name not in partition])
        system, root = Folder(url, ()).open()
        with self._in_words():
            # The file may lack fields that were added to the table later, or have some that are newer.
            self._file = ds.dataset(
                f"{root}/{self._path}", filesystem=system, format="parquet", schema=stored
            )

    def rows(self, names: Sequence[str], where: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that `where` selects, with some columns."""
        schema = pa.schema([self._schema.field(name) for name in names])
        stored = [name for name in names if name not in self._known]
        with self._in_words():
            for rows in self._file.to_batches(columns=stored, filter=where, batch_size=ROWS_IN_BATCH):
                if not len(rows):
                    continue
                columns = [
                    pa.repeat(self._known[name], len(rows)) if name in self._known else rows[name]
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FellBehind(_gone(self._path, self._url)) from error
        except pa.ArrowInvalid as error:
            raise TableError(
                f"the file {self._path} of the table at {self._url} is damaged: {in_one_line(error)}"
            ) from error
        except OSError as error:
            # Damaged inside, or a store that does not answer now.
            raise OSError(
                f"cannot read the file {self._path} of the table at {self._url}: {in_one_line(error)}"
            ) from error


def _gone(path: str, url: str) -> str:
    return f"the file {path} of the table at {url} is gone"


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind) if text in (None, NULL_PARTITION) else pc.cast(pa.scalar(text), kind)
