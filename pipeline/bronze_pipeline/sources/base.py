"""What all sources share.

A source reads one bus. It is a package here with

- a Python data source for Spark (`DataSource`), registered as `bronze.<bus>`, whose rows are
  `schema.ARRIVED`;
- its options, in a subclass of `options.StreamOptions`;
- a `Bus`, which tells the command line which of them are flags, takes the others from a URL, and counts the
  lag;
- one line in `sources/__init__.py`.

Rules for the reader of a stream:

- An offset is a dict of plain values that names the next record to read, together with what reveals that
  the bus was emptied or recreated in between (JetStream: the stream's time of creation).
- `read` runs in worker processes: it imports its client there, opens a connection for each partition,
  closes it, and yields Arrow batches of `ARRIVED` with at most `ROWS_IN_BATCH` rows.
- Missing records are never skipped silently: `DataLoss` by default, a row with `loss` set if the operator
  chose to continue. Such rows end up in the quarantine table.
- An error that will not go away by itself, such as a wrong password, is `Refused`; any other is
  `Unreachable`, and retried. Both are in `bronze_buses.errors`.
- The same offsets give the same rows again. A bus that cannot do that sets `Bus.repeats = False`; then only
  the id of an event keeps it from being stored twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult

import pyarrow as pa
from bronze_cli.problems import Fault
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from bronze_pipeline.decoding.schema import ARRIVED
from bronze_pipeline.sources.options import OptionError, StreamOptions

ROWS_IN_BATCH = 10_000
BYTES_IN_BATCH = 8 << 20

SPARK_SCHEMA = (
    "destination string, bus_partition string, bus_position string, value binary, loss string, receipt string"
)


class DataLoss(RuntimeError):  # noqa: N818 - named for what it says
    """Records that should be on the bus are gone, or the bus is not the one that was read before."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. To continue without them and have this recorded, set --on-data-loss to continue."
        )


class BusSource(DataSource):
    """One of our data sources; each adds its readers."""

    NAME: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.NAME

    def schema(self) -> str:
        return SPARK_SCHEMA


class Bus(ABC):
    """A bus as the command line sees it."""

    name: ClassVar[str]
    """Its name in `bronze.<name>` and in the column `bus`."""
    schemes: ClassVar[Sequence[str]]
    """Schemes of its URLs."""
    url_form: ClassVar[str]
    """What such a URL looks like, for messages."""
    data_source: ClassVar[type[BusSource]]
    """Its data source, if that is ours."""
    options: ClassVar[type[StreamOptions]]
    """All options of the source."""
    access: ClassVar[type[Any]]
    """Those that are flags of this bus only: how it is reached."""
    subject: ClassVar[Sequence[str]]
    """Options that say what is read, not how it is reached; a checkpoint belongs to them."""
    repeats: ClassVar[bool] = True
    """Whether the same offsets give the same rows again."""

    @abstractmethod
    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        """Return the options in a URL, by name, or what is wrong with it."""

    def jars(self, options: Mapping[str, str]) -> Sequence[Path]:  # noqa: ARG002 - for a source that is not ours
        """Return the jars that a session started by this program must load."""
        return ()

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the stream of rows of `ARRIVED`."""
        spark.dataSource.register(self.data_source)
        return spark.readStream.format(self.data_source.name()).options(**options).load()

    def settle(  # noqa: B027 - only for some
        self, spark: SparkSession, options: Mapping[str, str], receipts: Sequence[str]
    ) -> None:
        """Return the records' receipts to the bus, now that the tables have the records."""

    def loss_in(self, error: str) -> str | None:  # noqa: ARG002 - for a source that is not ours
        """Return what is lost, if the source's own error says so."""
        return None

    def refusal_in(self, error: str) -> str | None:  # noqa: ARG002 - for a source that is not ours
        """Return what to fix, if the source's own error says that the bus refuses us."""
        return None

    def watches(self, options: Mapping[str, str]) -> bool:  # noqa: ARG002 - for a source that is not ours
        """Return whether to call `losses` for each micro-batch."""
        return False

    def losses(
        self,
        spark: SparkSession,  # noqa: ARG002 - for a source that is not ours
        checkpoint: str,  # noqa: ARG002
        batch: int,  # noqa: ARG002
        firsts: Mapping[tuple[str, str], int],  # noqa: ARG002
    ) -> Sequence[pa.RecordBatch]:
        """Return a row of `ARRIVED` for each loss, for a source that gives no such rows.

        `firsts` has the first position that arrived, by destination and partition.
        """
        return []

    @abstractmethod
    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        """Return how many records are between two offsets; None if the bus cannot say."""


def most(limit: ReadLimit) -> int | None:
    """Return how many rows Spark allows in a micro-batch; None if there is no limit."""
    if isinstance(limit, ReadAllAvailable):
        return None
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    raise OptionError(f"the limit {limit} is not supported; use maxRecordsPerBatch.")


def check_stream(offset: Mapping[str, Any], name: str, created: str) -> None:
    """Refuse to continue in a stream other than the offset's: its numbers mean other records."""
    if offset["stream"] != name:
        raise OptionError(
            f"the checkpoint belongs to the stream '{offset['stream']}', not to '{name}'."
            " Use another checkpoint."
        )
    if offset["created"] != created:
        raise OptionError(
            f"the stream {name} was recreated at {created}, after the checkpoint was made. Unread records of"
            " the old one are lost. Use a new checkpoint to read the new one; events already in the table"
            " are not stored twice."
        )


def split(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Split a range of positions, its end excluded, into at most `parts` of nearly the same length."""
    length = end - start
    parts = max(1, min(parts, -(-length // ROWS_IN_BATCH)))
    edges = [start + length * number // parts for number in range(parts + 1)]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def arrived(
    destinations: Sequence[str],
    partition: str,
    positions: Sequence[str],
    values: Sequence[bytes | None],
    receipts: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """Make a batch of records of one partition."""
    count = len(values)
    columns = [
        pa.array(destinations, pa.string()),
        pa.repeat(pa.scalar(partition), count),
        pa.array(positions, pa.string()),
        pa.array(values, pa.binary()),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()) if receipts is None else pa.array(receipts, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARRIVED)


def loss(destination: str, partition: str, position: str, what: str) -> pa.RecordBatch:
    """Make a row that says what is missing."""
    row = {"destination": destination, "bus_partition": partition, "bus_position": position, "loss": what}
    return pa.RecordBatch.from_pylist([row], ARRIVED)
