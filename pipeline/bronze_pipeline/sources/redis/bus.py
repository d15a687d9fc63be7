"""Redis Streams: `bronze.redis`.

Options: `url` (`redis://host:6379/0`, `rediss://` for TLS, without credentials), `keys` (with commas; one
with `*`, `?` or `[` is a pattern, and streams that appear later are read too); `start` (`earliest`, `latest`
or an entry id, which begins with a time in milliseconds), `maxRecordsPerBatch`, `partitions`, `onDataLoss`
(`fail`, `continue`); `cluster`, `username`, `passwordFile`, `tlsCaFile`, `tlsCertFile`, `tlsKeyFile`. Every
worker must have the files. The user needs XINFO and XRANGE, and SCAN for patterns.

An offset is `{"keys": {<key>: {"id", "added"}}}`: the last entry that was read, and how many had been added
up to it (-1 if unknown). Together with the server's own counters, that shows what was trimmed before it was
read. Above 10,000 records, a stream's share of `maxRecordsPerBatch` is approximate, because a server cannot
count entries without sending them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qs

import pyarrow as pa
from bronze_cli.problems import Fault
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.sources.base import Bus, BusSource, most
from bronze_pipeline.sources.redis.positions import NOTHING, UNKNOWN, Position, from_offset, newest, to_offset
from bronze_pipeline.sources.redis.streams import NAME, SCHEMES, Pieces, RedisAccess, RedisOptions, Streams


class RedisSource(BusSource):
    """Streams, as a stream or as a batch of what they have now."""

    NAME = NAME

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return RedisBatchReader(Streams(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return RedisStreamReader(Streams(self.options))


class RedisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams from a checkpoint onwards."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._targets: dict[str, Position] | None = None
        """Where availableNow ends."""
        self._seen: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._streams.connect() as server:
            return to_offset(self._streams.initial(self._streams.states(server)))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._streams.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with self._streams.connect() as server:
            self._targets = newest(self._streams.states(server))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        begin = from_offset(start)
        streams = self._streams
        with streams.connect() as server:
            states = streams.states(server, list(begin))
            ends = newest(states)
            # A stream that is no longer wanted keeps its place; one that is gone has none.
            kept = {key: place for key, place in begin.items() if key in states or not streams.wants(key)}
            self._seen = to_offset(kept | ends)
            if self._targets is not None:
                ends = {key: self._targets[key] for key in ends.keys() & self._targets.keys()}
                ends = {key: end for key, end in ends.items() if key not in begin or end.id > begin[key].id}
            new = {key: Position(NOTHING, 0) for key in ends.keys() - begin.keys()}
            reached = streams.advance(server, begin | new, ends, states, most(limit))
        untouched = {key for key in new if reached[key] == new[key]}
        return to_offset(kept | {key: place for key, place in reached.items() if key not in untouched})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._streams.connect() as server:
            return self._streams.plan(server, from_offset(start), from_offset(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)  # noqa: S101 - from `partitions`
        return self._streams.read(partition)


class RedisBatchReader(DataSourceReader):
    """Reads what the streams have now."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def partitions(self) -> Sequence[InputPartition]:
        with self._streams.connect() as server:
            states = self._streams.states(server)
            return self._streams.plan(server, self._streams.initial(states), newest(states))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Pieces)  # noqa: S101 - from `partitions`
        return self._streams.read(partition)


class RedisBus(Bus):
    """Redis on the command line."""

    name = "redis"
    schemes = SCHEMES
    url_form = "redis://host:6379/0?keys=bronze:*"
    data_source = RedisSource
    options = RedisOptions
    access = RedisAccess
    subject = ("keys",)

    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        if "@" in url.netloc:
            return Fault("holds credentials.", "Use --redis-username and --redis-password-file.")
        query = parse_qs(url.query, keep_blank_values=True)
        if not url.hostname or set(query) != {"keys"} or not all(query["keys"]):
            return Fault("does not name the server and the keys.", f"Write {self.url_form}.")
        return {"url": url._replace(query="").geturl(), "keys": ",".join(query["keys"])}

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        reached = {key: place["added"] for key, place in end["keys"].items()}
        counts = [(place["added"], reached.get(key, 0)) for key, place in latest["keys"].items()]
        if any(UNKNOWN in pair for pair in counts):
            return None
        return sum(max(0, int(latest_count) - int(read)) for latest_count, read in counts)
