"""The client in a real tardis-machine: what it answers is on the bus, exactly. Run only where there is one.

`TARDIS_MACHINE` names the folder of a built server, `TARDIS_NODE` the Node.js that it needs, if that is not
the first on the PATH, `TARDIS_CACHE` its cache. The server gets this environment: the data that it replays
comes from wherever that lets it, such as a proxy in `HTTP_PROXY`. `TARDIS_FROM` and `TARDIS_TO` say which.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from bronze_client.schema import ErrorCode, NormalizedEvent
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from fuzz_hook import ODD_QUERIES, ODD_TEXTS, ODD_VALUES, everywhere, query, shorten
from google.protobuf import json_format
from hook_bus import HookBus, hook_bus
from kafka_servers import KafkaEndpoint, read_topic
from servers import HOST, free_port
from sidecar_process import sidecar
from tardis_servers import (
    MachineServer,
    WebSocket,
    hook_environment,
    machine_from_environment,
    send_raw,
    wait_until,
)

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


def test_hostile_requests_change_nothing(
    machine: MachineServer, bus: HookBus, tmp_path_factory: pytest.TempPathFactory
) -> None:
    attacks = [attack for text in ODD_TEXTS for attack in everywhere(shorten(text), query(text))]
    attacks += [attack for odd in ODD_QUERIES for attack in everywhere(odd, odd)]
    for value in ODD_VALUES:
        # Its disconnects would tell the time.
        options = {**request_of("bitmex", "trade"), "exchange": value, "withDisconnectMessages": False}
        attacks += everywhere(f"exchange {shorten(json.dumps(value))}", query(json.dumps([options])))
    honest = request_of("bitmex", "trade")
    plain = machine_from_environment(tmp_path_factory.mktemp("plain") / "1", {})
    assert plain is not None
    plain.start()
    try:
        expected = plain.replay(honest)
        for each in attacks:
            offset = 0 if each.transport == "http" else 1
            without = send_raw(plain.port + offset, each.sent)
            assert send_raw(machine.port + offset, each.sent) == without, each.name
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


def seconds(text: str) -> str:
    return f"2020-02-01T00:00:{text}Z"


def expected_book_change(side: str, price: str, quantity: str) -> dict[str, object]:
    return {
        "side": side,
        "action": "ACTION_UPSERT",
        "priceStr": price,
        "qtyStr": quantity,
        "eventTs": seconds("00.202250"),
    }


def expected_levels(*levels: tuple[str, str]) -> list[dict[str, str]]:
    return [{"priceStr": price, "qtyStr": quantity} for price, quantity in levels]


# Of one minute of a generated market: the types asked for, the digest of the answer, and for the position of
# a message what it becomes: when the server got it, the meta that is its own, and the payload.
BY_HAND: dict[str, tuple[list[str], str, dict[int, list[tuple[str, dict[str, str], dict[str, object]]]]]] = {
    "bitmex": (
        [
            *("trade", "book_change", "liquidation", "book_ticker", "book_snapshot_2_grouped10_1s"),
            *("quote_1s", "book_snapshot_3_1s", "trade_bar_10s"),
        ],
        "30eb21614a54ae46",
        {
            1: [
                (
                    seconds("00.001500"),
                    {"data_type": "book_snapshot", "data_name": "book_snapshot_2_grouped10_1s"},
                    {
                        "groupedBookSnapshot": {
                            "depth": 2,
                            "bids": expected_levels(("9350", "5854135"), ("9340", "20945780")),
                            "asks": expected_levels(("9360", "16450556"), ("9370", "22762700")),
                            "eventTs": seconds("00.001500"),
                            "grouping": 10,
                            "intervalMs": 1000,
                            "removeCrossedLevels": True,
                        }
                    },
                )
            ],
            10: [
                (
                    seconds("00.162521"),
                    {"data_type": "trade"},
                    {
                        "trade": {
                            "tradeId": "e84a82ea-a135-42c8-8f4c-461316161af0",
                            "priceStr": "9351.5",
                            "qtyStr": "1",
                            "side": "SIDE_SELL",
                            "eventTs": seconds("00.148"),
                        }
                    },
                )
            ],
            13: [
                (
                    seconds("00.202250"),
                    {"data_type": "book_change", "is_snapshot": "false"},
                    {"bookChange": expected_book_change(*level)},
                )
                for level in (
                    ("SIDE_BUY", "9326.5", "1183637"),
                    ("SIDE_SELL", "9358", "147272"),
                    ("SIDE_SELL", "9363", "2611596"),
                    ("SIDE_SELL", "9352", "2862458"),
                )
            ],
            44: [
                (
                    seconds("01.249724"),
                    {"data_type": "book_ticker"},
                    {
                        "bookTicker": {
                            "bestBidPriceStr": "9351.5",
                            "bestBidQtyStr": "377598",
                            "bestAskPriceStr": "9352",
                            "bestAskQtyStr": "149260",
                            "eventTs": seconds("01.244"),
                        }
                    },
                )
            ],
            221: [
                (
                    seconds("06.106870"),
                    {"data_type": "book_snapshot", "data_name": "book_snapshot_3_1s"},
                    {
                        "bookSnapshot": {
                            "depth": 3,
                            "bids": expected_levels(
                                ("9351.5", "449961"), ("9351", "1135791"), ("9350.5", "488960")
                            ),
                            "asks": expected_levels(
                                ("9352", "2296497"), ("9352.5", "2813618"), ("9353", "935239")
                            ),
                            "eventTs": seconds("06"),
                            "intervalMs": 1000,
                            "removeCrossedLevels": True,
                        }
                    },
                )
            ],
            319: [
                (
                    seconds("09.171335"),
                    {"data_type": "book_snapshot", "data_name": "quote_1s"},
                    {
                        "bookSnapshot": {
                            "depth": 1,
                            "bids": expected_levels(("9351.5", "904726")),
                            "asks": expected_levels(("9352", "802166")),
                            "eventTs": seconds("09"),
                            "intervalMs": 1000,
                            "removeCrossedLevels": True,
                        }
                    },
                )
            ],
            357: [
                (
                    seconds("10.291454"),
                    {"data_type": "trade_bar", "data_name": "trade_bar_10s"},
                    {
                        "tradeBar": {
                            "kind": "BAR_KIND_TIME",
                            "interval": "10000",
                            "intervalMs": 10000,
                            "openStr": "9351.5",
                            "highStr": "9352",
                            "lowStr": "9351.5",
                            "closeStr": "9352",
                            "volumeStr": "1551486",
                            "tradeCount": "50",
                            "eventTs": seconds("00.148"),
                            "endTs": seconds("09.431"),
                        }
                    },
                )
            ],
            1255: [
                (
                    seconds("37.178970"),
                    {"data_type": "liquidation"},
                    {
                        "liquidation": {
                            "side": "SIDE_SELL",
                            "priceStr": "9352",
                            "qtyStr": "28498",
                            "orderId": "5c41a3c2-eaf9-4466-bd6c-83bce366157a",
                            "eventTs": seconds("37.178970"),
                        }
                    },
                )
            ],
        },
    ),
    "binance-futures": (
        ["derivative_ticker", "liquidation"],
        "f73395ca89bb6c2f",
        {
            0: [
                (
                    seconds("00.003"),
                    {"data_type": "derivative_ticker"},
                    {
                        "derivativeTicker": {
                            "markPriceStr": "9352.60302708",
                            "indexPriceStr": "9352.49469997",
                            "fundingRateStr": "0.00009537",
                            "eventTs": seconds("00"),
                        }
                    },
                )
            ],
            11: [
                (
                    seconds("08.737029"),
                    {"data_type": "liquidation"},
                    {
                        "liquidation": {
                            "side": "SIDE_SELL",
                            "priceStr": "9352.2",
                            "qtyStr": "0.014",
                            "eventTs": seconds("08.732"),
                        }
                    },
                )
            ],
        },
    ),
}


@pytest.mark.parametrize("exchange", BY_HAND)
def test_envelopes_are_as_written_by_hand(machine: MachineServer, bus: HookBus, exchange: str) -> None:
    types, digest, expected = BY_HAND[exchange]
    bus.begin()
    answer = machine.replay(
        request_of(exchange, *types) | {"from": "2020-02-01T00:00:00Z", "to": "2020-02-01T00:01:00Z"}
    )
    if hashlib.sha256(answer.body).hexdigest()[:16] != digest:
        pytest.skip("the data is not what these envelopes were written for")
    mapper = Mapper(StreamContext(stream_id="any"))
    events = bus.wait_for(sum(len(mapper.events(line, 0, b"")) for line in answer.lines))
    version = json.loads(Path(os.environ["TARDIS_MACHINE"], "package.json").read_text())["version"]
    by_position: dict[int, list[NormalizedEvent]] = {}
    for event in without_receipt(events):
        number = event.meta["event_id"].partition(":")[2].partition(".")[0]
        by_position.setdefault(int(number), []).append(event)
    stream, request = events[0].meta["event_id"].partition(":")[0], events[0].meta["request_id"]
    assert (len(stream), len(request)) == (32, 32)
    for position, envelopes in expected.items():
        is_book_change = "bookChange" in envelopes[0][2]
        assert [json_format.MessageToDict(event) for event in by_position[position]] == [
            {
                "source": f"tardis-machine/{version}",
                "exchange": exchange,
                "symbol": EXCHANGES[exchange],
                "localTs": local_timestamp,
                "origin": "ORIGIN_REPLAY",
                "meta": {
                    **own_meta,
                    "transport": "http",
                    "route": "/replay-normalized",
                    "app_version": version,
                    "request_id": request,
                    "event_id": f"{stream}:{position}.{level}" if is_book_change else f"{stream}:{position}",
                },
                **payload,
            }
            for level, (local_timestamp, own_meta, payload) in enumerate(envelopes)
        ]


# -- live


class Exchange:
    """Plays BitMEX: refuses two connections, ends one with an error after a trade, and keeps the next one."""

    def __init__(self) -> None:
        self._connections = 0

    async def connect(self, request: web.Request) -> web.StreamResponse:
        self._connections += 1
        if self._connections <= 2:
            return web.Response(status=503)
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        await connection.receive()  # the subscription
        trade = {
            "timestamp": "2020-02-01T00:00:00.148Z",
            "symbol": "XBTUSD",
            "side": "Sell",
            "size": 1,
            "price": 9351.5,
            "trdMatchID": f"trade-{self._connections}",
        }
        await connection.send_json({"table": "trade", "action": "insert", "data": [trade]})
        if self._connections == 3:
            await connection.send_json({"status": 400, "error": "not today"})
        await connection.receive()  # until it is closed
        return connection


@contextlib.contextmanager
def running_exchange() -> Iterator[str]:
    """Run an exchange in a thread of its own; give its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    application = web.Application()
    application.router.add_get("/", Exchange().connect)
    runner = web.AppRunner(application)
    port = free_port()

    async def listen() -> None:
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()

    asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield f"ws://{HOST}:{port}/"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize("asks", [False, True])
def test_errors_of_a_live_stream_are_published_once(
    bus: HookBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    # It would be asked for the exchange too.
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    bus.begin()
    with running_exchange() as address:
        environment = hook_environment(bus.address) | {"WSS_URL_BITMEX": address}
        server = machine_from_environment(tmp_path / "1", environment)
        assert server is not None
        server.start()
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
