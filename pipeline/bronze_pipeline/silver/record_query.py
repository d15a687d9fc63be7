"""The query from bronze to the tables of typed records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.running.few_tasks import FewTasks
from bronze_pipeline.silver.queries import Outcome
from bronze_pipeline.silver.records import PARTITION_COLUMNS, RECORDS
from bronze_pipeline.silver.storing import (
    QUARANTINE,
    QUARANTINE_NAME,
    QUARANTINE_PARTITION_COLUMNS,
    RESULT_SCHEMA,
    TypedTable,
    TypeEvents,
    distinct,
    distinct_faults,
)
from bronze_pipeline.tables.files import Written, delete_file
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import Table, commit_new


@dataclass
class RecordQuery:
    """Types and stores the events of bronze."""

    source: str
    lake: Lake
    name: str = "records"
    output_mode: str = "append"
    _tables: dict[str, Table] = field(default_factory=dict)
    _targets: list[TypedTable] = field(default_factory=list)
    _tasks: FewTasks = field(default_factory=FewTasks)

    def open(self, spark: SparkSession) -> None:  # noqa: ARG002 - as of every query
        schemas = {record: record.schema(EVENTS) for record in RECORDS}
        self._tables = {
            record.table: self.lake.open(record.table, schema, PARTITION_COLUMNS)
            for record, schema in schemas.items()
        }
        self._targets = [
            TypedTable(record, self._tables[record.table].staging, schema)
            for record, schema in schemas.items()
        ]
        self._quarantine = self.lake.open(QUARANTINE_NAME, QUARANTINE, QUARANTINE_PARTITION_COLUMNS)

    def read(self, files: DataFrame) -> DataFrame:
        return files

    def write(self, rows: DataFrame, job: str, batch: int) -> Outcome | None:
        stored = {name for name, table in self._tables.items() if table.has(job, batch)}
        has_faults = self._quarantine.has(job, batch)
        written = self._typed(rows)
        faults = written.pop(QUARANTINE_NAME, [])
        # After a crash some tables may have the batch, and which it concerned shows only now.
        for name in stored & written.keys():
            _delete(self._tables[name], written.pop(name))
        if has_faults:
            _delete(self._quarantine, faults)
        elif faults:
            commit_new(self._quarantine, faults, job, batch, partial(distinct_faults, self._quarantine))
        if stored and not written:
            return None
        found = {
            name: _rows(
                commit_new(self._tables[name], files, job, batch, partial(distinct, self._tables[name])) or ()
            )
            for name, files in written.items()
        }
        duplicates = sum(map(_rows, written.values())) - sum(found.values())
        return Outcome(found, duplicates, _rows(faults))

    def _typed(self, files: DataFrame) -> dict[str, list[Written]]:
        """Type the events of some files; return what the tasks wrote for each table."""
        task = TypeEvents(self.source, EVENTS, self._targets, self._quarantine.staging)
        tasks = self._tasks.of(files, files.sparkSession.sparkContext.defaultParallelism)
        found: dict[str, list[Written]] = {}
        for row in tasks.mapInArrow(task, RESULT_SCHEMA).collect():
            found.setdefault(row["name"], []).append(Written.from_json(row["file"]))
        self._tasks.note(sum(map(_rows, found.values())))
        return found


def _delete(table: Table, files: Iterable[Written]) -> None:
    for file in files:
        delete_file(table.staging, file.path)


def _rows(files: Iterable[Written]) -> int:
    return sum(file.rows for file in files)
