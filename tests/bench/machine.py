"""What the machine tells of processes, and where they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sidecar_process import SidecarProcess

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


def cpu_seconds(pid: int | None) -> float:
    """Return the processor time that a process has used; 0 if there is none."""
    if pid is None:
        return 0.0
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


class PinnedSidecar(SidecarProcess):
    """A sidecar on the measured core; the arguments of Python, then its own."""

    def __init__(self, directory: Path, program: Sequence[str], *options: str) -> None:
        super().__init__(directory, "--log-level=warning", *options)
        self._python = [sys.executable, *program]

    def command(self) -> Sequence[str]:
        _, _, *options = super().command()
        return pinned([*self._python, *options])
