"""What the machine tells of processes, and where they run."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from servers import HOST, NativeServer

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

CORES = sorted(os.sched_getaffinity(0))
SUBJECT_CORES = set(CORES[:1])
"""Where what is measured runs, and nothing else if there is a second core."""
OTHER_CORES = set(CORES[1:]) or SUBJECT_CORES

# Set before the program starts, so that it holds for all of its threads.
PINNED = "import os, sys; os.sched_setaffinity(0, {cores}); os.execv(sys.argv[1], sys.argv[1:])"


def pinned(command: Sequence[str]) -> list[str]:
    """Return the command that runs another one where measured programs run."""
    return [sys.executable, "-S", "-c", PINNED.format(cores=SUBJECT_CORES), *command]


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    # The second field is the program's name in parentheses, and may contain anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


def memory_mib(pid: int, which: str = "VmRSS") -> float:
    """Return a process's resident memory: now (VmRSS) or at most (VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == which:
            return int(value.split()[0]) / 1024
    raise KeyError(which)


class SidecarProcess(NativeServer):
    """A sidecar on the measured core; `program` is followed by its addresses and then by `options`."""

    scheme = "http"

    def __init__(self, directory: Path, program: Sequence[str], *options: str) -> None:
        super().__init__(directory)
        self.socket = f"unix://{directory}/sidecar.sock"
        self._program = program
        self._options = options

    def command(self) -> Sequence[str]:
        addresses = (f"--listen={self.socket}", f"--admin-listen={HOST}:{self.port}")
        return pinned([sys.executable, *self._program, *addresses, "--log-level=warning", *self._options])

    def answers(self) -> bool:
        return self._get("/readyz")[0] == http.HTTPStatus.OK

    def open_streams(self) -> int:
        """Return how many producers are connected."""
        metrics = self._get("/metrics")[1].decode()
        return int(float(metrics.partition("\nbronze_streams ")[2].partition("\n")[0]))

    def waiting_events(self) -> int:
        """Return how many events wait for back ends."""
        lanes = json.loads(self._get("/status")[1])["backends"].values()
        return sum(lane["waiting_events"] for lane in lanes)

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()
