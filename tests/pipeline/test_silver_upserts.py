"""Tables whose rows are replaced by key: no Spark, no server."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from bronze_pipeline.silver.logs import log_of
from bronze_pipeline.silver.upserts import UpsertTable
from bronze_pipeline.tables import delta_log, partition_index
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.lean_delta import LeanDeltaTable

SCHEMA = pa.schema(
    [("date", pa.date32()), ("symbol", pa.string()), ("minute", pa.int64()), ("close", pa.string())]
)
KEY = ("date", "symbol", "minute")


def table(place: Path) -> UpsertTable:
    return UpsertTable(Lake(str(place)), "bars", SCHEMA, KEY)


def put(into: UpsertTable, batch: int, *bars: tuple[int, str | None, int, str]) -> None:
    rows = [
        {"date": date(2024, 1, day), "symbol": symbol, "minute": minute, "close": close}
        for day, symbol, minute, close in bars
    ]
    into.put(pa.Table.from_pylist(rows, SCHEMA), "job", batch)


def stored(place: Path, where: ds.Expression | None = None) -> list[tuple[Any, ...]]:
    found = deltalake.DeltaTable(place / "bars").to_pyarrow_dataset().to_table(filter=where).to_pylist()
    rows = [(row["date"].day, row["symbol"], row["minute"], row["close"]) for row in found]
    return sorted(rows, key=str)


def paths(place: Path) -> set[str]:
    return set(deltalake.DeltaTable(place / "bars").file_uris())


def test_rows_with_the_same_key_are_replaced(tmp_path: Path) -> None:
    bars = table(tmp_path)
    put(bars, 0, (1, "A", 0, "10"), (1, "B", 0, "20"), (2, "A", 0, "30"))
    put(bars, 1, (1, "A", 0, "11"), (1, "A", 1, "12"), (3, "A", 0, "40"))
    put(table(tmp_path), 2, (1, "A", 1, "13"))
    assert stored(tmp_path) == [
        (1, "A", 0, "11"),
        (1, "A", 1, "13"),
        (1, "B", 0, "20"),
        (2, "A", 0, "30"),
        (3, "A", 0, "40"),
    ]


def test_a_row_without_a_symbol_is_replaced_too(tmp_path: Path) -> None:
    bars = table(tmp_path)
    put(bars, 0, (1, None, 0, "10"), (1, "A", 0, "20"))
    put(bars, 1, (1, None, 0, "11"))
    assert stored(tmp_path) == [(1, "A", 0, "20"), (1, None, 0, "11")]


def test_files_without_one_of_the_keys_stay(tmp_path: Path) -> None:
    bars = table(tmp_path)
    put(bars, 0, (1, "A", 0, "10"), (2, "A", 0, "20"))
    put(bars, 1, (1, "A", 1, "11"))
    before = paths(tmp_path)
    assert len(before) == 3
    put(bars, 2, (1, "A", 1, "12"))
    assert len(paths(tmp_path)) == 3
    assert len(paths(tmp_path) & before) == 2
    assert stored(tmp_path) == [(1, "A", 0, "10"), (1, "A", 1, "12"), (2, "A", 0, "20")]


def test_nothing_lists_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That would cost more with every file, on either side."""
    put(table(tmp_path), 0, (1, "A", 0, "10"), (2, "A", 0, "20"))
    bars = table(tmp_path)

    def refuse(*given: Any, **named: Any) -> None:
        raise AssertionError("delta-rs reads the list of all files")

    with monkeypatch.context() as patch:
        patch.setattr(deltalake, "DeltaTable", refuse)
        put(bars, 1, (1, "A", 0, "11"), (1, "A", 1, "12"))
        log = log_of(Lake(str(tmp_path)).table_url("bars"))
        assert log.version() == 2
        assert [file.rows for file in log.added(2)] == [2]
        assert log.table_id()
    assert stored(tmp_path) == [(1, "A", 0, "11"), (1, "A", 1, "12"), (2, "A", 0, "20")]
    assert log.table_id() == str(deltalake.DeltaTable(tmp_path / "bars").metadata().id)


def test_the_log_is_read_once_for_all_days_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = range(1, 29)
    put(table(tmp_path), 0, *((day, "A", 0, "10") for day in days))
    read = delta_log.last_checkpoint
    loads: list[Path] = []

    def counting(folder: Path) -> tuple[int, list[Path], int]:
        loads.append(folder)
        return read(folder)

    monkeypatch.setattr(partition_index, "last_checkpoint", counting)
    put(table(tmp_path), 1, *((day, "A", 0, "11") for day in days))
    assert len(loads) == 1
    assert {close for *_, close in stored(tmp_path)} == {"11"}
    assert len(stored(tmp_path)) == len(days)


def test_a_batch_is_known_by_its_number(tmp_path: Path) -> None:
    put(table(tmp_path), 0, (1, "A", 0, "10"))
    again = table(tmp_path)
    assert again.has("job", 0)
    assert not again.has("job", 1)
    assert not again.has("other", 0)


def test_compaction_between_a_look_and_a_commit_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars = table(tmp_path)
    put(bars, 0, (1, "A", 0, "10"), (1, "B", 0, "20"))
    put(bars, 1, (1, "A", 1, "11"))
    commit = LeanDeltaTable.commit

    def after_compaction(*given: Any, **named: Any) -> None:
        monkeypatch.undo()
        assert deltalake.DeltaTable(tmp_path / "bars").optimize.compact()["numFilesRemoved"] == 2
        commit(*given, **named)

    monkeypatch.setattr(LeanDeltaTable, "commit", after_compaction)
    put(bars, 2, (1, "A", 1, "12"), (1, "A", 2, "13"))
    assert stored(tmp_path) == [(1, "A", 0, "10"), (1, "A", 1, "12"), (1, "A", 2, "13"), (1, "B", 0, "20")]
    # What the refused attempt wrote is gone.
    on_disk = {path.name for path in (tmp_path / "bars").rglob("*.parquet")}
    in_log = {Path(path).name for path in paths(tmp_path)}
    assert len(on_disk - in_log) == 3


@pytest.mark.parametrize("column", ["symbol", "close"])
def test_readers_can_compare_texts(tmp_path: Path, column: str) -> None:
    bars = table(tmp_path)
    put(bars, 0, (1, "A", 0, "A"), (1, "B", 0, "B"))
    put(bars, 1, (1, "A", 0, "A"))
    assert stored(tmp_path, ds.field(column) == "A") == [(1, "A", 0, "A")]
