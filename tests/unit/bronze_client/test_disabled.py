"""Without an address nothing is published, connected or imported."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from bronze_client import Stats, connect_sync
from clients import ClientUnderTest

PROGRAM = """
import asyncio, sys, threading
from bronze_client import (
    Failure, Publisher, PublishError, Stats, SyncPublisher, connect, connect_sync, stream_id_for,
)

async def main():
    async with connect(None, source="a/1") as publisher:
        assert publisher.publish({"type": "trade"}) is False
        await publisher.flush()

asyncio.run(main())
with connect_sync("", origin="replay", stream_id=stream_id_for({"exchange": "binance"})) as publisher:
    assert publisher.publish(b"x") is False
    publisher.flush()
assert threading.active_count() == 1
print(sorted(name for name in sys.modules if name.split(".")[0] in ("grpc", "google")))
"""


def test_nothing_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("address", [None, ""])
def test_every_call_does_nothing(client: ClientUnderTest, address: str | None) -> None:
    async def main() -> None:
        async with client.connect(address, stream_id="s", on_full="wait", max_wait=60) as publisher:
            assert publisher.stream_id == "s"
            assert await publisher.publish(b"a") is False
            assert await publisher.publish_wait(b"a") is False
            await publisher.flush()
            await publisher.close()
            assert await publisher.stats() == Stats()

    asyncio.run(main())


@pytest.mark.parametrize("address", [None, ""])
def test_every_call_of_the_twin_does_nothing(address: str | None) -> None:
    threads = threading.active_count()
    with connect_sync(address, stream_id="s") as publisher:
        assert threading.active_count() == threads
        assert publisher.stream_id == "s"
        assert publisher.publish(b"a") is False
        publisher.flush()
        publisher.close()
        assert publisher.stats == Stats()


def test_wrong_options_are_told_all_the_same(client: ClientUnderTest) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match=client.spelled("batch_events")):
            async with client.connect(None, batch_events=0):
                pass

    asyncio.run(main())
