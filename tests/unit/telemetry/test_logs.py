"""Log lines: readable or JSON, coloured only where someone can see it."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import structlog
from bronze_sidecar.telemetry.logs import logger, set_up_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line(form: str, stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, no_color: str = "") -> str:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("NO_COLOR", no_color)
    set_up_logging("info", form)
    try:
        logger().warning("lost", backend="nats")
    finally:
        structlog.reset_defaults()
    return stream.getvalue()


def test_a_terminal_has_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in line("auto", Terminal(), monkeypatch)


@pytest.mark.parametrize("form", ["auto", "console"])
def test_who_wants_no_colours_gets_none(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = line(form, Terminal(), monkeypatch, no_color="1")
    assert "\x1b" not in written
    assert "lost" in written
    assert "backend=nats" in written


def test_readable_lines_in_a_file_have_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in line("console", io.StringIO(), monkeypatch)


def test_a_pipe_gets_json(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads(line("auto", io.StringIO(), monkeypatch))
    assert (facts["event"], facts["backend"], facts["level"]) == ("lost", "nats", "warning")


FOREIGN = """
import logging
from bronze_sidecar.telemetry.logs import set_up_logging
set_up_logging("info", "json")
logging.getLogger("asyncio").error("never %s", "retrieved", exc_info=OSError("no such name"))
logging.getLogger("nats").info("nobody asks for this")
"""


def test_what_libraries_log_is_json_too() -> None:
    """In a process of its own: pytest listens to all loggers."""
    done = subprocess.run([sys.executable, "-c", FOREIGN], capture_output=True, text=True, check=True)
    facts = json.loads(done.stderr)
    assert (facts["event"], facts["logger"], facts["level"]) == ("never retrieved", "asyncio", "error")
    assert facts["exception"] == "OSError: no such name"


ODD = """
import logging
from bronze_sidecar.telemetry.logs import set_up_logging
set_up_logging("info", "json")
library = logging.getLogger("library")
for level in (35, 45, 60):
    library.log(level, "a level of its own", exc_info=True)
logging.raiseExceptions = False
library.warning("%d events", "no number")
print("goes on")
"""


def test_whatever_libraries_log_raises_nothing_there() -> None:
    done = subprocess.run([sys.executable, "-c", ODD], capture_output=True, text=True, check=True)
    levels = [json.loads(line)["level"] for line in done.stderr.splitlines()]
    assert (levels, done.stdout) == (["warning", "error", "critical"], "goes on\n")
