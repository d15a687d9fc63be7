"""What processes say is passed on, without chatter."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from bronze_pipeline.running.spark_output import without_chatter

SPEAKER = r"""
import sys
print("WARNING: Using incubator modules: jdk.incubator.vector", file=sys.stderr)
print("Starting Streaming TransformWithStateInPandas Python worker.\n", file=sys.stderr)
print("Streaming TransformWithStateInPandas Python worker finish init stage.\n", file=sys.stderr)
print("12:00:00 ERROR Executor: no space left\n\tat Disk.write", file=sys.stderr, flush=True)
sys.stdin.read()
print("\nWARNING: something else", file=sys.stderr)
"""


def test_what_matters_is_passed_on_as_long_as_the_process_lives() -> None:
    heard: list[str] = []
    with without_chatter(heard.append):
        process = subprocess.Popen([sys.executable, "-c", SPEAKER], stdin=subprocess.PIPE)
    process.communicate()
    assert process.returncode == 0
    expected = ["12:00:00 ERROR Executor: no space left", "        at Disk.write", "WARNING: something else"]
    deadline = time.monotonic() + 60
    while len(heard) < len(expected) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == expected


def test_standard_error_is_where_it_was_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    with without_chatter(heard.append):
        pass
    subprocess.run([sys.executable, "-c", "import sys; print('here', file=sys.stderr)"], check=True)
    assert capfd.readouterr().err == "here\n"
    assert heard == []
