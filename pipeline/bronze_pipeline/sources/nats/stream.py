"""A JetStream stream: what it has, how its sequence numbers are divided among tasks, and reading them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.base import DataLoss, OptionError, SourceOptions, arrived, loss, split
from bronze_pipeline.sources.flags import TLS, option_name

if TYPE_CHECKING:
    from bronze_pipeline.sources.nats.connection import NatsAccess

NAME = "bronze.nats"
FLAGS = {
    "user": ("NAME", "user name"),
    "password_file": ("FILE", "file with the user's password"),
    "token_file": ("FILE", "file with a token, instead of a user"),
    "creds_file": ("FILE", "credentials file with JWT and key"),
    **TLS,
    "tls_ca_file": ("FILE", "certificates to trust; use tls:// URLs"),
}


@dataclass
class SequenceRange(InputPartition):
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


class JetStreamStream:
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
        self._texts = {name: options.text(option_name(name)) for name in FLAGS}
        self._tls = options.choice("tls", ("false", "true")) == "true"

    @property
    def access(self) -> NatsAccess:
        from bronze_pipeline.sources.nats.connection import NatsAccess  # noqa: PLC0415 - each process its own

        return NatsAccess(self._servers, tls=self._tls, **self._texts)

    def state(self) -> State:
        """Ask the server."""
        return asyncio.run(self._state())

    async def _state(self) -> State:
        from bronze_pipeline.sources.nats.connection import connect  # noqa: PLC0415 - each process its own

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

    def ranges(self, start: int, end: int, first: int) -> list[SequenceRange]:
        """Divide sequence numbers among tasks; `first` is the oldest that the stream still has."""
        ranges = [SequenceRange(*edges) for edges in split(max(start, min(first, end)), end, self.partitions)]
        if first > start:
            gone = (
                f"sequence numbers {start} to {min(first, end) - 1} are no longer in the stream {self.name}"
            )
            if not self.goes_on_after_loss:
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
        from bronze_pipeline.sources.nats.connection import connect  # noqa: PLC0415 - each process its own

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


def _gaps(expected: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    if not numbers or numbers[-1] - expected == len(numbers) - 1:
        return
    for number in numbers:
        if number > expected:
            yield expected, number - 1
        expected = number + 1
