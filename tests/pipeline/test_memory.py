"""What a task takes of its worker's memory: rows wait there for their files, however large they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from bronze_pipeline.decoding.schema import EVENTS, PARTITION_COLUMNS
from bronze_pipeline.tables import files as table_files
from bronze_pipeline.tables.compaction import compact
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import Lake
from silver_frames import Bronze, event

MIB = 1 << 20
EXCHANGES, BATCHES, ROWS = 8, 8, 64
TEXT = "x" * (64 << 10)
IN_ALL = EXCHANGES * BATCHES * ROWS * len(TEXT)
# Few threads, for each keeps some memory for itself.
WORK = """
import sys
import pyarrow as pa
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.silver.follow import FILES
from bronze_pipeline.silver.logs import log_of
from bronze_pipeline.silver.records import PARTITION_COLUMNS, RECORDS
from bronze_pipeline.silver.storing import QUARANTINE, QUARANTINE_NAME, QUARANTINE_PARTITION_COLUMNS
from bronze_pipeline.silver.storing import TypedTable, TypeEvents
from bronze_pipeline.tables import files
from bronze_pipeline.tables.files import Written
from bronze_pipeline.tables.lake import Lake

files.BYTES_WAITING = int(sys.argv[3])
pa.set_cpu_count(1)
pa.set_io_thread_count(1)

def most_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

lake = Lake(sys.argv[2])
schemas = {record: record.schema(EVENTS) for record in RECORDS}
targets = [
    TypedTable(record, lake.open(record.table, schema, PARTITION_COLUMNS).staging, schema)
    for record, schema in schemas.items()
]
refused = lake.open(QUARANTINE_NAME, QUARANTINE, QUARANTINE_PARTITION_COLUMNS).staging
log = log_of(sys.argv[1])
rows = [{"path": file.path, "partition": file.partition} for file in log.snapshot(log.version())]
before = most_memory()
task = TypeEvents(sys.argv[1], EVENTS, targets, refused)
(found,) = task(pa.RecordBatch.from_pylist([row], FILES) for row in rows)
print(most_memory() - before, sum(Written.from_json(each).rows for each in found["file"].to_pylist()))
"""


@pytest.fixture
def bronze(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path)


def batch(*events: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(events), EVENTS)


def large(number: int, exchange: str) -> dict[str, Any]:
    fields = {"details": f"{number} {TEXT}", "code": "ERROR_CODE_UNSPECIFIED"}
    return event("error", f"{exchange}:{number}", fields, exchange=exchange)


def test_large_rows_of_many_exchanges_take_a_silver_task_little_memory(
    bronze: Bronze, tmp_path: Path
) -> None:
    exchanges = [f"exchange{number}" for number in range(EXCHANGES)]
    for batch in range(BATCHES):
        for exchange in exchanges:
            bronze.add(*(large(batch * ROWS + row, exchange) for row in range(ROWS)))
    done = subprocess.run(
        [sys.executable, "-c", WORK, bronze.url, str(tmp_path / "silver"), str(16 * MIB)],
        capture_output=True,
        check=True,
        text=True,
    )
    grown, rows = map(int, done.stdout.split())
    assert rows == EXCHANGES * BATCHES * ROWS
    assert grown < IN_ALL / 2


def test_what_waits_is_shared_by_the_writers_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has most writes it."""
    monkeypatch.setattr(table_files, "BYTES_WAITING", 10 * len(TEXT))
    lake = Lake(str(tmp_path))
    one = FileWriter(lake.events().staging, EVENTS, "part")
    other = FileWriter(lake.open("more", EVENTS, PARTITION_COLUMNS).staging, EVENTS, "part", beside=one)
    one.write(batch(large(0, "x"), large(1, "x"), large(2, "x")))
    for number in range(3, 12):
        other.write(batch(large(number, "y" if number % 2 else "z")))
    written = [(file.partition["exchange"], file.rows) for file in other.finish()]
    assert written == [("y", 4), ("z", 3), ("y", 1), ("z", 1)]
    assert [file.rows for file in one.finish()] == [3]


def test_a_compacted_file_of_large_rows_is_full_when_memory_is(
    bronze: Bronze, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        bronze.add(large(number, "x"))
    monkeypatch.setattr(table_files, "BYTES_WAITING", 4 * len(TEXT))
    done = compact(bronze.url, until=None, dry_run=False)
    assert (done.before, done.after, done.rows) == (10, 3, 10)
    bronze.add(large(10, "x"))
    # Only the rest and the new one are small.
    done = compact(bronze.url, until=None, dry_run=False)
    assert (done.before, done.after, done.rows) == (2, 1, 3)
    found = deltalake.DeltaTable(bronze.url).to_pyarrow_table(columns=["position"])
    assert sorted(found["position"].to_pylist()) == list(range(11))
