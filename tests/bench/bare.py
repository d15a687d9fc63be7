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
import nats
import redis.asyncio
import uvloop
from bronze_client.schema import Origin
from bronze_sidecar.config import load
from bronze_sidecar.event import Event
from bronze_sidecar.mapping import Mapper, StreamContext
from bronze_sidecar.routes import Route
from bronze_sidecar.sinks.base import Record
from bronze_sidecar.wire import timestamp_field

WRITE = 1024
WINDOW_SECONDS = 0.5
PREPARED_MESSAGES = 16_384
PREPARED_RECORDS = 400_000


async def main(way: str, seconds: float, options: Sequence[str]) -> None:
    (backend,) = load(options, {}).backends
    route = Route(backend)
    records = prepared_records(route)
    gc.freeze()
    if way == "sink":
        async with backend.open(route) as sink:

            async def write(batch: Sequence[Record]) -> None:
                assert not await sink.write(batch)

            findings = await measured(write, records, seconds)
    elif backend.name == "nats":
        findings = await with_publish_async(backend.servers[0], records, seconds)  # type: ignore[attr-defined]
    else:
        findings = await with_pipeline(backend.url or "", records, seconds)  # type: ignore[attr-defined]
    json.dump(findings, sys.stdout)


def prepared_records(route: Route) -> list[Record]:
    """Return the records that the sidecar would write, under ids that differ."""
    mapper = Mapper(StreamContext(stream_id="bare", source="bench/1", origin=Origin.ORIGIN_REPLAY))
    ingest_field = timestamp_field(5, 1_700_000_000, 1)
    events = [
        event
        for position, message in enumerate(market.replay(PREPARED_MESSAGES))
        for event in mapper.events(message, position, ingest_field)
    ]
    records = []
    for number, event in enumerate(islice(cycle(events), PREPARED_RECORDS)):
        address = route.address(event)
        assert address is not None
        facts = [getattr(event, name) for name in Event.__struct_fields__[2:]]
        records.append(Record(address, Event(event.envelope, f"{time.time_ns()}:{number}", *facts)))
    return records


async def measured(
    write: Callable[[Sequence[Record]], Awaitable[None]], records: Sequence[Record], seconds: float
) -> dict[str, float]:
    """Write batches until the time is over or there are no more."""
    await write(records[:WRITE])
    began, cpu = time.monotonic(), time.process_time()
    count = marked_count = 0
    best, marked = 0.0, began
    for start in range(WRITE, len(records) - WRITE + 1, WRITE):
        await write(records[start : start + WRITE])
        count += WRITE
        now = time.monotonic()
        if now - marked > WINDOW_SECONDS:
            best = max(best, (count - marked_count) / (now - marked))
            marked, marked_count = now, count
        if now - began > seconds:
            break
    passed, cpu = time.monotonic() - began, time.process_time() - cpu
    rate = count / passed
    return {"rate": rate, "best": best or rate, "cpu": cpu / count * 1e6, "busy": cpu / passed}


async def with_publish_async(url: str, records: Sequence[Record], seconds: float) -> dict[str, float]:
    client = await nats.connect(url)
    stream = client.jetstream(publish_async_max_pending=WRITE)

    async def write(batch: Sequence[Record]) -> None:
        for record in batch:
            headers = dict(record.address.headers) | {"Nats-Msg-Id": record.event.id}
            await stream.publish_async(record.address.destination, record.event.envelope, headers=headers)
        await stream.publish_async_completed()

    try:
        return await measured(write, records, seconds)
    finally:
        await client.close()


async def with_pipeline(url: str, records: Sequence[Record], seconds: float) -> dict[str, float]:
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
        return await measured(write, records, seconds)
    finally:
        await client.aclose()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
