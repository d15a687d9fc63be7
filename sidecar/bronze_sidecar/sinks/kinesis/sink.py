"""The Kinesis sink: records in PutRecords calls that keep order per partition key."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bronze_sidecar.envelope.wire import heads, map_entry
from bronze_sidecar.errors import DeliveryError, Permanent
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.aws.calls import IN_TURN, Call, CallLimits, CallPlan, carry_out
from bronze_sidecar.sinks.aws.service import (
    AwsService,
    Question,
    open_service,
    plain_destinations,
    refused_entry,
)
from bronze_sidecar.sinks.base import STRICT_ORDER, Failed, Limits
from bronze_sidecar.sinks.kinesis.aggregation import EVENT_BYTES, aggregated

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route
    from bronze_sidecar.sinks.kinesis.options import Kinesis

# API_PutRecords: the most records in one call.
CALL_RECORDS = 500
CALLS_IN_FLIGHT = 8
WRITE_BYTES = 16 * 1024 * 1024
ADVICE = (
    "strict order limits the rate of a partition key to one record a call;"
    " --kinesis-aggregation sends all its waiting events as one record, in order"
)
META = heads(10)
"""The envelope's field `meta`."""


@asynccontextmanager
async def open_kinesis(options: Kinesis, route: Route) -> AsyncIterator[KinesisSink]:
    """Make a client, and check that it can reach the streams whose names are fixed."""
    async with open_service(options, "PutRecords", CALLS_IN_FLIGHT) as service:
        streams = plain_destinations(
            route, "--kinesis-stream", "--kinesis-stream-routing", "--kinesis-dead-letter-stream"
        )
        questions = [
            Question("describe_stream_summary", {"StreamName": stream}, option)
            for stream, option in streams.items()
        ]
        questions = questions or [Question("list_streams", {"Limit": 1})]
        for question in questions:
            await service.check(question)
        yield KinesisSink(service, options, questions[0])


class RecordParts:
    """What all records of an address have in common."""

    __slots__ = ("end", "key", "meta", "order", "size")

    def __init__(self, address: Address) -> None:
        self.order = address.order
        # Kinesis has no headers, and parsers add later map entries to earlier ones.
        self.meta = b"".join(map_entry(META, name, value) for name, value in address.headers)
        self.key = address.key.encode()
        self.size = len(self.key) + len(self.meta)
        """Bytes that count in addition to the envelope."""
        self.end = b'","PartitionKey":%b}' % json.dumps(address.key).encode()


class KinesisSink:
    """Streams of one account and region.

    A call may store only some of its records, and Kinesis does not promise to keep the order within a
    call. So a call has one record of each partition key, unless strict order is off. With aggregation that
    record has all waiting events of its key.
    """

    forgets_ids_after: float | None = None
    has_one_path = False

    def __init__(self, service: AwsService, options: Kinesis, question: Question) -> None:
        self.limits = Limits(options.max_batch_size, WRITE_BYTES)
        self.order = (
            STRICT_ORDER
            if options.strict_order or options.aggregation
            else "a refused record may be stored after later ones of its key"
        )
        self.advice = ""
        self._sends_in_turn = options.strict_order and not options.aggregation
        self._service = service
        self._question = question
        self._max_record_bytes = options.max_record_bytes
        self._call_limits = CallLimits(
            CALL_RECORDS,
            options.max_call_bytes,
            run=1 if options.strict_order else CALL_RECORDS,
            joined=options.max_record_bytes if options.aggregation else 0,
        )

    async def ping(self) -> None:
        await self._service.ping(self._question)

    def prepare(self, batch: Sequence[Record]) -> None:
        """Prepare nothing: the service takes longer than that."""

    async def write(self, batch: Sequence[Record], prepared: Any = None) -> Sequence[Failed]:  # noqa: ARG002
        starts = [record.address.prepared or self._prepare(record.address) for record in batch]
        sizes = [len(record.event.envelope) + start.size for record, start in zip(batch, starts, strict=True)]
        most = self._max_record_bytes
        errors: dict[int, DeliveryError] = {
            place: Permanent(
                f"the record has {size} bytes, more than the {most} allowed by --kinesis-max-record-bytes"
            )
            for place, size in enumerate(sizes)
            if size > most
        }
        if self._call_limits.joined:
            # The key counts for each event, although a record has it twice at most.
            sizes = [size + EVENT_BYTES for size in sizes]
        orders = [start.order for start in starts]
        plan = CallPlan(orders, sizes, errors, self._call_limits)
        self.advice = ADVICE if self._sends_in_turn and plan.longest >= IN_TURN else ""

        async def send(call: Call) -> Mapping[int, DeliveryError]:
            return await self._put(call.destination, [batch[place] for place in call.places])

        return await carry_out(plan, send, CALLS_IN_FLIGHT)

    async def _put(self, stream: str, records: list[Record]) -> Mapping[int, DeliveryError]:
        groups = _joined(records) if self._call_limits.joined else [[index] for index in range(len(records))]
        entries = [_entry([records[index] for index in group]) for group in groups]
        body = b'{"StreamName":%b,"Records":[%b]}' % (json.dumps(stream).encode(), b",".join(entries))
        answer = await self._service.send("put_records", body)
        if not answer.get("FailedRecordCount"):
            return {}
        return {
            index: refused_entry(code, entry.get("ErrorMessage", ""))
            for group, entry in zip(groups, answer["Records"], strict=True)
            if (code := entry.get("ErrorCode"))
            for index in group
        }

    def _prepare(self, address: Address) -> RecordParts:
        start = address.prepared = RecordParts(address)
        return start


def _joined(records: Sequence[Record]) -> list[list[int]]:
    """Return which records of a call become one: those of a key."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, record in enumerate(records):
        groups.setdefault(record.address.prepared.order, []).append(index)
    return list(groups.values())


def _entry(records: Sequence[Record]) -> bytes:
    """Return the entry of a call; a record by itself needs no taking apart."""
    start: RecordParts = records[0].address.prepared
    events = [record.event.envelope + record.address.prepared.meta for record in records]
    data = aggregated(start.key, events) if len(events) > 1 else events[0]
    return b'{"Data":"' + b2a_base64(data, newline=False) + start.end
