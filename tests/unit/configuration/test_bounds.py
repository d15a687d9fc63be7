"""What a sidecar may hold follows from its memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from bronze_sidecar.configuration import bounds as bounds_module
from bronze_sidecar.configuration.bounds import Bounds, available_memory, bounds, request_bytes
from bronze_sidecar.configuration.config import load
from configurations import MINIMAL, problems_of

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (192, Bounds(16_666, 11_184_810, 17, 68)),
        (512, Bounds(100_000, 67_108_864, 107, 428)),
        (2048, Bounds(500_000, 335_544_320, 538, 2152)),
    ],
)
def test_bounds_follow_from_the_memory(memory: int, expected: Bounds) -> None:
    assert bounds(memory * MEBIBYTE, MEBIBYTE) == expected


@pytest.mark.parametrize(
    ("includes", "queues"),
    [
        ({"nats": "", "redis": "", "kafka": ""}, 1),
        ({"nats": "trade", "redis": ""}, 1),
        ({"nats": "trade", "redis": "quote"}, 2),
        # Once what takes everything is empty, the others may be full.
        ({"nats": "trade", "redis": "quote", "kafka": ""}, 2),
        ({"nats": "trade,quote", "redis": "quote,bookChange", "kafka": "bookChange,trade"}, 2),
        ({"nats": "trade,quote", "redis": "quote,liquidation", "kafka": "bookChange,quote"}, 3),
    ],
)
def test_back_ends_that_take_different_events_divide_the_memory(
    includes: dict[str, str], queues: int
) -> None:
    flags = [flag for name in includes for flag in MINIMAL[name]]
    flags += [f"--{name}-include-payloads={cases}" for name, cases in includes.items() if cases]
    config = load([*flags, "--memory-limit=512Mi"], {})
    expected = bounds(512 * MEBIBYTE, MEBIBYTE, queues)
    assert (config.max_queue_events, config.max_queue_bytes) == expected[:2]
    assert config.max_queue_events == 100_000 // queues
    assert config.max_streams == 107


def test_large_events_leave_room_for_fewer_streams() -> None:
    assert bounds(512 * MEBIBYTE, 16 * MEBIBYTE).max_streams == 7
    assert request_bytes(16 * MEBIBYTE) == 16_973_824


def test_options_beat_what_follows_from_the_memory() -> None:
    config = load(["--memory-limit=1Gi", "--max-queue-events=7", "--max-streams=3"], {})
    assert (config.memory_limit, config.max_queue_events, config.max_streams) == (1 << 30, 7, 3)
    assert config.max_queue_bytes == 156_587_349


@pytest.mark.parametrize(
    ("text", "expected"),
    [("536870912\n", 512), ("max\n", 512), ("9223372036854771712\n", 512), ("1073741824", 1024), ("1", 192)],
)
def test_the_limit_of_the_container_is_the_default(
    text: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "memory.max"
    file.write_text(text)
    monkeypatch.setattr(bounds_module, "CGROUP_FILES", (tmp_path / "none", file))
    assert available_memory() == expected * MEBIBYTE


@pytest.mark.parametrize(
    ("text", "size"),
    [("256Mi", 256 * MEBIBYTE), ("1g", 10**9), ("512 MiB", 512 * MEBIBYTE), ("268435456", 268_435_456)],
)
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert load([f"--memory-limit={text}"], {}).memory_limit == size


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "much",
            "--memory-limit: 'much' is not a size. It is a size such as 512Mi, from 192Mi to 1048576Gi.",
        ),
        ("1Mi", "--memory-limit: 1Mi is out of range. It is a size such as 512Mi, from 192Mi to 1048576Gi."),
    ],
)
def test_a_wrong_size_is_refused(text: str, problem: str) -> None:
    assert problems_of(f"--memory-limit={text}") == [problem]


def test_each_dead_letter_file_must_hold_the_largest_request(tmp_path):
    file = f"--dead-letter-file={tmp_path}/dead"
    needed = "is too little for the largest event. With this --max-event-bytes it needs 7471104."
    assert problems_of(file, "--dead-letter-max-bytes=7Mi") == [f"--dead-letter-max-bytes: {needed}"]
    assert load([file, "--dead-letter-max-bytes=7471104"], {}).dead_letter_max_bytes == 7_471_104
    assert load(["--dead-letter-max-bytes=1Mi"], {}).dead_letter_file is None
