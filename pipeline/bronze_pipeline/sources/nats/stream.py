"""A JetStream stream: what it has, how its sequence numbers are divided among tasks, and reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from bronze_buses.tls import TlsFiles
from bronze_cli.options import option
from bronze_cli.problems import Fault
from bronze_cli.values import File, ListOf, Switch, Text
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.base import DataLoss, arrived, loss, split
from bronze_pipeline.sources.options import (
    EARLIEST,
    LATEST,
    Start,
    StreamOptions,
    both_or_neither,
    read_options,
)

NAME = "bronze.nats"


class SequenceStart(Start):
    """A sequence number, or either end of the stream."""

    def is_position(self, text: str) -> bool:
        return text.isascii() and text.isdigit()

    def choices(self) -> str:
        return "earliest, latest or a sequence number"


@dataclass(frozen=True)
class NatsAccess(TlsFiles):
    """How to log in."""

    user: str | None = option(Text(), "User name.")
    password_file: Path | None = option(File(), "File with the user's password.")
    token_file: Path | None = option(File(), "File with a token, instead of a user.")
    creds_file: Path | None = option(File(), "Credentials file with the user's JWT and key.")


@dataclass(frozen=True)
class NatsOptions(NatsAccess, StreamOptions):
    """Everything about a stream and how to reach it; it is sent to workers, so it holds plain values."""

    servers: tuple[str, ...] = option(ListOf(Text()), "Servers, as URLs.", required=True)
    stream: str = option(Text(), "Stream to read.", required=True)
    start: str = option(
        SequenceStart(), "Where a new checkpoint begins: earliest, latest or a position.", default="earliest"
    )
    tls: bool = option(Switch(), "Encrypt the connection; tls:// URLs do the same.", default=False)

    @property
    def is_encrypted(self) -> bool:
        return self.tls or any(server.startswith("tls://") for server in self.servers)

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from both_or_neither(
            self, "--nats", ("user", "password_file"), ("tls_cert_file", "tls_key_file")
        )
        if self.tls_ca_file and not self.is_encrypted:
            yield "tls_ca_file", Fault("has no effect.", "Use a tls:// URL.")


@dataclass
class SequenceRange(InputPartition):
    """Sequence numbers for one task, the end excluded; `lost` says what was already gone."""

    start: int
    end: int
    lost: str = ""


@dataclass(frozen=True)
class State:
    """What a stream is and has."""

    created: str
    first: int
    next: int


class JetStreamStream:
    """A stream with its options; it is sent to workers, so it holds plain values."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = read_options(NatsOptions, NAME, given)
        self.name = self._options.stream
        self.max_records = self._options.max_records_per_batch

    def state(self) -> State:
        """Ask the server."""
        return asyncio.run(self._state())

    async def _state(self) -> State:
        from bronze_pipeline.sources.nats.connection import connect  # noqa: PLC0415 - each process loads its own

        async with connect(self._options) as connection:
            info = await connection.info(self.name)
        state = info["state"]
        # An emptied stream reports the next sequence number as its first.
        return State(info["created"], max(1, state["first_seq"]), state["last_seq"] + 1)

    def first(self, state: State) -> int:
        """Return where to begin without a checkpoint."""
        start = self._options.start
        if start == EARLIEST:
            return state.first
        return state.next if start == LATEST else int(start)

    def ranges(self, start: int, end: int, first: int) -> list[SequenceRange]:
        """Divide sequence numbers among tasks; `first` is the oldest that the stream still has."""
        ranges = [
            SequenceRange(*edges)
            for edges in split(max(start, min(first, end)), end, self._options.partitions)
        ]
        if first > start:
            gone = (
                f"sequence numbers {start} to {min(first, end) - 1} are no longer in the stream {self.name}"
            )
            if not self._options.goes_on_after_loss:
                raise DataLoss(gone)
            ranges.insert(0, SequenceRange(start, start, gone))
        return ranges

    def read(self, part: SequenceRange) -> Iterator[pa.RecordBatch]:
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

    async def _read(self, part: SequenceRange) -> Any:
        from bronze_pipeline.sources.nats.connection import connect  # noqa: PLC0415 - each process loads its own

        expected = part.start
        async with connect(self._options) as connection:
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
        if not self._options.goes_on_after_loss:
            raise DataLoss(what)
        return loss("", self.name, str(first), what)


def _gaps(expected: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    if not numbers or numbers[-1] - expected == len(numbers) - 1:
        return
    for number in numbers:
        if number > expected:
            yield expected, number - 1
        expected = number + 1
