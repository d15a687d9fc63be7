"""Decodes envelopes: rows of `schema.ARRIVED` in, rows of `schema.EVENTS` and `schema.QUARANTINE` out.

Pure functions of Arrow batches; nothing here knows Spark, a bus or a table. `ptars` turns Protobuf into
Arrow columns in Rust. The Protobuf runtime itself (`protobuf_decoder.py`) decides about every value that
`ptars` refuses or reads differently, and takes over if `ptars` is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bronze_client.schema import NormalizedEvent

from bronze_pipeline.decoding import protobuf_decoder as reference
from bronze_pipeline.decoding.schema import (
    ARRIVED,
    EVENTS,
    PARSED,
    PAYLOADS,
    QUARANTINE,
    TIMESTAMP,
    UNKNOWN_CASE,
)

try:
    import ptars
except ImportError:  # it does not have wheels for every platform
    ptars = None  # type: ignore[assignment]

# A value framed for a schema registry begins with this byte; no message can begin with it.
FRAME = b"\x00"
SCHEMA_ID_BYTES = 4

# What Spark and Python can show of a timestamp, in microseconds: the years 1 to 9999.
EARLIEST = -62_135_596_800_000_000
LATEST = 253_402_300_799_999_999

ID_PATTERN = r"^(?P<stream_id>.+):(?P<position>\d{1,18})(?:\.(?P<level>\d{1,9}))?$"

NO_VALUE = "the record has no value"
NO_ENVELOPE = "not an envelope: neither an exchange nor a known payload"
# It names a folder of the table, where each byte may take three characters.
LONGEST_EXCHANGE = 80
TOO_LONG = f"the exchange is longer than {LONGEST_EXCHANGE} bytes"
OUT_OF_RANGE = "a timestamp is outside the years 1 to 9999"

ToColumns: TypeAlias = Callable[[pa.Array], pa.RecordBatch]


class Decoded(NamedTuple):
    """The decoded batch; each input row is in exactly one of the two."""

    events: pa.RecordBatch
    quarantined: pa.RecordBatch


def decode(arrived: pa.RecordBatch, bus: str, *, keep_raw: bool = False) -> Decoded:
    """Decode a batch of records from a bus."""
    arrived = arrived.cast(ARRIVED)
    reasons = pc.coalesce(arrived["loss"], pc.if_else(pc.is_valid(arrived["value"]), None, NO_VALUE))
    rows, refused = _parse(_unframed(arrived["value"]))
    reasons = pc.coalesce(reasons, refused)
    for reason, found in _objections(rows):
        reasons = pc.coalesce(reasons, pc.if_else(found, reason, None))
    if reasons.null_count == len(reasons):
        return Decoded(
            _events(rows, arrived, bus, keep_raw=keep_raw), _quarantined(arrived[:0], reasons[:0], bus)
        )
    good, bad = pc.is_null(reasons), pc.is_valid(reasons)
    return Decoded(
        _events(rows.filter(good), arrived.filter(good), bus, keep_raw=keep_raw),
        _quarantined(arrived.filter(bad), reasons.filter(bad), bus),
    )


# -- values


def _unframed(values: pa.Array) -> pa.Array:
    """Remove a schema registry's framing from values that have it."""
    framed = pc.starts_with(values, FRAME)
    if not pc.any(framed).as_py():
        return values
    return pa.array(
        [None if each is None else _without_frame(each) for each in values.to_pylist()], pa.binary()
    )


def _without_frame(value: bytes) -> bytes:
    if not value.startswith(FRAME):
        return value
    rest = value[1 + SCHEMA_ID_BYTES :]
    # The path to the message within its file follows: a count and that many indexes, as zigzag varints. All
    # of them are below 64, so each is one byte; the usual path [0] is written as just the count 0.
    count = rest[0] >> 1 if rest else 0
    return rest[1 + count :]


def _parse(values: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the columns, and why values are not Protobuf messages; such values count as empty."""
    values = values.fill_null(b"")
    refused = pa.nulls(len(values), pa.string())
    try:
        rows = _columns()(values)
    except ValueError:
        refused = pa.array([reference.fault(value) for value in values.to_pylist()], pa.string())
        values = pc.if_else(pc.is_null(refused), values, b"")
        rows = _columns()(values)
    odd = _odd(rows)
    if odd.any():
        # Rewritten by the reference, each field is there once.
        encoded = values.to_pylist()
        for place in np.flatnonzero(odd):
            encoded[place] = reference.canonical(encoded[place])
        rows = _columns()(pa.array(encoded, pa.binary()))
    return rows, refused


@cache
def _columns() -> ToColumns:
    """Return the decoder from encoded messages to columns; it raises ValueError if one is malformed."""
    if ptars is None:
        return reference.to_columns  # type: ignore[unreachable] # where it is installed
    settings = ptars.PtarsConfig(timestamp_unit="us", enum_repr="string")
    pool = ptars.HandlerPool([NormalizedEvent.DESCRIPTOR.file], config=settings)
    handler = pool.get_for_message(NormalizedEvent.DESCRIPTOR)

    def to_columns(values: pa.Array) -> pa.RecordBatch:
        return handler.array_to_record_batch(values).cast(PARSED)

    return to_columns


def _odd(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Find rows where `ptars` shows fields that later ones override under Protobuf's rules."""
    payloads = sum(
        pc.is_valid(rows[name]).cast(pa.int8()).to_numpy(zero_copy_only=False) for name in PAYLOADS
    )
    odd: np.ndarray[tuple[int], np.dtype[np.bool_]] = payloads > 1
    meta = rows["meta"]
    keys = meta.keys.dictionary_encode()
    width = len(keys.dictionary)
    lengths = np.diff(meta.offsets.to_numpy())
    if width and lengths.max(initial=0) > 1:
        owners = np.repeat(np.arange(len(rows)), lengths)
        counts = np.bincount(owners * width + keys.indices.to_numpy(), minlength=len(rows) * width)
        odd |= counts.reshape(len(rows), width).max(axis=1) > 1
    return odd


# -- rows


def _objections(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    known = _known_payload(rows)
    yield NO_ENVELOPE, pc.and_(pc.equal(rows["exchange"], ""), pc.invert(known))
    yield TOO_LONG, pc.greater(pc.binary_length(rows["exchange"]), LONGEST_EXCHANGE)
    for column in _timestamps(rows):
        bounds = pc.min_max(column.cast(pa.int64())).as_py()
        if bounds["min"] is not None and (bounds["min"] < EARLIEST or bounds["max"] > LATEST):
            numbers = column.cast(pa.int64())
            outside = pc.or_(pc.less(numbers, EARLIEST), pc.greater(numbers, LATEST))
            yield OUT_OF_RANGE, outside.fill_null(False)


def _timestamps(rows: pa.RecordBatch) -> Iterator[pa.Array]:
    for field in rows.schema:
        if field.type == TIMESTAMP:
            yield rows[field.name]
        elif pa.types.is_struct(field.type) and rows[field.name].null_count < len(rows):
            for part in field.type:
                if part.type == TIMESTAMP:
                    yield pc.struct_field(rows[field.name], part.name)


def _known_payload(rows: pa.RecordBatch) -> pa.Array:
    known = pa.array(np.zeros(len(rows), dtype=bool))
    for name in PAYLOADS:
        if rows[name].null_count < len(rows):
            known = pc.or_(known, pc.is_valid(rows[name]))
    return known


def _events(rows: pa.RecordBatch, arrived: pa.RecordBatch, bus: str, *, keep_raw: bool) -> pa.RecordBatch:
    case = pa.nulls(len(rows), pa.string())
    for name, spelled in PAYLOADS.items():
        if rows[name].null_count < len(rows):
            case = pc.if_else(pc.is_valid(rows[name]), spelled, case)
    is_unknown = pc.is_null(case)
    event_id = pc.map_lookup(rows["meta"], pa.scalar("event_id"), "last")
    parts = pc.extract_regex(event_id, pattern=ID_PATTERN)
    level = pc.struct_field(parts, "level")
    made = {
        "date": pc.coalesce(rows["local_ts"], rows["ingest_ts"], pa.scalar(0, TIMESTAMP)).cast(pa.date32()),
        "payload_case": case.fill_null(UNKNOWN_CASE),
        "event_id": event_id,
        "stream_id": pc.struct_field(parts, "stream_id"),
        "position": pc.struct_field(parts, "position").cast(pa.int64()),
        "level": pc.if_else(pc.equal(level, ""), None, level).cast(pa.int32()),
        "raw": arrived["value"] if keep_raw else _chosen(is_unknown, arrived["value"]),
        **_bus_columns(arrived, bus),
    }
    columns = [made[name] if name in made else rows[name] for name in EVENTS.names]
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


def _quarantined(arrived: pa.RecordBatch, reasons: pa.Array, bus: str) -> pa.RecordBatch:
    today = pa.scalar(datetime.now(UTC).date(), pa.date32())
    made = {
        "date": pa.repeat(today, len(arrived)),
        "reason": reasons,
        "raw": arrived["value"],
        **_bus_columns(arrived, bus),
    }
    return pa.RecordBatch.from_arrays([made[name] for name in QUARANTINE.names], schema=QUARANTINE)


def _chosen(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Return some values, and NULL for the others."""
    # With None instead of an array of NULL, Arrow would copy what nobody sees.
    return pc.if_else(mask, values, pa.nulls(len(values), values.type))


def _bus_columns(arrived: pa.RecordBatch, bus: str) -> dict[str, pa.Array]:
    # Copied: what arrives is one piece of memory, and the envelopes' bytes would be held with these.
    given = {
        name: pa.concat_arrays([arrived[name]]) for name in ("destination", "bus_partition", "bus_position")
    }
    return {"bus": pa.repeat(pa.scalar(bus), len(arrived)), **given}
