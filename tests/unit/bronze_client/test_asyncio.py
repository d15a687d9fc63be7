"""What only the Python client with asyncio has: blocks that raise, and cancellation."""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import asyncio
import socket

import pytest
from bronze_client import PublishError, connect
from scripted_sidecar import ScriptedSidecar, in_loop, obliging

LONG = 20.0
"""Seconds that a flush may take before the test is lost anyway."""


@pytest.fixture
def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@in_loop
async def test_an_error_in_the_block_is_not_masked_and_events_are_still_sent(free_address: str) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        with pytest.raises(KeyError, match="mine"):
            async with connect(sidecar.address) as publisher:
                publisher.publish(b"a")
                raise KeyError("mine")
        assert publisher.stats.acknowledged == 1
    with pytest.raises(KeyError, match="mine"):
        async with connect(free_address, close_timeout=0) as publisher:
            publisher.publish(b"a")
            raise KeyError("mine")


@in_loop
async def test_a_cancelled_producer_leaves_nothing_behind(free_address: str) -> None:
    is_open = asyncio.Event()

    async def produce() -> None:
        async with connect(free_address, close_timeout=0) as publisher:
            publisher.publish(b"a")
            is_open.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(produce())
    await is_open.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_loop
async def test_a_cancelled_flush_or_close_leaves_nothing_behind(free_address: str) -> None:
    with pytest.raises(PublishError):
        async with connect(free_address, close_timeout=LONG) as publisher:
            publisher.publish(b"a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await publisher.flush()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await publisher.close()
            raise PublishError(unacknowledged=1, dropped=0, failed=0, failures=(), reason="")
