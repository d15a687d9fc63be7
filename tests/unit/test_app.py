"""The end of the process: tasks end, whatever becomes of their cancellation."""

from __future__ import annotations

import asyncio
import contextlib

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
