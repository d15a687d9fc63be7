"""AWS Kinesis Data Streams: `bronze.kinesis`.

Options: `stream`; `start` (`earliest`, `latest`, a time such as `2026-01-31T12:00:00Z`, or positions as
`<shard id>:<sequence number>` with commas), `maxRecordsPerBatch`, `onDataLoss` (`fail`, `continue`);
`region`, `profile`, `endpointUrl`, `tlsCaFile`. Credentials are found where the AWS tools find them.

An offset is `{"stream", "created", "shards": {<shard id>: <position>}}`. A position is the sequence number of
the last record that was read, `@` and a time in milliseconds or nothing (the beginning) before that, and
`end` when a closed shard was read completely. Only then are its children read, so that order is kept when
shards are split and merged.

Kinesis cannot say how far a shard goes. So the driver reads a micro-batch to find its end, and hands what it
has read to the tasks; a batch that is repeated after a crash is read by the tasks, between the same sequence
numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, parse_qs

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.sources.aws import Access, Carried, access_options, add_access_flags, error_code, service
from bronze_pipeline.sources.base import (
    SPARK_SCHEMA,
    Bus,
    DataLoss,
    OptionError,
    SourceOptions,
    arrived,
    loss,
    most,
)

NAME = "bronze.kinesis"
BEGINNING = ""
TIME = "@"
END = "end"

CALLS_AT_ONCE = 8
# GetRecords gives so many at most. A task carries what the driver read, and must stay well below the
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
class Range(InputPartition):
    """Records of a shard after one position and up to another; without that, up to what is there now."""

    shard: str
    start: str
    end: str | None = None
    lost: str = ""


@dataclass
class Found:
    """What was read of a shard."""

    position: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    iterator: str | None = None
    is_at_tip: bool = False


class KinesisSource(DataSource):
    """A stream, as a stream or as a batch of what it has now."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return KinesisBatchReader(Stream(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return KinesisStreamReader(Stream(self.options))


class Stream:
    """A stream with its options; it goes to the workers, so it holds plain values."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(NAME, given)
        self.name = options.required("stream")
        self.max_records = options.max_records
        self.goes_on_after_loss = options.goes_on_after_loss
        self.access = Access.of(options)
        self._start = options.start
        self._positions = _start_positions(self._start)

    def first(self, shard: str) -> str:
        """Return where to begin in a shard without a checkpoint."""
        if self._start == "latest":
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
        """Read a shard from a position on, until there is no more now, or enough."""
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

    def read_between(self, part: Range) -> Iterator[pa.RecordBatch]:
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
        """Call GetRecords again and again; yield records, how far behind they are, and the next iterator."""
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
                # The iterator begins with the record that was read last, to see that it is still there.
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
            raise OptionError(
                f"the position {position} is none of the shard {shard} of {self.name}: {error_code(error)}."
            ) from error
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


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from a checkpoint on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._iterators: dict[str, tuple[str, str]] = {}
        """Position and iterator of each shard; iterators live for five minutes."""
        self._read: tuple[dict[str, Any], dict[str, Any], list[Carried]] | None = None
        """What latestOffset read, between which offsets."""
        self._until_ms: float | None = None
        self._done: set[str] = set()
        """With availableNow: shards that were read to what they had."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with service("kinesis", self._stream.access) as client:
            shards = self._stream.shards(client)
            positions = {shard: self._stream.first(shard) for shard in shards}
            return self._offset(self._stream.created(client), positions)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._stream.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until_ms = time.time() * 1000
        self._done.clear()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        stream = self._stream
        with service("kinesis", stream.access, CALLS_AT_ONCE) as client:
            created = stream.created(client)
            self._check(start, created)
            shards = stream.shards(client)
            positions = {shard: start["shards"].get(shard, BEGINNING) for shard in shards}
            ready = [
                shard
                for shard in shards.values()
                if positions[shard.id] != END
                and shard.id not in self._done
                and all(positions.get(parent, END) == END for parent in shard.parents)
            ]
            found = self._read_shards(client, ready, positions, most(limit))
        positions |= {shard: each.position for shard, each in found.items()}
        end = self._offset(created, positions)
        carried = [Carried(each.batches) for each in found.values() if each.batches]
        self._read = (start, end, carried)
        return end

    def _read_shards(
        self, client: Any, shards: Sequence[Shard], positions: Mapping[str, str], limit: int | None
    ) -> dict[str, Found]:
        share = max(1, (limit or self._stream.max_records) // max(1, len(shards)))

        def read(shard: Shard) -> Found:
            position, iterator = self._iterators.get(shard.id, ("", None))
            start = positions[shard.id]
            kept = iterator if position == start else None
            return self._stream.read_on(client, shard, start, share, iterator=kept, until_ms=self._until_ms)

        with ThreadPoolExecutor(CALLS_AT_ONCE) as threads:
            found = dict(zip([shard.id for shard in shards], threads.map(read, shards), strict=True))
        for shard, each in found.items():
            self._iterators.pop(shard, None)
            if each.iterator is not None:
                self._iterators[shard] = (each.position, each.iterator)
            if self._until_ms is not None and each.is_at_tip:
                self._done.add(shard)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        gone = [
            Range(shard, position, lost=f"the shard {shard} of {self._stream.name} is no more")
            for shard, position in start["shards"].items()
            if shard not in end["shards"] and position != END
        ]
        if gone and not self._stream.goes_on_after_loss:
            raise DataLoss(f"{gone[0].lost}, and it was read only up to '{gone[0].start}'")
        if self._read is not None and (start, end) == self._read[:2]:
            return [*gone, *self._read[2]]
        changed = [
            Range(shard, start["shards"].get(shard, BEGINNING), position)
            for shard, position in end["shards"].items()
            if start["shards"].get(shard, BEGINNING) != position
        ]
        return [*gone, *changed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Carried):
            return iter(partition.batches)
        assert isinstance(partition, Range)  # noqa: S101 - from `partitions`
        return self._stream.read_between(partition)

    def _offset(self, created: str, positions: Mapping[str, str]) -> dict[str, Any]:
        return {"stream": self._stream.name, "created": created, "shards": dict(sorted(positions.items()))}

    def _check(self, offset: Mapping[str, Any], created: str) -> None:
        """Refuse to go on in another stream: its sequence numbers mean other records."""
        name = self._stream.name
        if offset["stream"] != name:
            raise OptionError(
                f"the checkpoint belongs to the stream '{offset['stream']}', not to '{name}'."
                " Use another checkpoint."
            )
        if offset["created"] != created:
            raise OptionError(
                f"the stream {name} was created anew at {created}, after the checkpoint was made. What the"
                " old one had left is lost. Use a new checkpoint to read the new one; events that the table"
                " has already are not stored twice."
            )


class KinesisBatchReader(DataSourceReader):
    """Reads what the stream has now."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def partitions(self) -> Sequence[InputPartition]:
        with service("kinesis", self._stream.access) as client:
            return [Range(shard, self._stream.first(shard)) for shard in self._stream.shards(client)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)  # noqa: S101 - from `partitions`
        return self._stream.read_between(partition)


class KinesisBus(Bus):
    """Kinesis on the command line."""

    name = "kinesis"
    schemes = ("kinesis",)
    url_form = "kinesis://stream?region=eu-central-1"
    data_source = KinesisSource
    subject = ("stream",)

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        add_access_flags(parser, self.name, "Kinesis")

    def options(self, url: SplitResult, flags: argparse.Namespace) -> dict[str, str]:
        query = parse_qs(url.query)
        if not url.netloc or url.path.strip("/") or set(query) - {"region"} or "@" in url.netloc:
            raise OptionError(f"--from: name the stream, as in {self.url_form}.")
        region = {"region": query["region"][0]} if "region" in query else {}
        return {"stream": url.netloc, **region, **access_options(flags, self.name)}

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:  # noqa: ARG002
        return None


def _start_positions(start: str) -> dict[str, str]:
    """Return where shards begin; that of '' holds for all without another one."""
    if start in {"earliest", "latest"}:
        return {"": BEGINNING}
    pairs = [part.strip().rpartition(":") for part in start.split(",")]
    if all(
        shard.startswith("shardId-") and number.isascii() and number.isdigit() for shard, _, number in pairs
    ):
        return {"": BEGINNING} | {shard: number for shard, _, number in pairs}
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        raise OptionError(
            f"{NAME}: 'start' is '{start}', but must be earliest, latest, a time such as"
            " 2026-01-31T12:00:00Z, or <shard id>:<sequence number>."
        ) from None
    if moment.tzinfo is None:
        raise OptionError(f"{NAME}: 'start' is '{start}', which has no time zone. Add Z for UTC.")
    return {"": f"{TIME}{round(moment.timestamp() * 1000)}"}
