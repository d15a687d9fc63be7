"""How many processes take events, and how many processors there are for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bronze_cli.problems import Fault
from bronze_cli.values import Integer

from bronze_sidecar.configuration.bounds import LEAST_MEMORY, worker_memory

AUTO = 0
MOST_WORKERS = 64
QUOTA_FILES = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)


class WorkerCount(Integer):
    """A number of processes, or `auto`."""

    def __init__(self) -> None:
        super().__init__(1, MOST_WORKERS)

    def read(self, text: str) -> int | list[Fault]:
        if text == "auto":
            return AUTO
        number = super().read(text)
        return number if isinstance(number, int) else [Fault(f.what, f"{f.remedy} Or auto.") for f in number]

    def json_schema(self) -> dict[str, Any]:
        return {"oneOf": [super().json_schema(), {"const": "auto"}]}


def available_processors() -> int:
    """Return how many processors the process may use, by its affinity and its control group's quota."""
    usable = len(os.sched_getaffinity(0))
    for files in QUOTA_FILES:
        try:
            quota, period = map(int, " ".join(file.read_text() for file in files).split())
        except (OSError, ValueError):  # not there, or 'max'
            continue
        if quota > 0:
            return max(1, min(usable, quota // period))
    return usable


def resolved(count: int, memory: int) -> int:
    """Return the number that `auto` stands for: one for each processor, as far as there is memory."""
    if count != AUTO:
        return count
    count = min(available_processors(), MOST_WORKERS)
    while count > 1 and worker_memory(memory, count) < LEAST_MEMORY:
        count -= 1
    return count
