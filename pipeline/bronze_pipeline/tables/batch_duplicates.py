"""Finds rows that repeat within a batch. Workers use it, so it imports nothing heavy."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def first_of_each(ids: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Return which rows have an id for the first time; None if all do."""
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    if pc.count_distinct(ids, mode="only_valid").as_py() == len(ids) - ids.null_count:
        return None
    rows = pa.table({"id": ids, "row": pa.array(range(len(ids)), pa.int64())})
    first = rows.group_by("id").aggregate([("row", "min")])["row_min"]
    return pc.or_(pc.is_null(ids), pc.is_in(rows["row"], value_set=first.combine_chunks()).combine_chunks())
