"""The columns of the tables, derived once from the envelope's Protobuf schema.

`ARRIVED` is what every source gives: one row for each record of a bus. `EVENTS` is the bronze table of
decoded events, `QUARANTINE` the table of records that could not be decoded or were lost on the bus.

Types follow one rule: nothing is rounded. Decimal text stays text, unsigned integers get a type that holds
all of them, and enum values are their Protobuf names (a value newer than this schema is its number).
Timestamps have microseconds, as in Spark and Delta.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from bronze_client.schema import NormalizedEvent
from google.protobuf.descriptor import FieldDescriptor

TIMESTAMP = pa.timestamp("us", tz="UTC")
META = pa.map_(pa.string(), pa.string())

PAYLOADS: dict[str, str] = {
    field.name: field.json_name for field in NormalizedEvent.DESCRIPTOR.oneofs_by_name["payload"].fields
}
"""Column of each payload to its case as written on the bus: `book_change` to `bookChange`."""

UNKNOWN_CASE = "unknown"
"""The case of an event whose payload is newer than this schema; its bytes are in `raw`."""

_SCALARS = {
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
}


def _type(field: Any) -> pa.DataType:
    # Any: the Protobuf runtime has more than one kind of descriptor.
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return _SCALARS[field.type]
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return TIMESTAMP
    nested = _struct(field.message_type)
    return pa.list_(nested) if field.is_repeated else nested


def _struct(message: Any) -> pa.StructType:
    return pa.struct([pa.field(field.name, _type(field)) for field in message.fields])


_BUS = [
    pa.field("bus", pa.string()),
    pa.field("destination", pa.string()),
    pa.field("bus_partition", pa.string()),
    pa.field("bus_position", pa.string()),
]

ARRIVED = pa.schema(
    [
        # Subject, topic, stream, stream key or queue, as the sidecar rendered it.
        pa.field("destination", pa.string()),
        # Where the position applies: JetStream stream, Kafka partition, Kinesis shard, Redis key.
        pa.field("bus_partition", pa.string()),
        # Sequence number, offset, entry id or message id, as the bus writes it.
        pa.field("bus_position", pa.string()),
        pa.field("value", pa.binary()),
        # Why the row is not an event: the bus no longer has records that should be here (then there is no
        # value), or the source cannot take the value apart.
        pa.field("loss", pa.string()),
        # What the bus wants back when the record is stored; only SQS uses it.
        pa.field("receipt", pa.string()),
    ]
)

PARSED = pa.schema(
    [
        pa.field(field.name, META if field.name == "meta" else _type(field))
        for field in NormalizedEvent.DESCRIPTOR.fields
    ]
)
"""The envelope's own fields, decoded."""

# One wide table: a micro-batch is one commit whatever its cases, and a new case needs no new table.
PARTITION_COLUMNS = ("date", "exchange")

EVENTS = pa.schema(
    [
        # UTC day of local_ts; of ingest_ts where that is missing.
        pa.field("date", pa.date32()),
        pa.field("payload_case", pa.string()),
        pa.field("event_id", pa.string()),
        # The parts of `<stream id>:<position>[.<level>]`; NULL if the id has another form.
        pa.field("stream_id", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("level", pa.int32()),
        *(
            PARSED.field(name)
            for name in ("source", "exchange", "symbol", "local_ts", "ingest_ts", "origin", "meta")
        ),
        *_BUS,
        *(PARSED.field(name) for name in PAYLOADS),
        # The envelope's bytes: for unknown cases, and on request for all events.
        pa.field("raw", pa.binary()),
    ]
)

IDENTITY = ("date", "payload_case", "event_id", "stream_id", "position", "level", "exchange", "symbol")
"""The columns by which a bronze table is known as one, however old it is."""

QUARANTINE_PARTITION_COLUMNS = ("date",)

QUARANTINE = pa.schema(
    [
        # UTC day on which the job read the record.
        pa.field("date", pa.date32()),
        pa.field("reason", pa.string()),
        *_BUS,
        pa.field("raw", pa.binary()),
    ]
)


def as_arrived(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a source's rows with the columns of `ARRIVED`; what it does not give is NULL."""
    given = set(rows.schema.names)
    columns = [
        rows[field.name].cast(field.type) if field.name in given else pa.nulls(len(rows), field.type)
        for field in ARRIVED
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARRIVED)
