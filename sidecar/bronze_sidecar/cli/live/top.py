"""`bronze-sidecar top`: what a running sidecar does, live in a terminal."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from bronze_cli.given import Names, from_flags, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError
from bronze_cli.program import CommandFailed
from bronze_cli.values import ListenAddress

from bronze_sidecar.cli.live.screen import BAD, BOLD, DIM, Line, lines, wrapped
from bronze_sidecar.configuration.config import OPTIONS as SIDECAR_OPTIONS
from bronze_sidecar.configuration.config import configure

DESCRIPTION = """
Shows what a running sidecar does: what is wrong, its back ends, its producers, and the last events that were
not published. In a terminal it goes on every second until `q` or Ctrl-C, also while the sidecar is gone.
Otherwise it prints the figures once.

Without --to, it asks the sidecar running with these options, from all sources, of which only --admin-listen
matters.

Exit status: 0 done · 1 the sidecar does not answer, and this is not a terminal · 2 the command line is
wrong.
"""
LOOK_SECONDS = 1.0
TIMEOUT_SECONDS = 5.0
PLAIN_WIDTH = 200
OTHER_SCREEN, BACK, HOME, CLEAR_LINE, CLEAR_REST = (
    "\x1b[?1049h\x1b[?25l",
    "\x1b[?25h\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
)


@dataclass(frozen=True)
class TopOptions:
    """What only this command takes."""

    to: str | None = option(
        ListenAddress(unix=False), "The sidecar's admin port, host:port; that of --admin-listen if not given."
    )


OPTIONS = options_of(TopOptions)
NAMES = Names((*OPTIONS, *SIDECAR_OPTIONS), listed_by="bronze-sidecar top --help")


def run(arguments: Sequence[str]) -> int:
    """Show the figures, live in a terminal; raise CommandFailed if nothing answers and this is none."""
    given = from_flags(arguments, NAMES)
    own = {each.path: given.values.pop(each.path) for each in OPTIONS if each.path in given.values}
    options = TopOptions(**parsed(own, NAMES, given.problems))
    if options.to and given.problems:
        raise ConfigError(given.problems)
    address = options.to or configure(given, os.environ).admin_listen
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        for line in lines(_facts(address), PLAIN_WIDTH):
            print(line.text)
        return 0
    with contextlib.suppress(KeyboardInterrupt), _terminal():
        _go_on(address)
    return 0


def _facts(address: str) -> dict[str, Any]:
    """Ask the sidecar; raise CommandFailed if there is no good answer."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/status")
        facts: dict[str, Any] = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CommandFailed(f"no sidecar answers at {address}: {error}.") from None
    finally:
        connection.close()
    if "problems" not in facts:
        raise CommandFailed(f"the sidecar at {address} is too old to be shown.")
    return facts


def _go_on(address: str) -> None:
    """Look again and again until a key says that it is enough."""
    facts: dict[str, Any] | None = None
    while True:
        width, height = shutil.get_terminal_size()
        shown: list[Line] = []
        try:
            facts = _facts(address)
        except CommandFailed as error:
            shown = [*wrapped(str(error), width, BAD)]
            if facts:
                shown.append(Line(f"What it was at {facts['time'][11:19]} UTC:", BOLD))
        if facts:
            shown += lines(facts, width)
        _draw(sys.stdout, shown, width, height)
        if _pressed_within(LOOK_SECONDS) in {"q", "Q", "\x1b", "\x04"}:
            return


def _draw(screen: TextIO, shown: Sequence[Line], width: int, height: int) -> None:
    if len(shown) > height:
        more = len(shown) - height + 1
        shown = [*shown[: height - 1], Line(f"… {more} more lines", DIM)]
    has_colours = not os.environ.get("NO_COLOR")
    text = f"{CLEAR_LINE}\n".join(
        f"\x1b[{line.style}m{line.text[:width]}\x1b[0m" if line.style and has_colours else line.text[:width]
        for line in shown
    )
    known = text.encode(screen.encoding, "replace").decode(screen.encoding)
    screen.write(f"{HOME}{known}{CLEAR_LINE}{CLEAR_REST}")
    screen.flush()


def _pressed_within(seconds: float) -> str:
    """Return the key that is pressed; empty if none is."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    # A terminal that is gone has ended, which reads as nothing.
    return (os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q") if ready else ""


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Use another screen, and keys without Enter; put everything back in the end."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        sys.stdout.write(OTHER_SCREEN)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(BACK)
        sys.stdout.flush()
