"""What the client costs a server like tardis-machine: rate, processor time and memory, with and without it.

It measures a real server if there is one (tests/real_machines.py says where it is looked for), otherwise the
stand-in of the tests. The situations take turns, because a busy machine changes its speed, and all servers
are started anew every few rounds, because one process of a program is faster than another.

| sidecar | |
| --- | --- |
| without | the client is not loaded |
| chance | the same: how much two servers differ that do the same |
| healthy | takes everything |
| frozen | takes nothing; the buffer is full, and messages are dropped |
| absent | the same, without a connection |
| waiting | takes everything, but the buffer is so small that replays wait for it |
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real_machines import VERSIONS, InstalledMachine, installed_machine
from servers import HOST, Unavailable, free_port
from sidecar_process import sidecar
from tardis_data import SYMBOLS, tardis_data
from tardis_servers import MachineServer, hook_environment, install_stand_in, node_program

SITUATIONS = ("without", "chance", "healthy", "frozen", "absent", "waiting")
TRANSPORTS = ("http", "ws")
ROUNDS_OF_A_START = 4
IDLE_SECONDS = 0.06
# What processes that have nothing to do take in that time.
IDLE_CPU_SECONDS = 0.003


@dataclass(frozen=True)
class Run:
    """One request and its answer."""

    messages: int
    seconds: float
    main_thread_seconds: float
    process_seconds: float
    megabytes: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of the server's main thread for each message."""
        return self.main_thread_seconds / self.messages * 1e6

    @property
    def whole_cost(self) -> float:
        """Microseconds of all its threads for each message."""
        return self.process_seconds / self.messages * 1e6


def main_thread_seconds(pid: int) -> float:
    """Return the processor time of a process's first thread, to the nanosecond."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def megabytes(pid: int) -> float:
    """Return the memory that a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


def process_seconds(pid: int) -> float:
    """Return the processor time of all threads that a process has or had, to the nanosecond."""
    scheduled = 2  # the clock of clock_getcpuclockid(3), which Python does not have
    return time.clock_gettime((~pid << 3) | scheduled)


def wait_until_idle(pids: Sequence[int]) -> None:
    """Wait for what a run left to do: the sidecar works on, and would slow down the run that comes next."""
    before = -1.0
    while (now := sum(map(process_seconds, pids))) - before >= IDLE_CPU_SECONDS:
        before = now
        time.sleep(IDLE_SECONDS)


def measure(server: MachineServer, transport: str, request: Any) -> Run:
    pid = server.pid
    before, before_all, start = main_thread_seconds(pid), process_seconds(pid), time.perf_counter()
    if transport == "http":
        messages = server.replay(request).body.count(b"\n")
    else:
        messages = len(server.ws_replay(request).messages)
    seconds = time.perf_counter() - start
    main_thread = main_thread_seconds(pid) - before
    # The publishing thread works on what is in the buffer.
    wait_until_idle([pid])
    whole = process_seconds(pid) - before_all
    return Run(messages, seconds, main_thread, whole, megabytes(pid))


class Subject:
    """What is measured: a real server or the stand-in, and what it is asked for."""

    def __init__(self, installed: InstalledMachine | None, request: Any) -> None:
        self._installed = installed
        self.request = request

    def start(self, folder: Path, environment: Mapping[str, str]) -> MachineServer:
        if self._installed:
            return self._installed.server(folder, environment).start()
        program = install_stand_in(folder, "modules")
        return MachineServer(folder, [node_program((22, 15)), str(program)], (), environment).start()

    def __str__(self) -> str:
        return f"tardis-machine {self._installed.version}" if self._installed else "stand-in"


@contextlib.contextmanager
def subject(version: str, messages: int, folder: Path) -> Iterator[Subject]:
    """Return the real server of a version, or the stand-in."""
    minutes = 30
    request: dict[str, Any] = {"exchange": "bitmex", "symbols": [SYMBOLS["bitmex"]], "dataTypes": ["trade"]}
    # Some of what is recorded is of other types.
    with tardis_data(folder, messages=messages * 9 // 8 // minutes) as data:
        try:
            installed = installed_machine(version, data, folder / "cache")
        except Unavailable:
            yield Subject(None, request | {"count": messages})
            return
        range_ = {"from": "2020-02-01T00:00:00Z", "to": f"2020-02-01T00:{minutes}:00Z"}
        types = ["trade", "book_change", "book_ticker"]
        yield Subject(installed, request | range_ | {"dataTypes": types})


@contextlib.contextmanager
def servers_by_situation(
    measured: Subject, folder: Path
) -> Iterator[tuple[Mapping[str, MachineServer], Sequence[int]]]:
    """Run a server for each situation of the sidecar; return also the processes of all."""
    with contextlib.ExitStack() as stack:
        healthy = stack.enter_context(sidecar("--log-level=warning"))
        frozen = stack.enter_context(sidecar("--log-level=warning"))
        frozen.freeze()
        stack.callback(frozen.thaw)
        large = {"buffer_events": "1000000", "buffer_bytes": "500000000"}
        hooks: dict[str, Mapping[str, str]] = {
            "without": {},
            "chance": {},
            "healthy": hook_environment(healthy.address, flush_ms="0", **large),
            "frozen": hook_environment(frozen.address, flush_ms="0", when_full="drop"),
            "absent": hook_environment(f"{HOST}:{free_port()}", flush_ms="0", when_full="drop"),
            "waiting": hook_environment(healthy.address, flush_ms="0", buffer_events="5000"),
        }
        servers = {}
        for situation, environment in hooks.items():
            servers[situation] = measured.start(folder / situation, environment)
            stack.callback(servers[situation].stop)
        yield servers, [healthy.pid, *(server.pid for server in servers.values())]


def measure_rounds(
    servers: Mapping[str, MachineServer],
    pids: Sequence[int],
    request: Any,
    rounds: Iterable[int],
    runs: Mapping[tuple[str, str], list[Run]],
) -> None:
    for transport in TRANSPORTS:
        for server in servers.values():
            measure(server, transport, request)  # compiled and cached afterwards
            wait_until_idle(pids)
    for number in rounds:
        for transport in TRANSPORTS:
            first = number % len(SITUATIONS)
            for situation in SITUATIONS[first:] + SITUATIONS[:first]:
                runs[transport, situation].append(measure(servers[situation], transport, request))
                wait_until_idle(pids)


def quartiles(values: Iterable[float]) -> tuple[float, float, float]:
    """Return the median, and what a quarter of the values is below and above."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


def report(runs: Mapping[tuple[str, str], Sequence[Run]]) -> None:
    """Print medians with quartiles; ratios are of runs that followed each other."""
    print(
        f"{'':4} {'sidecar':8} {'messages/s':>11} {'main thread us/message, to without':>36}"
        f" {'all threads us/message, to without':>36} {'MB':>17}"
    )
    for transport in TRANSPORTS:
        without = runs[transport, "without"]
        for situation in SITUATIONS:
            found = runs[transport, situation]
            rate = statistics.median(run.rate for run in found)
            texts = []
            for kind in ("cost", "whole_cost"):
                costs = quartiles(getattr(run, kind) for run in found)
                ratios = quartiles(
                    getattr(run, kind) / getattr(plain, kind)
                    for run, plain in zip(found, without, strict=True)
                )
                absolute = f"{costs[0]:.2f} ({costs[1]:.2f}-{costs[2]:.2f})"
                texts.append(f"{absolute}, {ratios[0]:.3f} ({ratios[1]:.3f}-{ratios[2]:.3f})")
            memory = quartiles(run.megabytes for run in found)
            print(
                f"{transport:4} {situation:8} {rate:11,.0f} {texts[0]:>36} {texts[1]:>36}"
                f" {memory[0]:5.0f} ({memory[1]:.0f}-{memory[2]:.0f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=16, help="how often each is measured, one after the other; at least 2"
    )
    parser.add_argument("--messages", type=int, default=50_000, help="about how many an answer has")
    parser.add_argument("--version", choices=VERSIONS, default="18", help="of the real server")
    arguments = parser.parse_args()
    runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as name,
        subject(arguments.version, arguments.messages, Path(name)) as measured,
    ):
        for first in range(0, arguments.rounds, ROUNDS_OF_A_START):
            rounds = range(first, min(first + ROUNDS_OF_A_START, arguments.rounds))
            with servers_by_situation(measured, Path(name) / str(first)) as (servers, pids):
                measure_rounds(servers, pids, measured.request, rounds, runs)
        print(f"{measured}, {runs['http', 'without'][0].messages} messages, {arguments.rounds} rounds")
    report(runs)


if __name__ == "__main__":
    main()
