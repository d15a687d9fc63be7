"""Envelopes to Arrow columns with the Protobuf runtime: slower than `ptars`, but correct by definition."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from bronze_client.schema import NormalizedEvent
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from bronze_pipeline.decoding.schema import PARSED

INT64 = range(-(1 << 63), 1 << 63)


def fault(value: bytes) -> str | None:
    """Return why a value is not an envelope; None if it is."""
    try:
        NormalizedEvent.FromString(value)
    except DecodeError as error:
        return f"not an envelope: {str(error).rsplit(': ', 1)[-1]}"
    return None


def canonical(value: bytes) -> bytes:
    """Rewrite an envelope with each field and map key once."""
    return NormalizedEvent.FromString(value).SerializeToString(deterministic=True)


def to_columns(values: pa.Array) -> pa.RecordBatch:
    """Decode a batch to rows of `schema.PARSED`; raise ValueError if a value is malformed."""
    try:
        rows = [_dict(NormalizedEvent.FromString(value)) for value in values.to_pylist()]
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return pa.RecordBatch.from_pylist(rows, PARSED)


def _dict(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    # Any: the Protobuf runtime has more than one kind of descriptor.
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return _SCALARS.get(field.type, _same)(field, value)
    if field.message_type.GetOptions().map_entry:
        return list(value.items())
    if isinstance(value, Timestamp):
        micros = value.seconds * 1_000_000 + value.nanos // 1000
        return min(max(micros, INT64.start), INT64.stop - 1)
    return [_dict(each) for each in value] if field.is_repeated else _dict(value)


def _same(_: Any, value: Any) -> Any:
    return value


def _enum_name(field: Any, number: int) -> str:
    known = field.enum_type.values_by_number.get(number)
    return str(known.name if known else number)


_SCALARS: dict[int, Callable[[Any, Any], Any]] = {
    FieldDescriptor.TYPE_ENUM: _enum_name,
    FieldDescriptor.TYPE_UINT64: lambda _, value: Decimal(value),
}
