"""Tables as sets of Parquet files that grow by one commit per micro-batch.

`DeltaTable` commits through delta-rs: all files of a micro-batch appear at once, together with the number
of the batch, so a batch that Spark repeats after a crash is recognized. `ParquetTable` is a folder for
readers without Delta support. It moves finished files into place and then notes the batch; a reader that
looks in between, or after a crash and before the restart, sees part of a batch. After the restart its
content is exact too.

`has` is a look at a table. What `index` then says is of that version, and `commit` makes the next one or
nothing: if anything else has changed the table since, another job, a compaction or new columns, one must look
again (`commit_new`). A job is identified by its checkpoint (`job`): a new checkpoint is a new job, whose
batches count from 0 again.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Protocol
from urllib.parse import unquote

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from bronze_pipeline.tables.commit_log import LOG, Commit, CommitLog
from bronze_pipeline.tables.evolution import EVOLUTION_ATTEMPTS, Comparison, compare
from bronze_pipeline.tables.files import INDEXED_COLUMNS, NULL_PARTITION, Folder, Written, delete_file
from bronze_pipeline.tables.partition_index import UNKNOWN, ValueSpan, stated_span
from bronze_pipeline.tables.storage import storage_options

INDEX = pa.schema(
    [
        ("path", pa.string()),
        ("lowest_stream", pa.string()),
        ("highest_stream", pa.string()),
        ("lowest_position", pa.int64()),
        ("highest_position", pa.int64()),
        # Rows whose event id has no stream.
        ("without_stream", pa.int64()),
        ("rows", pa.int64()),
    ]
)
"""What the check for duplicates knows about a file before opening it; NULL if unknown."""

# delta-rs lets Arrow compare a filter with the statistics of columns that it considers indexed: without this
# property, the first 32. A filter on one of those without statistics would find no rows.
INDEXED = "delta.dataSkippingStatsColumns"

STAGING = "_staging"
# Each that fails means that another commit was made.
ATTEMPTS = 100


class TableError(Exception):
    """A table cannot be used; the text says why."""


class OtherColumnsError(TableError):
    """A table has columns of other types than the program."""


class TableChanged(Exception):  # noqa: N818 - it is no fault, and whoever looks again can go on
    """Something else has changed a table since the last look at it, so nothing was committed."""

    def __init__(self, url: str) -> None:
        super().__init__(f"the table at {url} keeps changing while its next commit is prepared")


def format_of(url: str) -> str | None:
    """Return the format of the table at a place; None if there is no table."""
    system, root = Folder(url, ()).open()
    log, notes = system.get_file_info([f"{root}/_delta_log", f"{root}/{LOG}"])
    if log.type != pyarrow.fs.FileType.NotFound:
        return "delta"
    return None if notes.type == pyarrow.fs.FileType.NotFound else "parquet"


def _require_format(url: str, wanted: str) -> None:
    try:
        found = format_of(url)
    except (OSError, ValueError) as error:
        raise TableError(f"cannot open the table at {url}: {in_one_line(error)}") from error
    if found not in (None, wanted):
        raise TableError(
            f"the table at {url} has the format {found}: use --format {found}, or another place."
        )


def _require_partitions(url: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    if list(found) != list(wanted):
        there, these = (", ".join(each) or "nothing" for each in (found, wanted))
        raise TableError(f"the table at {url} is partitioned by {there}, but must be by {these}.")


def _require_types(url: str, found: Comparison) -> None:
    if found.refused:
        raise OtherColumnsError(f"the table at {url} has other columns: {'; '.join(found.refused)}.")


def in_one_line(error: Exception) -> str:
    """Return an error's text on one line, without delta-rs's colours."""
    return " ".join(re.sub(r"\x1b\[\d+m", "", str(error)).split())


class Table(Protocol):
    """A table that exists, with the columns of its schema."""

    folder: Folder
    """Where readers look."""
    staging: Folder
    """Where tasks write."""
    schema: pa.Schema

    def has(self, job: str, batch: int) -> bool:
        """Look at the table: return whether a job's batch is there. Call this before writing its files."""

    def index(self) -> pa.Table:
        """Return the files that readers saw at the last look, as rows of `INDEX`."""

    def near(self, folders: Iterable[str], spans: Mapping[str, ValueSpan]) -> list[str]:
        """Return at least the files in some folders that have rows with values within these spans."""

    def commit(self, files: Sequence[Written], job: str, batch: int) -> None:
        """Add the files of a batch; all of them, or none.

        Raise TableChanged, and add nothing, if the table is no longer as it was at the last look or commit.
        """


def commit_new(
    table: Table,
    files: Sequence[Written],
    job: str,
    batch: int,
    new: Callable[[Sequence[Written]], Sequence[Written]],
    *,
    is_numbered: bool = True,
) -> Sequence[Written] | None:
    """Commit of a batch's files what is new, as `new` finds by the last look; return it.

    Look again when the table has changed in between. Return None if the table then has the batch, by its
    number; where a number may come with other rows, `is_numbered` is False and only the rows count.
    """
    for _ in range(ATTEMPTS):
        files = new(files)
        if not files and not is_numbered:
            return files
        try:
            table.commit(files, job, batch)
        except TableChanged:
            if table.has(job, batch) and is_numbered:
                for file in files:
                    delete_file(table.staging, file.path)
                return None
        else:
            return files
    raise TableChanged(table.folder.url)


class DeltaTable:
    """A Delta Lake table."""

    def __init__(self, url: str, schema: pa.Schema, partition_columns: tuple[str, ...], name: str) -> None:
        self._describe(url, schema, partition_columns)
        _require_format(url, "delta")
        try:
            self._table = deltalake.DeltaTable.create(
                url,
                schema=schema,
                mode="ignore",
                partition_by=list(partition_columns),
                name=name,
                configuration={INDEXED: ",".join(_indexed(schema, partition_columns))},
                storage_options=storage_options(url),
            )
            self._add_missing_fields(url)
        except (OSError, deltalake.exceptions.DeltaError) as error:
            raise TableError(f"cannot open the Delta table at {url}: {in_one_line(error)}") from error
        _require_partitions(url, self._table.metadata().partition_columns, partition_columns)

    def _describe(self, url: str, schema: pa.Schema, partition_columns: tuple[str, ...]) -> None:
        self.folder = self.staging = Folder(url, partition_columns)
        self.schema = schema

    def _add_missing_fields(self, url: str) -> None:
        """Add the fields that the table lacks, in a commit of its own."""
        wanted = deltalake.Schema.from_arrow(self.schema)
        for attempt in range(EVOLUTION_ATTEMPTS):
            found = compare(self._table.schema(), wanted)
            _require_types(url, found)
            if not found.added:
                return
            try:
                self._table.alter.add_columns(found.schema.fields)
            except deltalake.exceptions.CommitFailedError:
                # Another process changed the table, and perhaps added the same.
                if attempt == EVOLUTION_ATTEMPTS - 1:
                    raise
                self._table = deltalake.DeltaTable(url, storage_options=storage_options(url))

    def columns(self) -> pa.Schema:
        """Return all columns of the table, also those that are newer than this program."""
        return pa.schema(self._table.schema().to_arrow())

    def has(self, job: str, batch: int) -> bool:
        self._table.update_incremental()
        version = self._table.transaction_version(job)
        return version is not None and version >= batch

    def files(self) -> pa.Table:
        """Return the files that readers saw at the last look, with what the log says about each."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        # The log writes paths URL-encoded.
        paths = pa.array([unquote(path) for path in actions["path"].to_pylist()], pa.string())
        return actions.set_column(actions.schema.get_field_index("path"), "path", paths)

    def index(self) -> pa.Table:
        actions = self.files()
        columns = {
            "path": "path",
            "lowest_stream": "min.stream_id",
            "highest_stream": "max.stream_id",
            "lowest_position": "min.position",
            "highest_position": "max.position",
            "without_stream": "null_count.stream_id",
            "rows": "num_records",
        }
        there = set(actions.schema.names)
        arrays = [
            actions[columns[field.name]].cast(field.type)
            if columns[field.name] in there
            else pa.nulls(len(actions), field.type)
            for field in INDEX
        ]
        return pa.table(arrays, schema=INDEX)

    def near(self, folders: Iterable[str], spans: Mapping[str, ValueSpan]) -> list[str]:
        files = self.files()
        may = pc.is_in(
            pc.replace_substring_regex(files["path"], r"/[^/]*$", ""),
            value_set=pa.array(list(folders), pa.string()),
        )
        for name, span in spans.items():
            if span == UNKNOWN or f"min.{name}" not in files.schema.names:
                continue
            lowest, highest = files[f"min.{name}"], files[f"max.{name}"]
            overlaps = pc.and_(
                pc.less_equal(lowest, pa.scalar(span.highest, lowest.type)),
                pc.greater_equal(highest, pa.scalar(span.lowest, highest.type)),
            )
            has_nulls = pc.not_equal(files[f"null_count.{name}"], 0)
            may = pc.and_(may, pc.or_kleene(overlaps, has_nulls).fill_null(True))
        paths: list[str] = files["path"].filter(may).to_pylist()
        return paths

    def commit(self, files: Sequence[Written], job: str, batch: int, *, removed: Sequence[str] = ()) -> None:
        """Add the files of a batch and remove others; all at once, as `Table.commit` says."""
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(path, data_change=True, deletion_timestamp=now) for path in removed
        ]
        actions += [
            AddAction(each.path, each.size, partition_values(each), now, data_change=True, stats=stats(each))
            for each in files
        ]
        # Without retries delta-rs makes the version after the one that was read, or none. With them it puts
        # additions behind any other commit, and does not notice that a file to be removed is gone.
        properties = deltalake.CommitProperties(
            max_commit_retries=0, app_transactions=[deltalake.Transaction(job, batch)]
        )
        read = self._table.version()
        try:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=list(self.folder.partition_columns),
                commit_properties=properties,
            )
        except deltalake.exceptions.CommitFailedError as error:
            self._table.update_incremental()
            if self._table.version() == read:
                raise
            raise TableChanged(self.folder.url) from error


class ParquetTable:
    """A folder of Parquet files, with the commits noted next to them."""

    def __init__(self, url: str, schema: pa.Schema, partition_columns: tuple[str, ...]) -> None:
        self.folder = Folder(url, partition_columns)
        self.staging = Folder(f"{url}/{STAGING}", partition_columns)
        self.schema = schema
        self._is_clean = False
        _require_format(url, "parquet")
        self._system, self._root = self.folder.open()
        self._notes = CommitLog(url)
        try:
            self._notes.create()
            self._system.create_dir(f"{self._root}/{STAGING}", recursive=True)
            self._commits = self._notes.commits()
            self._add_missing_fields(url)
        except (OSError, ValueError, deltalake.exceptions.DeltaError) as error:
            raise TableError(f"cannot open the Parquet table at {url}: {in_one_line(error)}") from error
        for file in self._files():
            _require_partitions(url, list(file.partition), partition_columns)

    def _add_missing_fields(self, url: str) -> None:
        """Note the fields that the table lacks."""
        wanted = deltalake.Schema.from_arrow(self.schema)
        # The second look sees what another process noted at the same time.
        for _ in range(2):
            notes = [deltalake.Schema.from_json(text) for text in self._notes.schemas()]
            known = reduce(lambda some, more: compare(some, more).schema, notes or [self._stored(wanted)])
            found = compare(known, wanted)
            _require_types(url, found)
            if notes and not found.added:
                return
            self._notes.add_schema(found.schema.to_json())

    def _stored(self, wanted: deltalake.Schema) -> deltalake.Schema:
        """Return the columns of the newest file, for a table that is older than the notes of its columns."""
        file = next((file for commit in reversed(self._commits) for file in commit.files), None)
        if file is None:
            return wanted
        stored = pq.read_schema(f"{self._root}/{file.path}", filesystem=self._system)
        divided = [field for field in wanted.fields if field.name in file.partition]
        return deltalake.Schema([*divided, *deltalake.Schema.from_arrow(stored).fields])

    def has(self, job: str, batch: int) -> bool:
        known = {commit.number for commit in self._commits}
        self._commits += [
            self._notes.commit(number) for number in self._notes.numbers() if number not in known
        ]
        if not self._is_clean:
            self._clean(job)
        return any((each.job, each.batch) == (job, batch) for each in self._commits)

    def _clean(self, job: str) -> None:
        """Remove what a killed attempt left: staged files, and files in place without a note."""
        # Another job may be writing its own files at this moment.
        self.staging = Folder(f"{self.folder.url}/{STAGING}/{job}", self.folder.partition_columns)
        self._system.create_dir(f"{self._root}/{STAGING}/{job}", recursive=True)
        self._system.delete_dir_contents(f"{self._root}/{STAGING}/{job}")
        noted = {f"{self._root}/{file.path}" for file in self._files()}
        for path in _paths(self._system, self._root, ".parquet"):
            if path.rpartition("/")[2].startswith(f"{job}-") and path not in noted:
                self._system.delete_file(path)
        self._is_clean = True

    def index(self) -> pa.Table:
        rows = [
            {
                "path": file.path,
                "lowest_stream": file.lowest.get("stream_id"),
                "highest_stream": file.highest.get("stream_id"),
                "lowest_position": file.lowest.get("position"),
                "highest_position": file.highest.get("position"),
                "without_stream": file.nulls.get("stream_id"),
                "rows": file.rows,
            }
            for file in self._files()
        ]
        return pa.Table.from_pylist(rows, INDEX)

    def near(self, folders: Iterable[str], spans: Mapping[str, ValueSpan]) -> list[str]:
        wanted = set(folders)
        return [
            file.path
            for file in self._files()
            if file.path.rpartition("/")[0] in wanted
            and all(
                stated_span(name, file.lowest, file.highest, file.nulls).overlaps(span)
                for name, span in spans.items()
            )
        ]

    def _files(self) -> Iterator[Written]:
        return (file for commit in self._commits for file in commit.files)

    def commit(self, files: Sequence[Written], job: str, batch: int) -> None:
        number = self._commits[-1].number + 1 if self._commits else 0
        if self._notes.has(number):
            raise TableChanged(self.folder.url)
        _, root = self.staging.open()
        moved = []
        for file in files:
            folder, _, name = file.path.rpartition("/")
            path = f"{folder}/{_prefix(job, batch)}{name}"
            self._system.create_dir(f"{self._root}/{folder}", recursive=True)
            self._system.move(f"{root}/{file.path}", f"{self._root}/{path}")
            moved.append(file.moved(path))
        commit = Commit(number, job, batch, moved)
        try:
            self._notes.add(commit)
        except FileExistsError as error:
            for file, placed in zip(files, moved, strict=True):
                self._system.move(f"{self._root}/{placed.path}", f"{root}/{file.path}")
            raise TableChanged(self.folder.url) from error
        self._commits.append(commit)


def _paths(system: pyarrow.fs.FileSystem, folder: str, ending: str) -> list[str]:
    files = system.get_file_info(pyarrow.fs.FileSelector(folder, recursive=True))
    return [file.path for file in files if file.path.endswith(ending) and f"/{STAGING}/" not in file.path]


def _prefix(job: str, batch: int) -> str:
    return f"{job}-{batch:010}-"


def partition_values(file: Written) -> dict[str, str | None]:
    return {name: None if value == NULL_PARTITION else value for name, value in file.partition.items()}


def stats(file: Written) -> str:
    return json.dumps(
        {
            "numRecords": file.rows,
            "minValues": dict(file.lowest),
            "maxValues": dict(file.highest),
            "nullCount": dict(file.nulls),
        }
    )


def _indexed(schema: pa.Schema, partition_columns: Sequence[str]) -> list[str]:
    return [name for name in INDEXED_COLUMNS if name in schema.names and name not in partition_columns]


def candidates(index: pa.Table, ranges: pa.Table, *, without_stream: bool) -> list[str]:
    """Return the files that may hold events of these ranges (`stream_id`, `lowest`, `highest`)."""
    rows = index.combine_chunks()
    unknown = pc.and_(
        pc.is_null(rows["lowest_stream"]), pc.not_equal(rows["without_stream"], rows["rows"]).fill_null(True)
    )
    found = (
        pc.or_(unknown, pc.greater(rows["without_stream"], 0).fill_null(True)) if without_stream else unknown
    )
    for each in ranges.to_pylist():
        holds = pc.and_(
            pc.and_(
                pc.less_equal(rows["lowest_stream"], each["stream_id"]),
                pc.greater_equal(rows["highest_stream"], each["stream_id"]),
            ),
            pc.and_(
                pc.less_equal(rows["lowest_position"], each["highest"]),
                pc.greater_equal(rows["highest_position"], each["lowest"]),
            ),
        )
        found = pc.or_(found, holds.fill_null(False))
    paths: list[str] = rows["path"].filter(found).to_pylist()
    return paths
