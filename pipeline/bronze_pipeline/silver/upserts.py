"""A Delta table whose rows are replaced by key, each micro-batch once.

Files that hold one of the keys are rewritten without it. delta-rs's own merge is not used: it stores text as
views, which Arrow cannot compare with other types, so readers could not filter them; and it treats no two
NULLs as equal, so the bars of an exchange without a name would be there many times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bronze_pipeline.tables.files import NULL_PARTITION, FileWriter, Written, delete_file
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.lean_delta import LeanDeltaTable
from bronze_pipeline.tables.partition_index import span_of
from bronze_pipeline.tables.tables import ATTEMPTS, TableChanged

ROW = "row"
SHARED = "shared"
"""Marks a table that several checkpoints have written to, as if it were a job."""


class UpsertTable:
    """A table with one row for each key; the key's first column is the partition's."""

    def __init__(self, lake: Lake, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
        self._table = LeanDeltaTable(lake.table_url(name), schema, (key[0],), name)
        self._key = list(key)

    def has(self, job: str, batch: int) -> bool:
        return self._table.has(job, batch)

    def is_shared(self, job: str) -> bool:
        """Return whether another checkpoint than this job's has rows here, or had some when it began.

        Look at the table before, and commit by that look: who comes later leaves a mark before its rows.
        """
        for _ in range(ATTEMPTS):
            if self._table.has(SHARED, 0):
                return True
            if self._table.has(job, 0) or not len(self._table.index()):
                return False
            with suppress(TableChanged):
                self._table.commit([], SHARED, 0)
        raise TableChanged(self._table.folder.url)

    def put(self, rows: pa.Table, job: str, batch: int) -> None:
        """Add the rows, and replace those with the same keys; all at once, unless the batch is there."""
        writer = FileWriter(self._table.staging, self._table.schema, "part")
        for each in rows.to_batches():
            writer.write(each)
        self._replace(writer.finish(), rows.select(self._key), job, batch)

    def put_files(self, files: Sequence[Written], job: str, batch: int) -> None:
        """Do the same with rows that are in files already."""
        schema = pa.schema([self._table.schema.field(name) for name in self._key])
        keys = [self._read(file.path, _partition(file, self._key[0]), schema) for file in files]
        self._replace(files, pa.concat_tables(keys), job, batch)

    def _replace(self, files: Sequence[Written], keys: pa.Table, job: str, batch: int) -> None:
        for _ in range(ATTEMPTS):
            if self._table.has(job, batch):
                self._delete(files)
                return
            rest, touched = self._without(keys)
            try:
                self._table.commit([*files, *rest], job, batch, removed=touched)
            except TableChanged:
                # The files that hold the keys may be others now.
                self._delete(rest)
            else:
                return
        raise TableChanged(self._table.folder.url)

    def _without(self, keys: pa.Table) -> tuple[list[Written], list[str]]:
        """Write what stays of the files that hold one of the keys; return that, and the files to remove."""
        # Rows that stay keep what a newer program stored in columns that this one does not know.
        writer = FileWriter(self._table.staging, self._table.columns(), "part")
        touched: list[str] = []
        for path, partition in self._candidates(keys):
            kept = self._kept(path, partition, keys)
            if kept is None:
                continue
            touched.append(path)
            for each in kept.to_batches():
                writer.write(each)
        return writer.finish(), touched

    def _delete(self, files: Iterable[Written]) -> None:
        for file in files:
            delete_file(self._table.staging, file.path)

    def _candidates(self, keys: pa.Table) -> Iterator[tuple[str, pa.Scalar]]:
        """Yield the path and partition of each file that may hold one of the keys."""
        partition, *others = self._key
        # Texts say little: a file has those of many streams or symbols.
        spans = {
            name: span_of(keys[name])
            for name in others
            if pa.types.is_timestamp(keys[name].type) or pa.types.is_integer(keys[name].type)
        }
        values = pc.unique(keys[partition]).cast(pa.string())
        by_folder = {f"{partition}={value.as_py() or NULL_PARTITION}": value for value in values}
        # One question about all days: the log is read once.
        for path in self._table.near(by_folder, spans):
            yield path, by_folder[path.rpartition("/")[0]]

    def _kept(self, path: str, partition: pa.Scalar, new: pa.Table) -> pa.Table | None:
        """Return the rows of a file whose keys are not among the new ones; None if that is all rows."""
        old = self._read(path, partition, new.schema)
        numbers = pa.array(range(len(old)), pa.int64())
        keys = pa.concat_tables(
            [
                new.append_column(ROW, pa.repeat(pa.scalar(-1), len(new))),
                old.select(self._key).append_column(ROW, numbers),
            ]
        )
        first = keys.group_by(self._key).aggregate([(ROW, "min")])[f"{ROW}_min"]
        kept = first.filter(pc.greater_equal(first, 0)).sort()
        if len(kept) == len(old):
            return None
        return self._read(path, partition, self._table.columns()).take(kept)

    def _read(self, path: str, partition: pa.Scalar, schema: pa.Schema) -> pa.Table:
        """Read some columns of a file; those that were added to the table later are NULL."""
        system, root = self._table.folder.open()
        name = self._key[0]
        stored = pa.schema([field for field in schema if field.name != name])
        rows = ds.dataset(f"{root}/{path}", filesystem=system, format="parquet", schema=stored).to_table()
        dates = pa.repeat(partition.cast(schema.field(name).type), len(rows))
        return rows.append_column(name, dates).select(schema.names)


def _partition(file: Written, column: str) -> pa.Scalar:
    value = file.partition[column]
    return pa.scalar(None if value == NULL_PARTITION else value, pa.string())
