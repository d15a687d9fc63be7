"""NATS JetStream: `bronze.nats`.

Options: `servers` (with commas), `stream`; `start` (`earliest`, `latest` or a sequence number),
`maxRecordsPerBatch`, `partitions`, `onDataLoss` (`fail`, `continue`); `user`, `passwordFile`, `tokenFile`,
`credsFile`, `tls`, `tlsCaFile`, `tlsCertFile`, `tlsKeyFile`. Every worker must have the files.

An offset is `{"stream", "created", "sequence"}`: the next sequence number, and when the stream was created,
so that a deleted and recreated stream is noticed. Any stream can be read; for it, the user needs
`$JS.API.STREAM.INFO`, `$JS.API.CONSUMER.CREATE`, `.MSG.NEXT` and `.DELETE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import SplitResult

import pyarrow as pa
from bronze_cli.problems import Fault
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.sources.base import Bus, BusSource, check_stream, most
from bronze_pipeline.sources.nats.stream import (
    NAME,
    JetStreamStream,
    NatsAccess,
    NatsOptions,
    SequenceRange,
    State,
)
from bronze_pipeline.sources.options import OptionError, hosts

DEFAULT_PORT = 4222


class NatsSource(BusSource):
    """A JetStream stream, as a stream or as a batch of what it has now."""

    NAME = NAME

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is ours
        return NatsBatchReader(JetStreamStream(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return NatsStreamReader(JetStreamStream(self.options))


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from a checkpoint onwards."""

    def __init__(self, stream: JetStreamStream) -> None:
        self._stream = stream
        self._target: int | None = None
        """Where availableNow ends."""
        self._seen: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        state = self._stream.state()
        return self._offset(state, self._stream.first(state))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._stream.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._stream.state().next

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        state = self._stream.state()
        self._check(start, state)
        self._seen = self._offset(state, state.next)
        end = state.next if self._target is None else self._target
        maximum = most(limit)
        if maximum is not None:
            end = min(end, max(start["sequence"], state.first) + maximum)
        return self._offset(state, max(end, start["sequence"]))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start["sequence"] >= end["sequence"]:
            return []
        state = self._stream.state()
        self._check(end, state)
        return self._stream.ranges(start["sequence"], end["sequence"], state.first)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SequenceRange)  # noqa: S101 - from `partitions`
        return self._stream.read(partition)

    def _offset(self, state: State, sequence: int) -> dict[str, Any]:
        return {"stream": self._stream.name, "created": state.created, "sequence": sequence}

    def _check(self, offset: dict[str, Any], state: State) -> None:
        name = self._stream.name
        check_stream(offset, name, state.created)
        if offset["sequence"] > state.next:
            raise OptionError(
                f"the checkpoint is at sequence number {offset['sequence']} of the stream {name}, which ends"
                f" earlier, at {state.next}. The server has an older state of it. Use a new checkpoint."
            )


class NatsBatchReader(DataSourceReader):
    """Reads what the stream has now."""

    def __init__(self, stream: JetStreamStream) -> None:
        self._stream = stream

    def partitions(self) -> Sequence[InputPartition]:
        state = self._stream.state()
        start = self._stream.first(state)
        return self._stream.ranges(start, state.next, state.first) if start < state.next else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SequenceRange)  # noqa: S101 - from `partitions`
        return self._stream.read(partition)


class NatsBus(Bus):
    """NATS on the command line."""

    name = "nats"
    schemes = ("nats", "tls")
    url_form = "nats://host:4222/STREAM"
    data_source = NatsSource
    options = NatsOptions
    access = NatsAccess
    subject = ("stream",)

    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        stream = url.path.strip("/")
        if "@" in url.netloc:
            return Fault("holds credentials.", "Use --nats-user and --nats-password-file, or a token.")
        if not url.netloc or not stream or "/" in stream or "." in stream:
            return Fault("does not name the servers and the stream.", f"Write {self.url_form}.")
        servers = ",".join(f"{url.scheme}://{host}" for host in hosts(url.netloc, DEFAULT_PORT))
        return {"servers": servers, "stream": stream}

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        return max(0, int(latest["sequence"]) - int(end["sequence"]))
