"""Tables of older and newer programs, in both formats: no Spark, no server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset
import pytest
from bronze_pipeline.decoding.schema import EVENTS, PARTITION_COLUMNS
from bronze_pipeline.silver.upserts import UpsertTable
from bronze_pipeline.tables.evolution import compare
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import FORMATS, Lake
from bronze_pipeline.tables.tables import Table, TableError
from older_programs import without
from silver_frames import event, trade

PROCESSES = 3


# A column, a field of a payload, one of a list within a payload, and a whole payload.
LATER = ("origin", "trade.sequence", "book_snapshot.bids.qty_str", "quote")
OLDER = without(EVENTS, *LATER)

FIRST = trade("r:0", "10", "1", 0, sequence=7)
SECOND = event("book_snapshot", "r:1", {"depth": 1, "bids": [{"price_str": "9", "qty_str": "2"}], "asks": []})
THIRD = event("quote", "r:2", {"bid_price_str": "8"})
SEEN: dict[str, dict[str, Any]] = {
    "r:0": {"origin": "ORIGIN_REPLAY", "sequence": 7, "qty": None, "quote": None},
    "r:1": {"origin": "ORIGIN_REPLAY", "sequence": None, "qty": "2", "quote": None},
    "r:2": {"origin": "ORIGIN_REPLAY", "sequence": None, "qty": None, "quote": "8"},
}
SEEN_BY_OLDER = {name: dict.fromkeys(seen) for name, seen in SEEN.items()}


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), request.param)


def open_older(lake: Lake) -> Table:
    return lake.open("bronze", OLDER, PARTITION_COLUMNS)


def add(table: Table, batch: int, *events: dict[str, Any], schema: pa.Schema = EVENTS) -> None:
    """Add events as a job does, with the columns of its program."""
    assert not table.has("job", batch)
    writer = FileWriter(table.staging, schema, "part")
    known = [{name: value for name, value in each.items() if name in schema.names} for each in events]
    writer.write(pa.RecordBatch.from_pylist(known, schema))
    table.commit(writer.finish(), "job", batch)


def seen(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return what a reader finds in the fields that came later, by event."""
    url = lake.table_url("bronze")
    if lake.format == "delta":
        rows = pa.table(deltalake.DeltaTable(url).to_pyarrow_table())
    else:
        rows = pyarrow.dataset.dataset(url, partitioning="hive", schema=EVENTS).to_table()
    return {
        row["event_id"]: {
            "origin": row["origin"],
            "sequence": (row["trade"] or {}).get("sequence"),
            "qty": row["book_snapshot"]["bids"][0]["qty_str"] if row["book_snapshot"] else None,
            "quote": (row["quote"] or {}).get("bid_price_str"),
        }
        for row in rows.to_pylist()
    }


def versions(lake: Lake) -> list[str]:
    folder = Path(lake.place, "bronze", "_delta_log" if lake.format == "delta" else "_commits")
    return sorted(file.name for file in folder.iterdir())


def test_fields_that_a_table_lacks_are_added(lake: Lake) -> None:
    add(open_older(lake), 0, FIRST, SECOND, schema=OLDER)
    add(lake.events(), 1, {**FIRST, "event_id": "s:0", "stream_id": "s"}, THIRD)
    assert seen(lake) == {
        "r:0": SEEN_BY_OLDER["r:0"],
        "r:1": SEEN_BY_OLDER["r:1"],
        "s:0": SEEN["r:0"],
        "r:2": SEEN["r:2"],
    }


def test_they_are_added_once_in_a_commit_of_their_own(lake: Lake) -> None:
    add(open_older(lake), 0, FIRST, schema=OLDER)
    before = versions(lake)
    lake.events()
    after = versions(lake)
    assert len(after) == len(before) + 1
    lake.events()
    open_older(lake)
    assert versions(lake) == after
    if lake.format == "delta":
        table = deltalake.DeltaTable(lake.table_url("bronze"))
        added = compare(deltalake.Schema.from_arrow(OLDER), table.schema()).added
        assert sorted(added) == sorted(LATER)
        assert compare(table.schema(), deltalake.Schema.from_arrow(EVENTS)).added == []


def test_an_older_program_goes_on_in_a_newer_table(lake: Lake) -> None:
    add(lake.events(), 0, FIRST)
    older = open_older(lake)
    add(older, 1, SECOND, THIRD, schema=OLDER)
    add(lake.events(), 2, {**THIRD, "event_id": "s:2", "stream_id": "s"})
    assert seen(lake) == {
        "r:0": SEEN["r:0"],
        "r:1": SEEN_BY_OLDER["r:1"],
        "r:2": SEEN_BY_OLDER["r:2"],
        "s:2": SEEN["r:2"],
    }


def test_a_program_goes_on_while_a_newer_one_opens_its_table(lake: Lake) -> None:
    older = open_older(lake)
    add(older, 0, FIRST, schema=OLDER)
    lake.events()
    add(older, 1, SECOND, schema=OLDER)
    assert seen(lake) == {name: SEEN_BY_OLDER[name] for name in ("r:0", "r:1")}


def test_where_fields_were_added_no_list_of_files_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path))
    open_older(lake)
    lake.events()
    newer = pa.schema([*EVENTS, pa.field("fee", pa.int64())])
    lake.open("bronze", newer, PARTITION_COLUMNS)
    monkeypatch.delattr(deltalake.DeltaTable, "__init__")
    add(lake.events(), 0, FIRST)
    assert lake.events().has("job", 0)


def test_a_changed_type_is_refused_by_its_name(lake: Lake) -> None:
    bids = pa.list_(pa.struct([("price_str", pa.decimal128(20, 2))]))
    changed = {
        "position": pa.field("position", pa.string()),
        "trade": pa.field("trade", pa.struct([("trade_id", pa.string()), ("price_str", pa.float64())])),
        "book_snapshot": pa.field("book_snapshot", pa.struct([("bids", bids)])),
        "quote": pa.field("quote", pa.string()),
    }
    schema = pa.schema([changed.get(field.name, field) for field in EVENTS])
    lake.open("bronze", schema, PARTITION_COLUMNS)
    before = versions(lake)
    with pytest.raises(TableError) as caught:
        lake.events()
    reasons = [
        "position is string, but must be long",
        "trade.price_str is double, but must be string",
        "book_snapshot.bids.price_str is decimal(20,2), but must be string",
        "quote is string, but must be struct",
    ]
    refused = str(caught.value)
    assert refused.startswith(f"the table at {lake.table_url('bronze')} has other columns: ")
    assert sorted(refused.partition(" has other columns: ")[2].rstrip(".").split("; ")) == sorted(reasons)
    assert versions(lake) == before


def test_a_column_that_must_not_be_null_is_refused(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    schema = pa.schema([*EVENTS, pa.field("fee", pa.int64(), nullable=False)])
    deltalake.DeltaTable.create(lake.table_url("bronze"), schema, partition_by=list(PARTITION_COLUMNS))
    with pytest.raises(TableError, match=r"has other columns: fee must not be NULL\.$"):
        lake.events()


def test_a_parquet_table_that_is_older_than_the_notes_of_its_columns(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"), "parquet")
    add(open_older(lake), 0, FIRST, schema=OLDER)
    (note,) = Path(lake.place, "bronze/_commits").glob("*.schema")
    note.unlink()
    add(lake.events(), 1, SECOND)
    assert seen(lake) == {"r:0": SEEN_BY_OLDER["r:0"], "r:1": SEEN["r:1"]}
    for left in Path(lake.place, "bronze/_commits").glob("*.schema"):
        left.unlink()
    changed = without(EVENTS, "level").append(pa.field("level", pa.string()))
    with pytest.raises(TableError, match=r"has other columns: level is integer, but must be string\.$"):
        lake.open("bronze", changed, PARTITION_COLUMNS)


def test_a_damaged_note_of_columns_is_an_error(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"), "parquet")
    lake.events()
    (note,) = Path(lake.place, "bronze/_commits").glob("*.schema")
    note.write_text("{")
    with pytest.raises(TableError, match=r"^cannot open the Parquet table at "):
        lake.events()


def at_the_first_look(monkeypatch: pytest.MonkeyPatch, disturb: Callable[[], object]) -> None:
    """Let something happen between the look at a table's columns and what follows from it."""
    left = [disturb]

    def compare_then_disturb(*schemas: deltalake.Schema) -> Any:
        found = compare(*schemas)
        if found.added and left:
            left.pop()()
        return found

    monkeypatch.setattr("bronze_pipeline.tables.tables.compare", compare_then_disturb)


def test_two_programs_that_add_the_same_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add(open_older(lake), 0, FIRST, schema=OLDER)
    at_the_first_look(monkeypatch, lake.events)
    add(lake.events(), 1, SECOND)
    assert seen(lake) == {"r:0": SEEN_BY_OLDER["r:0"], "r:1": SEEN["r:1"]}


def test_two_programs_that_add_different_fields_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add(open_older(lake), 0, FIRST, schema=OLDER)
    other = OLDER.append(pa.field("fee", pa.int64()))
    at_the_first_look(monkeypatch, lambda: lake.open("bronze", other, PARTITION_COLUMNS))
    lake.events()
    after = versions(lake)
    lake.open("bronze", pa.schema([*EVENTS, pa.field("fee", pa.int64())]), PARTITION_COLUMNS)
    assert len(versions(lake)) <= len(after) + (lake.format == "parquet")
    with pytest.raises(TableError, match="fee is long, but must be string"):
        lake.open("bronze", pa.schema([*EVENTS, pa.field("fee", pa.string())]), PARTITION_COLUMNS)


def test_two_programs_that_add_a_field_with_different_types_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(open_older(lake), 0, FIRST, schema=OLDER)
    number, text = (OLDER.append(pa.field("fee", kind)) for kind in (pa.int64(), pa.string()))
    refused: list[TableError] = []

    def try_open(schema: pa.Schema) -> None:
        try:
            lake.open("bronze", schema, PARTITION_COLUMNS)
        except TableError as error:
            refused.append(error)

    at_the_first_look(monkeypatch, lambda: try_open(number))
    try_open(text)
    # At most one of them can be right, and from now on the same one.
    try_open(number)
    try_open(text)
    kinds = {str(error).rpartition("fee is ")[2] for error in refused}
    assert kinds in ({"long, but must be string."}, {"string, but must be long."})


OPEN = """
import sys
from bronze_pipeline.tables.lake import Lake
print("ready", flush=True)
sys.stdin.readline()
Lake(*sys.argv[1:]).events()
print("done", flush=True)
"""


class Opening:
    """A process that opens the bronze table when told to."""

    def __init__(self, lake: Lake) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OPEN, lake.place, lake.format],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)

    def end(self) -> tuple[int, str]:
        output, _ = self._process.communicate(timeout=60)
        return self._process.returncode, output


@pytest.mark.timeout(300)
def test_processes_that_open_a_table_at_once(lake: Lake) -> None:
    add(open_older(lake), 0, FIRST, schema=OLDER)
    processes = [Opening(lake) for _ in range(PROCESSES)]
    for each in processes:
        each.go()
    assert [each.end() for each in processes] == [(0, "done\n")] * PROCESSES
    before = versions(lake)
    add(lake.events(), 1, SECOND)
    assert len(versions(lake)) == len(before) + 1
    assert seen(lake) == {"r:0": SEEN_BY_OLDER["r:0"], "r:1": SEEN["r:1"]}


@pytest.mark.timeout(300)
def test_a_process_that_is_killed_while_it_adds_fields(lake: Lake) -> None:
    add(open_older(lake), 0, FIRST, schema=OLDER)
    for _ in range(PROCESSES):
        process = Opening(lake)
        process.go()
        process.kill()
    # As if killed in the middle of writing a note.
    if lake.format == "parquet":
        Path(lake.place, "bronze/_commits/0.schema.new").write_text("{")
    add(lake.events(), 1, SECOND)
    assert seen(lake) == {"r:0": SEEN_BY_OLDER["r:0"], "r:1": SEEN["r:1"]}


BARS = pa.schema(
    [("date", pa.date32()), ("symbol", pa.string()), ("close", pa.int64()), ("vwap", pa.decimal128(38, 18))]
)
OLDER_BARS = without(BARS, "vwap")


def bars(tmp_path: Path, schema: pa.Schema) -> UpsertTable:
    return UpsertTable(Lake(str(tmp_path)), "bars", schema, ("date", "symbol"))


def stored_bars(tmp_path: Path) -> list[tuple[Any, ...]]:
    rows = pa.table(deltalake.DeltaTable(tmp_path / "bars").to_pyarrow_table()).to_pylist()
    return sorted((row["symbol"], row["close"], row.get("vwap") and int(row["vwap"])) for row in rows)


def test_rows_that_an_older_program_rewrites_keep_what_it_does_not_know(tmp_path: Path) -> None:
    old = [{"date": 0, "symbol": name, "close": 1} for name in ("A", "B")]
    bars(tmp_path, OLDER_BARS).put(pa.Table.from_pylist(old, OLDER_BARS), "job", 0)
    # The newer program replaces one row of a file without its column, and keeps the other.
    bars(tmp_path, BARS).put(
        pa.Table.from_pylist(
            [{**old[0], "close": 2, "vwap": 2}, {"date": 0, "symbol": "C", "close": 2, "vwap": 5}], BARS
        ),
        "job",
        1,
    )
    assert stored_bars(tmp_path) == [("A", 2, 2), ("B", 1, None), ("C", 2, 5)]
    older = bars(tmp_path, OLDER_BARS)
    older.put(pa.Table.from_pylist([{**old[0], "close": 3}], OLDER_BARS), "job", 2)
    assert stored_bars(tmp_path) == [("A", 3, None), ("B", 1, None), ("C", 2, 5)]


def test_compaction_and_filters_work_across_older_and_newer_files(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    add(open_older(lake), 0, FIRST, SECOND, schema=OLDER)
    add(lake.events(), 1, {**FIRST, "event_id": "s:0", "stream_id": "s"}, THIRD)
    before = seen(lake)
    url = lake.table_url("bronze")
    rows = deltalake.DeltaTable(url).to_pyarrow_dataset()
    for where, expected in (
        (pyarrow.dataset.field("quote").is_valid(), ["r:2"]),
        (pyarrow.dataset.field("origin") == "ORIGIN_REPLAY", ["r:2", "s:0"]),
        (pyarrow.dataset.field("trade", "sequence") == 7, ["s:0"]),
    ):
        assert sorted(rows.to_table(["event_id"], filter=where)["event_id"].to_pylist()) == expected
    assert deltalake.DeltaTable(url).optimize.compact()["numFilesRemoved"] == 2
    assert seen(lake) == before
