"""AWS Kinesis Data Streams: records ordered by partition key."""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass

from bronze_sidecar.kinds import Cases, Destination, Headers, Integer, Routing, Secret, Url
from bronze_sidecar.naming import Target, control_character, not_among, text_fault_above
from bronze_sidecar.options import option
from bronze_sidecar.problems import Fault
from bronze_sidecar.sinks.aws import Region, credential_faults
from bronze_sidecar.sinks.base import DEFAULT_KEY, Backend, Rules
from bronze_sidecar.template import Template, trusted

# API_CreateStream and API_PutRecordsRequestEntry: names and their lengths.
STREAM_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_.-")
STREAM_LIMIT = 128
KEY_LIMIT = 256
META_WRITTEN_BY_SIDECAR = frozenset(
    {
        *("event_id", "data_type", "data_name", "is_snapshot", "symbols", "request_id", "session_id"),
        # The exact text of a number that its field cannot hold.
        *("depth", "grouping", "interval", "sequence", "trades", "subSequentErrorsCount", "subsequentErrors"),
    }
)


def stream_fault(stream: str) -> str | None:
    illegal = not_among(stream, STREAM_CHARACTERS)
    if illegal:
        return f"it contains {illegal}; allowed are letters, digits, '_', '.' and '-'"
    return f"it has more than {STREAM_LIMIT} characters" if len(stream) > STREAM_LIMIT else None


def meta_key_fault(name: str) -> str | None:
    if name in META_WRITTEN_BY_SIDECAR:
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
class Kinesis(Backend):
    """Options of the Kinesis back end."""

    name = "kinesis"
    title = "Kinesis"

    stream: Template = option(
        Destination(STREAM), "Stream for every event without another one.", required=True
    )
    region: str = option(Region(), "AWS region.", required=True)
    stream_routing: dict[str, Template] | None = option(Routing(STREAM), "Streams by payload case.")
    partition_key_template: Template = option(
        Destination(PARTITION_KEY),
        "Partition key; order is kept among records of one key.",
        default=trusted(DEFAULT_KEY, PARTITION_KEY),
    )
    include_payloads: frozenset[str] | None = option(Cases(), "Payload cases to publish; all if not given.")
    static_headers: dict[str, str] | None = option(
        Headers(meta_key_fault), "Entries added to every envelope's meta, for Kinesis has no headers."
    )
    access_key: str | None = option(
        Secret(), "Access key; the default AWS credential chain if not given.", secret=True
    )
    secret_key: str | None = option(Secret(), "Secret key that belongs to the access key.", secret=True)
    session_token: str | None = option(Secret(), "Session token of temporary credentials.", secret=True)
    endpoint_url: str | None = option(Url(), "Endpoint instead of the region's own.")
    max_batch_size: int = option(Integer(1, 500), "Most records in one call.", default=500)
    max_batch_delay_ms: int = option(
        Integer(0, 60_000), "How long a batch waits for more records.", default=20
    )

    def rules(self) -> Rules:
        return Rules(
            destination=self.stream,
            routing=self.stream_routing or {},
            include=self.include_payloads,
            key=self.partition_key_template,
            type_headers=False,
            static_headers=self.static_headers or {},
            headers_noun="meta",
        )

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from credential_faults(self)
