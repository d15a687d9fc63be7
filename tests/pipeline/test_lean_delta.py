"""A Delta log that we extend ourselves, as delta-rs reads it: no Spark, no server."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.tables import checkpoints, lean_delta
from bronze_pipeline.tables.checkpoints import trim, write_checkpoint
from bronze_pipeline.tables.files import FileWriter, Written
from bronze_pipeline.tables.history import DeltaHistory
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import Table, TableChanged
from pyarrow.fs import LocalFileSystem


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "bronze/_delta_log"


def write(table: Table, event_id: str, exchange: str = "x") -> list[Written]:
    writer = FileWriter(table.staging, EVENTS, "part")
    row = {"date": 0, "exchange": exchange, "payload_case": "trade", "event_id": event_id}
    writer.write(pa.RecordBatch.from_pylist([row], EVENTS))
    return writer.finish()


def add(table: Table, number: int, exchange: str = "x", job: str = "job") -> None:
    assert not table.has(job, number)
    table.commit(write(table, f"a:{number}", exchange), job, number)


def stored(lake: Lake) -> list[tuple[str, str | None]]:
    columns = ["event_id", "exchange"]
    rows = deltalake.DeltaTable(lake.table_url("bronze")).to_pyarrow_table(columns=columns).to_pylist()
    return sorted((row["event_id"], row["exchange"]) for row in rows)


def test_delta_rs_reads_what_we_commit(lake: Lake) -> None:
    names = ["x", "a/b", "..", "a b%2F", "Börse\n", "", "x=y", "~"]
    table = lake.events()
    for number, name in enumerate(names):
        add(table, number, name)
    assert stored(lake) == [(f"a:{number}", name or None) for number, name in enumerate(names)]
    whole = deltalake.DeltaTable(lake.table_url("bronze"))
    assert whole.transaction_version("job") == len(names) - 1
    assert whole.version() == len(names)
    first = pa.table(whole.get_add_actions(flatten=True)).to_pylist()[0]
    assert (first["num_records"], first["min.payload_case"]) == (1, "trade")


def test_a_commit_loads_no_list_of_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.events()
    monkeypatch.delattr(deltalake.DeltaTable, "__init__")
    table = lake.events()
    for number in range(3):
        add(table, number)
    assert lake.events().has("job", 2)


def test_checkpoints_hold_all_that_the_log_says(
    lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lean_delta, "CHECKPOINT_EVERY", 4)
    table = lake.events()
    for number in range(6):
        add(table, number)
    add(table, 0, job="other")
    # By delta-rs, with removed files in its next checkpoint.
    deltalake.DeltaTable(lake.table_url("bronze")).optimize.compact()
    for number in range(6, 11):
        add(table, number)
    deltalake.DeltaTable(lake.table_url("bronze")).create_checkpoint()
    for number in range(11, 18):
        add(table, number)
    made = sorted(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert made == [3, 7, 11, 13, 15, 19]
    # Nothing but the last checkpoint and what follows.
    for path in log.glob("*.json"):
        if int(path.stem) <= made[-1]:
            path.unlink()
    expected = sorted([*((f"a:{number}", "x") for number in range(18)), ("a:0", "x")])
    assert stored(lake) == expected
    whole = deltalake.DeltaTable(lake.table_url("bronze"))
    assert [whole.transaction_version(job) for job in ("job", "other", "none")] == [17, 0, None]
    again = lake.events()
    assert again.has("job", 17)
    assert not again.has("other", 1)
    history = DeltaHistory(lake.table_url("bronze"))
    assert len(history.paths(history.newest(-1))) == len(whole.file_uris()) == 13
    assert history.table_id() == str(whole.metadata().id)


def test_a_checkpoint_does_not_take_the_place_of_a_newer_one(lake: Lake, log: Path) -> None:
    """One process commits, and before it writes the checkpoint another one commits and writes it."""
    table, url = lake.events(), lake.table_url("bronze")
    for number in range(4):
        add(table, number)
    newest = deltalake.DeltaTable(url).version()
    write_checkpoint(log, newest)
    said = (log / "_last_checkpoint").read_bytes()
    write_checkpoint(log, newest - 1)
    assert (log / "_last_checkpoint").read_bytes() == said
    assert [len(deltalake.DeltaTable(url, version).file_uris()) for version in (newest - 1, newest)] == [3, 4]


def test_a_checkpoint_forgets_what_was_removed_long_ago(
    lake: Lake, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.events()
    for number in range(3):
        add(table, number)
    whole = deltalake.DeltaTable(lake.table_url("bronze"))
    whole.optimize.compact()
    write_checkpoint(log, 4)
    assert kinds(log, 4) == {"add": 1, "remove": 3, "metaData": 1, "protocol": 1, "txn": 1}
    monkeypatch.setattr(checkpoints, "TOMBSTONES_KEPT", timedelta(0))
    add(table, 3)
    write_checkpoint(log, 5)
    assert kinds(log, 5) == {"add": 2, "metaData": 1, "protocol": 1, "txn": 1}


def kinds(log: Path, version: int) -> dict[str, int]:
    rows = pa.parquet.read_table(log / f"{version:020}.checkpoint.parquet")
    counts = {name: len(rows) - rows[name].null_count for name in rows.schema.names}
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("other", ["compaction", "job"])
def test_a_commit_in_between_is_noticed_whatever_it_was(lake: Lake, other: str) -> None:
    first, second = lake.events(), lake.events()
    add(first, 0)
    add(first, 1)
    assert not second.has("two", 0)
    if other == "job":
        add(first, 2)
    else:
        deltalake.DeltaTable(lake.table_url("bronze")).optimize.compact()
    files = write(second, "b:0")
    with pytest.raises(TableChanged):
        second.commit(files, "two", 0)
    assert not second.has("two", 0)
    second.commit(files, "two", 0)
    expected = ["a:0", "a:1", *(["a:2"] if other == "job" else []), "b:0"]
    assert stored(lake) == [(event_id, "x") for event_id in expected]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_table_with_other_features_is_left_to_delta_rs(lake: Lake, *, is_open: bool) -> None:
    table = lake.events()
    assert not table.has("job", 0)
    whole = deltalake.DeltaTable(lake.table_url("bronze"))
    whole.alter.add_feature(deltalake.TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    if not is_open:
        table = lake.events()
    add(table, 0)
    assert table.has("job", 0)
    assert stored(lake) == [("a:0", "x")]
    first = (Path(lake.place) / "bronze/_delta_log" / f"{2:020}.json").read_text().splitlines()[0]
    assert json.loads(first)["commitInfo"]["engineInfo"].startswith("delta-rs")


def test_trimming_leaves_what_is_young_or_needed(lake: Lake, log: Path) -> None:
    table = lake.events()
    for number in range(9):
        add(table, number)
        if number in {3, 5}:
            write_checkpoint(log, number + 1)
    for path in log.iterdir():
        if path.name[:20].isdecimal() and int(path.name[:20]) <= 6:
            os.utime(path, (1000, 1000))
    # Versions 0 to 5, and the first checkpoint.
    assert trim(LocalFileSystem(), str(log), 2000) == 7
    assert sorted(path.name.lstrip("0") for path in log.iterdir()) == [
        "6.checkpoint.parquet",
        "6.json",
        "7.json",
        "8.json",
        "9.json",
        "_last_checkpoint",
    ]
    assert len(stored(lake)) == 9
    assert trim(LocalFileSystem(), str(log), 2000) == 0
    assert lake.events().has("job", 8)


def test_in_a_store_too_a_commit_follows_the_look(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean_delta, "_log_of", lambda *_: None)
    table, other = lake.events(), lake.events()
    add(table, 0)
    assert not table.has("job", 1)
    folder = "date=1970-01-01/exchange=x"
    # What is asked twice is of one version, whatever is committed in between.
    near = table.near([folder], {})
    assert len(near) == 1
    add(other, 0, job="other")
    assert table.near([folder], {}) == near
    assert len(table.index()) == 1
    with pytest.raises(TableChanged):
        table.commit(write(table, "a:1"), "job", 1)
    assert not table.has("job", 1)
    assert len(table.near([folder], {})) == 2
