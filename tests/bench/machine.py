"""What the machine tells of processes, and where they run."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sidecar_process import SidecarProcess

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS = 0.2

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


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """Return what half of the latencies, and 99 of 100, do not exceed, in milliseconds."""
    ordered = sorted(latencies)
    return {f"p{each}": ordered[len(ordered) * each // 100] * 1000 for each in (50, 99)}


class Family:
    """The processor time of a process and of all that descends from it, also of what has ended.

    It has to look often: what a process used between the last look and its end is not counted. The time that
    Linux adds to a parent is no help, for it is added only by a parent that waits, and goes with that parent.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._used: dict[tuple[int, int], float] = {}
        """By process, which is known by its number and when it began."""

    def look(self) -> float:
        """Return the seconds so far; never less than before."""
        there = dict(_processes())
        family = {self._root} | {pid for pid, began in self._used if pid in there and there[pid][1] == began}
        while more := {pid for pid, (parent, *_) in there.items() if parent in family} - family:
            family |= more
        for pid in family & there.keys():
            _, began, seconds = there[pid]
            self._used[pid, began] = seconds
        return sum(self._used.values())


class Watched:
    """A family that a thread looks at all the time; what that costs is not counted."""

    def __init__(self, root: int) -> None:
        self._family = Family(root)
        self._lock = threading.Lock()
        self._cost = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._family.look()
                self._cost = time.thread_time()
            time.sleep(LOOK_SECONDS)

    def seconds(self) -> float:
        """Return the processor time of this process and of the family."""
        with self._lock:
            return time.process_time() - self._cost + self._family.look()


def _processes() -> Iterator[tuple[int, tuple[int, int, float]]]:
    """Return each process with its parent, when it began, and its processor time."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        seconds = (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND
        yield int(path.parent.name), (int(fields[1]), int(fields[19]), seconds)


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
