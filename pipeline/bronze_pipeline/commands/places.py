"""Places of tables on the command line: what can be checked before Spark starts."""

from __future__ import annotations

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.parquet as pq
from bronze_cli.problems import Fault
from bronze_cli.values import Scalar

from bronze_pipeline.decoding.schema import IDENTITY
from bronze_pipeline.tables.commit_log import CommitLog
from bronze_pipeline.tables.files import Folder
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import format_of, in_one_line


class Place(Scalar):
    """A folder or URL with tables."""

    metavar = "PLACE"

    def read(self, text: str) -> str | list[Fault]:
        return text or [Fault("is empty.")]


class WritablePlace(Place):
    """A folder or URL that tables can be written to."""

    def read(self, text: str) -> str | list[Fault]:
        problem = Lake(text).problem() if text else "is empty."
        return [Fault(problem)] if problem else text


class BronzeTable(Place):
    """A table that `bronze` wrote."""

    def read(self, text: str) -> str | list[Fault]:
        problem = _problem_with_bronze(text) if text else "is empty."
        return [Fault(problem)] if problem else text


def _problem_with_bronze(place: str) -> str | None:
    """Return why a place cannot be read as a bronze table."""
    url = Lake(place).url
    try:
        found = format_of(url)
        there = None if found is None else _columns(url, found)
    except (OSError, ValueError, deltalake.exceptions.DeltaError) as error:
        return f"the table at {place} cannot be read: {in_one_line(error)}"
    if there is None:
        return f"there is no table at {place}."
    # Others may have been added to the schema after the table was made.
    missing = [name for name in IDENTITY if name not in there]
    return f"the table at {place} is not a bronze table: it has no {missing[0]}." if missing else None


def _columns(url: str, kind: str) -> set[str]:
    if kind == "delta":
        return {field.name for field in deltalake.DeltaTable(url).schema().fields}
    system, root = Folder(url, ()).open()
    notes = CommitLog(url)
    for number in notes.numbers():
        for file in notes.commit(number).files:
            schema: pa.Schema = pq.read_schema(f"{root}/{file.path}", filesystem=system)
            return {*schema.names, *file.partition}
    return set(IDENTITY)
