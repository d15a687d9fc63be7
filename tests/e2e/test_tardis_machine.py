"""The client in real tardis-machines: what they answer is on the bus, exactly. Run only where there are some.

real_machines.py says where they are looked for, tardis_data.py is what they replay.
"""

from __future__ import annotations

import http.client
import json
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bronze_client.schema import ErrorCode, NormalizedEvent
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from fuzz_hook import ODD_QUERIES, ODD_TEXTS, ODD_VALUES, ROUTES, abrupt_ends, everywhere, query, shorten
from google.protobuf import json_format
from hand_written_minute import ENVELOPES, MESSAGES
from hand_written_minute import TYPES as TYPES_BY_HAND
from hook_bus import HookBus, hook_bus, is_end
from kafka_servers import KafkaEndpoint, read_topic
from live_exchange import Exchange, running_exchange
from real_machines import VERSIONS, InstalledMachine, installed_machine
from servers import Unavailable
from sidecar_process import sidecar
from tardis_data import SYMBOLS, TardisData, tardis_data
from tardis_servers import (
    Answer,
    MachineServer,
    WebSocket,
    hook_environment,
    send_raw,
    wait_until,
)

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

TYPES = (
    *("trade", "book_change", "book_ticker", "derivative_ticker", "liquidation", "quote"),
    *("book_snapshot_5_1s", "book_snapshot_3_grouped10_0ms", "trade_bar_10s", "trade_bar_5ticks"),
)


def request_of(exchange: str, *types: str) -> dict[str, object]:
    return {
        "exchange": exchange,
        "symbols": [SYMBOLS[exchange]],
        "from": "2020-02-01T00:00:00Z",
        "to": "2020-02-01T00:02:00Z",
        "dataTypes": list(types or TYPES),
        "withDisconnectMessages": True,
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TardisData]:
    with tardis_data(tmp_path_factory.mktemp("data"), MESSAGES) as data:
        yield data


@pytest.fixture(scope="module", params=VERSIONS)
def installed(
    request: pytest.FixtureRequest, data: TardisData, tmp_path_factory: pytest.TempPathFactory
) -> InstalledMachine:
    try:
        return installed_machine(request.param, data, tmp_path_factory.mktemp("cache"))
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def bus(installed: InstalledMachine) -> Iterator[HookBus]:
    """Return a bus for each version: the same replay has the same ids, which a bus takes once."""
    with hook_bus() as bus:
        yield bus


@pytest.fixture(scope="module")
def machine(
    installed: InstalledMachine, bus: HookBus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MachineServer]:
    server = installed.server(tmp_path_factory.mktemp("machine"), hook_environment(bus.address))
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


@pytest.mark.parametrize("exchange", SYMBOLS)
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
    lines = machine.replay([request_of(exchange, "trade", "trade_bar_1s") for exchange in SYMBOLS]).lines
    events = without_receipt(bus.wait_for(len(lines)))
    expected = mapped(lines, events[0])
    # Each exchange has a subject of its own, and order holds within it.
    for exchange in SYMBOLS:
        one = [event for event in events if event.exchange == exchange]
        assert one
        assert one == [event for event in expected if event.exchange == exchange]


def test_hostile_requests_change_nothing(
    installed: InstalledMachine,
    machine: MachineServer,
    bus: HookBus,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    attacks = [attack for text in ODD_TEXTS for attack in everywhere(shorten(text), query(text))]
    attacks += [attack for odd in ODD_QUERIES for attack in everywhere(odd, odd)]
    for value in ODD_VALUES:
        # Its disconnects would tell the time.
        options = {**request_of("bitmex", "trade"), "exchange": value, "withDisconnectMessages": False}
        attacks += everywhere(f"exchange {shorten(json.dumps(value))}", query(json.dumps([options])))
    honest = request_of("bitmex", "trade")
    for route in ROUTES[:2]:  # a live stream's answer has no end
        attacks += abrupt_ends(route, query(json.dumps(honest)))
    plain = installed.server(tmp_path_factory.mktemp("plain"), {}).start()
    try:
        expected = plain.replay(honest)
        for each in attacks:
            offset = 0 if each.transport == "http" else 1
            without = send_raw(plain.port + offset, each.sent, each.leave_after)
            answer = send_raw(machine.port + offset, each.sent, each.leave_after)
            # Of those that hang up, each gets what came until then.
            assert each.leave_after is not None or answer == without, each.name
        assert machine.replay(honest) == expected
    finally:
        plain.stop()
    assert not [line for line in machine.said() if "client failed" in line]
    # What they made up is on the bus in one place.
    bus.begin()
    machine.ws_replay([{**honest, "exchange": f"invented-{number}"} for number in range(40)])
    (event,) = bus.wait_for(1)
    assert event.exchange == "unknown"
    assert "invented-" in event.error.details


# -- envelopes written by hand


@pytest.mark.parametrize("exchange", ENVELOPES)
def test_envelopes_are_as_written_by_hand(
    installed: InstalledMachine, machine: MachineServer, bus: HookBus, exchange: str
) -> None:
    bus.begin()
    minute = {"from": "2020-03-01T00:00:00Z", "to": "2020-03-01T00:01:00Z"}
    answer = machine.replay(request_of(exchange, *TYPES_BY_HAND[exchange]) | minute)
    mapper = Mapper(StreamContext(stream_id="any"))
    events = bus.wait_for(sum(len(mapper.events(line, 0, b"")) for line in answer.lines))
    by_position: dict[int, list[NormalizedEvent]] = {}
    for event in without_receipt(events):
        number = event.meta["event_id"].partition(":")[2].partition(".")[0]
        by_position.setdefault(int(number), []).append(event)
    stream, request = events[0].meta["event_id"].partition(":")[0], events[0].meta["request_id"]
    assert (len(stream), len(request)) == (32, 32)
    for position, envelopes in ENVELOPES[exchange].items():
        is_book_change = "bookChange" in envelopes[0][2]
        assert [json_format.MessageToDict(event) for event in by_position[position]] == [
            {
                "source": f"tardis-machine/{installed.version}",
                "exchange": exchange,
                "symbol": SYMBOLS[exchange],
                "localTs": local_timestamp,
                "origin": "ORIGIN_REPLAY",
                "meta": {
                    **own_meta,
                    "transport": "http",
                    "route": "/replay-normalized",
                    "app_version": installed.version,
                    "request_id": request,
                    "event_id": f"{stream}:{position}.{level}" if is_book_change else f"{stream}:{position}",
                },
                **payload,
            }
            for level, (local_timestamp, own_meta, payload) in enumerate(envelopes)
        ]


# -- live


@pytest.mark.parametrize("asks", [False, True])
def test_errors_of_a_live_stream_are_published_once(
    installed: InstalledMachine, bus: HookBus, tmp_path: Path, asks: bool
) -> None:
    bus.begin()
    with running_exchange(Exchange(trades=1, refusals=2, failures=1)) as exchange:
        environment = hook_environment(bus.address) | exchange
        server = installed.server(tmp_path, environment).start()
        try:
            request = {
                "exchange": "bitmex",
                "symbols": ["XBTUSD"],
                "dataTypes": ["trade"],
                "withErrorMessages": asks,
                "withDisconnectMessages": asks,
            }
            with WebSocket(server.port + 1, "/ws-stream-normalized", request) as client:
                sent = [json.loads(message) for message in client.read_some(8 if asks else 2)]
            events = bus.wait_for(8)
        finally:
            server.stop()
    kinds = ["error", "disconnect", "error", "disconnect", "trade", "error", "disconnect", "trade"]
    assert [event.WhichOneof("payload") for event in events] == kinds
    assert [message["type"] for message in sent] == (kinds if asks else ["trade", "trade"])
    assert [event.trade.trade_id for event in events if event.HasField("trade")] == ["trade-3", "trade-4"]
    errors = [event.error for event in events if event.HasField("error")]
    assert [(each.details, each.subsequent_errors, each.code) for each in errors] == [
        ("Unexpected server response: 503", 1, ErrorCode.ERROR_CODE_WS_CONNECT),
        ("Unexpected server response: 503", 2, ErrorCode.ERROR_CODE_WS_CONNECT),
        (
            'Received error message: {"status": 400, "error": "not today"}',
            1,
            ErrorCode.ERROR_CODE_UNSPECIFIED,
        ),
    ]


# -- faults, of all flows at once: replays over both transports, and a live stream


FAST_TYPES = ("trade", "book_ticker", "book_snapshot_3_grouped10_0ms")
REPLAYS = {
    "/replay-normalized": request_of("bitmex", *FAST_TYPES),
    "/ws-replay-normalized": request_of("bitmex", *FAST_TYPES[::-1]),
}
LIVE = "/ws-stream-normalized"
LIVE_REQUEST = {"exchange": "bitmex", "symbols": ["XBTUSD"], "dataTypes": ["trade"]}
LIVE_TRADES = 3000


def ask(server: MachineServer, route: str) -> list[bytes]:
    """Return the messages of a replay, or those until the server went away."""
    if route == "/ws-replay-normalized":
        return server.ws_replay(REPLAYS[route]).messages
    try:
        return server.replay(REPLAYS[route]).lines
    except http.client.IncompleteRead as error:
        return Answer(200, error.partial).lines


def begin(fault: str, bus: HookBus) -> None:
    match fault:
        case "sidecar killed":
            bus.sidecar.kill()
        case "sidecar frozen" | "SIGTERM":
            bus.sidecar.freeze()
        case "bus killed":
            bus.server.kill()


def end(fault: str, bus: HookBus) -> None:
    match fault:
        case "sidecar absent" | "sidecar killed":
            bus.sidecar.start()
        case "sidecar frozen" | "SIGTERM":
            bus.sidecar.thaw()
        case "bus killed":
            bus.server.start()


@pytest.mark.parametrize("when_full", ["wait", "drop"])
@pytest.mark.parametrize(
    "fault", ["sidecar absent", "sidecar killed", "sidecar frozen", "bus killed", "SIGTERM"]
)
def test_a_fault_costs_what_is_counted(
    installed: InstalledMachine, tmp_path: Path, fault: str, when_full: str
) -> None:
    """What is on the bus and what was dropped is what was sent, and the ends of the streams say so."""
    settings = {"buffer_events": "500", "when_full": when_full, "flush_ms": "30000"}
    if fault == "sidecar absent":
        settings["max_wait_ms"] = "300"  # otherwise 30 seconds
    with (
        hook_bus("--max-queue-events=500") as bus,
        running_exchange(Exchange(LIVE_TRADES)) as exchange,
        ThreadPoolExecutor() as clients,
    ):
        if fault == "sidecar absent":
            bus.sidecar.kill()
        server = installed.server(tmp_path, hook_environment(bus.address, **settings) | exchange).start()
        try:
            asking = {route: clients.submit(ask, server, route) for route in REPLAYS}
            if fault != "sidecar absent":
                wait_until(lambda: bus.sidecar.metric("bronze_events_received_total"))
            begin(fault, bus)
            with WebSocket(server.port + 1, LIVE, LIVE_REQUEST) as live:
                # It does not wait; the replays do.
                sent = {LIVE: live.read_some(LIVE_TRADES)}
                wait_until(lambda: [line for line in server.said() if "the buffer is full" in line])
                if when_full == "drop" or fault == "sidecar absent":
                    sent |= {route: answer.result() for route, answer in asking.items()}
                end(fault, bus)
                if fault == "SIGTERM":
                    assert server.terminate() == -signal.SIGTERM
            sent |= {route: answer.result() for route, answer in asking.items()}
            if fault != "SIGTERM":
                wait_until(lambda: bus.sidecar.metric("bronze_streams") == 0)
                assert server.terminate() == -signal.SIGTERM
        finally:
            server.stop()
        events = bus.read_all()
    ends = {event.meta["route"]: event.meta for event in events if is_end(event)}
    published = {route: positions_of(events, route) for route in sent}
    counted = [line for line in server.said() if "since the start" in line]
    dropped = int(counted[-1].rpartition("; ")[2].split()[0])
    assert dropped == sum(int(each["stream_dropped"]) for each in ends.values())
    for route, messages in sent.items():
        if fault == "SIGTERM" and when_full == "wait" and route != LIVE:
            # Cut short, it has no end, but everything that its client got was published.
            assert published[route] == list(range(len(published[route])))
            assert len(published[route]) >= len(messages)
            continue
        assert int(ends[route]["stream_messages"]) == len(messages)
        assert int(ends[route]["stream_dropped"]) == len(messages) - len(published[route])
        may_drop = route == LIVE or when_full == "drop" or fault == "sidecar absent"
        assert may_drop or published[route] == list(range(len(messages)))
    assert len(published[LIVE]) < LIVE_TRADES


def positions_of(events: list[NormalizedEvent], route: str) -> list[int]:
    """Return the positions of a flow's messages; none may be there twice."""
    ids = [event.meta["event_id"] for event in events if event.meta["route"] == route and not is_end(event)]
    positions = [int(each.partition(":")[2]) for each in ids]
    assert len(set(positions)) == len(positions)
    return positions


def test_kafka(installed: InstalledMachine, kafka_server: KafkaEndpoint, tmp_path: Path) -> None:
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
        server = installed.server(tmp_path, hook_environment(process.address)).start()
        try:
            lines = server.replay(request_of("bitmex")).lines
            assert server.ws_replay(request_of("bitmex")).messages == lines
            wait_until(lambda: process.metric("bronze_events_received_total") == 2 * len(lines))
            wait_until(lambda: process.metric("bronze_queue_events") == 0)
        finally:
            server.stop()
    records = read_topic(kafka_server.brokers, topic)
    events = [event for record in records if not is_end(event := NormalizedEvent.FromString(record.value))]
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
