"""AWS SQS, standard and FIFO queues: `bronze.sqs`, as a stream only.

Options: `queue` (a name, or a URL); `maxRecordsPerBatch`, `visibilitySeconds` (default 300: how long received
messages are hidden from others; longer than a micro-batch takes); `region`, `profile`, `endpointUrl`,
`tlsCaFile`. Credentials are found where the AWS tools find them.

A queue has no positions. The driver receives messages and hands them to the tasks; when the tables have
them, tasks of their own delete them (`SqsBus.settle`). Messages of a batch that was not stored, or whose
deletion failed, appear again after `visibilitySeconds`, and the id of an event keeps it from being stored
twice. So nothing is lost and nothing is stored twice, as long as a message does not outlive the queue's
retention period. But standard queues have no order, and an offset (`{"queue", "received"}`) is only a count.
Messages that expire in a queue leave no trace, so no loss can be reported.

A FIFO queue gives no more messages of a group while some of them are in flight: at most 10 of each group in
a micro-batch. Many groups and a short trigger help.
"""

from __future__ import annotations

import binascii
import logging
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qs

import pyarrow as pa
from bronze_cli.options import option
from bronze_cli.problems import Fault
from bronze_cli.values import Integer, Text
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bronze_pipeline.decoding.schema import ARRIVED
from bronze_pipeline.sources.aws import AwsAccess, service
from bronze_pipeline.sources.base import ROWS_IN_BATCH, Bus, BusSource, most
from bronze_pipeline.sources.options import EARLIEST, OptionError, StreamOptions, read_options

NAME = "bronze.sqs"
FIFO = ".fifo"
DEFAULT_VISIBILITY = 300
LONGEST_VISIBILITY = 12 * 60 * 60
MOST_IN_CALL = 10
CALLS_AT_ONCE = 16
# Fewer messages than this are not worth another task.
MOST_IN_DELETION = 1_000
# A queue allows 120,000 messages in flight.
MOST_UNDER_WAY = 100_000
# A task carries what the driver received, and must stay well below the 128 MiB that Spark allows.
MOST_BYTES = 64 << 20
# How long to wait for an empty queue; longer waits would delay Spark's shutdown.
WAIT_SECONDS = 1
# A queue that fills as fast as it is read must not make a micro-batch endless.
LONGEST_RECEIVING_SECONDS = 20.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SqsAccess(AwsAccess):
    """How to reach a queue, and how to treat it."""

    visibility_seconds: int = option(
        Integer(1, LONGEST_VISIBILITY),
        "How long received messages are hidden; longer than a micro-batch takes.",
        default=DEFAULT_VISIBILITY,
    )


@dataclass(frozen=True)
class SqsOptions(SqsAccess, StreamOptions):
    """Everything about a queue and how to reach it."""

    queue: str = option(Text(), "Queue to read: a name or a URL.", required=True)

    def faults(self) -> Iterator[tuple[str, Fault]]:
        if self.start != EARLIEST:
            yield "start", Fault("must be earliest: a queue has no other place to start.")


@dataclass
class Carried(InputPartition):
    """Messages that the driver received, on their way to a task."""

    batches: list[pa.RecordBatch] = field(default_factory=list)


class SqsSource(BusSource):
    """A queue, as a stream."""

    NAME = NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return SqsStreamReader(SqsQueue(self.options))


class SqsQueue:
    """A queue with its options."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.access = options = read_options(SqsOptions, NAME, given)
        self.name = options.queue
        self.max_records = min(options.max_records_per_batch, MOST_UNDER_WAY)
        self.visibility_seconds = options.visibility_seconds

    def url(self, client: Any) -> str:
        """Return the queue's URL, which calls need."""
        if "://" in self.name:
            return self.name
        return str(client.get_queue_url(QueueName=self.name)["QueueUrl"])

    def receive(self, client: Any, url: str, wait_seconds: int = 0) -> list[dict[str, Any]]:
        """Make one call; return at most ten messages."""
        try:
            answer = client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=MOST_IN_CALL,
                VisibilityTimeout=self.visibility_seconds,
                WaitTimeSeconds=wait_seconds,
                MessageSystemAttributeNames=["SentTimestamp", "MessageGroupId", "SequenceNumber"],
            )
        except client.exceptions.OverLimit:
            # The messages in flight must be stored first.
            return []
        return list(answer.get("Messages", ()))

    def delete(self, receipts: Sequence[str]) -> int:
        """Delete messages; return how many could not be deleted."""
        calls = [receipts[place : place + MOST_IN_CALL] for place in range(0, len(receipts), MOST_IN_CALL)]
        with (
            service("sqs", self.access, CALLS_AT_ONCE) as client,
            ThreadPoolExecutor(CALLS_AT_ONCE) as threads,
        ):
            url = self.url(client)

            def delete(some: Sequence[str]) -> int:
                entries = [{"Id": str(place), "ReceiptHandle": each} for place, each in enumerate(some)]
                answer = client.delete_message_batch(QueueUrl=url, Entries=entries)
                return len(answer.get("Failed", ()))

            return sum(threads.map(delete, calls))


class SqsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Receives messages."""

    def __init__(self, queue: SqsQueue) -> None:
        self._queue = queue
        self._received: tuple[dict[str, Any], list[Carried]] | None = None
        """Messages of the newest micro-batch, and its end."""
        self._until_ms: float | None = None
        self._is_done = False
        """With availableNow: everything that was there has been received."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"queue": self._queue.name, "received": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._queue.max_records)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until_ms = time.time() * 1000
        self._is_done = False

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        queue = self._queue
        if start["queue"] != queue.name:
            raise OptionError(
                f"the checkpoint belongs to the queue '{start['queue']}', not to '{queue.name}'."
                " Use another checkpoint."
            )
        if self._is_done:
            return start
        messages = self._receive(min(most(limit) or queue.max_records, queue.max_records))
        if self._until_ms is not None:
            old = [each for each in messages if int(each["Attributes"]["SentTimestamp"]) <= self._until_ms]
            self._is_done = not old
        if not messages:
            return start
        end = {"queue": queue.name, "received": start["received"] + len(messages)}
        batches = [
            self._batch(messages[place : place + ROWS_IN_BATCH])
            for place in range(0, len(messages), ROWS_IN_BATCH)
        ]
        self._received = (end, [Carried([batch]) for batch in batches])
        return end

    def _receive(self, limit: int) -> list[dict[str, Any]]:
        queue = self._queue
        deadline = time.monotonic() + LONGEST_RECEIVING_SECONDS
        with (
            service("sqs", queue.access, CALLS_AT_ONCE) as client,
            ThreadPoolExecutor(CALLS_AT_ONCE) as threads,
        ):
            url = queue.url(client)
            messages = queue.receive(client, url, WAIT_SECONDS)
            size = sum(len(each["Body"]) for each in messages)
            is_empty = not messages
            while not is_empty and size < MOST_BYTES and time.monotonic() < deadline:
                room = (limit - len(messages)) // MOST_IN_CALL
                if room < 1:
                    break
                calls = min(room, CALLS_AT_ONCE)
                answers = list(threads.map(lambda _: queue.receive(client, url), range(calls)))
                new = [message for answer in answers for message in answer]
                messages += new
                size += sum(len(each["Body"]) for each in new)
                is_empty = not new
        return messages

    def _batch(self, messages: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        rows = [
            {
                "destination": self._queue.name,
                "bus_partition": message["Attributes"].get("MessageGroupId", ""),
                "bus_position": message["Attributes"].get("SequenceNumber", message["MessageId"]),
                "value": _envelope(message["Body"]),
                "receipt": message["ReceiptHandle"],
            }
            for message in messages
        ]
        return pa.RecordBatch.from_pylist(rows, ARRIVED)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if self._received is not None and self._received[0] == end and start != end:
            return self._received[1]
        # A batch from an earlier run: its messages reappear by themselves.
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Carried)  # noqa: S101 - from `partitions`
        return iter(partition.batches)


@dataclass(frozen=True)
class Deletion:
    """What a worker does to settle its share of the messages; it is sent there, so it holds plain values."""

    options: Mapping[str, str]

    def __call__(self, receipts: Iterable[str]) -> Iterator[int]:
        """Yield how many could not be deleted."""
        share = list(receipts)
        if share:
            yield SqsQueue(self.options).delete(share)


class SqsBus(Bus):
    """SQS on the command line."""

    name = "sqs"
    schemes = ("sqs",)
    url_form = "sqs://queue?region=eu-central-1 or sqs://host/account/queue"
    data_source = SqsSource
    options = SqsOptions
    access = SqsAccess
    subject = ("queue",)
    repeats = False

    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        query = parse_qs(url.query)
        if not url.netloc or set(query) - {"region"} or "@" in url.netloc:
            return Fault("does not name the queue.", f"Write {self.url_form}.")
        queue = f"https://{url.netloc}{url.path}" if url.path.strip("/") else url.netloc
        region = {"region": query["region"][0]} if "region" in query else {}
        return {"queue": queue, **region}

    def settle(self, spark: SparkSession, options: Mapping[str, str], receipts: Sequence[str]) -> None:
        """Delete messages that are stored."""
        if not receipts:
            return
        context = spark.sparkContext
        tasks = min(context.defaultParallelism, -(-len(receipts) // MOST_IN_DELETION))
        failed = context.parallelize(receipts, tasks).mapPartitions(Deletion(dict(options))).sum()
        if failed:
            log.warning(
                "%s of %s stored messages could not be deleted; they will be received again",
                failed,
                len(receipts),
            )

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:  # noqa: ARG002 - others can
        return None


def _envelope(body: str) -> bytes:
    try:
        return b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        # Not from the sidecar; it ends up in quarantine as it is.
        return body.encode()
