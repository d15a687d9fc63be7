"""What all sources share.

A source reads one bus. It is a package here with

- a Python data source of Spark (`DataSource`), registered as `bronze.<bus>`, whose rows are
  `schema.ARRIVED`;
- its options, in a subclass of `options.StreamOptions`;
- a `Bus`, which tells the command line which of them are flags, makes the others of a URL, and counts the
  lag;
- one line in `sources/__init__.py`.

Rules for the reader of a stream:

- An offset is a dict of plain values that names the next record to be read, together with what tells that
  the bus was emptied or made anew in between (JetStream: the stream's time of creation).
- `read` runs in worker processes: it imports its client there, opens a connection for each partition,
  closes it, and yields Arrow batches of `ARRIVED` with at most `ROWS_IN_BATCH` rows.
- Records that should be there and are not are never passed over in silence: `DataLoss` by default, a row
  with `loss` set where the operator chose to go on. Such rows end in the quarantine table.
- What will not pass by itself, such as a wrong password, is `Refused`; all else is `Unreachable`, and tried
  again. Both are in `bronze_buses.errors`.
- The same offsets give the same rows again. A bus that cannot do that sets `Bus.repeats = False`; then the
  id of an event alone keeps it from being stored twice.
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
            f"{what}. To go on without them, and have this recorded, set onDataLoss to 'continue'."
        )


class BusSource(DataSource):
    """A data source of ours; each adds its readers."""

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
    """Schemes of the URLs that mean it."""
    url_form: ClassVar[str]
    """What such a URL looks like, for messages."""
    data_source: ClassVar[type[BusSource]]
    """Its data source, if that is ours."""
    options: ClassVar[type[StreamOptions]]
    """All options of the source."""
    access: ClassVar[type[Any]]
    """Those of them that are flags of this bus alone: how it is reached."""
    subject: ClassVar[Sequence[str]]
    """Options that say what is read, not how it is reached; a checkpoint belongs to these."""
    repeats: ClassVar[bool] = True
    """Whether the same offsets give the same rows again."""

    @abstractmethod
    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        """Return the options that a URL gives, by their names, or what is wrong with it."""

    def jars(self, options: Mapping[str, str]) -> Sequence[Path]:  # noqa: ARG002 - for a source that is not ours
        """Return what a session that this program starts has to load."""
        return ()

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the stream of rows of `ARRIVED`."""
        spark.dataSource.register(self.data_source)
        return spark.readStream.format(self.data_source.name()).options(**options).load()

    def settle(self, options: Mapping[str, str], receipts: Sequence[str]) -> None:  # noqa: B027 - only for some
        """Give back what records brought in `receipt`, now that the tables have them."""

    def loss_in(self, error: str) -> str | None:  # noqa: ARG002 - for a source that is not ours
        """Return what is lost, if that is what an error of the source's own says."""
        return None

    def refusal_in(self, error: str) -> str | None:  # noqa: ARG002 - for a source that is not ours
        """Return what has to be put right, if an error of the source's own says that the bus refuses us."""
        return None

    def watches(self, options: Mapping[str, str]) -> bool:  # noqa: ARG002 - for a source that is not ours
        """Tell whether `losses` is to be asked about each micro-batch."""
        return False

    def losses(
        self,
        spark: SparkSession,  # noqa: ARG002 - for a source that is not ours
        checkpoint: str,  # noqa: ARG002
        batch: int,  # noqa: ARG002
        firsts: Mapping[tuple[str, str], int],  # noqa: ARG002
    ) -> Sequence[pa.RecordBatch]:
        """Return a row of `ARRIVED` for each loss, for a source that gives no such rows itself.

        `firsts` has the first position that came, by destination and partition.
        """
        return []

    @abstractmethod
    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        """Return how many records are between two offsets; None if the bus cannot say."""


def most(limit: ReadLimit) -> int | None:
    """Return how many rows Spark lets a micro-batch have; None if as many as there are."""
    if isinstance(limit, ReadAllAvailable):
        return None
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    raise OptionError(f"the limit {limit} is not supported; use maxRecordsPerBatch.")


def check_stream(offset: Mapping[str, Any], name: str, created: str) -> None:
    """Refuse to go on in another stream than that of an offset: its numbers mean other records."""
    if offset["stream"] != name:
        raise OptionError(
            f"the checkpoint belongs to the stream '{offset['stream']}', not to '{name}'."
            " Use another checkpoint."
        )
    if offset["created"] != created:
        raise OptionError(
            f"the stream {name} was created anew at {created}, after the checkpoint was made. What the old"
            " one had left is lost. Use a new checkpoint to read the new one; events that the table has"
            " already are not stored twice."
        )


def split(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Cut a range of positions, its end excluded, into at most `parts` of nearly the same length."""
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
    """Make the row that says what is missing."""
    row = {"destination": destination, "bus_partition": partition, "bus_position": position, "loss": what}
    return pa.RecordBatch.from_pylist([row], ARRIVED)
