"""Aggregated records: many events in one record of Kinesis, as Amazon's producer library writes them.

Four bytes, a Protobuf message with the records and their keys, and its MD5. The keys are not needed here:
they chose the shard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16

_FIELD = descriptor_pb2.FieldDescriptorProto


class DamagedAggregateError(ValueError):
    """An aggregated record that cannot be taken apart."""


def events_in(data: bytes) -> Iterator[bytes]:
    """Yield the events of an aggregated record; raise DamagedAggregateError if it has none to yield."""
    body, digest = data[len(MAGIC) : -DIGEST_BYTES], data[-DIGEST_BYTES:]
    if len(data) < len(MAGIC) + DIGEST_BYTES or hashlib.md5(body, usedforsecurity=False).digest() != digest:
        raise DamagedAggregateError("the aggregated record is damaged: it has another digest")
    try:
        parsed = _message().FromString(body)
    except DecodeError as error:
        raise DamagedAggregateError("the aggregated record is damaged: it is no AggregatedRecord") from error
    return (record.data for record in parsed.records)


@cache
def _message() -> type[Any]:
    """Return the class of AggregatedRecord, as Amazon has published it, without what is not read here."""
    file = descriptor_pb2.FileDescriptorProto(
        name="aggregated_record.proto", package="bronze.kinesis", syntax="proto2"
    )
    record = file.message_type.add(name="Record")
    record.field.add(name="data", number=3, type=_FIELD.TYPE_BYTES, label=_FIELD.LABEL_REQUIRED)
    aggregate = file.message_type.add(name="AggregatedRecord")
    aggregate.field.add(
        name="records",
        number=3,
        type=_FIELD.TYPE_MESSAGE,
        type_name=".bronze.kinesis.Record",
        label=_FIELD.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bronze.kinesis.AggregatedRecord"))
