"""A Delta table whose rows are replaced by key, each micro-batch once."""

from __future__ import annotations

from collections.abc import Sequence

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from bronze_pipeline.lake import Lake


class UpsertTable:
    """A table with one row for each key; the key's first column is the partition's, a date."""

    def __init__(self, lake: Lake, name: str, schema: pa.Schema, key: Sequence[str]) -> None:
        lake.open(name, schema, (key[0],))
        self._table = deltalake.DeltaTable(lake.table_url(name))
        self._key = key

    def has(self, job: str, batch: int) -> bool:
        self._table.update_incremental()
        version = self._table.transaction_version(job)
        return version is not None and version >= batch

    def put(self, rows: pa.Table, job: str, batch: int) -> None:
        """Add the rows, and replace those whose keys are there; all at once."""
        date = self._key[0]
        # The dates stand in the condition so that only their files are read.
        dates = ", ".join(f"'{each}'" for each in pc.unique(rows[date]).to_pylist())
        same = " AND ".join(f"there.{name} = new.{name}" for name in self._key)
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(job, batch)])
        (
            self._table.merge(
                rows,
                f"there.{date} IN ({dates}) AND {same}",
                source_alias="new",
                target_alias="there",
                commit_properties=properties,
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
