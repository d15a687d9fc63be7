"""Maintenance of tables, as others see them: no Spark, no server."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bronze_pipeline.cli import main
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.silver.follow import TableStreamReader
from bronze_pipeline.tables import compaction
from bronze_pipeline.tables import files as table_files
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import FORMATS, Lake
from pyspark.sql.streaming.datasource import ReadAllAvailable
from silver_frames import Bronze, change
from silver_frames import trade as trade_of

TODAY = datetime.now(UTC).date()


@pytest.fixture
def bronze(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "bronze"


def trade(event_id: str, price: str, qty: str, seconds: float, **envelope: Any) -> dict[str, Any]:
    return trade_of(event_id, price, qty, seconds) | envelope


def maintain(place: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    assert main(["maintain", "--table", str(place), *flags]) == 0
    return capsys.readouterr().out.splitlines()


def rows(place: Path) -> list[dict[str, Any]]:
    found = pa.table(deltalake.DeltaTable(place).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: str(row["event_id"]))


def data_files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*.parquet") if path.relative_to(place).parts[0][0] != "_"}


def make_old(*paths: Path, days: float) -> None:
    moment = time.time() - days * 86_400
    for path in paths:
        os.utime(path, (moment, moment))


def test_closed_days_are_compacted_and_no_row_changes(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for position in range(3):
        bronze.add(
            trade(f"r:{2 - position}", "1.5", "2", position), change(f"s:{position}.0", "BUY", "1", "1")
        )
    bronze.add(trade("r:9", "1", "1", 0, exchange="a b%/~ö"), trade("r:8", "1", "1", 0, exchange=""))
    bronze.add(trade("r:10", "1", "1", 0, exchange="a b%/~ö"), trade("r:11", "1", "1", 0, exchange=""))
    for position in (20, 21):
        bronze.add(trade(f"r:{position}", "1", "1", 0, date=TODAY))
    before, files = rows(place), data_files(place)
    expected = "would have compacted 7 files, 10 rows in 3 partitions"
    assert maintain(place, capsys, "--dry-run")[0] == expected
    assert data_files(place) == files
    said = maintain(place, capsys)
    assert said == [
        "compacted 7 files into 3, 10 rows in 3 partitions",
        "removed 0 files that no commit has, 0 bytes",
        "removed 0 files replaced more than 7d ago, 0 bytes",
        "removed 0 files of the log older than 30d",
    ]
    assert rows(place) == before
    seen = deltalake.DeltaTable(place).file_uris()
    assert len(seen) == 5
    assert maintain(place, capsys)[0] == "compacted 0 files into 0, 0 rows in 0 partitions"
    assert maintain(place, capsys, "--open-days")[0] == "compacted 2 files into 1, 2 rows in 1 partitions"
    assert rows(place) == before


def test_a_compacted_file_is_in_the_order_of_its_streams(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(trade("b:1", "1", "1", 0), trade("a:7", "1", "1", 0))
    bronze.add(trade("b:0", "1", "1", 0), trade("a:3", "1", "1", 0), change("a:4.0", "BUY", "1", "1"))
    maintain(place, capsys)
    (file,) = deltalake.DeltaTable(place).file_uris()
    found = pq.ParquetFile(file)
    groups = [
        found.read_row_group(number, ["event_id"])["event_id"].to_pylist()
        for number in range(found.num_row_groups)
    ]
    assert groups == [["a:4.0"], ["a:3", "a:7", "b:0", "b:1"]]


def test_a_large_partition_becomes_several_files(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for position in range(7):
        bronze.add(trade(f"r:{position}", "1", "1", 0))
    monkeypatch.setattr(table_files, "ROWS_IN_FILE", 3)
    assert maintain(place, capsys)[0] == "compacted 7 files into 3, 7 rows in 1 partitions"
    # Two are full, and one has nothing to be merged with.
    assert maintain(place, capsys)[0] == "compacted 0 files into 0, 0 rows in 0 partitions"
    assert [row["position"] for row in rows(place)] == list(range(7))


def test_readers_of_the_log_take_no_notice(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    reader = TableStreamReader(bronze.url, 1000)
    offset = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    bronze.add(trade("r:1", "1", "1", 0))
    maintain(place, capsys)
    bronze.add(trade("r:2", "1", "1", 0))
    reader = TableStreamReader(bronze.url, 1000)
    end = reader.latestOffset(offset, ReadAllAvailable())
    new = [file.path for file in reader.partitions(offset, end)]  # type: ignore[attr-defined]
    assert len(new) == 2
    # They still read the file that was replaced.
    assert sorted(pq.read_table(place / path)["event_id"].to_pylist()[0] for path in new) == ["r:1", "r:2"]


def test_replaced_files_go_after_their_time(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    bronze.add(trade("r:1", "1", "1", 0))
    old = data_files(place)
    make_old(*old, days=20)
    maintain(place, capsys)
    assert old < data_files(place)
    time.sleep(0.01)
    said = maintain(place, capsys, "--replaced-after", "1ms")
    assert said[2].startswith("removed 2 files replaced more than 1ms ago, ")
    assert len(data_files(place)) == 1
    assert len(rows(place)) == 2


@pytest.mark.parametrize("format_", FORMATS)
def test_files_of_killed_attempts_go_after_their_time(
    format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze, place = Bronze(tmp_path, format_), tmp_path / "bronze"
    bronze.add(trade("r:0", "1", "1", 0))
    make_old(*data_files(place), days=20)
    writer = FileWriter(Lake(str(tmp_path), format_).events().staging, EVENTS, "part")
    for exchange in "xy":
        writer.write(pa.RecordBatch.from_pylist([trade("r:1", "1", "1", 0, exchange=exchange)], EVENTS))
    old, young = (next(place.rglob(f"*{file.path}")) for file in writer.finish())
    make_old(old, days=1.01)
    make_old(young, days=0.99)
    line = next(line for line in maintain(place, capsys, "--dry-run") if "no commit" in line)
    assert line == f"would have removed 1 files that no commit has, {old.stat().st_size:,} bytes"
    assert old.exists()
    maintain(place, capsys)
    assert not old.exists()
    assert young.exists()
    assert main(["verify", "--table", str(place)]) == 0


def test_the_ledger_is_left_alone(bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    bronze.add(trade("r:1", "1", "1", 0))
    said: list[str] = []
    bronze.lake.ledger(said.append)
    for path in (place / "_ledger").iterdir():
        make_old(path, days=100)
    maintain(place, capsys)
    said.clear()
    bronze.lake.ledger(said.append)
    assert said == []


def test_the_log_is_trimmed_behind_a_checkpoint(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = place / "_delta_log"
    for position in range(3):
        bronze.add(trade(f"r:{position}", "1", "1", 0, date=TODAY))
    maintain(place, capsys)
    bronze.add(trade("r:3", "1", "1", 0, date=TODAY))
    make_old(*log.iterdir(), days=31)
    assert maintain(place, capsys, "--dry-run")[-1] == "would have removed 3 files of the log older than 30d"
    assert maintain(place, capsys)[-1] == "removed 3 files of the log older than 30d"
    assert [row["position"] for row in rows(place)] == [0, 1, 2, 3]
    assert maintain(place, capsys)[-1] == "removed 0 files of the log older than 30d"
    bronze.add(trade("r:4", "1", "1", 0, date=TODAY))
    assert len(rows(place)) == 5


def test_files_that_another_has_replaced_are_left(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    bronze.add(trade("r:1", "1", "1", 0))
    real = compaction._commit

    def late(*arguments: Any) -> None:
        deltalake.DeltaTable(place).optimize.compact()
        real(*arguments)

    monkeypatch.setattr(compaction, "_commit", late)
    assert maintain(place, capsys)[:2] == [
        "compacted 0 files into 0, 0 rows in 0 partitions",
        "left date=2024-01-01/exchange=x as it is: something else changed its files meanwhile",
    ]
    assert [row["position"] for row in rows(place)] == [0, 1]
    assert not [path for path in data_files(place) if path.name.startswith("compacted")]


def test_commits_of_a_job_in_between_are_kept(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze.add(trade("r:0", "1", "1", 0))
    bronze.add(trade("r:1", "1", "1", 0))
    real = compaction._commit

    def late(*arguments: Any) -> None:
        bronze.add(trade("r:2", "1", "1", 0))
        real(*arguments)

    monkeypatch.setattr(compaction, "_commit", late)
    assert maintain(place, capsys)[0] == "compacted 2 files into 1, 2 rows in 1 partitions"
    assert [row["position"] for row in rows(place)] == [0, 1, 2]


def test_a_table_with_features_unknown_to_us_is_compacted_by_delta_rs(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(trade("r:0", "1", "1", 0, exchange="a b%/~ö"))
    bronze.add(trade("r:1", "1", "1", 0, exchange="a b%/~ö"))
    whole = deltalake.DeltaTable(place)
    whole.alter.add_feature(deltalake.TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    before = rows(place)
    assert maintain(place, capsys)[0] == "compacted 2 files into 1, 2 rows in 1 partitions"
    assert rows(place) == before
    assert len(deltalake.DeltaTable(place).file_uris()) == 1


def test_files_with_other_columns_stay_apart(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for position in range(4):
        bronze.add(trade(f"r:{position}", "1", "1", 0))
    for file in sorted(data_files(place))[:2]:
        # As an earlier version wrote it.
        table = pq.ParquetFile(file).read()
        pq.write_table(table.drop_columns(["raw"]), file)
    assert maintain(place, capsys)[0] == "compacted 4 files into 2, 4 rows in 1 partitions"
    assert [row["position"] for row in rows(place)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--table", "nowhere"], "--table: there is no table at nowhere."),
        (["--replaced-after", "8d"], "--replaced-after: is more than 7d. The log remembers no longer."),
        (
            ["--orphans-after", "59m"],
            "--orphans-after: is less than 1h. Files of a micro-batch that is being",
        ),
        ([], "--table: is missing. Write --table=PLACE."),
    ],
)
def test_wrong_flags(flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["maintain", *flags]) == 2
    assert problem in capsys.readouterr().err


def test_a_day_is_closed_when_the_next_has_begun(
    bronze: Bronze, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    yesterday = TODAY - timedelta(days=1)
    days: tuple[date, ...] = (yesterday, TODAY)
    for position in range(2):
        bronze.add(*(trade(f"{day}:{position}", "1", "1", 0, date=day) for day in days))
    assert maintain(place, capsys, "--dry-run")[0] == "would have compacted 2 files, 2 rows in 1 partitions"
