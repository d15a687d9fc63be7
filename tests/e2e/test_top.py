"""`bronze-sidecar top` in a terminal of its own: live, through an outage, and left as it was found."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from buses import NatsBus
from servers import NatsServer
from sidecar_process import PROGRAM, SidecarProcess, sidecar
from steady import steady

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]
CONTROL = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


class Terminal:
    """A terminal with `top` in it."""

    def __init__(self, width: int, height: int, *arguments: str) -> None:
        self._keyboard, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.before = termios.tcgetattr(inside)
        self._inside = inside
        self.process = subprocess.Popen(
            [PROGRAM, "top", *arguments],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}},
            start_new_session=True,
            # So that Ctrl-C is a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        self._pieces = b""

    def wait_for(self, *words: str) -> list[str]:
        """Return the lines of a screen that has all words."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            screens = self._pieces.split(b"\x1b[H")
            for screen in screens[:-1]:
                text = CONTROL.sub("", screen.decode(errors="replace"))
                if all(word in " ".join(text.split()) for word in words):
                    self._pieces = screens[-1]
                    return text.split("\r\n")
            self._read()
        raise AssertionError(f"{words} not in {self._pieces[-3000:].decode(errors='replace')}")

    def _read(self) -> None:
        ready, _, _ = select.select([self._keyboard], [], [], 1)
        if ready:
            self._pieces += os.read(self._keyboard, 1 << 16)

    def press(self, keys: bytes) -> int:
        """Press keys, and return the status with which the program ends."""
        os.write(self._keyboard, keys)
        while self.process.poll() is None:
            self._read()
        assert termios.tcgetattr(self._inside) == self.before
        # The other screen is left, and the cursor is there again.
        with contextlib.suppress(OSError):
            self._read()
        assert self._pieces.endswith(b"\x1b[?25h\x1b[?1049l")
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)
        os.close(self._inside)


@contextlib.contextmanager
def terminal(width: int, height: int, *arguments: str) -> Iterator[Terminal]:
    found = Terminal(width, height, *arguments)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def nats(start_nats: Callable[..., NatsServer]) -> NatsServer:
    return start_nats()


@pytest.fixture
def process(nats: NatsServer) -> Iterator[SidecarProcess]:
    with sidecar(*NatsBus(nats).options()) as process:
        process.wait_until_ready()
        yield process


def to(process: SidecarProcess) -> tuple[str, str]:
    return "--to", f"127.0.0.1:{process.port}"


def test_it_is_live_through_an_outage(process: SidecarProcess, nats: NatsServer) -> None:
    with steady(process.address, 2), terminal(120, 40, *to(process)) as window:
        lines = window.wait_for("All is well", "exchange/2", "bronze.bitmex.XBTUSD")
        assert all(len(line) <= 120 for line in lines)
        nats.kill()
        window.wait_for("NATS is away", "since", "none of it is lost", "unreachable")
        nats.start()
        window.wait_for("All is well")
        assert window.press(b"q") == 0


def test_in_a_small_terminal_what_matters_is_on_the_first_screen(process: SidecarProcess) -> None:
    with steady(process.address, 9), terminal(40, 16, *to(process)) as window:
        lines = window.wait_for("All is well", "NATS", "more lines")
        assert len(lines) == 16
        assert all(len(line) <= 40 for line in lines)
        assert window.press(b"\x03") == 0


def test_it_waits_for_a_sidecar_that_is_gone(process: SidecarProcess) -> None:
    with terminal(100, 30, *to(process)) as window:
        window.wait_for("All is well")
        process.kill()
        window.wait_for("no sidecar answers", "What it was at", "All is well")
        process.start()
        window.wait_for("up ", "NATS")
        assert window.press(b"q") == 0


def test_it_waits_for_a_sidecar_that_is_not_there_yet(process: SidecarProcess) -> None:
    process.kill()
    with terminal(100, 30, *to(process)) as window:
        window.wait_for("no sidecar answers")
        process.start()
        window.wait_for("All is well")
        assert window.press(b"q") == 0


def test_where_there_is_no_terminal_the_figures_are_printed_once(process: SidecarProcess) -> None:
    done = subprocess.run(
        [PROGRAM, "top", *to(process)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "All is well" in done.stdout
    assert "\x1b" not in done.stdout
    process.kill()
    gone = subprocess.run(
        [PROGRAM, "top", *to(process)], capture_output=True, text=True, timeout=60, check=False
    )
    assert gone.returncode == 1
    assert "no sidecar answers at 127.0.0.1" in gone.stderr
