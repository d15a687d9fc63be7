"""A NATS server with a sidecar before it, and the envelopes that came to it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nats
from bronze_client.schema import NormalizedEvent
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from servers import HOST, NatsServer
from sidecar_process import SidecarProcess, sidecar
from tardis_servers import wait_until

STREAM = "BRONZE"


def is_end(event: NormalizedEvent) -> bool:
    """Whether it is the end of a stream."""
    return event.meta["data_type"] == "stream_end"


class HookBus:
    """What was published since the test began."""

    def __init__(self, server: NatsServer, process: SidecarProcess) -> None:
        self.sidecar = process
        self.server = server
        self._first = 1

    @property
    def address(self) -> str:
        return self.sidecar.address

    def begin(self) -> None:
        """Forget what is there already."""
        self._first = asyncio.run(self._last()) + 1

    def wait_for(self, count: int) -> list[NormalizedEvent]:
        """Return the envelopes in the order of the bus when there are so many, and no more follow."""
        wait_until(lambda: asyncio.run(self._last()) - self._first + 1 >= count)
        wait_until(lambda: len(self.read()) >= count)
        # One more than there should be would be there by then.
        time.sleep(0.3)
        events = self.read()
        assert len(events) == count, events[count:]
        return events

    def read(self) -> list[NormalizedEvent]:
        """Return the envelopes that are there, in the order of the bus, without the ends of streams."""
        return [event for event in self.read_all() if not is_end(event)]

    def read_all(self) -> list[NormalizedEvent]:
        """Return the envelopes that are there, in the order of the bus."""
        return asyncio.run(self._read())

    def ends(self) -> list[dict[str, str]]:
        """Return the meta of the ends of streams that are there."""
        return [dict(event.meta) for event in self.read_all() if is_end(event)]

    async def _last(self) -> int:
        client = await nats.connect(self.server.url)
        try:
            return (await client.jetstream().stream_info(STREAM)).state.last_seq
        finally:
            await client.close()

    async def _read(self) -> list[NormalizedEvent]:
        count = await self._last() - self._first + 1
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._first,
        )
        client = await nats.connect(self.server.url)
        try:
            consumer = await client.jetstream().pull_subscribe("bronze.>", stream=STREAM, config=config)
            events: list[NormalizedEvent] = []
            while len(events) < count:
                messages = await consumer.fetch(min(1000, count - len(events)), timeout=60)
                events += [NormalizedEvent.FromString(message.data) for message in messages]
            return events
        finally:
            await client.close()


@contextlib.contextmanager
def hook_bus(*more: str) -> Iterator[HookBus]:
    """Run a NATS server and a sidecar, with more options, that publishes to it."""
    directory = Path(tempfile.mkdtemp(prefix="hook-nats-"))
    server = NatsServer(directory)
    server.start()
    try:
        options = (
            *("--nats-servers", f"{HOST}:{server.port}", "--nats-stream", STREAM),
            *("--nats-subject", "bronze.{{exchange}}", *more),
        )
        with sidecar(*options) as process:
            process.wait_until_ready()
            yield HookBus(server, process)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
