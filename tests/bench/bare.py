"""The loop to compare the sidecar with: the same records, prepared, through the same sink; nothing else.

Also, for information, the way that each client library shows first. Prints its findings as JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle, islice

import market
import msgspec
import nats
import redis.asyncio
import uvloop
from bronze_client.identity import unique_id
from bronze_client.schema import Origin
from bronze_sidecar.config import load
from bronze_sidecar.mapping import Mapper, StreamContext
from bronze_sidecar.routes import Route
from bronze_sidecar.sinks.base import Record
from bronze_sidecar.wire import timestamp_field
from machine import cpu_seconds

WRITE = 1024
WARM_SECONDS = 0.5
WINDOW_SECONDS = 0.5
PREPARED_MESSAGES = 8_192
# More than any of them writes in a second.
PREPARED_A_SECOND = {"sink": 200_000, "library": 60_000}

Write = Callable[[Sequence[Record]], Awaitable[None]]


async def main(way: str, seconds: float, server_pid: int, options: Sequence[str]) -> None:
    (backend,) = load(options, {}).backends
    route = Route(backend)
    records = prepared_records(route, int((seconds + WARM_SECONDS) * PREPARED_A_SECOND[way]))
    gc.freeze()
    if way == "sink":
        async with backend.open(route) as sink:

            async def write(batch: Sequence[Record]) -> None:
                assert not await sink.write(batch)

            findings = await measured(write, records, seconds, server_pid)
    elif backend.name == "nats":
        findings = await with_publish_async(backend.servers[0], records, seconds, server_pid)  # type: ignore[attr-defined]
    else:
        findings = await with_pipeline(backend.url or "", records, seconds, server_pid)  # type: ignore[attr-defined]
    json.dump(findings, sys.stdout)


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
    write: Write, records: Sequence[Record], seconds: float, server_pid: int
) -> dict[str, float]:
    """Write batches until the time is over or there are no more."""
    warmed_up = time.monotonic() + WARM_SECONDS
    batches = (records[start : start + WRITE] for start in range(0, len(records), WRITE))
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


async def with_publish_async(
    url: str, records: Sequence[Record], seconds: float, server_pid: int
) -> dict[str, float]:
    client = await nats.connect(url)
    stream = client.jetstream(publish_async_max_pending=WRITE)

    async def write(batch: Sequence[Record]) -> None:
        for record in batch:
            headers = dict(record.address.headers) | {"Nats-Msg-Id": record.event.id}
            await stream.publish_async(record.address.destination, record.event.envelope, headers=headers)
        await stream.publish_async_completed()

    try:
        return await measured(write, records, seconds, server_pid)
    finally:
        await client.close()


async def with_pipeline(
    url: str, records: Sequence[Record], seconds: float, server_pid: int
) -> dict[str, float]:
    client = redis.asyncio.Redis.from_url(url)

    async def write(batch: Sequence[Record]) -> None:
        pipeline = client.pipeline(transaction=False)
        for record in batch:
            fields = {
                "data": record.event.envelope,
                **dict(record.address.headers),
                "eventId": record.event.id,
            }
            pipeline.xadd(record.address.destination, fields)  # type: ignore[arg-type]
        await pipeline.execute()

    try:
        return await measured(write, records, seconds, server_pid)
    finally:
        await client.aclose()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
