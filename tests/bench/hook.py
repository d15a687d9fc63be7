"""What the client costs a server like tardis-machine: rate and processor time, with and without it.

It measures the stand-in of the tests or, if TARDIS_MACHINE names the folder of a real one, that:

    TARDIS_MACHINE=folder TARDIS_NODE=program TARDIS_REQUEST='{"exchange": ...}' python tests/bench/hook.py

The real one gets the environment of this program, such as a proxy to take data from.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import HOST, free_port
from sidecar_process import sidecar
from tardis_servers import (
    MachineServer,
    hook_environment,
    install_stand_in,
    machine_from_environment,
    node_program,
)

SITUATIONS = ("without", "healthy", "frozen", "absent")
TRANSPORTS = ("http", "ws")
IDLE_SECONDS = 0.3
IDLE_TICKS = 3


@dataclass(frozen=True)
class Run:
    """One request and its answer."""

    messages: int
    seconds: float
    main_thread_seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of the server's main thread for each message."""
        return self.main_thread_seconds / self.messages * 1e6


def main_thread_seconds(pid: int) -> float:
    """Return the processor time of a process's first thread, to the nanosecond."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def ticks(pid: int) -> int:
    """Return the processor time of all threads of a process, in the kernel's ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until_idle(pids: Sequence[int]) -> None:
    """Wait for what a run left to do: the sidecar works on, and would slow down the run that comes next."""
    before = -IDLE_TICKS
    while (now := sum(map(ticks, pids))) - before >= IDLE_TICKS:
        before = now
        time.sleep(IDLE_SECONDS)


def measure(server: MachineServer, transport: str, request: Any) -> Run:
    before, start = main_thread_seconds(server.pid), time.perf_counter()
    if transport == "http":
        messages = server.replay(request).body.count(b"\n")
    else:
        messages = len(server.ws_replay(request).messages)
    return Run(messages, time.perf_counter() - start, main_thread_seconds(server.pid) - before)


@contextlib.contextmanager
def servers_by_situation(folder: Path) -> Iterator[tuple[Mapping[str, MachineServer], Sequence[int]]]:
    """Run a server for each situation of the sidecar; return also the processes of all."""
    with contextlib.ExitStack() as stack:
        healthy = stack.enter_context(sidecar("--log-level=warning"))
        frozen = stack.enter_context(sidecar("--log-level=warning"))
        frozen.freeze()
        stack.callback(frozen.thaw)
        addresses = {
            "without": None,
            "healthy": healthy.address,
            "frozen": frozen.address,
            "absent": f"{HOST}:{free_port()}",
        }
        servers = {}
        for situation, address in addresses.items():
            environment = {} if address is None else hook_environment(address, flush_ms="0")
            servers[situation] = start_server(folder / situation, environment)
            stack.callback(servers[situation].stop)
        yield servers, [healthy.pid, *(server.pid for server in servers.values())]


def start_server(folder: Path, environment: Mapping[str, str]) -> MachineServer:
    server = machine_from_environment(folder, environment)
    if server is None:
        program = install_stand_in(folder, "modules")
        server = MachineServer(folder, [node_program((22, 15)), str(program)], (), environment)
    return server.start()


def report(runs: Mapping[tuple[str, str], Sequence[Run]]) -> None:
    """Print medians; ratios are of runs that followed each other, for a busy machine changes its speed."""
    print(f"{'':6} {'sidecar':9} {'messages/s':>12} {'us/message':>11} {'to without':>11}")
    for transport in TRANSPORTS:
        without = runs[transport, "without"]
        for situation in SITUATIONS:
            found = runs[transport, situation]
            cost = statistics.median(run.cost for run in found)
            rate = statistics.median(run.rate for run in found)
            ratio = statistics.median(
                run.cost / plain.cost for run, plain in zip(found, without, strict=True)
            )
            print(f"{transport:6} {situation:9} {rate:12,.0f} {cost:11.2f} {ratio:11.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="how often each is measured, one after the other"
    )
    parser.add_argument("--messages", type=int, default=200_000, help="how many the stand-in answers with")
    arguments = parser.parse_args()
    stand_in = {
        "exchange": "bitmex",
        "symbols": ["XBTUSD"],
        "dataTypes": ["trade"],
        "count": arguments.messages,
    }
    asked = json.loads(os.environ["TARDIS_REQUEST"]) if "TARDIS_MACHINE" in os.environ else stand_in
    runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, servers_by_situation(Path(folder)) as (servers, pids):
        for transport in TRANSPORTS:
            for server in servers.values():
                measure(server, transport, asked)  # compiled and cached afterwards
                wait_until_idle(pids)
        for number in range(arguments.rounds):
            for transport in TRANSPORTS:
                for situation in SITUATIONS[number % 4 :] + SITUATIONS[: number % 4]:
                    runs[transport, situation].append(measure(servers[situation], transport, asked))
                    wait_until_idle(pids)
    report(runs)


if __name__ == "__main__":
    main()
