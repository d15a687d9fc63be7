"""What all sources share.

A source reads one bus. It is a module here with

- a Python data source of Spark (`DataSource`), registered as `bronze.<bus>`, whose rows are
  `schema.ARRIVED`. Its options are strings and stand in Spark's plans: they hold names of files with
  secrets, never secrets;
- a `Bus`, which tells the command line its flags (`flags.py`), makes those options of them, and counts the
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
  again.
- The same offsets give the same rows again. A bus that cannot do that sets `Bus.repeats = False`; then the
  id of an event alone keeps it from being stored twice.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from bronze_pipeline.decoding.schema import ARRIVED

ROWS_IN_BATCH = 10_000
BYTES_IN_BATCH = 8 << 20

SPARK_SCHEMA = (
    "destination string, bus_partition string, bus_position string, value binary, loss string, receipt string"
)

DEFAULT_MAX_RECORDS = 500_000
DEFAULT_PARTITIONS = 2


class OptionError(ValueError):
    """An option of a source cannot be used."""


class DataLoss(RuntimeError):  # noqa: N818 - named for what it says
    """Records that should be on the bus are gone, or the bus is not the one that was read before."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. To go on without them, and have this recorded, set onDataLoss to 'continue'."
        )


class Unreachable(RuntimeError):  # noqa: N818 - named for what it says
    """The bus cannot be used now; the text says why, and how to put it right if that is known."""


class Refused(RuntimeError):  # noqa: N818 - named for what it says
    """The bus does not let us in, and will not until someone changes something; the text says what."""


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
    data_source: ClassVar[type[DataSource]]
    """Its data source, if that is ours."""
    subject: ClassVar[Sequence[str]]
    """Options that say what is read, not how it is reached; a checkpoint belongs to these."""
    repeats: ClassVar[bool] = True
    """Whether the same offsets give the same rows again."""

    @abstractmethod
    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add its own flags, each beginning with its name."""

    @abstractmethod
    def options(self, url: SplitResult, flags: argparse.Namespace) -> dict[str, str]:
        """Make the data source's options; raise OptionError, naming the flag."""

    def check(self, options: Mapping[str, str]) -> None:
        """Raise OptionError if the options cannot be used."""
        self.data_source(dict(options)).streamReader(StructType())

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


class SourceOptions:
    """Options of a data source, read with complete messages."""

    def __init__(self, source: str, given: Mapping[str, str]) -> None:
        self._source = source
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(name.lower()) or default

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise OptionError(f"{self._source}: the option '{name}' is required.")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of the choices; the first is the default."""
        value = self.text(name) or choices[0]
        if value not in choices:
            raise OptionError(
                f"{self._source}: '{name}' is '{value}', but must be one of {', '.join(choices)}."
            )
        return value

    def count(self, name: str, default: int) -> int:
        """Return a whole number from 1 on."""
        value = self.text(name, str(default)) or ""
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise OptionError(f"{self._source}: '{name}' is '{value}', but must be a whole number from 1 on.")
        return int(value)

    @property
    def max_records(self) -> int:
        return self.count("maxRecordsPerBatch", DEFAULT_MAX_RECORDS)

    @property
    def partitions(self) -> int:
        return self.count("partitions", DEFAULT_PARTITIONS)

    @property
    def goes_on_after_loss(self) -> bool:
        return self.choice("onDataLoss", ("fail", "continue")) == "continue"

    @property
    def start(self) -> str:
        """Where a new checkpoint begins: `earliest`, `latest`, or a position in the form of the bus."""
        return self.text("start", "earliest") or ""


def read_secret(option: str, path: str | None) -> str | None:
    """Return what a file holds, without the end of its line."""
    if path is None:
        return None
    try:
        return Path(path).read_text().rstrip("\r\n")
    except OSError as error:
        raise OptionError(f"{option}: {path} cannot be read: {error.strerror}.") from error


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
