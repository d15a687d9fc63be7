"""The ledger of a bronze table, in both formats: no Spark, no server."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
from bronze_pipeline.decoding.envelope import ID_PATTERN
from bronze_pipeline.decoding.schema import EVENTS
from bronze_pipeline.ledger import examining
from bronze_pipeline.ledger import ledger as ledgers
from bronze_pipeline.ledger.examining import examine_ledger
from bronze_pipeline.ledger.ledger import Own
from bronze_pipeline.positions import examine
from bronze_pipeline.tables.files import FileWriter, Written
from bronze_pipeline.tables.history import history_of
from bronze_pipeline.tables.lake import FORMATS, Lake
from bronze_pipeline.tables.table_duplicates import distinct


def events(*ids: str | None) -> pa.RecordBatch:
    rows = []
    for event_id in ids:
        found = re.match(ID_PATTERN, event_id or "")
        row: dict[str, Any] = {"date": 0, "exchange": "x", "payload_case": "trade", "event_id": event_id}
        if found:
            row |= {
                "stream_id": found["stream_id"],
                "position": int(found["position"]),
                "level": None if found["level"] is None else int(found["level"]),
            }
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, EVENTS)


class Job:
    """Does with batches what the bronze job does, and can die at any step."""

    def __init__(self, lake: Lake, name: str = "job") -> None:
        self.lake, self.name = lake, name
        self.said: list[str] = []
        self.start()

    def start(self) -> None:
        self.table = self.lake.events()
        self.ledger = self.lake.ledger(self.said.append)

    def write(self, *ids: str | None) -> list[Written]:
        writer = FileWriter(self.table.staging, EVENTS, "part")
        writer.write(events(*ids))
        return writer.finish()

    def run(self, number: int, *ids: str | None, dies: bool = False) -> int | None:
        """Store a batch; return how many duplicates were left out, None if the table had it."""
        if self.table.has(self.name, number):
            return None
        self.ledger.advance()
        found = distinct(self.table, self.ledger, self.write(*ids))
        self.table.commit(found.files, self.name, number)
        if not dies:
            self.ledger.advance(Own(self.name, number, found.entry))
        return found.duplicates

    def stored(self) -> list[str]:
        history = history_of(self.lake.table_url("bronze"), self.lake.format)
        system, root = self.table.folder.open()
        found: list[str] = []
        for path in history.paths(history.newest(-1)):
            with system.open_input_file(f"{root}/{path}") as file:
                found += pa.parquet.read_table(file, columns=["event_id"])["event_id"].to_pylist()
        return sorted(found, key=str)


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), request.param)


@pytest.fixture
def folder(lake: Lake) -> Path:
    return Path(lake.place, "bronze/_ledger")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make segments of few entries, and merge them up to a few runs."""
    monkeypatch.setattr(ledgers, "ENTRIES_MOST", 4)
    monkeypatch.setattr(ledgers, "ENTRIES_KEPT", 2)
    monkeypatch.setattr(ledgers, "SEGMENT_RUNS_MOST", 20)
    monkeypatch.setattr("bronze_pipeline.ledger.segments.ROWS_IN_GROUP", 3)
    monkeypatch.setattr(examining, "ROWS_IN_GROUP", 3)
    monkeypatch.setattr(examining, "RUNS_AT_ONCE", 5)


def test_levels_of_a_message_that_a_batch_cut_are_new(lake: Lake) -> None:
    job = Job(lake)
    assert job.run(0, "a:0", "a:1.0", "a:1.1") == 0
    assert job.run(1, "a:1.1", "a:1.2", "a:2") == 1
    assert job.stored() == ["a:0", "a:1.0", "a:1.1", "a:1.2", "a:2"]


def test_ids_with_leading_zeros_are_others(lake: Lake) -> None:
    job = Job(lake)
    assert job.run(0, "a:1", "a:01", "a:2.0", "a:2.00", "a:2") == 0
    job.start()
    assert job.run(1, "a:1", "a:01", "a:001", "a:2.00", "a:2.0", "a:2.000", "a:3", "odd") == 4
    assert job.stored() == ["a:001", "a:01", "a:1", "a:2", "a:2.0", "a:2.00", "a:2.000", "a:3", "odd"]


def test_a_crash_between_the_commit_and_the_ledger_is_mended(lake: Lake) -> None:
    job = Job(lake)
    job.run(0, "a:0")
    job.run(1, "a:1", "b:0.0", dies=True)
    job.start()
    assert job.said == []
    assert job.run(1, "a:1", "b:0.0") is None
    # A new checkpoint reads everything again.
    assert Job(lake, "other").run(0, "a:0", "a:1", "a:2", "b:0.0", "b:0.1") == 3
    assert job.stored() == ["a:0", "a:1", "a:2", "b:0.0", "b:0.1"]


def test_a_damaged_entry_is_made_again_from_the_log(lake: Lake, folder: Path) -> None:
    job = Job(lake)
    job.run(0, "a:0")
    job.run(1, "a:1")
    for entry in folder.glob("*.entry.parquet"):
        entry.write_bytes(b"no Parquet")
    job.start()
    assert job.run(2, "a:0", "a:1", "a:2") == 2


def test_an_existing_table_gets_a_ledger(lake: Lake, folder: Path) -> None:
    job = Job(lake)
    job.run(0, "a:0", None, "odd")
    job.run(1, "a:1", "b:7")
    url = lake.table_url("bronze")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    job.start()
    first, last = job.said
    assert first == f"making the ledger of {url} from 2 files; this is done once"
    assert last.startswith("the ledger is complete after ")
    assert job.run(2, "a:0", "a:1", "a:2", "b:7", "odd", None) == 4
    job.said.clear()
    job.start()
    assert job.said == []


def spoil_manifest(folder: Path) -> None:
    (folder / "ledger.json").write_text("{")


def spoil_form(folder: Path) -> None:
    manifest = folder / "ledger.json"
    manifest.write_text(manifest.read_text().replace('"form": 1', '"form": 7'))


def spoil_summary(folder: Path) -> None:
    next(folder.glob("segment-*.streams.parquet")).write_bytes(b"PAR1")


def lose_summary(folder: Path) -> None:
    next(folder.glob("segment-*.streams.parquet")).unlink()


def spoil_runs(folder: Path) -> None:
    """Change one byte of a page, which only its checksum shows."""
    file = max(folder.glob("segment-*.parquet"), key=lambda each: ".streams" not in each.name)
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_manifest, "it cannot be read: Expecting"),
        (spoil_form, "its form is 7, not 1"),
        (spoil_summary, "it cannot be read: "),
        (lose_summary, "a file is gone: "),
        (spoil_runs, "it cannot be read: "),
    ],
)
def test_a_damaged_ledger_is_made_again(
    small: None, lake: Lake, folder: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    job = Job(lake)
    for number in range(6):
        job.run(number, f"a:{number}", f"b:{number}.0")
    spoil(folder)
    job.start()
    assert job.run(6, *(f"a:{number}" for number in range(7))) == 6
    assert job.said[0].startswith(f"the ledger of {lake.table_url('bronze')} cannot be used: {reason}")
    assert job.stored() == sorted(
        [f"a:{number}" for number in range(7)] + [f"b:{number}.0" for number in range(6)]
    )


def test_another_table_at_the_same_place_does_not_use_the_ledger(lake: Lake, folder: Path) -> None:
    Job(lake).run(0, "a:0")
    root = folder.parent
    for part in ("_delta_log", "_commits"):
        for file in (root / part).glob("*"):
            file.unlink()
    job = Job(lake)
    assert job.said == [
        f"the ledger of {lake.table_url('bronze')} cannot be used: it belongs to another table"
    ]
    assert job.run(0, "a:0") == 0


def test_rows_that_were_deleted_may_come_again(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    job = Job(lake)
    job.run(0, "a:0", "a:1")
    deltalake.DeltaTable(lake.table_url("bronze")).delete("event_id = 'a:0'")
    assert job.run(1, "a:0", "a:1") == 1
    assert job.said[0].endswith("cannot be used: version 2 of the table removed rows")
    assert job.stored() == ["a:0", "a:1"]


def test_compaction_and_trimming_change_nothing(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    job = Job(lake)
    job.run(0, "a:0")
    job.run(1, "a:1")
    deltalake.DeltaTable(lake.table_url("bronze")).optimize.compact()
    assert job.run(2, "a:0", "a:1", "a:2") == 2
    assert job.said == []


def test_a_version_that_the_log_forgot_makes_it_anew(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    job = Job(lake)
    job.run(0, "a:0")
    job.run(1, "a:1", dies=True)
    job.run(2, "a:2", dies=True)
    table = deltalake.DeltaTable(lake.table_url("bronze"))
    for entry in (tmp_path / "bronze/_ledger").glob("*.entry.parquet"):
        if int(entry.name.partition(".")[0]) > 1:
            entry.unlink()
    table.create_checkpoint()
    for entry in (tmp_path / "bronze/_delta_log").glob("*[12].json"):
        entry.unlink()
    job.start()
    assert "cannot be used: the table's log no longer has version 2" in job.said[0]
    assert Job(lake, "other").run(0, "a:0", "a:1", "a:2", "a:3") == 3


def random_batch(chance: random.Random) -> list[str]:
    stream = chance.choice("abc")
    begin = chance.randrange(60)
    ids = []
    for position in range(begin, begin + chance.randrange(1, 12)):
        levels = (position * 7 + ord(stream)) % 4
        ids += [f"{stream}:{position}.{level}" for level in range(levels)] or [f"{stream}:{position}"]
    cut = chance.randrange(len(ids) + 1)
    return ids[cut:] + chance.choices(ids, k=2) + chance.choices(["odd", f"{stream}~end:{begin}"], k=1)


@pytest.mark.parametrize("seed", range(6))
def test_random_batches_kills_and_restarts_store_each_id_once(small: None, lake: Lake, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    job = Job(lake)
    expected: set[str] = set()
    for number in range(25):
        batch = random_batch(chance)
        dies = chance.random() < 0.2
        duplicates = job.run(number, *batch, dies=dies)
        assert duplicates == len(batch) - len(set(batch) - expected)
        expected |= set(batch)
        if dies or chance.random() < 0.1:
            job.start()
        if dies and chance.random() < 0.5:
            assert job.run(number, *batch) is None
    assert job.stored() == sorted(expected)
    assert job.said == []
    # What the ledger says of the streams is what their files say.
    assert_same_report(job)


def assert_same_report(job: Job) -> None:
    url = job.lake.table_url("bronze")
    history = history_of(url, job.lake.format)
    system, root = job.table.folder.open()

    def files(columns: list[str]) -> list[pa.Table]:
        return [
            pa.parquet.ParquetFile(f"{root}/{path}", filesystem=system).read(columns)
            for path in history.paths(history.newest(-1))
        ]

    assert examine_ledger(url) == examine(files)
    for stream in "abz":
        assert examine_ledger(url, stream, 70) == examine(files, stream, 70)


def test_rows_that_are_there_twice_are_counted(small: None, lake: Lake) -> None:
    job = Job(lake)
    for number in range(7):
        # Not as the job does it.
        assert not job.table.has("odd", number)
        job.table.commit(job.write("a:3", "a:4.1", "a:3"), "odd", number)
        job.ledger.advance()
    assert_same_report(job)
    report = examine_ledger(lake.table_url("bronze"))
    assert report is not None
    (stream,) = report.streams
    assert (stream.events, stream.duplicates, stream.missing, stream.cut) == (21, 19, [(0, 2)], [4])


def test_a_table_without_a_ledger_is_no_matter_of_the_ledger(lake: Lake) -> None:
    lake.events()
    assert examine_ledger(lake.table_url("bronze")) is None


def test_a_reader_sees_what_the_job_has_not_noted_yet(small: None, lake: Lake, folder: Path) -> None:
    job = Job(lake)
    job.run(0, "a:0")
    for number in range(1, 8):
        assert not job.table.has("job", number)
        job.table.commit(job.write(f"a:{number}"), "job", number)
    before = sorted(folder.iterdir())
    report = examine_ledger(lake.table_url("bronze"))
    assert report is not None
    assert [stream.messages for stream in report.streams] == [8]
    assert sorted(folder.iterdir()) == before


def test_two_jobs_on_one_table(small: None, tmp_path: Path) -> None:
    lake, folder = Lake(str(tmp_path)), tmp_path / "bronze/_ledger"
    one, other = Job(lake, "one"), Job(lake, "other")
    for number in range(12):
        assert one.run(number, f"a:{number}", f"b:{number}.0") == 0
        # It knows what the other has stored since.
        assert other.run(number, f"a:{number}", f"b:{number}.0", f"c:{number}") == 2
    # Segments that the other job no longer needs.
    for file in folder.glob("segment-*"):
        os.utime(file, (1000, 1000))
    for number in range(12, 18):
        one.run(number, f"a:{number}")
    everything = [f"a:{number}" for number in range(18)] + [f"c:{number}" for number in range(12)]
    assert other.run(12, *everything, "d:0") == len(everything)
    assert (one.said, other.said) == ([], [])
    assert_same_report(one)


def test_what_two_jobs_settle_is_whole_for_hours(small: None, tmp_path: Path) -> None:
    """Each removes what the other has named an hour ago and it does not name."""
    lake, folder = Lake(str(tmp_path)), tmp_path / "bronze/_ledger"
    url = lake.table_url("bronze")
    jobs = [Job(lake, "one"), Job(lake, "other")]
    for number in range(30):
        for job in jobs:
            # No two can be one run, so segments grow until they are no longer merged.
            assert job.run(number, *(f"{job.name}:{20 * number + place}" for place in (0, 2, 4, 6))) == 0
        for file in folder.glob("segment-*"):
            ten_minutes_ago = file.stat().st_mtime - 600
            os.utime(file, (ten_minutes_ago, ten_minutes_ago))
        report = examine_ledger(url)
        assert report is not None
        assert [stream.messages for stream in report.streams] == [4 * number + 4] * 2
    assert [job.said for job in jobs] == [[], []]
    assert Job(lake, "third").said == []


def test_ledgers_made_at_the_same_time(tmp_path: Path) -> None:
    lake, folder = Lake(str(tmp_path)), tmp_path / "bronze/_ledger"
    job = Job(lake)
    for number in range(5):
        job.run(number, f"a:{number}")
    shutil.rmtree(folder)
    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda name: Job(lake, str(name)), range(4)))
    for number, each in enumerate(jobs):
        assert each.run(0, *(f"a:{position}" for position in range(5)), f"b:{number}") == 5
    assert_same_report(jobs[0])
