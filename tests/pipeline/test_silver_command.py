"""`bronze-pipeline silver`: its flags, and one run of everything as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bronze_pipeline.cli import main
from bronze_pipeline.intervals import Interval, parse_interval
from bronze_pipeline.tables.lake import Lake
from silver_frames import Bronze, trade

TIMES = "It looks like 500ms, 30s, 5m, 1h or 1d."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", Interval("500ms", "500 milliseconds", 500_000)),
        ("1m", Interval("1m", "1 minutes", 60_000_000)),
        ("1d", Interval("1d", "1 days", 86_400_000_000)),
        ("0s", None),
        ("1", None),
        ("-1s", None),
        ("1.5s", None),
        ("1w", None),
    ],
)
def test_intervals(text: str, expected: Interval | None) -> None:
    assert parse_interval(text) == expected


def test_every_problem_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--bars", "1m,soon,60s", "--watermark", "late", "--book-depth", "-1", "--book-interval", "x"]
    flags += ["--trigger", "0s", "--max-records-per-batch", "none", "--cores", "0"]
    assert main(["silver", "--from", "nowhere", "--to", "s3://bucket/silver", *flags]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  {problem}"
        for problem in (
            "--from: there is no table at nowhere.",
            f"--bars: entry 2 'soon' is not a duration. {TIMES}",
            f"--watermark: 'late' is not a duration. {TIMES}",
            "--book-depth: -1 is out of range. It must be a whole number from 0 to 1000.",
            f"--book-interval: 'x' is not a duration. {TIMES}",
            f"--trigger: '0s' is not a duration. {TIMES}",
            (
                "--max-records-per-batch: 'none' is not a valid number."
                " It must be a whole number from 1 to 1000000000."
            ),
            "--cores: 0 is out of range. It must be a whole number from 1 to 4096.",
        )
    ]


def test_bars_of_the_same_length_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bronze = Bronze(tmp_path)
    flags = ["--from", f"{bronze.lake.place}/bronze", "--to", str(tmp_path / "silver"), "--bars", "1m,60s"]
    assert main(["silver", *flags]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == ["  --bars: '60s' is as long as another one."]


def test_another_table_than_bronze_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Lake(str(tmp_path)).quarantine()
    place = str(tmp_path / "quarantine")
    assert main(["silver", "--from", place, "--to", str(tmp_path / "silver")]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  --from: the table at {place} is not a bronze table: it has no payload_case."
    ]


def test_places_that_cannot_be_written_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bronze = Bronze(tmp_path)
    file = tmp_path / "file"
    file.touch()
    flags = ["--from", f"{bronze.lake.place}/bronze", "--to", f"{file}/silver", "--checkpoint", str(file)]
    assert main(["silver", *flags]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  --to: {file} is not a folder.",
        f"  --checkpoint: {file} is not a folder.",
    ]


class Job:
    """A run that goes on until it is stopped, with one trade stored."""

    def __init__(self, folder: Path) -> None:
        bronze = Bronze(folder / "bronze")
        bronze.add(trade("r:0", "10", "1", 0))
        flags = ["--from", bronze.url, "--to", str(folder / "silver"), "--trigger", "1s", "--book-depth", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bronze_pipeline", "silver", *flags, "--bars", "", "--cores", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.said = ""
        assert self._process.stderr
        while "records, batch 0: 1 trades" not in self.said:
            line = self._process.stderr.readline()
            assert line, self.said
            self.said += line

    def end(self) -> tuple[int, str]:
        """Wait for the end; return exit status and output."""
        output, rest = self._process.communicate(timeout=120)
        self.said += rest
        return self._process.returncode, output


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("java")
def test_ctrl_c_ends_a_run_that_goes_on(tmp_path: Path) -> None:
    job = Job(tmp_path)
    # As a terminal does: to Python, the JVM and the workers.
    os.killpg(job.pid, signal.SIGINT)
    status, output = job.end()
    assert status == 0, job.said
    assert "Traceback" not in job.said
    assert json.loads(output)["rows"] == {"trades": 1}


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("java")
def test_the_end_of_java_is_told(tmp_path: Path) -> None:
    job = Job(tmp_path)
    (java,) = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    os.kill(int(java), signal.SIGKILL)
    status, output = job.end()
    assert status == 1, job.said
    assert (
        "bronze-pipeline: Spark's Java process has ended: it was killed, or ran out of memory."
        " Start the command again; it resumes where it stopped.\n" in job.said
    )
    assert json.loads(output)["rows"] == {"trades": 1}
