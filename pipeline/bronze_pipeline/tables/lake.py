"""Where the tables are: one folder, with a table for each name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from bronze_pipeline.decoding.schema import (
    EVENTS,
    PARTITION_COLUMNS,
    QUARANTINE,
    QUARANTINE_PARTITION_COLUMNS,
)
from bronze_pipeline.ledger.ledger import Ledger
from bronze_pipeline.tables.history import history_of
from bronze_pipeline.tables.lean_delta import LeanDeltaTable
from bronze_pipeline.tables.storage import delta_url, is_remote, problem_with
from bronze_pipeline.tables.tables import ParquetTable, Table

FORMATS = ("delta", "parquet")


@dataclass(frozen=True)
class Lake:
    """A folder of tables in one format; a path or a URL such as s3://bucket/prefix."""

    place: str
    format: str = FORMATS[0]

    @property
    def url(self) -> str:
        place = self.place.rstrip("/")
        return delta_url(place) if urlsplit(place).scheme else Path(place).absolute().as_uri()

    def problem(self) -> str | None:
        """Return why nothing can be written to this place, as far as can be told in advance."""
        if is_remote(self.place):
            return problem_with(self.place)
        place = Path(unquote(urlsplit(self.url).path))
        nearest = next(each for each in (place, *place.parents) if os.path.lexists(each))
        if not nearest.is_dir():
            return f"{nearest} is not a folder."
        return None if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written to."

    def table_url(self, name: str) -> str:
        return f"{self.url}/{name}"

    def open(self, name: str, schema: pa.Schema, partition_columns: tuple[str, ...]) -> Table:
        """Open a table, creating it if necessary; raise TableError if it cannot be used."""
        if self.format == "parquet":
            return ParquetTable(self.table_url(name), schema, partition_columns)
        return LeanDeltaTable(self.table_url(name), schema, partition_columns, name)

    def events(self) -> Table:
        return self.open("bronze", EVENTS, PARTITION_COLUMNS)

    def ledger(self, say: Callable[[str], None]) -> Ledger:
        """Open the ledger of the bronze table, which must exist; make or mend it if necessary."""
        url = self.table_url("bronze")
        ledger = Ledger(url, history_of(url, self.format), say)
        ledger.open()
        return ledger

    def quarantine(self) -> Table:
        return self.open("quarantine", QUARANTINE, QUARANTINE_PARTITION_COLUMNS)
