"""Silver queries whose tables have trimmed logs: they go on, or say that they fell behind; in real Spark."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.book_query import BookQuery
from bronze_pipeline.silver.queries import Query
from bronze_pipeline.silver.record_query import RecordQuery
from bronze_pipeline.silver.records import RECORDS
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.tables.lake import Lake
from pyspark.sql import SparkSession
from silver_frames import Bronze, at, change, expire, run, stored, trade

pytestmark = pytest.mark.timeout(600)


class Silver:
    """A bronze table, and trades, bars and books that are made of it."""

    def __init__(self, spark: SparkSession, folder: Path, bronze_format: str = "delta") -> None:
        self._spark = spark
        self.folder = folder
        self.bronze = Bronze(folder / "bronze", bronze_format)
        self.lake = Lake(str(folder / "silver"))
        schemas = {record.table: record.schema() for record in RECORDS}
        self._queries: dict[str, Query] = {
            "records": RecordQuery(self.bronze.url, self.lake),
            "bars_1m": BarQuery(self.lake, "1m", "1 minutes", schemas["trades"]),
            "book_top": BookQuery(self.lake, schemas["book_changes"], 1),
        }

    def add(self, position: int) -> None:
        """Add a commit with a trade and a change of the book."""
        self.bronze.add(
            trade(f"r:{position}", "10", "1", position),
            change(f"r:{position}.0", "BUY", "9", str(position), snapshot=position == 0),
        )

    def run(self, *names: str, goes_on: bool = False) -> None:
        for name in names or self._queries:
            run(self._spark, self._queries[name], self.folder, goes_on_after_loss=goes_on)

    def refused(self, name: str) -> str:
        with pytest.raises(OptionError) as caught:
            self.run(name)
        return str(caught.value)

    def expire(self, *names: str) -> None:
        for name in names:
            expire(self.folder / ("bronze/bronze" if name == "bronze" else f"silver/{name}"))

    def offset(self, name: str) -> Path:
        """Return the file of the last offset in a checkpoint."""
        offsets = (self.folder / "_checkpoints" / name / "offsets").iterdir()
        return max((file for file in offsets if file.name.isdigit()), key=lambda file: int(file.name))

    def set_offset(self, name: str, offset: dict[str, Any]) -> None:
        file = self.offset(name)
        *head, _ = file.read_text().splitlines()
        file.write_text("\n".join([*head, json.dumps(offset)]))
        file.with_name(f".{file.name}.crc").unlink()

    def assert_exact(self, positions: int) -> None:
        """See that everything is there once: a trade and a level at each position."""
        expected = [(f"r:{position}",) for position in range(positions)]
        assert stored(self.lake, "trades", ["event_id"]) == expected
        assert stored(self.lake, "book_changes", ["position"]) == [(each,) for each in range(positions)]
        bars = stored(self.lake, "bars_1m", ["open_ts", "volume", "trades"])
        assert bars == [(at(0), Decimal(positions), positions)]

    def assert_exact_books(self, positions: int) -> None:
        found = stored(self.lake, "book_top", ["position", "bids"])
        assert [(position, int(bids[0]["qty"]) if bids else 0) for position, bids in found] == [
            (each, each) for each in range(positions)
        ]


def test_logs_that_no_longer_have_what_was_read_are_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    silver = Silver(spark, tmp_path)
    silver.add(0)
    silver.add(1)
    silver.run()
    # As the version before this one wrote it.
    table = json.loads(silver.offset("records").read_text().splitlines()[-1])["table"]
    silver.set_offset("records", {"table": table, "snapshot": 2, "files": 2, "next": 3})
    silver.expire("bronze", "trades", "book_changes")
    silver.add(2)
    silver.run()
    silver.expire("bronze", "trades", "book_changes")
    silver.add(3)
    silver.run()
    silver.assert_exact(4)
    silver.assert_exact_books(4)


def test_queries_that_fell_behind_say_so_and_begin_anew_if_told_to(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silver = Silver(spark, tmp_path)
    silver.add(0)
    silver.run()
    silver.add(1)
    silver.add(2)
    silver.expire("bronze")
    silver.add(3)
    url = silver.bronze.url
    remedy = (
        "To begin anew with what the table has now, set --on-data-loss to continue; rows that are already"
        " stored are not stored twice."
    )
    gap = (
        f"version 2 is no longer in the log of the table at {url}, which begins with version 3 of"
        " 2023-11-17 22:13:20 UTC; what was read before is of "
    )
    refused = silver.refused("records")
    assert refused.startswith(f"records: {gap}")
    assert refused.endswith(f" UTC. {remedy}")
    silver.run("records", goes_on=True)
    said = capsys.readouterr().out
    assert said.startswith(f"records: {gap}")
    assert said.endswith(" UTC; it begins anew, with what the table has now\n")
    silver.add(4)
    silver.run("records")
    silver.expire("trades")
    gap = f"version 2 is no longer in the log of the table at {silver.lake.table_url('trades')}, "
    assert silver.refused("bars_1m").startswith(f"bars_1m: {gap}")
    silver.run("bars_1m", goes_on=True)
    silver.assert_exact(5)
    silver.add(5)
    silver.run("records", "bars_1m")
    silver.assert_exact(6)


def test_books_that_fell_behind_begin_anew(spark: SparkSession, tmp_path: Path) -> None:
    silver = Silver(spark, tmp_path)
    silver.add(0)
    silver.run("records", "book_top")
    for position in (1, 2, 3):
        silver.add(position)
        silver.run("records")
    silver.expire("book_changes")
    assert silver.refused("book_top").startswith("book_top: versions 2 to 3 are no longer in the log of ")
    silver.run("book_top", goes_on=True)
    silver.assert_exact_books(4)
    silver.add(4)
    silver.run("records", "book_top")
    silver.assert_exact_books(5)


def test_files_that_are_gone_are_behind_too(spark: SparkSession, tmp_path: Path) -> None:
    silver = Silver(spark, tmp_path)
    silver.add(0)
    silver.run()
    silver.add(1)
    silver.add(2)
    table = deltalake.DeltaTable(silver.bronze.url)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert " is gone. To begin anew " in silver.refused("records")
    silver.run("records", "bars_1m", goes_on=True)
    silver.assert_exact(3)
    # What is there is not begun anew.
    checkpoints = sorted(folder.name for folder in (tmp_path / "_checkpoints").iterdir())
    silver.run("records", "bars_1m", goes_on=True)
    assert sorted(folder.name for folder in (tmp_path / "_checkpoints").iterdir()) == checkpoints


def test_a_plain_parquet_table_may_lose_its_notes(spark: SparkSession, tmp_path: Path) -> None:
    silver = Silver(spark, tmp_path, "parquet")
    silver.add(0)
    silver.run("records")
    notes = tmp_path / "bronze/bronze/_commits"
    (notes / f"{0:010}.json").unlink()
    silver.add(1)
    silver.run("records")
    silver.add(2)
    (notes / f"{2:010}.json").unlink()
    silver.add(3)
    assert silver.refused("records").startswith("records: version 2 of the table at ")
    assert stored(silver.lake, "trades", ["event_id"]) == [("r:0",), ("r:1",)]
