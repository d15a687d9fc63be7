"""The process: tasks end, whatever becomes of their cancellation, and memory for writes is kept."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import subprocess
import sys

import pytest
from bronze_sidecar.app import _end


@pytest.mark.timeout(60)
async def test_a_task_that_loses_its_first_cancellation_is_ended_all_the_same() -> None:
    async def loses_one() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def fails() -> None:
        raise RuntimeError

    tasks = [asyncio.create_task(loses_one()), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    await _end(*tasks)
    assert tasks[0].cancelled()
    assert tasks[1].done()


NEW_PAGES = """
import resource
from bronze_sidecar.app import keep_memory_for_writes

keep_memory_for_writes()

def write():
    return [bytes(1 << 20) for _ in range(8)]

write()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    write()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide for themselves")
def test_a_write_uses_the_memory_of_the_last_one() -> None:
    """Fifty writes of 8 MiB have 102,400 pages of 4 KiB, if each takes new ones."""
    program = [sys.executable, "-c", NEW_PAGES]
    found = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert int(found) < 5_000
