"""Removes events that came earlier: in other files of a micro-batch, or in the table.

Ids are compared exactly. A file of the table is opened only if its statistics allow one of the batch's
streams and positions, and only its id columns are read, so the cost depends on the batch and what overlaps
it, not on the size of the table. Events without an id are kept: nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bronze_pipeline.tables.batch_duplicates import first_of_each
from bronze_pipeline.tables.files import Written, keep_rows, read_file
from bronze_pipeline.tables.tables import Table, candidates

ID_COLUMNS = ["event_id", "stream_id", "position"]


@dataclass(frozen=True)
class Distinct:
    """The files to commit, and how many rows were left out."""

    files: Sequence[Written]
    duplicates: int


def distinct(table: Table, files: Sequence[Written]) -> Distinct:
    """Leave out of new files what is in the table, or in an earlier new file."""
    if not files:
        return Distinct([], 0)
    parts = [read_file(table.staging, file.path, ID_COLUMNS) for file in files]
    ids = pa.concat_tables(parts).combine_chunks()
    keep = first_of_each(ids["event_id"])
    known = _known(table, ids)
    if len(known):
        fresh = pc.or_(pc.is_null(ids["event_id"]), pc.invert(pc.is_in(ids["event_id"], value_set=known)))
        keep = fresh if keep is None else pc.and_(keep, fresh)
    if keep is None:
        return Distinct(files, 0)
    kept = keep_rows(table.staging, files, keep)
    return Distinct(kept, sum(file.rows for file in files) - sum(file.rows for file in kept))


def _known(table: Table, ids: pa.Table) -> pa.Array:
    """Return the ids that the table already has."""
    ranges = (
        ids.filter(pc.is_valid(ids["stream_id"]))
        .group_by("stream_id")
        .aggregate([("position", "min"), ("position", "max")])
    )
    ranges = ranges.rename_columns({"position_min": "lowest", "position_max": "highest"})
    odd = ids.filter(pc.and_(pc.is_null(ids["stream_id"]), pc.is_valid(ids["event_id"])))
    paths = candidates(table.index(), ranges, without_stream=len(odd) > 0)
    wanted = None
    if not len(odd) and len(ranges):
        lowest, highest = pc.min(ranges["lowest"]).as_py(), pc.max(ranges["highest"]).as_py()
        wanted = (ds.field("position") >= lowest) & (ds.field("position") <= highest)
    return values_there(table, paths, ids["event_id"], "event_id", wanted)


def values_there(
    table: Table, paths: Sequence[str], values: pa.ChunkedArray, column: str, where: ds.Expression | None
) -> pa.Array:
    """Return the values that a column has in some of the table's files, in the rows that `where` selects."""
    if not paths:
        return pa.array([], pa.string())
    system, root = table.folder.open()
    files = ds.dataset(
        [f"{root}/{path}" for path in paths], filesystem=system, format="parquet", schema=table.schema
    )
    own = values.combine_chunks()
    found = [
        batch[column].filter(pc.is_in(batch[column], value_set=own, skip_nulls=True))
        for batch in files.to_batches(columns=[column], filter=where)
    ]
    return pa.chunked_array(found, pa.string()).combine_chunks()
