"""The command line: what is refused, before Spark starts, and how it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bronze_pipeline.cli import main
from other_user import as_user, can_switch

GOOD = ("bronze", "--from", "nats://localhost/S", "--to", "lake")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--from", "natz://localhost/S"), "--from: no bus has the scheme 'natz'. Did you mean 'nats'?"),
        (
            ("--from", "nats://localhost"),
            "--from: name the servers and the stream, as in nats://host:4222/STREAM.",
        ),
        (("--from", "nats://u:geheim@localhost/S"), "--from: holds credentials. Give --nats-user and"),
        (("--trigger", "soon"), "--trigger: 'soon' is no time. It looks like 500ms, 30s or 5m."),
        (("--retries", "-1"), "--retries: '-1' is no whole number from 0 on."),
        (("--partitions", "0"), "--partitions: '0' is no whole number from 1 on."),
        (
            ("--max-records-per-batch", "many"),
            "--max-records-per-batch: 'many' is no whole number from 1 on.",
        ),
        (("--start", "noon"), "'start' is 'noon', but must be earliest, latest or a sequence number."),
        (("--nats-user", "me"), "--nats-user and --nats-password-file: give both, or neither."),
        (("--to", "s3://bucket/lake"), "--checkpoint: is required where --to is a URL"),
    ],
)
def test_a_flag_that_cannot_be_used_is_named(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GOOD, *flags]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert "geheim" not in printed


def test_a_file_in_the_way_of_the_tables_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a file"
    file.touch()
    assert main([*GOOD, "--to", f"{file}/lake", "--checkpoint", file.as_uri()]) == 2
    assert capsys.readouterr().err == (
        f"bronze-pipeline bronze: --to: {file} is no folder.\n"
        f"bronze-pipeline bronze: --checkpoint: {file} is no folder.\n"
    )


@pytest.mark.skipif(not can_switch(), reason="another user is needed, which may not write")
def test_a_folder_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bronze_pipeline", *GOOD, "--to", str(tmp_path / "lake")]
    done = subprocess.run(as_user(*command), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        f"bronze-pipeline bronze: --to: {tmp_path} may not be written to.\n",
    )


def test_all_problems_are_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GOOD, "--trigger", "x", "--partitions", "y", "--from", "z://"]) == 2
    assert [line.split(":")[1].strip() for line in capsys.readouterr().err.splitlines()] == [
        "--from",
        "--partitions",
        "--trigger",
    ]


def test_a_missing_flag_or_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["bronze"], ["gold"], [*GOOD, "--format", "csv"], [*GOOD, "--form", "delta"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "--from" in capsys.readouterr().err
