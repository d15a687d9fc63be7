"""The demo: it ends by itself, finds everything, and leaves nothing behind but a chart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from demo_lake import missing_java
from market import replay

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join((str(ROOT / "tests"), str(ROOT / "tools")))
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tools" / "demo.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder), **variables},
    )


def processes_of(folder: Path) -> list[str]:
    """Return the command lines that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has ended
        if str(folder) in command:
            found.append(command)
    return found


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def test_it_shows_that_nothing_is_missing_and_leaves_nothing_but_a_chart(
    folder: Path, tmp_path: Path
) -> None:
    demo = start(folder, "--messages=3000", f"--out={tmp_path}")
    text, _ = demo.communicate(timeout=550)
    assert demo.returncode == 0, text
    bus, has_tables, tables = text.partition("6. From the bus to a bronze table, by Spark")
    assert has_tables
    assert "Everything is there, once and in order." in bus
    figures = {
        line.rsplit(None, 1)[0].strip(): line.rsplit(None, 1)[1]
        for line in bus.partition("5. Nothing missing?")[2].splitlines()
        if line.strip() and line.rsplit(None, 1)[1].replace(",", "").isdigit()
    }
    assert figures["events expected"] == figures["events read back"]
    assert [figures[name] for name in ("positions missing", "duplicates", "out of order")] == ["0"] * 3
    assert "bronze.okex-swap.BTC%2FUSDT." in bus
    assert "\x1b" not in text
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []
    if missing_java() is not None:
        assert "Everything above stands without it." in tables
        return
    with_end = int(figures["events expected"].replace(",", "")) + 1
    assert f"{with_end:,} events in the table, 0 in quarantine" in tables
    assert "\n    complete\n" in tables
    rows = dict(line.split() for line in tables.splitlines() if len(line.split()) == 2)
    # Each trade became a row, and each message that changes a book.
    kinds = Counter(json.loads(line)["type"] for line in replay(3000))
    assert rows["trades"] == f"{kinds['trade']:,}"
    assert rows["book_top"] == f"{kinds['book_change']:,}"
    assert "show the books as they were built; 0 do not." in tables
    assert [path.name for path in tmp_path.iterdir()] == ["chart.png"]
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_without_java_the_first_half_counts(folder: Path, tmp_path: Path) -> None:
    demo = start(folder, "--messages=500", f"--out={tmp_path}", JAVA_HOME=str(tmp_path))
    text, _ = demo.communicate(timeout=150)
    assert demo.returncode == 0, text
    assert "Everything is there, once and in order." in text
    assert "Left out: Spark needs Java 17 or newer: install it, or set JAVA_HOME." in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_kept_running_it_says_where_to_look_and_an_interrupt_ends_all(
    folder: Path, number: signal.Signals
) -> None:
    demo = start(folder, "--messages=500", "--keep", "--without-tables")
    assert demo.stdout
    text = ""
    while "its log" not in text:
        line = demo.stdout.readline()
        assert line, text
        text += line
    for piece in (
        "/readyz",
        "/metrics",
        "bronze-sidecar send market.ndjson --to unix:///",
        "nats://127.0.0.1:",
    ):
        assert piece in text
    assert len(processes_of(folder)) == 2
    demo.send_signal(number)
    demo.communicate(timeout=60)
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("messages", "seconds", "step"), [(200_000, "0.2", "3. Through"), (500, "1.5", "6. From the bus")]
)
def test_a_step_that_takes_too_long_ends_it_with_a_sentence(
    folder: Path, tmp_path: Path, messages: int, seconds: str, step: str
) -> None:
    if step.startswith("6") and missing_java() is not None:
        pytest.skip("without Java there are no tables")
    demo = start(folder, f"--messages={messages}", f"--step-seconds={seconds}", f"--out={tmp_path}")
    text, _ = demo.communicate(timeout=150)
    assert demo.returncode == 1
    assert f"The demo ends here: this step took more than {seconds} seconds." in text.partition(step)[2]
    assert "Traceback" not in text
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


def test_interrupted_half_way_it_leaves_nothing(folder: Path) -> None:
    demo = start(folder, "--messages=200000")
    deadline = time.monotonic() + 60
    while len(processes_of(folder)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []
