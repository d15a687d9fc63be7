"""What becomes of events in order when the bus is killed once, and started again, while they are written."""

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
RATE = 5_000
EVENTS_A_CALL = 256
PARTITIONS = 4
BEFORE_SECONDS, AWAY_SECONDS = 1.5, 1.0
PAUSE_SECONDS = 0.05
MOST_SECONDS = 60.0

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
    await client.jetstream().add_stream(name="BRONZE", subjects=["bronze.>"], allow_batched=True)
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
    """One call at a time, sent again until it is confirmed."""
    with killable(name, folder) as bus:
        (backend,) = load(bus.options(), {}).backends
        records = ordered_records(Route(backend.rules()), count)
        router = make(folder / "router", f"127.0.0.1:{bus.server.port}")
        router.start()
        try:
            calls = calls_of(records, EVENTS_A_CALL, is_sorted=router.is_sorted, with_rest=True)
            bodies = [(router.prepared(call), len(call)) for call in calls]
            return killed_once(bus, lambda: _send_all(router, bodies), count)
        finally:
            router.kill()


def _send_all(router: Router, bodies: Sequence[tuple[bytes, int]]) -> int:
    confirmed = 0
    began = time.monotonic()
    with router.line() as send:
        for body, events in bodies:
            time.sleep(max(0.0, began + confirmed / RATE - time.monotonic()))
            while True:
                try:
                    send(body)
                    break
                except NotConfirmed:
                    if time.monotonic() - began > MOST_SECONDS:
                        return confirmed
                    time.sleep(PAUSE_SECONDS)
            confirmed += events
    return confirmed
