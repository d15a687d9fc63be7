"""What a task reads: the records of a shard between two positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.decoding.schema import ARRIVED
from bronze_pipeline.sources.aws import service
from bronze_pipeline.sources.base import ROWS_IN_BATCH, loss
from bronze_pipeline.sources.kinesis.aggregates import MAGIC, DamagedAggregateError, events_in
from bronze_pipeline.sources.kinesis.calls import Record, ShardCalls
from bronze_pipeline.sources.kinesis.stream import KinesisStream


@dataclass(frozen=True)
class ShardRange(InputPartition):
    """Records of a shard after one position and up to another; without an end, up to what is there now."""

    shard: str
    start: str
    end: str | None = None
    lost: str = ""


class _Row(NamedTuple):
    position: str
    value: bytes
    fault: str | None = None


def read_range(stream: KinesisStream, part: ShardRange) -> Iterator[pa.RecordBatch]:
    """Read the records, in a worker."""
    if part.lost:
        yield loss(stream.name, part.shard, part.start, part.lost)
        return
    last = int(part.end) if part.end and part.end.isdigit() else None
    with service("kinesis", stream.access) as client:
        calls = ShardCalls(client, stream.name, part.shard, part.start)
        while True:
            answer = calls.call()
            if answer.has_gap:
                yield stream.gone(part.shard, part.start)
            wanted = [each for each in answer.records if last is None or int(each["SequenceNumber"]) <= last]
            yield from _batches(stream.name, part.shard, wanted)
            is_complete = last is not None and calls.position.isdigit() and int(calls.position) >= last
            if is_complete or answer.is_end:
                break
            if not answer.behind_ms and not answer.records:
                break
        if last is not None and not is_complete:
            yield stream.gone(part.shard, calls.position)


def _batches(stream: str, shard: str, records: Sequence[Record]) -> Iterator[pa.RecordBatch]:
    rows = [row for record in records for row in _rows(record)]
    for place in range(0, len(rows), ROWS_IN_BATCH):
        some = rows[place : place + ROWS_IN_BATCH]
        count = len(some)
        columns = [
            pa.repeat(pa.scalar(stream), count),
            pa.repeat(pa.scalar(shard), count),
            pa.array([row.position for row in some], pa.string()),
            pa.array([row.value for row in some], pa.binary()),
            pa.array([row.fault for row in some], pa.string()),
            pa.nulls(count, pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ARRIVED)


def _rows(record: Record) -> Iterator[_Row]:
    """Yield the events of a record; those of an aggregated one are numbered behind its sequence number."""
    number, data = record["SequenceNumber"], record["Data"]
    if not data.startswith(MAGIC):
        yield _Row(number, data)
        return
    try:
        for place, event in enumerate(events_in(data)):
            yield _Row(f"{number}.{place}", event)
    except DamagedAggregateError as error:
        yield _Row(number, data, str(error))
