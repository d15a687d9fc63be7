"""A Kinesis stream: its shards, and reading one of them; `bus.py` says what a position is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from bronze_cli.options import option
from bronze_cli.values import Text
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.aws import AwsAccess, service
from bronze_pipeline.sources.base import DataLoss, arrived, loss
from bronze_pipeline.sources.options import EARLIEST, LATEST, OptionError, Start, StreamOptions, read_options

NAME = "bronze.kinesis"
BEGINNING = ""
TIME = "@"
END = "end"

# The most that GetRecords returns. A task carries what the driver read, and must stay well below the
# 128 MiB that Spark allows.
MOST_IN_CALL = 10_000
MOST_BYTES_OF_SHARD = 16 << 20
# A shard answers five calls a second.
SECONDS_BETWEEN_CALLS = 0.2


@dataclass
class Shard:
    """A shard as Kinesis lists it."""

    id: str
    parents: tuple[str, ...]
    is_closed: bool


@dataclass
class ShardRange(InputPartition):
    """Records of a shard after one position and up to another; without an end, up to what is there now."""

    shard: str
    start: str
    end: str | None = None
    lost: str = ""


@dataclass
class Found:
    """What was read from a shard."""

    position: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    iterator: str | None = None
    is_at_tip: bool = False


class PositionStart(Start):
    """A time, positions, or either end of the stream."""

    def is_position(self, text: str) -> bool:
        return start_positions(text) is not None

    def choices(self) -> str:
        return "earliest, latest, a time such as 2026-01-31T12:00:00Z, or <shard id>:<sequence number>"


@dataclass(frozen=True)
class KinesisOptions(AwsAccess, StreamOptions):
    """Everything about a stream and how to reach it; it is sent to workers, so it holds plain values."""

    stream: str = option(Text(), "Stream to read.", required=True)
    start: str = option(
        PositionStart(), "Where a new checkpoint begins: earliest, latest or a position.", default="earliest"
    )


class KinesisStream:
    """A stream, for the driver and for workers."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.access = options = read_options(KinesisOptions, NAME, given)
        self.name = options.stream
        self.max_records = options.max_records_per_batch
        self.goes_on_after_loss = options.goes_on_after_loss
        self._start = options.start
        self._positions = start_positions(options.start) or {"": BEGINNING}

    def first(self, shard: str) -> str:
        """Return where to begin in a shard without a checkpoint."""
        if self._start == LATEST:
            return f"{TIME}{time.time_ns() // 1_000_000}"
        return self._positions.get(shard, self._positions[""])

    def created(self, client: Any) -> str:
        summary = client.describe_stream_summary(StreamName=self.name)["StreamDescriptionSummary"]
        return str(summary["StreamCreationTimestamp"].astimezone(UTC).isoformat())

    def shards(self, client: Any) -> dict[str, Shard]:
        pages = client.get_paginator("list_shards").paginate(StreamName=self.name)
        return {
            facts["ShardId"]: Shard(
                facts["ShardId"],
                tuple(facts[name] for name in ("ParentShardId", "AdjacentParentShardId") if facts.get(name)),
                "EndingSequenceNumber" in facts["SequenceNumberRange"],
            )
            for page in pages
            for facts in page["Shards"]
        }

    # -- reading a shard

    def read_on(
        self,
        client: Any,
        shard: Shard,
        start: str,
        most_records: int,
        *,
        iterator: str | None = None,
        until_ms: float | None = None,
    ) -> Found:
        """Read a shard from a position until there is no more for now, or enough."""
        found = Found(start, iterator=iterator)
        bytes_read = records_read = 0
        for records, behind, following in self._calls(client, shard.id, found, most_records):
            found.iterator = following
            if records:
                found.position = records[-1]["SequenceNumber"]
                found.batches.append(self._batch(shard.id, records))
                records_read += len(records)
                bytes_read += sum(len(record["Data"]) for record in records)
            newest = records[-1]["ApproximateArrivalTimestamp"].timestamp() * 1000 if records else 0.0
            found.is_at_tip = behind == 0 or (until_ms is not None and newest > until_ms)
            if found.iterator is None or (shard.is_closed and behind == 0 and not records):
                found.position = END
                break
            if found.is_at_tip and not shard.is_closed:
                break
            if records_read >= most_records or bytes_read >= MOST_BYTES_OF_SHARD:
                break
        return found

    def read_between(self, part: ShardRange) -> Iterator[pa.RecordBatch]:
        """Read, in a worker, what a micro-batch had."""
        if part.lost:
            yield loss(self.name, part.shard, part.start, part.lost)
            return
        last = int(part.end) if part.end and part.end.isdigit() else None
        with service("kinesis", self.access) as client:
            found = Found(part.start)
            for records, behind, following in self._calls(client, part.shard, found, None):
                wanted = [each for each in records if last is None or int(each["SequenceNumber"]) <= last]
                if wanted:
                    found.position = wanted[-1]["SequenceNumber"]
                    found.batches.append(self._batch(part.shard, wanted))
                yield from found.batches
                found.batches.clear()
                is_complete = last is not None and found.position.isdigit() and int(found.position) >= last
                if is_complete or len(wanted) < len(records) or following is None:
                    break
                if behind == 0 and not records:
                    break
            if last is not None and not (found.position.isdigit() and int(found.position) >= last):
                yield self._gone(part.shard, found.position)

    def _calls(
        self, client: Any, shard: str, found: Found, most_records: int | None
    ) -> Iterator[tuple[list[dict[str, Any]], int, str | None]]:
        """Call GetRecords repeatedly; yield records, how far behind they are, and the next iterator."""
        left = most_records
        check = ""
        iterator = found.iterator
        while True:
            if iterator is None:
                iterator, check = self._iterator(client, shard, found.position), found.position
            limit = MOST_IN_CALL if left is None else min(MOST_IN_CALL, left + bool(check.isdigit()))
            try:
                answer = client.get_records(ShardIterator=iterator, Limit=max(1, limit))
            except client.exceptions.ExpiredIteratorException:
                iterator = None
                continue
            records = answer["Records"]
            if check.isdigit() and records:
                # The iterator begins with the last record read, to check that it is still there.
                if records[0]["SequenceNumber"] == check:
                    records = records[1:]
                else:
                    found.batches.append(self._gone(shard, check))
                check = ""
            left = None if left is None else left - len(records)
            iterator = answer.get("NextShardIterator")
            yield records, answer.get("MillisBehindLatest", 0), iterator
            if iterator is None:
                return
            if not records:
                time.sleep(SECONDS_BETWEEN_CALLS)

    def _iterator(self, client: Any, shard: str, position: str) -> str:
        if position == BEGINNING:
            where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        elif position.startswith(TIME):
            ms = int(position.removeprefix(TIME))
            at = datetime.fromtimestamp(ms / 1000, UTC)
            where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": at}
        else:
            where = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
        try:
            answer = client.get_shard_iterator(StreamName=self.name, ShardId=shard, **where)
        except client.exceptions.InvalidArgumentException as error:
            raise OptionError(f"the shard {shard} of {self.name} has no position {position}.") from error
        return str(answer["ShardIterator"])

    def _batch(self, shard: str, records: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        positions = [record["SequenceNumber"] for record in records]
        return arrived([self.name] * len(records), shard, positions, [record["Data"] for record in records])

    def _gone(self, shard: str, position: str) -> pa.RecordBatch:
        what = (
            f"the record {position or 'at the beginning'} of the shard {shard} of {self.name} has expired;"
            " records after it may be lost"
        )
        if not self.goes_on_after_loss:
            raise DataLoss(what)
        return loss(self.name, shard, position, what)


def start_positions(start: str) -> dict[str, str] | None:
    """Return where to begin in each shard, with '' for all others; None if the text does not say."""
    if start in {EARLIEST, LATEST}:
        return {"": BEGINNING}
    pairs = [part.strip().rpartition(":") for part in start.split(",")]
    if all(
        shard.startswith("shardId-") and number.isascii() and number.isdigit() for shard, _, number in pairs
    ):
        return {"": BEGINNING} | {shard: number for shard, _, number in pairs}
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        return None
    return None if moment.tzinfo is None else {"": f"{TIME}{round(moment.timestamp() * 1000)}"}
