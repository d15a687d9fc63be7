"""W3C trace context of a stream is in the headers of its records, on every bus and from either client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bronze_client.schema import NormalizedEvent, Trade
from buses import NAMES, Bus, NatsBus, bus_named, trade
from clients import ClientUnderTest
from servers import NatsServer
from sidecar_process import sidecar
from spooling import on_disk, spilling, until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
}
ENVELOPE = NormalizedEvent(exchange="bitmex", symbol="XBTUSD", trade=Trade(price_str="1")).SerializeToString()


@pytest.fixture(params=NAMES)
def bus(request: pytest.FixtureRequest) -> Bus:
    return bus_named(request.param, request.getfixturevalue)


def traces(headers: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{name: each[name] for name in TRACE if name in each} for each in headers]


async def publish(client: ClientUnderTest, address: str, stream_id: str, meta: dict[str, str]) -> None:
    """Publish a message and an envelope, and wait for them."""
    async with client.connect(address, stream_id=stream_id, meta=meta, origin="replay") as publisher:
        await publisher.publish(trade(0))
        await publisher.publish(ENVELOPE)
        await publisher.flush(60)
        await publisher.close(60, ended=False)


async def test_it_goes_through_to_the_headers_of_streams_that_have_it(
    bus: Bus, client: ClientUnderTest
) -> None:
    with sidecar(*bus.options()) as process:
        await publish(client, process.address, "traced", TRACE)
        await publish(client, process.address, "plain", {"transport": "ws"})
        found = traces(await bus.headers())
        assert sorted(found, key=len) == [{}, {}, TRACE, TRACE]


async def test_it_outlasts_the_queue_on_disk(
    start_nats: Callable[..., NatsServer], node_client: ClientUnderTest, tmp_path: Path
) -> None:
    bus = NatsBus(start_nats())
    with sidecar(*spilling(bus, tmp_path, 2)) as process:
        process.wait_until_ready()
        bus.server.kill()
        await publish(node_client, process.address, "traced", TRACE)
        await until(lambda: on_disk(process) == 2)
        process.kill()
        bus.server.start()
        process.start()
        await until(lambda: on_disk(process) == 0)
        assert traces(await bus.headers()) == [TRACE, TRACE]
