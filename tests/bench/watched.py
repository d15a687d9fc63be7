"""Measures what it costs to be looked at: the page, `top` and `tap` attached, beside nobody, in turn."""

from __future__ import annotations

import http.client
import socket
import statistics
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from bench import Findings, Plan, loading, running
from benched import serving
from bronze_sidecar.cli.live.top import LOOK_SECONDS
from machine import PinnedSidecar
from sidecar_process import PROGRAM

HEADS = ("looked at by", "events/s", "CPU µs/event", "events/s of nobody", "CPU of nobody")
NOBODY = "nobody"


@contextmanager
def page(sidecar: PinnedSidecar) -> Iterator[None]:
    """Watch the status page as a browser does: open it, then read what changes."""
    sidecar.get("/")
    with socket.create_connection(("127.0.0.1", sidecar.port)) as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        reader = threading.Thread(target=_read_all, args=(connection,))
        reader.start()
        yield
        connection.shutdown(socket.SHUT_RDWR)
        reader.join()


def _read_all(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


@contextmanager
def top(sidecar: PinnedSidecar) -> Iterator[None]:
    """Ask as often as `top` does."""
    over = threading.Event()

    def ask() -> None:
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", sidecar.port, timeout=60)
            connection.request("GET", "/status")
            connection.getresponse().read()
            connection.close()
            if over.wait(LOOK_SECONDS):
                return

    asking = threading.Thread(target=ask)
    asking.start()
    yield
    over.set()
    asking.join()


@contextmanager
def tap(sidecar: PinnedSidecar) -> Iterator[None]:
    """Have everything shown."""
    with subprocess.Popen([PROGRAM, "tap", "--to", sidecar.address], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


WAYS: dict[str, Callable[[PinnedSidecar], AbstractContextManager[None]]] = {
    NOBODY: lambda _: nullcontext(),
    "page": page,
    "top": top,
    "tap": tap,
}


def measure_watched(folder: Path, plan: Plan) -> list[tuple[str, ...]]:
    """Return the rows of a table: medians, and medians of the ratios within each round."""
    found: dict[str, list[Findings]] = {way: [] for way in WAYS}
    with serving("null", folder) as bus, running(bus) as sidecar, loading(sidecar, None) as load:
        load.run(seconds=plan.seconds, window=bus.scale.window)
        for number in range(plan.watched_rounds):
            # Each begins in its turn: what comes first in a round should not favour it.
            names = [*WAYS][number % len(WAYS) :] + [*WAYS][: number % len(WAYS)]
            for way in names:
                with WAYS[way](sidecar):
                    found[way].append(load.run(seconds=plan.watched_seconds, window=bus.scale.window))
    return [_row(way, found[way], found[NOBODY]) for way in WAYS]


def _row(way: str, found: list[Findings], nobody: list[Findings]) -> tuple[str, ...]:
    def ratio(name: str) -> str:
        each = (mine[name] / theirs[name] for mine, theirs in zip(found, nobody, strict=True))
        return f"{statistics.median(each):.3f}"

    rate, cpu = (statistics.median(each[name] for each in found) for name in ("rate", "cpu"))
    return way, f"{rate:,.0f}", f"{cpu:.2f}", ratio("rate"), ratio("cpu")
