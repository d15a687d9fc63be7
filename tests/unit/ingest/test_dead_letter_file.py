"""The dead-letter file holds what was not published, within its bounds, whatever the disk does."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bronze_sidecar.ingest import dead_letter_file
from bronze_sidecar.ingest.dead_letter_file import DeadLetterFile
from bronze_sidecar.ingest.dead_letters import DeadLetter, read_line
from bronze_sidecar.telemetry.metrics import Metrics
from structlog.testing import capture_logs


def letter(position: int, content: bytes = b"\x00\xffenvelope") -> DeadLetter:
    return DeadLetter(
        time=datetime(2026, 11, 18, 2, 3, 4, 567000, tzinfo=UTC),
        kind="failed",
        reason="too large",
        backend="nats",
        destination="bronze.trade",
        event_id=f"s:{position}",
        stream_id="s",
        position=position,
        producer_id="p",
        source="test/1",
        origin="replay",
        form="envelope",
        content=content,
    )


def positions(path: Path) -> list[int]:
    return [json.loads(line)["position"] for line in path.read_text().splitlines()]


def count(metrics: Metrics, name: str) -> float:
    value = metrics.registry.get_sample_value(f"bronze_{name}_total")
    assert value is not None
    return value


def write(path: Path, *letters: DeadLetter, max_bytes: int = 3 << 20) -> Metrics:
    metrics = Metrics()
    file = DeadLetterFile(path, max_bytes, metrics)
    for each in letters:
        file.put(each)
    file.close()
    return metrics


def test_a_letter_is_one_json_line_for_its_owner_alone(tmp_path: Path) -> None:
    metrics = write(tmp_path / "dead", letter(7))
    line: dict[str, Any] = json.loads((tmp_path / "dead").read_text())
    assert line == {
        "time": "2026-11-18T02:03:04.567000Z",
        "kind": "failed",
        "reason": "too large",
        "backend": "nats",
        "destination": "bronze.trade",
        "event_id": "s:7",
        "stream_id": "s",
        "position": 7,
        "producer_id": "p",
        "source": "test/1",
        "origin": "replay",
        "form": "envelope",
        "content": "AP9lbnZlbG9wZQ==",
    }
    assert stat.S_IMODE((tmp_path / "dead").stat().st_mode) == 0o600
    assert (count(metrics, "dead_letters"), count(metrics, "dead_letters_lost")) == (1, 0)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "dead", letter(7))
    assert read_line((tmp_path / "dead").read_bytes()) == letter(7)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "truncated"),
        (b"{}", "missing required field `time`"),
        (b"[]", "Expected `object`"),
        (b"\xff", "invalid character"),
        (b'{"time":"2026-11-18T02:03:04Z","kind":"lost"}', "Invalid enum value 'lost'"),
    ],
)
def test_what_is_not_a_letter_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_line(line)


def test_three_files_hold_the_newest_letters_within_the_bound(tmp_path: Path) -> None:
    line = len(letter(10).line())
    with capture_logs() as logs:
        write(tmp_path / "dead", *map(letter, range(10, 25)), max_bytes=3 * 3 * line + 2)
    assert positions(tmp_path / "dead") == [22, 23, 24]
    assert positions(tmp_path / "dead.1") == [19, 20, 21]
    assert positions(tmp_path / "dead.2") == [16, 17, 18]
    assert {each.name for each in tmp_path.iterdir()} == {"dead", "dead.1", "dead.2"}
    assert [each["event"] for each in logs] == ["the oldest dead letters are deleted: the files are full"]


def test_a_process_goes_on_where_another_one_stopped(tmp_path: Path) -> None:
    write(tmp_path / "dead", letter(1))
    write(tmp_path / "dead", letter(2))
    assert positions(tmp_path / "dead") == [1, 2]


def test_a_line_that_a_killed_process_left_unfinished_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "dead").write_bytes(letter(1).line() + b'{"time":')
    write(tmp_path / "dead", letter(2))
    first, broken, last = (tmp_path / "dead").read_bytes().splitlines()
    assert (read_line(first).position, broken, read_line(last).position) == (1, b'{"time":', 2)


def test_letters_that_cannot_be_written_are_counted_and_warned_of(tmp_path: Path) -> None:
    with capture_logs() as logs:
        metrics = write(tmp_path / "gone" / "dead", letter(1), letter(2))
    assert (count(metrics, "dead_letters"), count(metrics, "dead_letters_lost")) == (0, 2)
    assert logs[0]["event"] == "dead letters are lost"
    assert logs[0]["reason"] == "No such file or directory"
    assert logs[0]["path"] == str(tmp_path / "gone" / "dead")


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is always full")
    with pytest.raises(OSError, match="No space"), full.open("ab", buffering=0) as device:
        dead_letter_file._write(device, b"content", 0)  # type: ignore[arg-type]
    path = tmp_path / "dead"
    path.write_bytes(b"before\n")

    class Half:
        """A file on a disk that has room for three bytes."""

        def __init__(self, descriptor: int) -> None:
            self._descriptor = descriptor
            self._room = 3

        def write(self, view: memoryview) -> int:
            if not self._room:
                raise OSError(28, "No space left on device")
            self._room = 0
            return os.write(self._descriptor, view[:3])

        def truncate(self, size: int) -> None:
            os.ftruncate(self._descriptor, size)

    with path.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
        dead_letter_file._write(Half(file.fileno()), b"content", 7)  # type: ignore[arg-type]
    assert path.read_bytes() == b"before\n"


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    append = DeadLetterFile._append

    def hang(self: DeadLetterFile, lines: list[bytes]) -> int:
        goes_on.wait()
        return append(self, lines)

    monkeypatch.setattr(DeadLetterFile, "_append", hang)
    monkeypatch.setattr(dead_letter_file, "MOST_WAITING_BYTES", 1000)
    metrics = Metrics()
    file = DeadLetterFile(tmp_path / "dead", 3 << 20, metrics)
    with capture_logs() as logs:
        for position in range(1000):
            file.put(letter(position, b"x" * 100))
    lost = count(metrics, "dead_letters_lost")
    # Ten wait; those before them may have been taken already.
    assert 970 <= lost <= 990
    assert [each["reason"] for each in logs] == ["they come faster than the disk takes them"]
    goes_on.set()
    file.close()
    assert count(metrics, "dead_letters") == 1000 - lost
    assert len(positions(tmp_path / "dead")) == 1000 - lost
