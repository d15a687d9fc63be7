"""Tables and duplicates, in both formats: no Spark, no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet
import pytest
from aws_servers import keys_in
from bronze_pipeline.bronze.task import first_events
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.ledger.ledger import Ledger
from bronze_pipeline.tables.files import FileWriter, Written
from bronze_pipeline.tables.history import history_of
from bronze_pipeline.tables.lake import FORMATS, Lake
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.table_duplicates import distinct
from bronze_pipeline.tables.tables import (
    Table,
    TableChanged,
    TableError,
    candidates,
    commit_new,
    format_of,
)


def events(*ids: str | None, day: int = 0, case: str = "trade", exchange: str = "x") -> pa.RecordBatch:
    """Make rows by their ids `stream:position`, or any other text."""
    rows = []
    for event_id in ids:
        stream, _, position = (event_id or "").rpartition(":")
        numbers = {"stream_id": stream, "position": int(position)} if stream else {}
        rows.append(
            {"date": day, "exchange": exchange, "payload_case": case, "event_id": event_id, **numbers}
        )
    return pa.RecordBatch.from_pylist(rows, EVENTS)


def write(table: Table, *batches: pa.RecordBatch) -> list[Written]:
    writer = FileWriter(table.staging, EVENTS, "part")
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def new_in(table: Table) -> Callable[[Sequence[Written]], Sequence[Written]]:
    """Return what finds out which events are new, as the bronze job does."""
    url = table.folder.url
    ledger = Ledger(url, history_of(url, format_of(url) or ""))
    ledger.open()

    def new(files: Sequence[Written]) -> Sequence[Written]:
        ledger.advance()
        return distinct(table, ledger, files).files

    return new


def add(table: Table, number: int, *batches: pa.RecordBatch, job: str = "job") -> int:
    """Add a batch as the job does; return how many duplicates were left out."""
    assert not table.has(job, number)
    files = [file for batch in batches for file in write(table, batch)]
    kept = commit_new(table, files, job, number, new_in(table))
    assert kept is not None
    return sum(file.rows for file in files) - sum(file.rows for file in kept)


def stored(lake: Lake) -> list[str | None]:
    if lake.format == "delta":
        rows = pa.table(deltalake.DeltaTable(lake.table_url("bronze")).to_pyarrow_table(columns=["event_id"]))
    else:
        rows = pyarrow.dataset.dataset(lake.table_url("bronze"), partitioning="hive").to_table(["event_id"])
    return sorted(rows["event_id"].to_pylist(), key=str)


@pytest.fixture(
    params=[
        pytest.param(
            (format_, where), marks=pytest.mark.servers if where == "s3" else (), id=f"{format_}-{where}"
        )
        for format_ in FORMATS
        for where in ("folder", "s3")
    ]
)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    """Return a lake in a folder or a bucket, of each format."""
    format_, where = request.param
    if where == "folder":
        yield Lake(str(tmp_path / "lake"), format_)
        return
    request.getfixturevalue("s3_environment")
    bucket = request.getfixturevalue("bucket")
    yield Lake(f"s3a://{bucket}/lake", format_)
    keys = keys_in(request.getfixturevalue("aws_emulator").url, bucket)
    assert not [key for key in keys if key.endswith("/")], "objects that stand for folders"


@pytest.mark.servers
@pytest.mark.usefixtures("s3_environment")
def test_commits_at_the_same_time_do_not_replace_each_other_in_s3(bucket: str) -> None:
    url = Lake(f"s3a://{bucket}/lake").table_url("bronze")

    def write_some(job: int) -> None:
        for number in range(5):
            rows = pa.table({"event_id": [f"{job}:{number}"]})
            deltalake.write_deltalake(url, rows, mode="append", storage_options=storage_options(url))

    write_some(0)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_some, range(1, 5)))
    assert stored(Lake(f"s3://{bucket}/lake")) == [f"{job}:{each}" for job in range(5) for each in range(5)]
    assert deltalake.DeltaTable(url).version() == 24


def test_files_are_divided_by_day_and_exchange(lake: Lake) -> None:
    table = lake.events()
    files = write(
        table,
        events("a:1", exchange="b"),
        events("a:2", case="quote"),
        events("a:3", day=1),
        events("a:4"),
    )
    assert [(dict(file.partition), file.rows) for file in files] == [
        ({"date": "1970-01-01", "exchange": "b"}, 1),
        ({"date": "1970-01-01", "exchange": "x"}, 2),
        ({"date": "1970-01-02", "exchange": "x"}, 1),
    ]


def test_each_case_of_a_file_has_its_own_row_group(lake: Lake) -> None:
    table = lake.events()
    [file] = write(table, events("a:1"), events("a:2", case="quote"), events("a:3"))
    system, root = table.staging.open()
    stored_file = pyarrow.parquet.ParquetFile(f"{root}/{file.path}", filesystem=system)
    groups = [
        stored_file.read_row_group(number, ["payload_case", "event_id"]).to_pylist()
        for number in range(stored_file.num_row_groups)
    ]
    assert groups == [
        [{"payload_case": "quote", "event_id": "a:2"}],
        [{"payload_case": "trade", "event_id": "a:1"}, {"payload_case": "trade", "event_id": "a:3"}],
    ]
    assert (file.lowest["payload_case"], file.highest["payload_case"]) == ("quote", "trade")


def test_odd_names_of_exchanges(lake: Lake) -> None:
    names = ["a/b", "..", "a b%2F", "Börse\n", "", "x=y"]
    table = lake.events()
    batches = [events(f"a:{place}", exchange=name) for place, name in enumerate(names)]
    add(table, 0, pa.Table.from_batches(batches).combine_chunks().to_batches()[0])
    assert add(lake.events(), 1, *batches) == len(names)
    columns = ["event_id", "exchange"]
    if lake.format == "delta":
        rows = pa.table(deltalake.DeltaTable(lake.table_url("bronze")).to_pyarrow_table(columns=columns))
    else:
        folder = pyarrow.dataset.dataset(lake.table_url("bronze"), partitioning="hive")
        rows = folder.to_table(columns)
    found = {row["event_id"]: row["exchange"] for row in rows.to_pylist()}
    # No table format can store an empty name in a partition: it becomes NULL.
    assert found == {"a:0": "a/b", "a:1": "..", "a:2": "a b%2F", "a:3": "Börse\n", "a:4": None, "a:5": "x=y"}


def test_files_that_were_not_committed_are_not_seen(lake: Lake) -> None:
    table = lake.events()
    write(table, events("a:0"))
    add(table, 0, events("a:1"))
    assert stored(lake) == ["a:1"]


def test_a_batch_is_known_by_job_and_number_also_after_a_restart(lake: Lake) -> None:
    add(lake.events(), 0, events("a:1"))
    again = lake.events()
    assert again.has("job", 0)
    assert not again.has("job", 1)
    assert not again.has("other", 0)


def test_an_empty_commit_marks_its_batch(lake: Lake) -> None:
    table = lake.events()
    table.commit([], "job", 0)
    assert table.has("job", 0)
    assert add(table, 1, events("a:1")) == 0
    assert stored(lake) == ["a:1"]


def test_a_full_file_is_written_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bronze_pipeline.tables.files.ROWS_IN_FILE", 3)
    files = write(
        lake.events(), events("a:1", "a:2"), events("a:3"), events("a:4", exchange="y"), events("a:5")
    )
    assert sorted((file.partition["exchange"], file.rows) for file in files) == [("x", 1), ("x", 3), ("y", 1)]


def test_what_the_table_has_is_left_out(lake: Lake) -> None:
    table = lake.events()
    add(table, 0, events("a:1", "a:2", "a:3"))
    assert add(table, 1, events("a:2", "a:3", "a:4", "b:2")) == 2
    assert add(table, 2, events("a:1", "a:4")) == 2
    assert stored(lake) == ["a:1", "a:2", "a:3", "a:4", "b:2"]


def test_ids_count_not_their_days_or_exchanges(lake: Lake) -> None:
    table = lake.events()
    add(table, 0, events("a:1"))
    assert add(table, 1, events("a:1", day=5, exchange="y")) == 1


def test_duplicates_between_the_files_of_a_batch_are_left_out(lake: Lake) -> None:
    assert add(lake.events(), 0, events("a:1", "a:2"), events("a:2", "a:3"), events("a:1")) == 2
    assert stored(lake) == ["a:1", "a:2", "a:3"]


def test_ids_of_another_form_and_no_id_at_all(lake: Lake) -> None:
    table = lake.events()
    add(table, 0, events("odd", None))
    assert add(table, 1, events("odd", None, "a:1")) == 1
    assert add(table, 2, events("odd")) == 1
    assert stored(lake) == [None, None, "a:1", "odd"]


def test_repeats_among_what_waits_for_files_are_left_out(lake: Lake) -> None:
    table = lake.events()
    writer = FileWriter(table.staging, EVENTS, "part", first=first_events)
    writer.write(events("a:1", None, "a:2", exchange="y"))
    writer.write(events("a:1", None, "a:1", "a:3"))
    table.commit(writer.finish(), "job", 0)
    assert writer.repeats == 2
    assert stored(lake) == [None, None, "a:1", "a:2", "a:3"]


def test_only_files_that_may_hold_an_id_are_opened(lake: Lake) -> None:
    table = lake.events()
    add(table, 0, events("a:1", "a:9"))
    add(table, 1, events("a:10", "a:19"))
    add(table, 2, events("b:1", "b:9"))
    wanted = pa.table({"stream_id": ["a"], "lowest": [12], "highest": [15]})
    assert table.has("job", 2)
    paths = candidates(table.index(), wanted, without_stream=False)
    assert len(paths) == 1
    folder, path = table.folder.open()
    rows = pyarrow.dataset.dataset([f"{path}/{paths[0]}"], filesystem=folder).to_table(["event_id"])
    assert rows["event_id"].to_pylist() == ["a:10", "a:19"]


def test_a_table_that_is_divided_otherwise_is_refused(lake: Lake) -> None:
    add(lake.open("bronze", EVENTS, ("exchange",)), 0, events("a:1"))
    with pytest.raises(TableError, match=r"is partitioned by exchange, but must be by date, exchange\.$"):
        lake.events()


def test_a_table_of_another_format_is_refused(lake: Lake) -> None:
    lake.events()
    (other,) = set(FORMATS) - {lake.format}
    with pytest.raises(TableError, match=rf"bronze has the format {lake.format}: use --format {lake.format}"):
        Lake(lake.place, other).events()


@pytest.mark.parametrize("place", ["/proc/lake", "odd://lake"])
def test_a_place_where_no_table_can_be_is_named(place: str, lake: Lake) -> None:
    with pytest.raises(TableError, match=rf"^cannot open the .*table at .*{place}/bronze: .*[^\n]$"):
        Lake(place, lake.format).events()


def test_readers_can_filter_any_column_of_a_delta_table(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    add(lake.events(), 0, events("a:1", "a:2"))
    add(lake.events(), 1, events("odd", None))
    rows = deltalake.DeltaTable(lake.table_url("bronze")).to_pyarrow_dataset()
    for wanted, expected in (
        (pc.field("event_id") == "a:2", ["a:2"]),
        (pc.field("position") == 1, ["a:1"]),
        (pc.field("position").is_null(), ["odd", None]),
        (pc.field("level").is_null(), ["a:1", "a:2", "odd", None]),
    ):
        found = rows.to_table(["event_id"], filter=wanted)["event_id"].to_pylist()
        assert sorted(found, key=lambda each: (each is None, each)) == expected


def test_a_commit_is_refused_if_the_table_has_changed_since_the_look(lake: Lake) -> None:
    first, second = lake.events(), lake.events()
    assert not first.has("one", 0)
    assert not second.has("two", 0)
    first.commit(write(first, events("a:1")), "one", 0)
    files = write(second, events("a:2"))
    with pytest.raises(TableChanged, match=r"^the table at (file|s3):.*/lake/bronze keeps changing"):
        second.commit(files, "two", 0)
    assert stored(lake) == ["a:1"]
    # Nothing was lost: after another look the same files can be committed.
    assert not second.has("two", 0)
    second.commit(files, "two", 0)
    assert stored(lake) == ["a:1", "a:2"]


def test_two_jobs_may_write_to_one_table(lake: Lake) -> None:
    """Both look, then both commit; the second leaves out what the first has brought."""
    tables = {"one": lake.events(), "two": lake.events()}
    for batch in range(3):
        looked = [(job, table, table.has(job, batch)) for job, table in tables.items()]
        written = [
            (job, table, write(table, events(f"a:{batch}", f"a:{batch + 1}", f"{job}:{batch}")))
            for job, table, has in looked
            if not has
        ]
        for job, table, files in written:
            assert commit_new(table, files, job, batch, new_in(table)) is not None
    ones, twos = ([f"{job}:{batch}" for batch in range(3)] for job in tables)
    assert stored(lake) == ["a:0", "a:1", "a:2", "a:3", *ones, *twos]


def test_a_batch_that_another_process_stores_meanwhile_is_not_stored_again(lake: Lake) -> None:
    """Events without an id are known by nothing but the number of their batch."""
    first, second = lake.events(), lake.events()
    assert not first.has("job", 0)
    assert not second.has("job", 0)
    files = [(table, write(table, events(None))) for table in (first, second)]
    kept = [commit_new(table, each, "job", 0, lambda files: files) for table, each in files]
    assert [found is None for found in kept] == [False, True]
    assert stored(lake) == [None]


def test_compaction_between_a_look_and_a_commit_loses_and_doubles_nothing(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    table = lake.events()
    for batch in range(3):
        add(table, batch, events(f"a:{batch}"))
    assert not table.has("job", 3)
    deltalake.DeltaTable(lake.table_url("bronze")).optimize.compact()
    files = write(table, events("a:2", "a:3"))
    commit_new(table, files, "job", 3, new_in(table))
    assert stored(lake) == ["a:0", "a:1", "a:2", "a:3"]


def test_a_new_job_leaves_alone_what_another_one_is_writing_to_a_parquet_table(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"), "parquet")
    first = lake.events()
    assert not first.has("one", 0)
    files = write(first, events("a:1"))
    assert not lake.events().has("two", 0)
    first.commit(files, "one", 0)
    assert stored(lake) == ["a:1"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a-0.json", "{}", "_commits/a-0.json is not a commit note."),
        ("0000000000.json", "", "_commits/0000000000.json is damaged: not enough values to unpack"),
        ("0000000000.json", '{"job":', "_commits/0000000000.json is damaged: Expecting value"),
        ("0000000000.json", "{}", "_commits/0000000000.json is damaged: "),
    ],
)
def test_a_damaged_note_of_a_parquet_table_is_named(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    lake = Lake(str(tmp_path / "lake"), "parquet")
    lake.events()
    (tmp_path / "lake/bronze/_commits" / name).write_text(text)
    with pytest.raises(TableError, match=r"^cannot open the Parquet table at file:") as caught:
        lake.events()
    assert reason in str(caught.value)


def test_parquet_files_of_a_killed_attempt_go_when_the_batch_comes_again(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"), "parquet")
    table = lake.events()
    add(table, 0, events("a:1"))
    table.commit(write(table, events("a:2")), "job", 1)
    # Killed after the files were in place, and before that was noted.
    next((tmp_path / "lake/bronze/_commits").glob("*1.json")).unlink()
    again = lake.events()
    assert not again.has("job", 1)
    assert stored(lake) == ["a:1"]
