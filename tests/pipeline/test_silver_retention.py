"""Logs that no longer have their first versions: who reads on, and who has fallen behind. No Spark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import deltalake
import pytest
from bronze_pipeline.silver.follow import TableStreamReader
from bronze_pipeline.silver.logs import Added, FellBehind
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from silver_frames import Bronze, expire, trade


@pytest.fixture(params=["delta", "parquet"])
def bronze(request: pytest.FixtureRequest, tmp_path: Path) -> Bronze:
    return Bronze(tmp_path, request.param)


@pytest.fixture
def delta(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path)


def trades(bronze: Bronze, *ids: str) -> None:
    bronze.add(*(trade(each, "1", "1", 0) for each in ids))


def log_of(bronze: Bronze) -> Path:
    return Path(bronze.lake.place, "bronze", "_delta_log" if bronze.lake.format == "delta" else "_commits")


def trim(bronze: Bronze) -> None:
    """Take out of the log what it has, as far as it is ever trimmed."""
    if bronze.lake.format == "delta":
        expire(Path(bronze.lake.place, "bronze"))
        return
    for note in log_of(bronze).glob("*.json"):
        note.unlink()


def add_after_expiry(bronze: Bronze, *ids: str) -> None:
    """Add rows to a table whose log no longer has anything before them."""
    number = bronze.batch
    trim(bronze)
    trades(bronze, *ids)
    assert bronze.batch == number + 1


def read(reader: TableStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(file.rows for file in reader.partitions(start, end) if isinstance(file, Added))


def follow(bronze: Bronze, start: dict[str, Any], most: int | None = None) -> tuple[int, dict[str, Any]]:
    """Read as a program does that was just started; return how many rows came, and where that ends."""
    reader = TableStreamReader(bronze.url, 500_000)
    end = reader.latestOffset(start, ReadAllAvailable() if most is None else ReadMaxRows(most))
    # Offsets are stored as JSON.
    return read(TableStreamReader(bronze.url, 500_000), start, end), json.loads(json.dumps(end))


def beginning(bronze: Bronze) -> dict[str, Any]:
    return TableStreamReader(bronze.url, 500_000).initialOffset()


def test_when_the_first_files_are_read_their_version_is_needed_no_more(bronze: Bronze) -> None:
    trades(bronze, "r:0", "r:1")
    trades(bronze, "r:2")
    rows, offset = follow(bronze, beginning(bronze))
    assert rows == 3
    add_after_expiry(bronze, "r:3")
    assert follow(bronze, offset)[0] == 1
    trades(bronze, "r:4", "r:5")
    rows, offset = follow(bronze, offset)
    assert rows == 3
    assert follow(bronze, offset) == (0, offset)


def test_a_table_of_which_nothing_is_left_in_the_log_is_read_from_its_present_state(delta: Bronze) -> None:
    trades(delta, "r:0")
    trades(delta, "r:1", "r:2")
    trim(delta)
    rows, offset = follow(delta, beginning(delta))
    assert rows == 3
    trades(delta, "r:3")
    assert follow(delta, offset)[0] == 1


@pytest.mark.parametrize("later", [0, 2])
def test_offsets_of_the_version_before_are_understood(bronze: Bronze, later: int) -> None:
    trades(bronze, "r:0")
    trades(bronze, "r:1")
    version = TableStreamReader(bronze.url, 1).latestOffset(beginning(bronze), ReadAllAvailable())["next"] - 1
    table = beginning(bronze)["table"]
    for number in range(later):
        trades(bronze, f"s:{number}")
    # They named the snapshot as long as the checkpoint lived.
    offset = {"table": table, "snapshot": version, "files": 2, "next": version + later + 1}
    assert follow(bronze, offset)[0] == 0
    trades(bronze, "r:2")
    rows, end = follow(bronze, offset)
    assert rows == 1
    assert follow(bronze, end) == (0, end)
    trades(bronze, "r:3")
    assert follow(bronze, end)[0] == 1
    # One of the files was not read yet.
    half = {"table": table, "snapshot": version, "files": 1, "next": version + 1}
    assert follow(bronze, half)[0] == 1 + later + 2
    # A batch that was planned then, and is repeated now.
    assert read(TableStreamReader(bronze.url, 1), half, offset) == 1 + later
    assert read(TableStreamReader(bronze.url, 1), beginning(bronze), offset) == 2 + later
    assert read(TableStreamReader(bronze.url, 1), beginning(bronze), half) == 1


@pytest.mark.parametrize("later", [0, 2])
def test_offsets_of_the_version_before_outlive_the_log(delta: Bronze, later: int) -> None:
    trades(delta, "r:0")
    trades(delta, "r:1")
    for number in range(later):
        trades(delta, f"s:{number}")
    offset = beginning(delta) | {"snapshot": 2, "files": 2, "next": 2 + later + 1}
    trim(delta)
    trades(delta, "r:2")
    # Compaction replaces what was there, and is no news.
    deltalake.DeltaTable(delta.url).optimize.compact()
    trades(delta, "r:3", "r:4")
    deltalake.DeltaTable(delta.url).create_checkpoint()
    # Now the snapshot's version goes too, and what comes after it stays.
    for name in ("json", "checkpoint.parquet"):
        (log_of(delta) / f"{2 + later:020}.{name}").unlink()
    assert follow(delta, offset)[0] == 3
    with pytest.raises(FellBehind, match=r"^version.* no longer in the log of the table at "):
        follow(delta, offset | {"files": 1, "next": 3})


def test_a_first_batch_that_is_repeated_is_the_same_though_the_table_has_grown(bronze: Bronze) -> None:
    for each in ("r:4", "r:2"):
        trades(bronze, each)
    reader = TableStreamReader(bronze.url, 1)
    start = reader.initialOffset()
    part = reader.latestOffset(start, ReadMaxRows(1))
    whole = reader.latestOffset(start, ReadAllAvailable())
    planned = [reader.partitions(start, end) for end in (part, whole)]
    trades(bronze, "r:0")
    # Spark has stored the end of the batch, and asks again for its beginning.
    again = TableStreamReader(bronze.url, 1)
    assert [again.partitions(again.initialOffset(), end) for end in (part, whole)] == planned
    assert [read(again, end, again.latestOffset(end, ReadAllAvailable())) for end in (part, whole)] == [2, 1]


def test_versions_that_were_not_read_and_are_gone_are_named(bronze: Bronze) -> None:
    trades(bronze, "r:0")
    _, offset = follow(bronze, beginning(bronze))
    first = offset["next"]
    trades(bronze, "r:1")
    trades(bronze, "r:2")
    last = first + 1
    # Delta's log keeps its newest version, whatever its age.
    shift = bronze.lake.format == "delta"
    if shift:
        trades(bronze, "r:3")
        last += 1
    trim(bronze)
    trades(bronze, "r:4")
    oldest = last if shift else last + 1
    gap = f"versions {first} to {oldest - 1} are no longer in the log of the table at {bronze.url}"
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    expected = (
        rf"^{re.escape(gap)}, which begins with version {oldest} of {moment}; what was read before is of"
    )
    with pytest.raises(FellBehind, match=rf"{expected} {moment}$"):
        follow(bronze, offset)
    with pytest.raises(FellBehind, match=rf"{expected} {moment}$"):
        TableStreamReader(bronze.url, 1).partitions(offset, offset | {"next": last + 2})


def test_a_gap_has_dates(delta: Bronze) -> None:
    for each in ("r:0", "r:1", "r:2"):
        trades(delta, each)
    # Its version 3 is of 1,700,000,000 seconds and 3 days after 1970.
    trim(delta)
    offset = beginning(delta) | {"next": 1, "until": "2023-11-14 22:13:20 UTC"}
    with pytest.raises(FellBehind) as caught:
        follow(delta, offset)
    assert str(caught.value) == (
        f"versions 1 to 2 are no longer in the log of the table at {delta.url}, which begins with version 3"
        " of 2023-11-17 22:13:20 UTC; what was read before is of 2023-11-14 22:13:20 UTC"
    )


def test_a_snapshot_of_which_files_were_not_read_may_be_gone(delta: Bronze) -> None:
    trades(delta, "r:0")
    trades(delta, "r:1")
    _, offset = follow(delta, beginning(delta), most=1)
    assert (offset["snapshot"], offset["files"]) == (2, 1)
    trades(delta, "r:2")
    trim(delta)
    with pytest.raises(FellBehind, match=r"^version 2 is no longer in the log of the table at "):
        follow(delta, offset)


def test_a_commit_that_is_missing_in_the_middle_is_named(tmp_path: Path) -> None:
    bronze = Bronze(tmp_path, "parquet")
    trades(bronze, "r:0")
    _, offset = follow(bronze, beginning(bronze))
    trades(bronze, "r:1")
    trades(bronze, "r:2")
    (log_of(bronze) / f"{1:010}.json").unlink()
    with pytest.raises(FellBehind, match=r"^version 1 of the table at .* is not in its log; what was read"):
        follow(bronze, offset)
