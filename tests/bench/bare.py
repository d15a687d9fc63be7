"""The loop to compare the sidecar with: the same records, prepared, through the same sink; nothing else.

Also the client library on its own. Prints its findings as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice

import market
import msgspec
import uvloop
from bronze_client.identity import unique_id
from bronze_client.schema import Origin
from bronze_sidecar.configuration.config import load
from bronze_sidecar.envelope.wire import timestamp_field
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Backend
from libraries import LEAST_AT_ONCE, LIBRARIES, Write
from machine import cpu_seconds

WARM_SECONDS = 0.5
WINDOW_SECONDS = 0.5
PREPARED_MESSAGES = 8_192
# More than any way writes in a second.
PREPARED_A_SECOND = {
    "nats": 200_000,
    "redis": 200_000,
    "kafka": 300_000,
    "kinesis": 40_000,
    "sqs": 20_000,
}


async def main(way: str, seconds: float, server_pid: int, options: Sequence[str]) -> None:
    (backend,) = load(options, {}).backends
    route = Route(backend.rules())
    records = prepared_records(route, int((seconds + WARM_SECONDS) * PREPARED_A_SECOND[backend.name]))
    gc.freeze()
    # As many as the sidecar writes at once if it has them.
    at_once = backend.max_batch_size
    if way == "library":
        at_once = max(at_once, LEAST_AT_ONCE.get(backend.name, 0))
    async with through_sink(backend, route) if way == "sink" else LIBRARIES[backend.name](backend) as write:
        findings = await measured(write, records, at_once, seconds, server_pid)
    json.dump(findings, sys.stdout)


@asynccontextmanager
async def through_sink(backend: Backend, route: Route) -> AsyncIterator[Write]:
    async with backend.open(route) as sink:

        async def write(batch: Sequence[Record]) -> None:
            assert not await sink.write(batch)

        yield write


def prepared_records(route: Route, count: int) -> list[Record]:
    """Return the records that the sidecar would write, under ids that differ."""
    mapper = Mapper(StreamContext(stream_id="bare", source="bench/1", origin=Origin.ORIGIN_REPLAY))
    ingest_field = timestamp_field(5, 1_700_000_000, 1)
    events = [
        event
        for position, message in enumerate(market.replay(PREPARED_MESSAGES))
        for event in mapper.events(message, position, ingest_field)
    ]
    records = []
    run = unique_id()
    for number, event in enumerate(islice(cycle(events), count)):
        address = route.address(event)
        assert address is not None
        records.append(Record(address, msgspec.structs.replace(event, id=f"{run}:{number}")))
    return records


async def measured(
    write: Write, records: Sequence[Record], at_once: int, seconds: float, server_pid: int
) -> dict[str, float]:
    """Write batches until the time is over or there are no more."""
    warmed_up = time.monotonic() + WARM_SECONDS
    batches = (records[start : start + at_once] for start in range(0, len(records), at_once))
    while time.monotonic() < warmed_up:
        await write(next(batches))
    began, cpu, server_cpu = time.monotonic(), time.process_time(), cpu_seconds(server_pid)
    count = marked_count = 0
    best, marked = 0.0, began
    for batch in batches:
        await write(batch)
        count += len(batch)
        now = time.monotonic()
        if now - marked > WINDOW_SECONDS:
            best = max(best, (count - marked_count) / (now - marked))
            marked, marked_count = now, count
        if now - began > seconds:
            break
    passed, cpu = time.monotonic() - began, time.process_time() - cpu
    server_busy = (cpu_seconds(server_pid) - server_cpu) / passed
    rate = count / passed
    findings = {"rate": rate, "best": max(best, rate), "cpu": cpu / count * 1e6}
    return findings | {"busy": cpu / passed, "server_busy": server_busy}


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
