"""Following a table: which files come, and in which batch. No Spark session."""

from __future__ import annotations

import json
import re
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.silver.follow import FILES, ReadFiles, TableStreamReader
from bronze_pipeline.silver.logs import Added, FellBehind
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.tables.tables import TableError
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from silver_frames import Bronze, trade


@pytest.fixture(params=["delta", "parquet"])
def bronze(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
    return Bronze(tmp_path, request.param)


@pytest.fixture
def delta(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path)


@pytest.fixture
def parquet(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path, "parquet")


def trades(bronze: Bronze, *ids: str) -> None:
    bronze.add(*(trade(each, "1", "1", 0) for each in ids))


def read(bronze: Bronze, files: list[Added]) -> list[str]:
    columns = pa.schema([EVENTS.field(name) for name in ("date", "event_id", "exchange")])
    rows = [{"path": file.path, "partition": file.partition} for file in files]
    batches = ReadFiles(bronze.url, columns, None)([pa.RecordBatch.from_pylist(rows, FILES)])
    found = pa.Table.from_batches(batches, columns)
    assert set(found["date"].to_pylist()) <= {trade("r:0", "1", "1", 0)["date"]}
    assert set(found["exchange"].to_pylist()) <= {"x"}
    return [str(each) for each in found["event_id"].to_pylist()]


def follow(
    bronze: Bronze, offset: dict[str, object], reader: TableStreamReader | None = None
) -> tuple[list[str], dict[str, object]]:
    """Read all that comes behind an offset."""
    reader = reader or TableStreamReader(bronze.url, 500_000)
    end = reader.latestOffset(offset, ReadAllAvailable())
    files = [file for file in reader.partitions(offset, end) if isinstance(file, Added)]
    # Offsets are stored as JSON.
    return read(bronze, files), json.loads(json.dumps(end))


def test_it_begins_with_what_is_there_and_goes_on_with_commits(bronze: Bronze) -> None:
    trades(bronze, "r:0", "r:1")
    trades(bronze, "r:2")
    start = TableStreamReader(bronze.url, 500_000).initialOffset()
    trades(bronze, "r:3")
    first, offset = follow(bronze, start)
    assert first == ["r:0", "r:1", "r:2", "r:3"]
    assert follow(bronze, offset) == ([], offset)
    trades(bronze, "r:4")
    assert follow(bronze, offset)[0] == ["r:4"]


def test_a_damaged_note_of_the_last_checkpoint_stops_nothing(delta: Bronze) -> None:
    start = TableStreamReader(delta.url, 500_000).initialOffset()
    trades(delta, "r:0")
    # As a machine without power may leave it.
    Path(delta.lake.place, "bronze", "_delta_log", "_last_checkpoint").touch()
    assert follow(delta, start)[0] == ["r:0"]


def test_compaction_is_no_news(delta: Bronze) -> None:
    trades(delta, "r:0")
    _, offset = follow(delta, TableStreamReader(delta.url, 500_000).initialOffset())
    trades(delta, "r:1")
    trades(delta, "r:2")
    table = deltalake.DeltaTable(delta.url)
    assert table.optimize.compact()["numFilesRemoved"] == 3
    trades(delta, "r:3")
    assert follow(delta, offset)[0] == ["r:1", "r:2", "r:3"]


def test_a_new_checkpoint_reads_compacted_files(delta: Bronze) -> None:
    trades(delta, "r:0")
    trades(delta, "r:1")
    table = deltalake.DeltaTable(delta.url)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    found, _ = follow(delta, TableStreamReader(delta.url, 500_000).initialOffset())
    assert sorted(found) == ["r:0", "r:1"]


def test_files_that_vacuum_took_away_before_they_were_read_are_an_error(delta: Bronze) -> None:
    trades(delta, "r:0")
    _, offset = follow(delta, TableStreamReader(delta.url, 500_000).initialOffset())
    trades(delta, "r:1")
    trades(delta, "r:2")
    table = deltalake.DeltaTable(delta.url)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    with pytest.raises(FellBehind, match=r"the file .* of the table at .* is gone$"):
        follow(delta, offset)
    with pytest.raises(FellBehind, match=r"the file .* of the table at .* is gone$"):
        TableStreamReader(delta.url, 500_000).look(offset)


def test_batches_are_bounded_and_commits_stay_whole(bronze: Bronze) -> None:
    trades(bronze, "r:0", "r:1", "r:2")
    reader = TableStreamReader(bronze.url, 2)
    offset = reader.initialOffset()
    trades(bronze, "r:3")
    trades(bronze, "r:4")
    trades(bronze, "r:5")
    found = []
    for _ in range(4):
        end = reader.latestOffset(offset, ReadMaxRows(2))
        files = [file for file in reader.partitions(offset, end) if isinstance(file, Added)]
        found.append(read(bronze, files))
        offset = end
    assert found == [["r:0", "r:1", "r:2"], ["r:3", "r:4"], ["r:5"], []]


def test_it_begins_before_the_first_commit(bronze: Bronze) -> None:
    start = TableStreamReader(bronze.url, 500_000).initialOffset()
    assert follow(bronze, start) == ([], start)
    trades(bronze, "r:0")
    assert follow(bronze, start)[0] == ["r:0"]


def test_files_that_are_there_come_in_the_order_of_their_events(bronze: Bronze) -> None:
    for each in ("r:4", "r:2", "r:0"):
        trades(bronze, each)
    assert follow(bronze, TableStreamReader(bronze.url, 500_000).initialOffset())[0] == ["r:0", "r:2", "r:4"]


def test_available_now_ends_where_the_table_ended(bronze: Bronze) -> None:
    trades(bronze, "r:0")
    reader = TableStreamReader(bronze.url, 500_000)
    start = reader.initialOffset()
    trades(bronze, "r:1")
    reader.prepareForTriggerAvailableNow()
    trades(bronze, "r:2")
    assert follow(bronze, start, reader)[0] == ["r:0", "r:1"]


def test_another_table_in_the_same_place_is_noticed(bronze: Bronze, tmp_path: Path) -> None:
    offset = TableStreamReader(bronze.url, 1).initialOffset() | {"table": "another"}
    with pytest.raises(OptionError, match="was recreated after the checkpoint was made"):
        TableStreamReader(bronze.url, 1).latestOffset(offset, ReadMaxRows(1))


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"there is no table at {re.escape(tmp_path.as_uri())}"):
        TableStreamReader(tmp_path.as_uri(), 1).initialOffset()


def test_a_damaged_file_is_named(bronze: Bronze) -> None:
    trades(bronze, "r:0")
    (file,) = Path(bronze.lake.place, "bronze").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TableError, match=rf"^the file .*{file.name} of the table at .* is damaged: "):
        follow(bronze, TableStreamReader(bronze.url, 1).initialOffset())


def test_what_cannot_be_read_is_named(bronze: Bronze) -> None:
    trades(bronze, "r:0")
    (file,) = Path(bronze.lake.place, "bronze").rglob("*.parquet")
    columns = pq.read_metadata(file).row_group(0).to_dict()["columns"]
    (start,) = (each["data_page_offset"] for each in columns if each["path_in_schema"] == "event_id")
    content = bytearray(file.read_bytes())
    content[start : start + 20] = b"\xff" * 20
    file.write_bytes(content)
    with pytest.raises(OSError, match=rf"^cannot read the file .*{file.name} of the table at "):
        follow(bronze, TableStreamReader(bronze.url, 1).initialOffset())


def test_a_batch_that_is_not_noted_yet_is_not_read(parquet: Bronze) -> None:
    start = TableStreamReader(parquet.url, 1).initialOffset()
    trades(parquet, "r:0")
    note = Path(parquet.lake.place, "bronze", "_commits", f"{0:010}.json")
    note.rename(f"{note}.new")
    assert follow(parquet, start) == ([], start)
