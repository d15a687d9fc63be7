"""The client in a real tardis-machine: what it answers is on the bus, exactly. Run only where there is one.

`TARDIS_MACHINE` names the folder of a built server, `TARDIS_NODE` the Node.js that it needs, if that is not
the first on the PATH, `TARDIS_CACHE` its cache. The server gets this environment: the data that it replays
comes from wherever that lets it, such as a proxy in `HTTP_PROXY`. `TARDIS_FROM` and `TARDIS_TO` say which.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.mapping import Mapper, StreamContext
from hook_bus import HookBus, hook_bus
from kafka_servers import KafkaEndpoint, read_topic
from sidecar_process import sidecar
from tardis_servers import MachineServer, hook_environment, machine_from_environment, wait_until

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif("TARDIS_MACHINE" not in os.environ, reason="TARDIS_MACHINE names no tardis-machine"),
    pytest.mark.timeout(300),
]

TYPES = (
    *("trade", "book_change", "book_ticker", "derivative_ticker", "liquidation", "quote"),
    *("book_snapshot_5_1s", "book_snapshot_3_grouped10_0ms", "trade_bar_10s", "trade_bar_5ticks"),
)
EXCHANGES = {"bitmex": "XBTUSD", "binance-futures": "BTCUSDT"}


def request_of(exchange: str, *types: str) -> dict[str, object]:
    return {
        "exchange": exchange,
        "symbols": [EXCHANGES[exchange]],
        "from": os.environ.get("TARDIS_FROM", "2020-02-01T00:00:00Z"),
        "to": os.environ.get("TARDIS_TO", "2020-02-01T00:02:00Z"),
        "dataTypes": list(types or TYPES),
        "withDisconnectMessages": True,
    }


@pytest.fixture(scope="module")
def bus() -> Iterator[HookBus]:
    with hook_bus() as bus:
        yield bus


@pytest.fixture(scope="module")
def machine(bus: HookBus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineServer]:
    server = machine_from_environment(tmp_path_factory.mktemp("machine") / "1", hook_environment(bus.address))
    assert server is not None
    yield server.start()
    server.stop()


def mapped(lines: list[bytes], like: NormalizedEvent) -> list[NormalizedEvent]:
    """Return what the sidecar makes of the lines of a response."""
    names = ("transport", "route", "app_version")
    context = StreamContext(
        stream_id=like.meta["event_id"].partition(":")[0],
        source=like.source,
        origin=like.origin,
        request_id=like.meta["request_id"],
        session_id=like.meta.get("session_id", ""),
        meta={name: like.meta[name] for name in names},
    )
    mapper = Mapper(context)
    return [
        NormalizedEvent.FromString(event.envelope)
        for position, line in enumerate(lines)
        for event in mapper.events(line, position, b"")
    ]


def without_receipt(events: list[NormalizedEvent]) -> list[NormalizedEvent]:
    for event in events:
        assert event.HasField("ingest_ts")
        event.ClearField("ingest_ts")
    return events


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("transport", ["http", "ws"])
def test_a_replay_is_on_the_bus_exactly(
    machine: MachineServer, bus: HookBus, exchange: str, transport: str
) -> None:
    bus.begin()
    # Another order of types is another request: the ids of the other transport's test are known to the bus.
    types = TYPES if transport == "http" else TYPES[::-1]
    request = request_of(exchange, *types)
    lines = machine.replay(request).lines if transport == "http" else machine.ws_replay(request).messages
    assert len(lines) > 1000
    mapper = Mapper(StreamContext(stream_id="any"))
    events = bus.wait_for(sum(len(mapper.events(line, 0, b"")) for line in lines))
    assert without_receipt(events) == mapped(lines, events[0])
    assert events[0].meta["transport"] == transport
    assert events[0].source == f"tardis-machine/{events[0].meta['app_version']}"


def test_the_same_replay_again_adds_nothing(machine: MachineServer, bus: HookBus) -> None:
    request = request_of("bitmex", "trade")
    bus.begin()
    before = bus.sidecar.metric("bronze_events_received_total")
    count = len(machine.replay(request).lines)
    assert len(machine.ws_replay(request).messages) == count
    wait_until(lambda: bus.sidecar.metric("bronze_events_received_total") == before + 2 * count)
    bus.wait_for(count)


def test_two_exchanges_at_once(machine: MachineServer, bus: HookBus) -> None:
    bus.begin()
    lines = machine.replay([request_of(exchange, "trade", "trade_bar_1s") for exchange in EXCHANGES]).lines
    events = without_receipt(bus.wait_for(len(lines)))
    expected = mapped(lines, events[0])
    # Each exchange has a subject of its own, and order holds within it.
    for exchange in EXCHANGES:
        one = [event for event in events if event.exchange == exchange]
        assert one
        assert one == [event for event in expected if event.exchange == exchange]


def test_kafka(kafka_server: KafkaEndpoint, tmp_path: Path) -> None:
    topic = f"tardis.{uuid.uuid4().hex}"
    options = (
        "--kafka-brokers",
        kafka_server.brokers,
        "--kafka-topic",
        topic,
        "--kafka-key-template",
        "{{exchange}}",
    )
    with sidecar(*options) as process:
        server = machine_from_environment(tmp_path / "1", hook_environment(process.address))
        assert server is not None
        server.start()
        try:
            lines = server.replay(request_of("bitmex")).lines
            assert server.ws_replay(request_of("bitmex")).messages == lines
            wait_until(lambda: process.metric("bronze_events_received_total") == 2 * len(lines))
            wait_until(lambda: process.metric("bronze_queue_events") == 0)
        finally:
            server.stop()
    events = [NormalizedEvent.FromString(record.value) for record in read_topic(kafka_server.brokers, topic)]
    # Kafka keeps both: the same ids in the same order, for either transport.
    by_transport = {
        name: without_receipt([event for event in events if event.meta["transport"] == name])
        for name in ("http", "ws")
    }
    for its_own in by_transport.values():
        assert its_own == mapped(lines, its_own[0])
    ids = [[event.meta["event_id"] for event in its_own] for its_own in by_transport.values()]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0])
