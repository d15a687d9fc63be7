"""A Delta table whose rows are replaced by key, each micro-batch once.

Files that hold one of the keys are rewritten without it. delta-rs's own merge is not used: it stores text as
views, which Arrow cannot compare with other types, so readers could not filter them; and it treats no two
NULLs as equal, so the bars of an exchange without a name would be there many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bronze_pipeline.tables.evolution import with_columns
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import DeltaTable

ROW = "row"


class UpsertTable:
    """A table with one row for each key; the key's first column is the partition's."""

    def __init__(self, lake: Lake, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
        self._table = DeltaTable(lake.table_url(name), schema, (key[0],), name)
        self._key = list(key)

    def has(self, job: str, batch: int) -> bool:
        return self._table.has(job, batch)

    def put(self, rows: pa.Table, job: str, batch: int) -> None:
        """Add the rows, and replace those with the same keys; all at once."""
        candidates = list(self._candidates(rows))
        # Rows that stay keep what a newer program stored in columns that this one does not know.
        schema = self._table.columns()
        rows = with_columns(rows, schema)
        writer = FileWriter(self._table.staging, schema, "part")
        touched: list[str] = []
        for path, partition in candidates:
            kept = self._kept(path, partition, rows)
            if kept is None:
                continue
            touched.append(path)
            for each in kept.to_batches():
                writer.write(each)
        for each in rows.to_batches():
            writer.write(each)
        self._table.commit(writer.finish(), job, batch, removed=touched)

    def _candidates(self, rows: pa.Table) -> Iterator[tuple[str, pa.Scalar]]:
        """Yield the path and partition of each file that may hold one of the keys."""
        partition, *others = self._key
        files = self._table.files()
        known = files[f"partition.{partition}"].cast(rows[partition].type)
        files = files.filter(pc.is_in(known, value_set=pc.unique(rows[partition])))
        for name in others:
            if f"min.{name}" not in files.schema.names or rows[name].null_count:
                continue
            span = pc.min_max(rows[name])
            lowest, highest = (files[f"{end}.{name}"].cast(rows[name].type) for end in ("min", "max"))
            overlaps = pc.and_(
                pc.less_equal(lowest, span["max"]), pc.greater_equal(highest, span["min"])
            ).fill_null(True)
            files = files.filter(overlaps)
        yield from zip(files["path"].to_pylist(), files[f"partition.{partition}"], strict=True)

    def _kept(self, path: str, partition: pa.Scalar, rows: pa.Table) -> pa.Table | None:
        """Return the rows of a file whose keys are not among the new ones; None if that is all rows."""
        old = self._read(path, partition, rows.select(self._key).schema)
        numbers = pa.array(range(len(old)), pa.int64())
        keys = pa.concat_tables(
            [
                rows.select(self._key).append_column(ROW, pa.repeat(pa.scalar(-1), len(rows))),
                old.select(self._key).append_column(ROW, numbers),
            ]
        )
        first = keys.group_by(self._key).aggregate([(ROW, "min")])[f"{ROW}_min"]
        kept = first.filter(pc.greater_equal(first, 0)).sort()
        if len(kept) == len(old):
            return None
        return self._read(path, partition, rows.schema).take(kept)

    def _read(self, path: str, partition: pa.Scalar, schema: pa.Schema) -> pa.Table:
        """Read some columns of a file; those that were added to the table later are NULL."""
        system, root = self._table.folder.open()
        name = self._key[0]
        stored = pa.schema([field for field in schema if field.name != name])
        rows = ds.dataset(f"{root}/{path}", filesystem=system, format="parquet", schema=stored).to_table()
        dates = pa.repeat(partition.cast(schema.field(name).type), len(rows))
        return rows.append_column(name, dates).select(schema.names)
