"""NATS JetStream: `bronze.nats`.

Options: `servers` (with commas), `stream`; `start` (`earliest`, `latest` or a sequence number),
`maxRecordsPerBatch`, `partitions`, `onDataLoss` (`fail`, `continue`); `user`, `passwordFile`, `tokenFile`,
`credsFile`, `tls`, `tlsCaFile`, `tlsCertFile`, `tlsKeyFile`. Files must be there on every worker.

An offset is `{"stream", "created", "sequence"}`: the next sequence number, and when the stream was created,
so that one that was deleted and made anew is noticed. Any stream can be read; the user needs
`$JS.API.STREAM.INFO`, `$JS.API.CONSUMER.CREATE`, `.MSG.NEXT` and `.DELETE` of it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.sources.base import (
    SPARK_SCHEMA,
    Bus,
    DataLoss,
    OptionError,
    SourceOptions,
    arrived,
    loss,
    most,
    split,
)

if TYPE_CHECKING:
    from bronze_pipeline.sources.nats_wire import Access

NAME = "bronze.nats"
DEFAULT_PORT = 4222
FILE_FLAGS = ("password_file", "token_file", "creds_file", "tls_ca_file", "tls_cert_file", "tls_key_file")


@dataclass
class Range(InputPartition):
    """Sequence numbers for one task, the end excluded; `lost` says what was gone before."""

    start: int
    end: int
    lost: str = ""


@dataclass(frozen=True)
class State:
    """What a stream is and has."""

    created: str
    first: int
    next: int


class NatsSource(DataSource):
    """A JetStream stream, as a stream or as a batch of what it has now."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is ours
        return NatsBatchReader(Stream(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return NatsStreamReader(Stream(self.options))


class Stream:
    """A stream with its options; it goes to the workers, so it holds plain values."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(NAME, given)
        self.name = options.required("stream")
        self.max_records = options.max_records
        self.partitions = options.partitions
        self.goes_on_after_loss = options.goes_on_after_loss
        self.start = options.start
        if self.start not in {"earliest", "latest"} and not (self.start.isascii() and self.start.isdigit()):
            raise OptionError(
                f"{NAME}: 'start' is '{self.start}', but must be earliest, latest or a sequence number."
            )
        self._servers = tuple(part.strip() for part in options.required("servers").split(",") if part.strip())
        self._texts = {name: options.text(_camel(name)) for name in ("user", *FILE_FLAGS)}
        self._tls = options.choice("tls", ("false", "true")) == "true"

    @property
    def access(self) -> Access:
        from bronze_pipeline.sources.nats_wire import Access  # noqa: PLC0415 - each process its own

        return Access(self._servers, tls=self._tls, **self._texts)

    def state(self) -> State:
        """Ask the server."""
        return asyncio.run(self._state())

    async def _state(self) -> State:
        from bronze_pipeline.sources.nats_wire import connect  # noqa: PLC0415 - each process its own

        async with connect(self.access) as connection:
            info = await connection.info(self.name)
        state = info["state"]
        # A stream that was emptied names the next sequence number as its first.
        return State(info["created"], max(1, state["first_seq"]), state["last_seq"] + 1)

    def first(self, state: State) -> int:
        """Return where to begin without a checkpoint."""
        if self.start == "earliest":
            return state.first
        return state.next if self.start == "latest" else int(self.start)

    def ranges(self, start: int, end: int, first: int) -> list[Range]:
        """Divide sequence numbers among tasks; `first` is the oldest that the stream still has."""
        ranges = [Range(*edges) for edges in split(max(start, min(first, end)), end, self.partitions)]
        if first > start:
            gone = (
                f"sequence numbers {start} to {min(first, end) - 1} are no longer in the stream {self.name}"
            )
            if not self.goes_on_after_loss:
                raise DataLoss(gone)
            ranges.insert(0, Range(start, start, gone))
        return ranges

    def read(self, part: Range) -> Iterator[pa.RecordBatch]:
        """Read a range in a worker."""
        if part.lost:
            yield loss("", self.name, str(part.start), part.lost)
            return
        loop = asyncio.new_event_loop()
        batches = self._read(part)
        try:
            while True:
                batch = loop.run_until_complete(anext(batches, None))
                if batch is None:
                    return
                yield batch
        finally:
            loop.run_until_complete(batches.aclose())
            loop.close()

    async def _read(self, part: Range) -> Any:
        from bronze_pipeline.sources.nats_wire import connect  # noqa: PLC0415 - each process its own

        expected = part.start
        async with connect(self.access) as connection:
            async for found in connection.messages(self.name, part.start, part.end):
                inside = sum(1 for number in found.sequences if number < part.end)
                numbers = found.sequences[:inside]
                for gap in _gaps(expected, numbers):
                    yield self._missing(*gap)
                expected = numbers[-1] + 1 if numbers else expected
                if numbers:
                    texts = [str(number) for number in numbers]
                    yield arrived(found.subjects[:inside], self.name, texts, found.values[:inside])
                if inside < len(found.sequences):
                    break
        if expected < part.end:
            yield self._missing(expected, part.end - 1)

    def _missing(self, first: int, last: int) -> pa.RecordBatch:
        what = f"sequence numbers {first} to {last} were deleted from the stream {self.name}"
        if not self.goes_on_after_loss:
            raise DataLoss(what)
        return loss("", self.name, str(first), what)


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream from a checkpoint on."""

    def __init__(self, stream: Stream) -> None:
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
        assert isinstance(partition, Range)  # noqa: S101 - from `partitions`
        return self._stream.read(partition)

    def _offset(self, state: State, sequence: int) -> dict[str, Any]:
        return {"stream": self._stream.name, "created": state.created, "sequence": sequence}

    def _check(self, offset: dict[str, Any], state: State) -> None:
        """Refuse to go on in another stream: its sequence numbers mean other messages."""
        name = self._stream.name
        if offset["stream"] != name:
            raise OptionError(
                f"the checkpoint belongs to the stream '{offset['stream']}', not to '{name}'."
                " Use another checkpoint."
            )
        if offset["created"] != state.created:
            raise OptionError(
                f"the stream {name} was created anew at {state.created}, after the checkpoint was made. What"
                " the old one had left is lost. Use a new checkpoint to read the new one; events that the"
                " table has already are not stored twice."
            )
        if offset["sequence"] > state.next:
            raise OptionError(
                f"the checkpoint is at sequence number {offset['sequence']} of the stream {name}, which ends"
                f" before it at {state.next}. The server has an older state of it. Use a new checkpoint."
            )


class NatsBatchReader(DataSourceReader):
    """Reads what the stream has now."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def partitions(self) -> Sequence[InputPartition]:
        state = self._stream.state()
        start = self._stream.first(state)
        return self._stream.ranges(start, state.next, state.first) if start < state.next else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)  # noqa: S101 - from `partitions`
        return self._stream.read(partition)


class NatsBus(Bus):
    """NATS on the command line."""

    name = "nats"
    schemes = ("nats", "tls")
    url_form = "nats://host:4222/STREAM"
    data_source = NatsSource
    subject = ("stream",)

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("NATS")
        group.add_argument("--nats-user", metavar="NAME", help="user name")
        group.add_argument("--nats-password-file", metavar="FILE", help="file with the user's password")
        group.add_argument("--nats-token-file", metavar="FILE", help="file with a token, instead of a user")
        group.add_argument("--nats-creds-file", metavar="FILE", help="credentials file with JWT and key")
        group.add_argument(
            "--nats-tls-ca-file", metavar="FILE", help="certificates to trust; use tls:// URLs"
        )
        group.add_argument("--nats-tls-cert-file", metavar="FILE", help="client certificate, for mutual TLS")
        group.add_argument("--nats-tls-key-file", metavar="FILE", help="key of the client certificate")

    def options(self, url: SplitResult, flags: argparse.Namespace) -> dict[str, str]:
        stream = url.path.strip("/")
        if not url.netloc or not stream or "/" in stream or "." in stream:
            raise OptionError(f"--from: name the servers and the stream, as in {self.url_form}.")
        if "@" in url.netloc:
            raise OptionError(
                "--from: holds credentials. Give --nats-user and --nats-password-file, or a token."
            )
        if (flags.nats_user is None) != (flags.nats_password_file is None):
            raise OptionError("--nats-user and --nats-password-file: give both, or neither.")
        if (flags.nats_tls_cert_file is None) != (flags.nats_tls_key_file is None):
            raise OptionError("--nats-tls-cert-file and --nats-tls-key-file: give both, or neither.")
        servers = ",".join(f"{url.scheme}://{_with_port(host)}" for host in url.netloc.split(",") if host)
        given = {"user": flags.nats_user, **{name: getattr(flags, f"nats_{name}") for name in FILE_FLAGS}}
        texts = {_camel(name): value for name, value in given.items() if value is not None}
        tls = {"tls": "true"} if url.scheme == "tls" else {}
        return {"servers": servers, "stream": stream, **texts, **tls}

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        return max(0, int(latest["sequence"]) - int(end["sequence"]))


def _gaps(expected: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    if not numbers or numbers[-1] - expected == len(numbers) - 1:
        return
    for number in numbers:
        if number > expected:
            yield expected, number - 1
        expected = number + 1


def _with_port(host: str) -> str:
    return host if ":" in host.rpartition("]")[2] else f"{host}:{DEFAULT_PORT}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
