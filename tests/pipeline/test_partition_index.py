"""Which files of a table may have rows of some time: no Spark, no server."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bronze_pipeline.tables import lean_delta, partition_index
from bronze_pipeline.tables.checkpoints import trim, write_checkpoint
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.partition_index import UNKNOWN, ValueSpan, span_of
from bronze_pipeline.tables.tables import DeltaTable, Table
from pyarrow.fs import LocalFileSystem

SCHEMA = pa.schema(
    [
        ("date", pa.date32()),
        ("exchange", pa.string()),
        ("key", pa.string()),
        ("event_ts", pa.timestamp("us", "UTC")),
    ]
)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
PARTITIONS = ("date", "exchange")


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def seconds(first: float, last: float) -> ValueSpan:
    return ValueSpan(at(first), at(last))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


def open_table(lake: Lake) -> Table:
    return lake.open("trades", SCHEMA, PARTITIONS)


def add(
    table: Table, number: int, *times: float | None, day: int = 1, exchange: str = "x"
) -> tuple[str, str]:
    """Add a file; return its folder and its path."""
    assert not table.has("job", number)
    rows = [
        {
            "date": date(2024, 1, day),
            "exchange": exchange,
            "key": f"{number}",
            "event_ts": None if time is None else at(time),
        }
        for time in times
    ]
    writer = FileWriter(table.staging, SCHEMA, "part")
    writer.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
    (file,) = writer.finish()
    table.commit([file], "job", number)
    return file.path.rpartition("/")[0], file.path


def test_files_are_near_by_their_times(lake: Lake) -> None:
    table = open_table(lake)
    folder, first = add(table, 0, 0, 10.000001)
    _, second = add(table, 1, 20, 30)
    _, without = add(table, 2, 25, None)
    other, elsewhere = add(table, 3, 0, 30, exchange="a b%/~ö")
    assert table.near([folder], {"event_ts": seconds(5, 6)}) == [first, without]
    assert table.near([folder], {"event_ts": seconds(10.000001, 20)}) == [first, second, without]
    assert table.near([folder], {"event_ts": seconds(10.000002, 19)}) == [without]
    assert table.near([folder], {"event_ts": UNKNOWN}) == [first, second, without]
    assert table.near([folder, other], {"event_ts": seconds(29, 31)}) == [second, without, elsewhere]
    assert table.near(["date=2030-01-01/exchange=x"], {"event_ts": UNKNOWN}) == []
    # What comes later, here and by another process, and what is replaced.
    _, third = add(table, 4, 21)
    assert table.near([folder], {"event_ts": seconds(21, 21)}) == [second, without, third]
    _, fourth = add(open_table(lake), 5, 22)
    assert table.has("job", 5)
    assert table.near([folder], {"event_ts": seconds(22, 22)}) == [second, without, fourth]
    deltalake.DeltaTable(lake.table_url("trades")).optimize.compact()
    assert table.has("job", 5)
    (compacted,) = table.near([folder], {"event_ts": UNKNOWN})
    assert compacted not in {first, second, third, fourth, without}
    assert open_table(lake).near([folder], {"event_ts": UNKNOWN}) == [compacted]


@pytest.mark.parametrize("kind", ["delta", "delta-rs", "parquet"])
def test_tables_of_all_kinds_tell_near_files(tmp_path: Path, kind: str) -> None:
    lake = Lake(str(tmp_path), "parquet" if kind == "parquet" else "delta")
    # As in a store.
    table = (
        DeltaTable(lake.table_url("trades"), SCHEMA, PARTITIONS, "trades")
        if kind == "delta-rs"
        else open_table(lake)
    )
    first, second, without = (
        add(table, number, *times)[1] for number, times in enumerate([(0, 10), (20, 30), (25, None)])
    )
    folder, _ = add(table, 3, 5, exchange="other")
    if kind == "parquet":
        first, second, without = (
            f"{path.rpartition('/')[0]}/job-{number:010}-{path.rpartition('/')[2]}"
            for number, path in enumerate((first, second, without))
        )
    assert table.has("job", 3)
    own = "date=2024-01-01/exchange=x"
    assert set(table.near([own], {"event_ts": seconds(5, 6)})) == {first, without}
    assert set(table.near([own], {"event_ts": seconds(10, 20)})) == {first, second, without}
    assert set(table.near([own], {"event_ts": UNKNOWN})) == {first, second, without}
    assert set(table.near([own], {})) == {first, second, without}
    assert len(table.near([own, folder], {"event_ts": seconds(5, 6)})) == 3
    assert table.near([], {}) == []


def test_an_index_that_lags_behind_a_trimmed_log_is_made_anew(lake: Lake) -> None:
    table, other = open_table(lake), open_table(lake)
    folder, first = add(table, 0, 0)
    assert table.near([folder], {"event_ts": UNKNOWN}) == [first]
    paths = [add(other, number, number)[1] for number in (1, 2)]
    assert table.has("job", 2)
    log = Path(unquote(urlsplit(lake.table_url("trades")).path), "_delta_log")
    write_checkpoint(log, 3)
    assert trim(LocalFileSystem(), str(log), time.time() + 60) > 0
    assert sorted(table.near([folder], {"event_ts": UNKNOWN})) == sorted([first, *paths])
    _, last = add(table, 3, 3)
    assert table.near([folder], {"event_ts": seconds(3, 3)}) == [last]


def test_days_are_loaded_from_a_checkpoint_and_what_follows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lean_delta, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(partition_index, "DAYS_KEPT", 2)
    table = open_table(lake)
    added = [add(table, number, number, day=number % 4 + 1) for number in range(13)]
    again = open_table(lake)
    for reader in (again, table, again):
        for day in range(4):
            folder = added[day][0]
            expected = [path for place, path in added if place == folder]
            assert sorted(reader.near([folder], {"event_ts": UNKNOWN})) == sorted(expected)
            assert reader.near([folder], {"event_ts": seconds(day + 4, day + 4)}) == [expected[1]]
        folders = [folder for folder, _ in added[:4]]
        assert len(reader.near(folders, {"event_ts": UNKNOWN})) == 13


def test_readers_filter_by_time(lake: Lake) -> None:
    table = open_table(lake)
    add(table, 0, 0, 0.123456)
    add(table, 1, 0.123457)
    rows = deltalake.DeltaTable(lake.table_url("trades")).to_pyarrow_dataset()
    for wanted, expected in ((0, ["0"]), (0.123456, ["0"]), (0.123457, ["1"]), (1, [])):
        found = rows.to_table(
            ["key"], filter=pc.field("event_ts") == pa.scalar(at(wanted), SCHEMA.field(3).type)
        )
        assert found["key"].to_pylist() == expected


def test_a_span_has_some_room() -> None:
    times = pa.chunked_array([pa.array([at(5), at(3)], SCHEMA.field("event_ts").type)])
    assert span_of(times) == seconds(2, 6)
    assert span_of(pa.chunked_array([pa.array([at(5), None], SCHEMA.field("event_ts").type)])) == UNKNOWN


@pytest.mark.parametrize("kind", ["delta", "delta-rs"])
def test_the_first_and_the_last_time_that_there_is_have_a_span(lake: Lake, kind: str) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    column = SCHEMA.field("event_ts").type
    span = span_of(pa.chunked_array([pa.array([first, last], column)]))
    assert span == UNKNOWN
    early, late = (span_of(pa.chunked_array([pa.array([each], column)])) for each in (first, last))
    assert early == ValueSpan(None, first + timedelta(seconds=1))
    assert late == ValueSpan(last - timedelta(seconds=1), None)
    table = (
        DeltaTable(lake.table_url("trades"), SCHEMA, PARTITIONS, "trades")
        if kind == "delta-rs"
        else open_table(lake)
    )
    folder, path = add(table, 0, 0)
    assert table.has("job", 0)
    assert table.near([folder], {"event_ts": ValueSpan(None, at(0))}) == [path]
    assert table.near([folder], {"event_ts": ValueSpan(at(0), None)}) == [path]
