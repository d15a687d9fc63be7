"""Removes events that came earlier: in other files of a micro-batch, or in the table.

Ids are compared exactly. Which of the ids that the sidecar makes are in the table is known by its ledger. For
other ids the table's files are searched: one is opened only if its statistics allow one of these, and only
its id columns are read. Events without an id are kept: nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bronze_pipeline.ledger.entries import (
    ID_COLUMNS,
    IDS,
    LedgerEntry,
    entry_of,
    first_of_each_event,
    is_ours,
)
from bronze_pipeline.ledger.ledger import Ledger
from bronze_pipeline.ledger.runs import of_ids
from bronze_pipeline.tables.files import Written, keep_rows, read_file
from bronze_pipeline.tables.tables import Table, candidates


@dataclass(frozen=True)
class Distinct:
    """The files to commit, how many rows were left out, and what the ledger notes of the others."""

    files: Sequence[Written]
    duplicates: int
    entry: LedgerEntry


def distinct(table: Table, ledger: Ledger, files: Sequence[Written]) -> Distinct:
    """Leave out of new files what is in the table, or in an earlier new file."""
    parts = [read_file(table.staging, file.path, ID_COLUMNS) for file in files]
    ids = pa.concat_tables([IDS.empty_table(), *parts]).combine_chunks()
    keep = first_of_each_event(ids)
    fresh = pc.invert(_known(table, ledger, ids))
    if pc.all(fresh).as_py() and keep is None:
        return Distinct(files, 0, entry_of([ids]))
    keep = fresh if keep is None else pc.and_(keep, fresh)
    kept = keep_rows(table.staging, files, keep)
    return Distinct(kept, len(ids) - sum(file.rows for file in kept), entry_of([ids.filter(keep)]))


def _known(table: Table, ledger: Ledger, ids: pa.Table) -> pa.Array:
    """Tell which rows have an id that the table already has."""
    ours = is_ours(ids)
    asked = ids.filter(ours)
    found = np.zeros(len(ids), np.bool_)
    found[ours.to_numpy(zero_copy_only=False)] = ledger.known(
        of_ids(asked["stream_id"], asked["position"], asked["level"])
    )
    odd = ids.filter(pc.and_(pc.invert(ours), pc.is_valid(ids["event_id"])))
    if not len(odd):
        return pa.array(found)
    there = _odd_there(table, odd)
    return pc.or_(
        pa.array(found), pc.is_in(ids["event_id"], value_set=there, skip_nulls=True).combine_chunks()
    )


def _odd_there(table: Table, ids: pa.Table) -> pa.Array:
    """Return the ids that the table already has."""
    ranges = (
        ids.filter(pc.is_valid(ids["stream_id"]))
        .group_by("stream_id")
        .aggregate([("position", "min"), ("position", "max")])
    )
    ranges = ranges.rename_columns({"position_min": "lowest", "position_max": "highest"})
    paths = candidates(table.index(), ranges, without_stream=ids["stream_id"].null_count > 0)
    return values_there(table, paths, ids["event_id"], "event_id", None)


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
