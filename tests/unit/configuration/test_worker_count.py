"""How many workers there are, and what each of them has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bronze_sidecar.configuration import worker_count as module
from bronze_sidecar.configuration.config import load
from bronze_sidecar.configuration.worker_count import available_processors
from configurations import problems_of

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("quota", "processors"),
    [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("6400000 100000", 8), ("-1 100000", 8)],
)
def test_processors_are_those_of_the_container(
    quota: str, processors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(f"{quota}\n")
    monkeypatch.setattr(module, "QUOTA_FILES", ((tmp_path / "none",), (file,)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert available_processors() == processors


def test_the_first_version_of_control_groups_has_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "cpu.cfs_quota_us", tmp_path / "cpu.cfs_period_us"
    files[0].write_text("300000\n")
    files[1].write_text("100000\n")
    monkeypatch.setattr(module, "QUOTA_FILES", (files,))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert available_processors() == 3


@pytest.mark.parametrize(("memory", "workers"), [("192Mi", 1), ("448Mi", 2), ("639Mi", 2), ("2Gi", 4)])
def test_auto_starts_no_more_than_there_is_memory_for(
    memory: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_processors", lambda: 4)
    assert load(["--workers=auto", f"--memory-limit={memory}"], {}).workers == workers


def test_workers_share_the_memory() -> None:
    one, two = load(["--memory-limit=512Mi"], {}), load(["--memory-limit=512Mi", "--workers=2"], {})
    assert (one.workers, one.max_queue_bytes) == (1, 64 * MEBIBYTE)
    # 512 less 64 for the process above them, halved, less 128 for the worker itself, a sixth of the rest.
    assert two.max_queue_bytes == 96 * MEBIBYTE // 6


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--workers=0"],
            "--workers: 0 is out of range. It must be a whole number from 1 to 64. Or auto.",
        ),
        (
            ["--workers=many"],
            "--workers: 'many' is not a valid number. It must be a whole number from 1 to 64. Or auto.",
        ),
        (["--workers=3", "--memory-limit=512Mi"], "--workers: 3 need a --memory-limit of 640Mi or more."),
        (
            [
                *("--workers=2", "--memory-limit=1Gi", "--spool-dir=/tmp", "--nats-servers=h:1"),
                *("--nats-subject=a", "--nats-when-full=spill"),
            ],
            (
                "--workers: does not go with --nats-when-full=spill: what one worker has on disk would come"
                " behind what its stream sends through another. Remove one of them."
            ),
        ),
        (
            [
                *("--workers=4", "--memory-limit=2Gi", "--dead-letter-file=/tmp/letters"),
                "--dead-letter-max-bytes=8Mi",
            ],
            (
                "--dead-letter-max-bytes: is too little for the largest event. With this --max-event-bytes it"
                " needs 29884416."
            ),
        ),
    ],
)
def test_what_does_not_go_with_workers_is_refused(arguments: list[str], problem: str) -> None:
    assert problems_of(*arguments) == [problem]
