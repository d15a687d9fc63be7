"""The loop to compare the sidecar with: the same records, prepared, through the same sink; nothing else.

Also the client library on its own: `bare.py WAY SECONDS RATE SERVER_PID OPTIONS...`. It writes as fast as it
can, or RATE events a second, if that is not 0. Prints its findings as JSON.
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
from machine import cpu_seconds, percentiles

WARM_SECONDS = 0.5
WINDOW_SECONDS = 0.5
# What a client gathers before it sends.
GATHERED_SECONDS = 0.005
PREPARED_MESSAGES = 8_192
# More than any way writes in a second.
PREPARED_A_SECOND = {
    "nats": 200_000,
    "redis": 200_000,
    "kafka": 300_000,
    "kinesis": 40_000,
    "sqs": 20_000,
}


async def main(way: str, seconds: float, rate: int, server_pid: int, options: Sequence[str]) -> None:
    (backend,) = load(options, {}).backends
    route = Route(backend.rules())
    most = rate or PREPARED_A_SECOND[backend.name]
    records = prepared_records(route, int((seconds + WARM_SECONDS) * most))
    gc.freeze()
    # As many as the sidecar writes at once if it has them.
    at_once = backend.max_batch_size
    if way == "library":
        at_once = max(at_once, LEAST_AT_ONCE.get(backend.name, 0))
    async with through_sink(backend, route) if way == "sink" else LIBRARIES[backend.name](backend) as write:
        if rate:
            findings = await measured_at(rate, write, records, at_once)
        else:
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


async def measured_at(rate: int, write: Write, records: Sequence[Record], at_once: int) -> dict[str, float]:
    """Write all records as they become due, what is due together at once."""
    each = int(rate * GATHERED_SECONDS)
    interval = each / rate
    latencies: list[float] = []
    cpu = time.process_time()
    began = time.monotonic()
    written = 0
    while written + each <= len(records):
        # Not the loop's sleep, which counts in milliseconds: nothing else is to be done now.
        time.sleep(max(0.0, began + (written // each + 1) * interval - time.monotonic()))  # noqa: ASYNC251
        due = int((time.monotonic() - began) / interval) * each
        batch = records[written : min(due, written + at_once // each * each)]
        await write(batch)
        ended = time.monotonic()
        firsts = range(written // each + 1, (written + len(batch)) // each + 1)
        latencies += [ended - (began + number * interval) for number in firsts]
        written += len(batch)
    passed, cpu = time.monotonic() - began, time.process_time() - cpu
    warm = int(WARM_SECONDS / interval)
    return {"rate": written / passed, "cpu": cpu / written * 1e6, **percentiles(latencies[warm:])}


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]))
