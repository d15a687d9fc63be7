"""AWS Kinesis Data Streams: records ordered by partition key."""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bronze_cli.options import option
from bronze_cli.problems import Fault, control_character, not_among
from bronze_cli.values import Integer, Switch

from bronze_sidecar.envelope.payloads import META_OF_SIDECAR
from bronze_sidecar.routing.naming import Target, text_fault_above
from bronze_sidecar.routing.rules import DEFAULT_KEY, Rules
from bronze_sidecar.routing.template import Template, trusted
from bronze_sidecar.routing.values import Destination, Headers, Routing
from bronze_sidecar.sinks.aws.options import AwsBackend
from bronze_sidecar.sinks.base import Sink, batch_size, dead_letter_doc

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route

# API_CreateStream and API_PutRecordsRequestEntry: names and their lengths.
STREAM_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_.-")
STREAM_LIMIT = 128
KEY_LIMIT = 256
# API_PutRecords: the most bytes of a record and of a call, with both limits raised to their maximum.
LARGEST = 10_485_760


def stream_fault(stream: str) -> str | None:
    illegal = not_among(stream, STREAM_CHARACTERS)
    if illegal:
        return f"it contains {illegal}; only letters, digits, '_', '.' and '-' are allowed"
    return f"it has more than {STREAM_LIMIT} characters" if len(stream) > STREAM_LIMIT else None


def meta_key_fault(name: str) -> str | None:
    if name in META_OF_SIDECAR:
        return f"header '{name}' is reserved: the sidecar writes that meta entry itself"
    found = control_character(name)
    return f"a header's name contains {found}" if found else None


STREAM = Target(
    noun="Kinesis stream name",
    limit=STREAM_LIMIT,
    text_fault=stream_fault,
    escape_character="_",
    harmless=frozenset("-"),
)
PARTITION_KEY = Target(noun="Kinesis partition key", limit=KEY_LIMIT, text_fault=text_fault_above(KEY_LIMIT))


@dataclass(frozen=True)
class Kinesis(AwsBackend):
    """Options of the Kinesis back end."""

    name = "kinesis"
    title = "Kinesis"

    stream: Template = option(Destination(STREAM), "Default stream; the routing overrides it.", required=True)
    stream_routing: dict[str, Template] | None = option(
        Routing(STREAM), "Streams by payload case; override the default."
    )
    dead_letter_stream: Template | None = option(Destination(STREAM), dead_letter_doc("Stream"))
    partition_key_template: Template = option(
        Destination(PARTITION_KEY),
        "Partition key; records with the same key stay in order.",
        default=trusted(DEFAULT_KEY, PARTITION_KEY),
    )
    static_headers: dict[str, str] | None = option(
        Headers(meta_key_fault), "Entries to add to every envelope's meta, because Kinesis has no headers."
    )
    strict_order: bool = option(
        Switch(),
        "Send at most one record of each partition key per call. Without it, calls are fuller when there are"
        " few keys, but a partly stored call can change the order within a key. Aggregated records are"
        " always in order.",
        default=True,
    )
    aggregation: bool = option(
        Switch(),
        "Put all waiting events of a partition key into one record, in the format of Amazon's producer"
        " library. Consumers must take such records apart.",
        default=False,
    )
    max_record_bytes: int = option(
        Integer(1024, LARGEST),
        "Maximum bytes of a record with its key, as configured for the stream.",
        default=1_048_576,
    )
    max_call_bytes: int = option(
        Integer(1024, LARGEST), "Maximum bytes in one call, which has at most 500 records.", default=5_242_880
    )
    max_batch_size: int = batch_size(2000)

    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Make a client, and check that the streams exist."""
        # Imported here: a process loads only the client libraries of back ends that are on.
        from bronze_sidecar.sinks.kinesis.sink import open_kinesis  # noqa: PLC0415

        return open_kinesis(self, route)

    def rules(self) -> Rules:
        return Rules(
            destination=self.stream,
            routing=self.stream_routing or {},
            include=self.include_payloads,
            dead_letter=self.dead_letter_stream,
            key=self.partition_key_template,
            type_headers=False,
            static_headers=self.static_headers or {},
            room_for_trace=0,
            headers_noun="meta",
        )

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from super().faults()
        if self.max_record_bytes > self.max_call_bytes:
            yield (
                "max_record_bytes",
                Fault(
                    f"{self.max_record_bytes} is more than one call may hold.",
                    f"--kinesis-max-call-bytes is {self.max_call_bytes}.",
                ),
            )
