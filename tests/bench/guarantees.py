"""What becomes of events in order when a server is killed once, and started again, while they are written.

That is the bus; or, while the bus is frozen, the router that has acknowledged them from disk.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import nats
from bronze_client import connect
from bronze_client.schema import NormalizedEvent, Origin
from bronze_sidecar.configuration.config import load
from bronze_sidecar.envelope.wire import timestamp_field
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from buses import KafkaBus, NatsBus, RedisBus, trade
from chaos.cell import Findings, judge
from kafka_servers import KafkaServer, create_topic
from routers import NotConfirmed, Router, calls_of
from servers import NativeServer, NatsServer, RedisServer
from sidecar_process import sidecar

STREAM = "order"
NATS_STREAM = "BRONZE"
RATE = 5_000
EVENTS_A_CALL = 256
PARTITIONS = 4
ON_DISK_EVENTS = 5_000
"""Acknowledged from disk before whatever has them is killed, at least."""
BEFORE_SECONDS, AWAY_SECONDS = 1.5, 1.0
PAUSE_SECONDS = 0.05
MOST_SECONDS = 60.0
QUIET_SECONDS = 10.0
"""Longer than what waits for another attempt."""

MakeRouter = Callable[[Path, str], Router]
"""Makes a router for a bus at an address."""


class KilledBus(Protocol):
    """A bus that is killed, and then read."""

    @property
    def server(self) -> NativeServer:
        """Return the server."""

    def options(self) -> list[str]:
        """Return the sidecar's options for it."""

    def envelopes(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield destination or key, and envelope, of every record, in the order of the bus."""


@contextmanager
def killable(name: str, folder: Path) -> Iterator[KilledBus]:
    """Run a server that keeps what it confirmed when it is killed."""
    with ExitStack() as stack:

        def start(server: NativeServer) -> None:
            stack.callback(server.stop)
            server.start()

        if name == "redis":
            redis = RedisServer(folder, append_only=True)
            start(redis)
            yield RedisBus(redis)
        elif name == "nats":
            server = NatsServer(folder)
            start(server)
            asyncio.run(_create_stream(server.url))
            yield NatsBus(server)
        else:
            broker = KafkaServer(folder)
            start(broker)
            bus = KafkaBus(broker)
            (backend,) = load(bus.options(), {}).backends
            (record,) = ordered_records(Route(backend.rules()), 1)
            create_topic(broker.brokers, record.address.destination, PARTITIONS, copies=1)
            yield bus


async def _create_stream(url: str) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name=NATS_STREAM, subjects=["bronze.>"], allow_batched=True)
    await client.close()


def ordered_records(route: Route, count: int) -> list[Record]:
    """Return trades of a few symbols, whose ids have their positions."""
    mapper = Mapper(StreamContext(stream_id=STREAM, source="bench/1", origin=Origin.ORIGIN_REPLAY))
    received = timestamp_field(5, 1_700_000_000, 1)
    records = []
    for position in range(count):
        (event,) = mapper.events(trade(position), position, received)
        address = route.address(event)
        assert address is not None
        records.append(Record(address, event))
    return records


@dataclass
class Load:
    """Events on their way in a thread of their own; the bus must be started and killed by the first one."""

    send: Callable[[], int]
    """Returns how many are confirmed."""
    confirmed: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.confirmed = self.send()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self.error = error

    def wait(self) -> int:
        """Return how many events are confirmed."""
        self._thread.join()
        if self.error:
            raise self.error
        return self.confirmed


def killed_once(bus: KilledBus, send: Callable[[], int], count: int) -> Findings:
    """Kill the server while events are sent, start it again, and look what it has in the end."""
    load = Load(send)
    try:
        time.sleep(BEFORE_SECONDS)
        bus.server.kill()
        time.sleep(AWAY_SECONDS)
    finally:
        bus.server.start()
        confirmed = load.wait()
    return _judged(bus, count, confirmed)


def killed_on_disk(
    bus: KilledBus,
    router: NativeServer,
    send: Callable[[], int],
    spooled: Callable[[], float],
    count: int,
) -> Findings:
    """Freeze the bus, kill the router that has events on disk, and look what the bus has in the end."""
    load = Load(send)
    try:
        time.sleep(BEFORE_SECONDS)
        bus.server.freeze()
        before = spooled()
        until = time.monotonic() + MOST_SECONDS
        while spooled() < before + ON_DISK_EVENTS:
            if time.monotonic() > until:
                raise RuntimeError(f"only {spooled() - before:,.0f} events were acknowledged from disk")
            time.sleep(PAUSE_SECONDS)
        router.kill()
        router.start()
    finally:
        bus.server.thaw()
        confirmed = load.wait()
    asyncio.run(_quiet(bus.server.url))
    return _judged(bus, count, confirmed)


async def _quiet(url: str) -> None:
    """Return when nothing more comes to the stream."""
    most, since = 0, time.monotonic()
    async for level in levels(url, NATS_STREAM):
        if level > most:
            most, since = level, time.monotonic()
        if time.monotonic() > since + QUIET_SECONDS:
            break


async def levels(url: str, stream: str) -> AsyncIterator[int]:
    """Yield, again and again, how many events JetStream has."""
    client = await nats.connect(url)
    try:
        while True:
            yield (await client.jetstream(timeout=MOST_SECONDS).stream_info(stream)).state.messages
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        await client.close()


def _judged(bus: KilledBus, count: int, confirmed: int) -> Findings:
    findings = Findings(sent=count, unsettled=count - confirmed)
    judge(findings, [], asyncio.run(_stored(bus)), set(), keeps_order=True)
    return findings


async def _stored(bus: KilledBus) -> list[tuple[str, str]]:
    return [
        (key, NormalizedEvent.FromString(envelope).meta["event_id"])
        async for key, envelope in bus.envelopes()
    ]


def sidecar_killed_once(name: str, folder: Path, count: int) -> Findings:
    with killable(name, folder) as bus, sidecar(*bus.options()) as process:
        process.wait_until_ready()
        return killed_once(bus, lambda: asyncio.run(_publish(process.address, count)), count)


def sidecar_killed_on_disk(folder: Path, count: int) -> Findings:
    # It spills when the bus is half a second behind.
    spill = ("--nats-when-full=spill", f"--spool-dir={folder / 'disk'}", f"--max-queue-events={RATE}")
    (folder / "disk").mkdir(parents=True)
    with killable("nats", folder) as bus, sidecar(*bus.options(), *spill) as process:
        process.wait_until_ready()
        return killed_on_disk(
            bus,
            process,
            lambda: asyncio.run(_publish(process.address, count)),
            lambda: process.metric("bronze_spool_events"),
            count,
        )


async def _publish(address: str, count: int) -> int:
    each = RATE // 20
    async with connect(address, stream_id=STREAM, on_full="wait", max_wait=MOST_SECONDS) as publisher:
        began = time.monotonic()
        for first in range(0, count, each):
            for position in range(first, min(first + each, count)):
                await publisher.publish_wait(trade(position))
            await asyncio.sleep(began + (first + each) / RATE - time.monotonic())
        await publisher.flush(timeout=MOST_SECONDS)
        return publisher.stats.acknowledged


def router_killed_once(name: str, folder: Path, make: MakeRouter, count: int) -> Findings:
    with killable(name, folder) as bus, _calling(bus, folder, make, count) as calls:
        return killed_once(bus, calls.send, count)


def router_killed_on_disk(folder: Path, make: MakeRouter, count: int) -> Findings:
    with killable("nats", folder) as bus, _calling(bus, folder, make, count) as calls:
        return killed_on_disk(bus, calls.router, calls.send, lambda: calls.confirmed, count)


@dataclass
class Calls:
    """One call at a time, sent again until it is confirmed."""

    router: Router
    bodies: Sequence[tuple[bytes, int]]
    confirmed: int = 0
    """How many events are."""

    def send(self) -> int:
        began = time.monotonic()
        with self.router.line() as send:
            for body, events in self.bodies:
                time.sleep(max(0.0, began + self.confirmed / RATE - time.monotonic()))
                while True:
                    try:
                        send(body)
                        break
                    except NotConfirmed:
                        if time.monotonic() - began > MOST_SECONDS:
                            return self.confirmed
                        time.sleep(PAUSE_SECONDS)
                self.confirmed += events
        return self.confirmed


@contextmanager
def _calling(bus: KilledBus, folder: Path, make: MakeRouter, count: int) -> Iterator[Calls]:
    (backend,) = load(bus.options(), {}).backends
    records = ordered_records(Route(backend.rules()), count)
    router = make(folder / "router", f"127.0.0.1:{bus.server.port}")
    router.start()
    try:
        calls = calls_of(records, EVENTS_A_CALL, is_sorted=router.is_sorted, with_rest=True)
        yield Calls(router, [(router.prepared(call), len(call)) for call in calls])
    finally:
        router.stop()
