"""Bronze events and silver rows, for tests of the silver tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from bronze_pipeline.decoding.schema import EVENTS, PAYLOADS
from bronze_pipeline.silver.queries import Query, QuerySettings, SilverBatchReport, start
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import FORMATS, Lake
from pyspark.sql import SparkSession

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
LONG_AGO = 1_700_000_000
"""2023-11-14 22:13:20 UTC."""


def at(seconds: float) -> datetime:
    """Return a moment, by its seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def event(payload: str, event_id: str | None, fields: dict[str, Any], **envelope: Any) -> dict[str, Any]:
    """Return a bronze event of the exchange x and the symbol A."""
    stream, _, rest = (event_id or "").rpartition(":")
    position, _, level = rest.partition(".")
    ordinary = {
        "date": NOON.date(),
        "payload_case": PAYLOADS[payload],
        "event_id": event_id,
        "stream_id": stream or None,
        "position": int(position) if stream else None,
        "level": int(level) if level else None,
        "source": "tests",
        "exchange": "x",
        "symbol": "A",
        "local_ts": at(0.25),
        "ingest_ts": at(0.5),
        "origin": "ORIGIN_REPLAY",
        "meta": [],
        payload: fields,
    }
    return ordinary | envelope


def trade(
    event_id: str | None, price: str, qty: str, seconds: float, side: str = "BUY", **fields: Any
) -> dict[str, Any]:
    numbers = {"price_str": price, "qty_str": qty, "side": f"SIDE_{side}", "event_ts": at(seconds)}
    return event("trade", event_id, {"trade_id": event_id, **numbers, **fields})


def change(
    event_id: str, side: str, price: str, qty: str, *, snapshot: bool = False, **envelope: Any
) -> dict[str, Any]:
    """Return a level of a book change; a message per second, by its position."""
    action = "ACTION_DELETE" if qty == "0" else "ACTION_UPSERT"
    position = int(event_id.rpartition(":")[2].partition(".")[0])
    fields = {
        "side": f"SIDE_{side}",
        "action": action,
        "price_str": price,
        "qty_str": qty,
        "event_ts": at(position),
    }
    return event("book_change", event_id, fields, meta=[("is_snapshot", str(snapshot).lower())], **envelope)


class Bronze:
    """A bronze table that grows by commits, as the bronze job makes them."""

    def __init__(self, folder: Path | str, format_: str = FORMATS[0]) -> None:
        self.lake = Lake(str(folder), format_)
        self._table = self.lake.events()
        self.batch = 0

    @property
    def url(self) -> str:
        return self.lake.table_url("bronze")

    def add(self, *events: dict[str, Any]) -> None:
        assert not self._table.has("tests", self.batch)
        writer = FileWriter(self._table.staging, EVENTS, "part")
        writer.write(pa.RecordBatch.from_pylist(list(events), EVENTS))
        self._table.commit(writer.finish(), "tests", self.batch)
        self.batch += 1


def expire(table: Path) -> None:
    """Make all that a Delta table's log has older than its retention, and have the log trimmed."""
    log = table / "_delta_log"
    found = deltalake.DeltaTable(table)
    found.create_checkpoint()
    for note in log.glob("0*"):
        # A day for each version.
        moment = LONG_AGO + int(note.name.partition(".")[0]) * 86_400
        os.utime(note, (moment, moment))
    found.cleanup_metadata()
    assert [int(note.stem) for note in log.glob("*.json")] == [found.version()]


def run(
    spark: SparkSession,
    query: Query,
    folder: Path,
    *,
    max_records: int = 500_000,
    goes_on_after_loss: bool = False,
) -> list[SilverBatchReport]:
    """Run a query to the end of what there is, with its checkpoint below a folder."""
    reports: list[SilverBatchReport] = []
    how = QuerySettings(
        str(folder / "_checkpoints"),
        available_now=True,
        trigger="",
        max_records=max_records,
        on_batch=reports.append,
        goes_on_after_loss=goes_on_after_loss,
    )
    start(spark, query, how).awaitTermination()
    return reports


def stored(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return some columns of a table, in the order of the rows."""
    rows = deltalake.DeltaTable(lake.table_url(name)).to_pyarrow_table(columns=list(columns))
    found = [tuple(row.values()) for row in rows.to_pylist()]
    return sorted(
        found, key=lambda row: [(value is not None, value) for value in row if not isinstance(value, list)]
    )


def number(text: str) -> Decimal:
    return Decimal(text)
