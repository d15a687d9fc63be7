"""Aggregated records are laid out as Amazon has published it."""

from __future__ import annotations

import pytest
from aws_kinesis_agg.deaggregator import messages_pb2
from bronze_sidecar.sinks.kinesis.aggregation import EVENT_BYTES, aggregated


def test_an_aggregated_record_has_its_key_once_its_events_and_their_digest() -> None:
    body = b"\x0a\x01k" + b"\x1a\x05\x08\x00\x1a\x01a" + b"\x1a\x04\x08\x00\x1a\x00"
    digest = bytes.fromhex("e4c04fbe7c603bec9f390401acb9673b")
    assert aggregated(b"k", [b"a", b""]) == b"\xf3\x89\x9a\xc2" + body + digest


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 10_000_000])
@pytest.mark.parametrize("key", ["", "k", "é" * 256])
def test_amazons_library_reads_it_and_its_size_is_what_the_sink_reckons_with(key: str, length: int) -> None:
    events = [b"x" * length, b"y"]
    data = aggregated(key.encode(), events)
    parsed = messages_pb2.AggregatedRecord.FromString(data[4:-16])
    assert list(parsed.partition_key_table) == [key]
    assert [(each.partition_key_index, each.data) for each in parsed.records] == [
        (0, each) for each in events
    ]
    assert len(data) + len(key.encode()) <= sum(
        len(each) + len(key.encode()) + EVENT_BYTES for each in events
    )
