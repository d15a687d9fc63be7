"""The command line: what is refused, before Spark starts, and how it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bronze_pipeline.cli import main
from other_user import as_user, can_switch

GOOD = ("bronze", "--from", "nats://localhost/S", "--to", "lake")


def command(*flags: str) -> list[str]:
    """Return a good command line in which these flags replace others."""
    given = dict(zip(GOOD[1::2], GOOD[2::2], strict=True)) | dict(zip(flags[::2], flags[1::2], strict=True))
    return [GOOD[0], *(word for pair in given.items() for word in pair)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--from", "natz://localhost/S"), "--from: no bus has the scheme 'natz'. Did you mean 'nats'?"),
        (
            ("--from", "nats://localhost"),
            "--from: does not name the servers and the stream. Write nats://host:4222/STREAM.",
        ),
        (("--from", "nats://u:geheim@localhost/S"), "--from: holds credentials. Use --nats-user and"),
        (
            ("--trigger", "soon"),
            "--trigger: 'soon' is not a duration. It looks like 500ms, 30s, 5m, 1h or 1d.",
        ),
        (("--retries", "-1"), "--retries: -1 is out of range. It must be a whole number from 0 to 1000000."),
        (
            ("--partitions", "0"),
            "--partitions: 0 is out of range. It must be a whole number from 1 to 10000.",
        ),
        (
            ("--max-records-per-batch", "many"),
            "--max-records-per-batch: 'many' is not a valid number.",
        ),
        (
            ("--start", "noon"),
            "--start: 'noon' is not a valid start. Use earliest, latest or a sequence number.",
        ),
        (("--nats-user", "me"), "--nats-user: has no effect on its own. Add --nats-password-file."),
        (("--nats-token-file", "/no/such"), "--nats-token-file: the file '/no/such' does not exist."),
        (("--nats-tls-ca-file", __file__), "--nats-tls-ca-file: has no effect. Use a tls:// URL."),
        (("--to", "s3://bucket/lake"), "--checkpoint: is required if --to is a URL."),
        (("--formt", "delta"), "--formt: no such option. Did you mean --format?"),
        (("--format", "csv"), "--format: 'csv' is not one of the choices. Choose from delta, parquet."),
    ],
)
def test_a_flag_that_cannot_be_used_is_named(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(*flags)) == 2
    printed = capsys.readouterr().err
    assert printed.splitlines()[0] == "bronze-pipeline: 1 problem in the configuration"
    assert said in printed
    assert "geheim" not in printed


def test_a_file_in_the_way_of_the_tables_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a file"
    file.touch()
    assert main(command("--to", f"{file}/lake", "--checkpoint", file.as_uri())) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"  --to: {file} is not a folder.",
        f"  --checkpoint: {file} is not a folder.",
    ]


@pytest.mark.skipif(not can_switch(), reason="another user is needed, which may not write")
def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "bronze_pipeline", *command("--to", str(tmp_path / "lake"))]
    done = subprocess.run(as_user(*program), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (
        2,
        [f"  --to: {tmp_path} cannot be written to."],
    )


def test_all_problems_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("--trigger", "x", "--partitions", "y", "--from", "z://")) == 2
    assert [line.split(":")[0].strip() for line in capsys.readouterr().err.splitlines()[1:]] == [
        "--from",
        "--trigger",
        "--partitions",
    ]


def test_a_missing_flag_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bronze"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        "  --from: is missing. Write --from=URL.",
        "  --to: is missing. Write --to=PLACE.",
    ]


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gold"]) == 2
    assert capsys.readouterr().err == (
        "bronze-pipeline: there is no command 'gold'."
        " Choose from bronze, silver, verify, report, maintain, chart, completion, help.\n"
    )


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: bronze-pipeline COMMAND [OPTIONS]\n")


@pytest.mark.parametrize("name", ["bronze", "silver", "verify", "chart"])
def test_a_command_describes_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: bronze-pipeline {name} --")
    assert ("--nats-password-file FILE" in text) == (name == "bronze")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "bronze-pipeline 0.1.0\n"
