"""AWS Kinesis Data Streams: `bronze.kinesis`.

Options: `stream`; `start` (`earliest`, `latest`, a time such as `2026-01-31T12:00:00Z`, or positions as
`<shard id>:<sequence number>` with commas), `maxRecordsPerBatch`, `onDataLoss` (`fail`, `continue`);
`region`, `profile`, `endpointUrl`, `tlsCaFile`. Credentials are found where the AWS tools find them.

An offset is `{"stream", "created", "shards": {<shard id>: <position>}}`. A position is the sequence number of
the last record read. Before the first record it is `@` and a time in milliseconds, or empty (the beginning).
It is `end` once a closed shard was read completely. Only then are its children read, so that order is kept
when shards are split and merged.

The driver fixes the ends (`ends.py`) and reads next to nothing; the tasks read, one for each shard, between
the same sequence numbers again if a batch is repeated after a crash. So `maxRecordsPerBatch` is kept only
approximately where it is more than a thousand for a shard.

A record may hold many events, as Amazon's producer library aggregates them: each is a row (`aggregates.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, parse_qs

import pyarrow as pa
from bronze_cli.problems import Fault
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.sources.aws import AwsAccess, service
from bronze_pipeline.sources.base import Bus, BusSource, DataLoss, check_stream, most
from bronze_pipeline.sources.kinesis.calls import BEGINNING, END
from bronze_pipeline.sources.kinesis.ends import ShardEnd, find_end
from bronze_pipeline.sources.kinesis.shard_range import ShardRange, read_range
from bronze_pipeline.sources.kinesis.stream import NAME, KinesisOptions, KinesisStream, Shard

CALLS_AT_ONCE = 8


class KinesisSource(BusSource):
    """A stream, as a stream or as a batch of what it has now."""

    NAME = NAME

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return KinesisBatchReader(KinesisStream(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return KinesisStreamReader(KinesisStream(self.options))


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from a checkpoint onwards."""

    def __init__(self, stream: KinesisStream) -> None:
        self._stream = stream
        self._until_ms: float | None = None
        self._done: set[str] = set()
        """With availableNow: shards read up to what they had."""

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
            check_stream(start, stream.name, created)
            shards = stream.shards(client)
            positions = {shard: start["shards"].get(shard, BEGINNING) for shard in shards}
            ready = [
                shard
                for shard in shards.values()
                if positions[shard.id] != END
                and shard.id not in self._done
                and all(positions.get(parent, END) == END for parent in shard.parents)
            ]
            ends = self._ends(client, ready, positions, most(limit))
        positions |= {shard: end.position for shard, end in ends.items()}
        return self._offset(created, positions)

    def _ends(
        self, client: Any, shards: Sequence[Shard], positions: Mapping[str, str], limit: int | None
    ) -> dict[str, ShardEnd]:
        share = max(1, (limit or self._stream.max_records) // max(1, len(shards)))
        until_ms = time.time() * 1000 if self._until_ms is None else self._until_ms

        def look(shard: Shard) -> ShardEnd:
            start = positions[shard.id]
            end = find_end(client, self._stream.name, shard, start, most_records=share, until_ms=until_ms)
            if end.has_gap:
                # Here, so that a job that must stop does so before it begins the batch.
                self._stream.gone(shard.id, start)
            return end

        with ThreadPoolExecutor(CALLS_AT_ONCE) as threads:
            ends = dict(zip([shard.id for shard in shards], threads.map(look, shards), strict=True))
        if self._until_ms is not None:
            self._done |= {shard for shard, end in ends.items() if end.is_at_tip}
        return ends

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        gone = [
            ShardRange(shard, position, lost=f"the shard {shard} of {self._stream.name} is gone")
            for shard, position in start["shards"].items()
            if shard not in end["shards"] and position != END
        ]
        if gone and not self._stream.goes_on_after_loss:
            raise DataLoss(f"{gone[0].lost}, and it was read only up to '{gone[0].start}'")
        changed = [
            ShardRange(shard, start["shards"].get(shard, BEGINNING), position)
            for shard, position in end["shards"].items()
            if start["shards"].get(shard, BEGINNING) != position
        ]
        return [*gone, *changed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ShardRange)  # noqa: S101 - from `partitions`
        return read_range(self._stream, partition)

    def _offset(self, created: str, positions: Mapping[str, str]) -> dict[str, Any]:
        return {"stream": self._stream.name, "created": created, "shards": dict(sorted(positions.items()))}


class KinesisBatchReader(DataSourceReader):
    """Reads what the stream has now."""

    def __init__(self, stream: KinesisStream) -> None:
        self._stream = stream

    def partitions(self) -> Sequence[InputPartition]:
        with service("kinesis", self._stream.access) as client:
            return [ShardRange(shard, self._stream.first(shard)) for shard in self._stream.shards(client)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ShardRange)  # noqa: S101 - from `partitions`
        return read_range(self._stream, partition)


class KinesisBus(Bus):
    """Kinesis on the command line."""

    name = "kinesis"
    schemes = ("kinesis",)
    url_form = "kinesis://stream?region=eu-central-1"
    data_source = KinesisSource
    options = KinesisOptions
    access = AwsAccess
    subject = ("stream",)

    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        query = parse_qs(url.query)
        if not url.netloc or url.path.strip("/") or set(query) - {"region"} or "@" in url.netloc:
            return Fault("does not name the stream.", f"Write {self.url_form}.")
        region = {"region": query["region"][0]} if "region" in query else {}
        return {"stream": url.netloc, **region}

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:  # noqa: ARG002
        return None
