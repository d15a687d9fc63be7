"""Measures for how long hostile messages hold the event loop: what one turn of it costs at most.

The service runs in this process, without gRPC, on a loop that notes the processor time of each callback.
"""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.events import Handle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import grpc
from bronze_client.schema import Batch, NormalizedEvent, Open, PublishRequest, StreamContext, Trade
from bronze_sidecar.configuration.config import load
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.ingest.server import CallRefused, SidecarService
from bronze_sidecar.telemetry.logs import set_up_logging
from bronze_sidecar.telemetry.metrics import Metrics
from null_sidecar import Null

ROUNDS = 3
TRADE = b'{"type":"trade","symbol":"S","exchange":"x","price":1,"amount":2,"side":"buy"}'
LEVEL = b'{"price":1,"amount":2}'
USUAL = StreamContext(stream_id="s")
LARGE = StreamContext(stream_id="s", meta={f"k{number:02}": "v" * 250 for number in range(64)})


def book(kind: bytes, symbol: bytes, levels: int) -> bytes:
    bids = b",".join([LEVEL] * levels)
    return b'{"type":"%b","exchange":"x","symbol":"%b","depth":9,"interval":0,"bids":[%b],"asks":[]}' % (
        kind,
        symbol,
        bids,
    )


def envelopes(count: int) -> list[bytes]:
    event = NormalizedEvent(exchange="x", symbol="S", trade=Trade(price_str="1", qty_str="2"))
    return [event.SerializeToString()] * count


MESSAGES: dict[str, tuple[StreamContext, Batch]] = {
    "1,024 trades": (USUAL, Batch(json=[b"\n".join([TRADE] * 1024)])),
    "1,024 trades, largest context": (LARGE, Batch(json=[b"\n".join([TRADE] * 1024)])),
    "1,024 envelopes": (USUAL, Batch(envelopes=envelopes(1024))),
    "1,024 envelopes, largest context": (LARGE, Batch(envelopes=envelopes(1024))),
    "500 envelopes, largest context": (LARGE, Batch(envelopes=envelopes(500))),
    "book change of 45,000 levels": (USUAL, Batch(json=[book(b"book_change", b"S", 45_000)])),
    "the same, largest context": (LARGE, Batch(json=[book(b"book_change", b"S", 45_000)])),
    "the same, and its end is missing": (USUAL, Batch(json=[book(b"book_change", b"S", 45_000)[:-1]])),
    "book snapshot of 45,000 levels": (USUAL, Batch(json=[book(b"book_snapshot", b"S", 45_000)])),
    "200 book changes of 200 levels": (USUAL, Batch(json=[book(b"book_change", b"S", 200)] * 200)),
    "symbol of 500 kB, 20,000 levels": (USUAL, Batch(json=[book(b"book_change", b"s" * 500_000, 20_000)])),
    "250 symbols of 3 kB": (USUAL, Batch(json=[TRADE.replace(b'"S"', b'"%b"' % (b"s" * 3000))] * 250)),
    "1,024 empty lines": (USUAL, Batch(json=[b"\n" * 1024])),
    "1,000 lines of 1 kB that are no JSON": (USUAL, Batch(json=[b"[" * 1000] * 1000)),
    "a line of 1 MB that is no message": (USUAL, Batch(json=[b"[" + b"1," * 500_000 + b"1]"])),
    "a line of 1 MB, nested": (USUAL, Batch(json=[b'{"type":"trade","a":' + b"[" * 1_000_000])),
    "500,000 empty envelopes": (USUAL, Batch(envelopes=[b""] * 500_000)),
}


class Producer:
    """Stands in for gRPC's context: gives the requests, takes the answers."""

    def __init__(self, *requests: PublishRequest) -> None:
        self._requests = [each.SerializeToString() for each in requests]

    async def read(self) -> bytes | object:
        return self._requests.pop(0) if self._requests else grpc.aio.EOF

    async def write(self, _: bytes) -> None:
        pass

    def cancelled(self) -> bool:
        return True  # as one that is cut off, so that its session stays


def opening(name: str, context: StreamContext) -> PublishRequest:
    return PublishRequest(open=Open(producer_id=name, context=context))


class Blocks:
    """The processor time that callbacks take."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextmanager
    def noted(self) -> Iterator[None]:
        run = Handle._run
        blocks = self

        def timed(self: Handle) -> None:
            began = time.thread_time()
            run(self)
            blocks.longest = max(blocks.longest, time.thread_time() - began)

        Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[method-assign]


async def longest(*calls: Sequence[PublishRequest]) -> float:
    """Make calls one after the other; return the longest block of the last one in seconds."""
    config = replace(load(["--memory-limit=512Mi"], {}), backends=(Null(),))
    # What is refused is logged, and would stand between the rows.
    set_up_logging("critical", config.log_format)
    metrics = Metrics()
    lanes = [Lane(backend, config, metrics.lane(backend.name)) for backend in config.backends]
    service: Any = SidecarService(config, lanes, metrics)
    running = [asyncio.create_task(lane.run()) for lane in lanes]
    blocks = Blocks()
    producers = [Producer(*call) for call in calls]
    for producer in producers[:-1]:
        await service.publish(None, producer)
    with blocks.noted(), suppress(CallRefused):
        await asyncio.create_task(service.publish(None, producers[-1]))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return blocks.longest


def block_rows() -> list[tuple[str, str]]:
    """Return the longest block of each message in milliseconds; the least of several rounds."""
    cases: dict[str, list[list[PublishRequest]]] = {}
    for name, (context, batch) in MESSAGES.items():
        batch.sequence = 1
        cases[name] = [[opening("p", context), PublishRequest(batch=batch)]]
    failing = [
        PublishRequest(batch=Batch(sequence=number, first_position=1000 * number, json=[b"\n" * 1000]))
        for number in range(1, 11)
    ]
    cases["10,000 failures, told again"] = [[opening("p", USUAL), *failing], [opening("p", USUAL)]]
    return [
        (name, f"{1000 * min(asyncio.run(longest(*calls)) for _ in range(ROUNDS)):.1f}")
        for name, calls in cases.items()
    ]


if __name__ == "__main__":
    print(json.dumps(block_rows()))
