"""The proof of completeness: no Spark, no server."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bronze_pipeline.cli import main
from bronze_pipeline.positions import Report, StreamReport, examine
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import FORMATS, Lake
from silver_frames import Bronze, change, event, trade

OTHER = pa.schema([("date", pa.date32()), ("event_id", pa.string())])


def trades(*ids: str | None) -> list[dict[str, Any]]:
    return [trade(each, "1", "1", 0) for each in ids]


def levels(*ids: str) -> list[dict[str, Any]]:
    return [change(each, "BUY", "1", "1") for each in ids]


@pytest.fixture
def bronze(tmp_path: Path) -> Bronze:
    return Bronze(tmp_path)


def fails(place: Path, status: int, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--table", str(place)]) == status
    assert problem in capsys.readouterr().err


def verify(bronze: Bronze, *flags: str) -> int:
    return main(["verify", "--table", f"{bronze.lake.place}/bronze", *flags])


def found(bronze: Bronze, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    status = verify(bronze, "--json", *flags)
    return status, json.loads(capsys.readouterr().out)


def test_a_complete_stream(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*trades("r:0", "r:2"), *levels("r:1.0", "r:1.1"))
    bronze.add(*trades("r:3"))
    assert verify(bronze) == 0
    assert capsys.readouterr().out == (
        "stream  messages  events  missing  duplicates  cut\n"
        "r              4       5        0           0    0  complete, no end seen\n"
        "complete\n"
    )


def test_gaps_are_named(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*trades("r:1", "r:2", "r:6"))
    bronze.add(*trades("s:0", "r:8"))
    assert verify(bronze) == 1
    assert capsys.readouterr().out == (
        "stream  messages  events  missing  duplicates  cut\n"
        "r              4       4        5           0    0  incomplete, no end seen\n"
        "s              1       1        0           0    0  complete, no end seen\n"
        "r: missing 0, 3 to 5, 7\n"
        "NOT complete\n"
    )


def test_a_message_in_two_files_is_no_duplicate(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*levels("r:0.0", "r:0.1"))
    bronze.add(*levels("r:0.2", "r:0.3"))
    status, report = found(bronze, capsys)
    assert status == 0
    assert report == {
        "complete": True,
        "without_id": 0,
        "streams": [
            {
                "stream_id": "r",
                "events": 4,
                "messages": 1,
                "last": 0,
                "missing": [],
                "duplicates": 0,
                "cut": [],
                "end": None,
                "missing_messages": 0,
                "complete": True,
            }
        ],
    }


def stream(bronze: Bronze, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    status, report = found(bronze, capsys, *flags)
    assert status == 1
    (only,) = report["streams"]
    assert isinstance(only, dict)
    return only


def test_duplicates_in_one_file_and_in_two(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*trades("r:0", "r:1", "r:1"), *levels("r:2.0", "r:2.1"))
    bronze.add(*trades("r:0"), *levels("r:2.1", "r:2.2"))
    only = stream(bronze, capsys)
    assert (only["duplicates"], only["missing"], only["cut"]) == (3, [], [])


def test_levels_that_are_missing(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*levels("r:0.1", "r:1.0", "r:1.2", "r:2.0", "r:3.0"))
    bronze.add(*levels("r:2.2"))
    only = stream(bronze, capsys)
    assert (only["duplicates"], only["missing"], only["cut"]) == (0, [], [0, 1, 2])


def test_a_missing_end_is_noticed_where_the_length_is_known(
    bronze: Bronze, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0", "r:1"))
    assert verify(bronze, "--stream", "r", "--messages", "2") == 0
    capsys.readouterr()
    only = stream(bronze, capsys, "--stream", "r", "--messages", "5")
    assert only["missing"] == [[2, 4]]


def end(event_id: str) -> dict[str, Any]:
    return event("disconnect", event_id, {"reason": "stream_ended"})


def test_a_stream_whose_end_is_there_is_complete_or_lacks_its_last_messages(
    bronze: Bronze, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0", "r:1", "s:0"), end("s~end:4"), end("gone~end:2"))
    bronze.add(*trades("s:1"), end("r~end:2"))
    assert verify(bronze) == 1
    assert capsys.readouterr().out == (
        "stream  messages  events  missing  duplicates  cut\n"
        "gone           0       0        2           0    0  incomplete\n"
        "r              2       2        0           0    0  complete\n"
        "s              2       2        2           0    0  incomplete\n"
        "gone: missing 0 to 1\n"
        "s: missing 2 to 3\n"
        "NOT complete\n"
    )
    assert verify(bronze, "--stream", "r") == 0
    capsys.readouterr()
    only = stream(bronze, capsys, "--stream", "s")
    assert (only["missing"], only["end"], only["last"]) == ([[2, 3]], 4, 1)
    # Who knows of more is believed.
    only = stream(bronze, capsys, "--stream", "s", "--messages", "5")
    assert (only["missing"], only["end"]) == ([[2, 4]], 5)


def test_a_replay_that_was_cut_short_and_sent_again_ends_where_the_longer_one_does(
    bronze: Bronze, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0", "r:1"), end("r~end:2"))
    bronze.add(*trades("r:2", "r:3"))
    assert verify(bronze) == 0
    assert "complete, no end seen\n" in capsys.readouterr().out
    bronze.add(end("r~end:5"))
    assert stream(bronze, capsys)["missing"] == [[4, 4]]


def test_other_streams_do_not_count_for_one(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*trades("r:0", "s:5", None))
    assert verify(bronze, "--stream", "r") == 0
    assert verify(bronze, "--stream", "gone", "--messages", "1") == 1
    assert "gone: missing 0\n" in capsys.readouterr().out


def test_events_without_an_id_are_counted(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*trades("r:0", None, None))
    assert verify(bronze) == 1
    assert "2 events have no id, or an id without stream and position.\n" in capsys.readouterr().out


def test_a_position_far_out_needs_no_more_than_another(
    bronze: Bronze, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0", "r:100000000000000000", "r:4611686018427387903"))
    assert verify(bronze) == 1
    said = capsys.readouterr().out
    assert "r: missing 1 to 99999999999999999, 100000000000000001 to 4611686018427387902" in said


def test_many_gaps_are_shortened(bronze: Bronze, capsys: pytest.CaptureFixture[str]) -> None:
    bronze.add(*trades("r:1", "r:3", "r:5", "r:7", "r:9", "r:11", "r:13"))
    assert verify(bronze) == 1
    assert "r: missing 0, 2, 4, 6, 8 and 2 more; --json shows all\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--messages", "x"], "--messages: 'x' is not a valid number."),
        (
            ["--messages", "5"],
            "--messages: has no effect on its own. Add the --stream that should have this many.",
        ),
        ([], "--table: there is no table at nowhere."),
    ],
)
def test_wrong_flags(flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--table", "nowhere", *flags]) == 2
    assert problem in capsys.readouterr().err


def test_a_plain_folder_of_parquet_is_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bronze = Bronze(tmp_path, "parquet")
    bronze.add(*trades("r:0", "r:1"))
    bronze.add(*trades("r:3"))
    only = stream(bronze, capsys)
    assert (only["messages"], only["missing"]) == (3, [[2, 2]])


@pytest.mark.parametrize("format_", FORMATS)
def test_another_table_than_bronze_is_refused(
    format_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Lake(str(tmp_path), format_).open("other", OTHER, ("date",))
    assert not table.has("tests", 0)
    writer = FileWriter(table.staging, OTHER, "part")
    writer.write(pa.RecordBatch.from_pylist([{"date": date(2024, 1, 1), "event_id": "r:0"}], OTHER))
    table.commit(writer.finish(), "tests", 0)
    place = tmp_path / "other"
    fails(place, 2, f"--table: the table at {place} is not a bronze table: it has no payload_case.\n", capsys)


def test_a_table_that_cannot_be_read_is_named(
    bronze: Bronze, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0"))
    place = tmp_path / "bronze"
    (file,) = place.rglob("*.parquet")
    file.write_bytes(b"no Parquet")
    fails(place, 1, f"cannot read the table at {place}: Parquet magic bytes not found", capsys)
    for entry in (place / "_delta_log").iterdir():
        entry.write_text("no log")
    fails(place, 2, f"--table: the table at {place} cannot be read: ", capsys)


def test_positions_far_apart_and_out_of_order() -> None:
    parts = [[1_000_000], [3, 1, 0, 2], [999_999]]

    def files(columns: list[str]) -> list[pa.Table]:
        rows = [[{"stream_id": "r", "position": each, "level": None} for each in part] for part in parts]
        schema = pa.schema([("stream_id", pa.string()), ("position", pa.int64()), ("level", pa.int32())])
        return [pa.Table.from_pylist(part, schema).select(columns) for part in rows]

    assert examine(files) == Report([StreamReport("r", 6, 6, 1_000_000, [(4, 999_998)])], 0)


def test_the_ledger_answers_for_the_files(
    bronze: Bronze, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0", "r:1"))
    bronze.add(*trades("r:3"))
    bronze.lake.ledger(print)
    capsys.readouterr()
    for file in (tmp_path / "bronze").glob("date=*/*/*.parquet"):
        file.unlink()
    only = stream(bronze, capsys)
    assert (only["messages"], only["missing"]) == (3, [[2, 2]])
    fails_with_files = main(["verify", "--table", str(tmp_path / "bronze"), "--files"])
    assert fails_with_files == 1
    assert f"cannot read the table at {tmp_path / 'bronze'}: " in capsys.readouterr().err


def test_a_damaged_ledger_is_named_and_the_files_are_read(
    bronze: Bronze, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bronze.add(*trades("r:0"))
    bronze.lake.ledger(print)
    capsys.readouterr()
    (tmp_path / "bronze/_ledger/ledger.json").write_text("{}")
    assert verify(bronze) == 0
    said = capsys.readouterr()
    assert (
        "the ledger cannot be used: it cannot be read: 'form'; the table's files are read instead\n"
        in said.err
    )
    assert said.out.endswith("complete\n")
