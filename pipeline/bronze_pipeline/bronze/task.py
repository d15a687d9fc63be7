"""What a worker does with its share of a micro-batch: decode, leave out repeats, write Parquet files.

Workers import this module and what it needs, but no table or data set: Spark waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bronze_pipeline.decoding.envelope import decode
from bronze_pipeline.decoding.schema import EVENTS, QUARANTINE, as_arrived
from bronze_pipeline.ledger.entries import ID_COLUMNS, first_of_each_event
from bronze_pipeline.tables.files import FileWriter, Folder
from bronze_pipeline.tables.waiting import WaitingRows

EVENTS_NAME, QUARANTINE_NAME = "bronze", "quarantine"
RESULT_SCHEMA = (
    "name string, file string, repeats long, receipts array<string>,"
    " firsts array<struct<destination:string,partition:string,position:long>>"
)
FIRST = [("destination", pa.string()), ("partition", pa.string()), ("position", pa.int64())]
RESULT = pa.schema(
    [
        ("name", pa.string()),
        ("file", pa.string()),
        ("repeats", pa.int64()),
        ("receipts", pa.list_(pa.string())),
        ("firsts", pa.list_(pa.struct(FIRST))),
    ]
)


@dataclass(frozen=True)
class Task:
    """What a worker does with its share of a micro-batch; it is sent there, so it holds plain values."""

    bus: str
    events: Folder
    quarantine: Folder
    keep_raw: bool
    watches: bool
    """Whether to report the first position of each partition."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events = FileWriter(self.events, EVENTS, "part", first=first_events)
        quarantine = FileWriter(self.quarantine, QUARANTINE, "part", beside=events)
        receipts: list[str] = []
        firsts: list[dict[str, Any]] = []
        for given in batches:
            batch = as_arrived(given)
            if self.watches:
                firsts += _firsts(batch)
            receipts += batch["receipt"].drop_null().to_pylist()
            decoded = decode(batch, self.bus, keep_raw=self.keep_raw)
            events.write(decoded.events)
            quarantine.write(decoded.quarantined)
        rows_of = {EVENTS_NAME: events.finish(), QUARANTINE_NAME: quarantine.finish()}
        results = [
            {"name": name, "file": file.to_json(), "repeats": 0}
            for name, files in rows_of.items()
            for file in files
        ]
        results.append(
            {
                "name": EVENTS_NAME,
                "file": None,
                "repeats": events.repeats,
                "receipts": receipts,
                "firsts": firsts,
            }
        )
        yield pa.RecordBatch.from_pylist(results, RESULT)


def first_events(rows: WaitingRows) -> pa.Array | None:
    return first_of_each_event(rows.columns(ID_COLUMNS))


def _firsts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    places = pa.table(
        [batch["destination"], batch["bus_partition"], batch["bus_position"].cast(pa.int64())],
        names=[name for name, _ in FIRST],
    )
    found = places.group_by(["destination", "partition"]).aggregate([("position", "min")])
    return [{**row, "position": row["position_min"]} for row in found.to_pylist()]
