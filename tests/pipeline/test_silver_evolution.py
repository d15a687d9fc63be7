"""Silver and fields that were added to bronze later: in real Spark, with bronze in both formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from bronze_pipeline.decoding.schema import EVENTS, PARTITION_COLUMNS
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.record_query import RecordQuery
from bronze_pipeline.silver.records import RECORDS
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import FORMATS, Lake
from older_programs import without
from pyspark.sql import SparkSession
from silver_frames import event, run, stored, trade

pytestmark = pytest.mark.timeout(600)

OLDER = without(EVENTS, "trade.sequence", "book_snapshot.bids.qty_str", "quote")
NEWER = EVENTS.append(pa.field("fee", pa.struct([("amount_str", pa.string())])))


def add(lake: Lake, batch: int, schema: pa.Schema, *events: dict[str, Any]) -> None:
    """Store events as a bronze job does whose program has these columns."""
    table = lake.open("bronze", schema, PARTITION_COLUMNS)
    assert not table.has("job", batch)
    writer = FileWriter(table.staging, schema, "part")
    known = [{name: value for name, value in each.items() if name in schema.names} for each in events]
    writer.write(pa.RecordBatch.from_pylist(known, schema))
    table.commit(writer.finish(), "job", batch)


def with_field(schema: pa.Schema, payload: str, *fields: pa.Field) -> pa.Schema:
    place = schema.get_field_index(payload)
    return schema.set(place, pa.field(payload, pa.struct([*schema.field(payload).type, *fields])))


@pytest.fixture
def newer_silver(monkeypatch: pytest.MonkeyPatch) -> pa.Schema:
    """Let silver be of a program whose trades have one more field; return the columns of its bronze."""
    schema = with_field(EVENTS, "trade", pa.field("fee_str", pa.string()))
    monkeypatch.setattr("bronze_pipeline.silver.record_query.EVENTS", schema)
    return schema


def test_a_field_that_was_added_to_a_payload_comes_into_the_silver_table(
    spark: SparkSession, tmp_path: Path, newer_silver: pa.Schema
) -> None:
    bronze, silver = Lake(str(tmp_path / "bronze")), Lake(str(tmp_path / "silver"))
    (trades,) = (record.schema(newer_silver) for record in RECORDS if record.table == "trades")
    silver.open("trades", without(trades, "fee_str"), ("date", "exchange"))
    add(bronze, 0, EVENTS, trade("r:0", "10", "1", 0))
    run(spark, RecordQuery(bronze.table_url("bronze"), silver), tmp_path)
    add(bronze, 1, newer_silver, trade("r:1", "10", "1", 1, fee_str="0.5"))
    run(spark, RecordQuery(bronze.table_url("bronze"), silver), tmp_path)
    assert stored(silver, "trades", ["event_id", "fee_str"]) == [("r:0", None), ("r:1", "0.5")]


@pytest.mark.parametrize("format_", FORMATS)
def test_silver_goes_on_while_bronze_grows_by_fields(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    bronze, silver = Lake(str(tmp_path / "bronze"), format_), Lake(str(tmp_path / "silver"))
    bids = [{"price_str": "9", "qty_str": "2"}]
    book = {"depth": 1, "bids": bids, "asks": []}
    schemas = {record.table: record.schema() for record in RECORDS}
    # Silver tables that are older, too.
    for name, column in (("trades", "sequence"), ("book_snapshots", "grouping")):
        silver.open(name, without(schemas[name], column), ("date", "exchange"))
    silver.open("quarantine", pa.schema([("date", pa.date32()), ("table", pa.string())]), ("date",))

    def follow() -> None:
        run(spark, RecordQuery(bronze.table_url("bronze"), silver), tmp_path)
        run(spark, BarQuery(silver, "1m", "1 minutes", schemas["trades"]), tmp_path)

    add(bronze, 0, OLDER, trade("r:0", "10", "1", 0, sequence=5), event("book_snapshot", "r:1", book))
    follow()
    add(
        bronze,
        1,
        EVENTS,
        trade("r:2", "11", "x", 1, sequence=6),
        event("book_snapshot", "r:3", book),
        event("quote", "r:4", {"bid_price_str": "8"}),
    )
    follow()
    # A bronze job that is newer than silver.
    add(bronze, 2, NEWER, trade("r:5", "12", "1", 2, sequence=7) | {"fee": {"amount_str": "1"}})
    follow()
    sequences = stored(silver, "trades", ["event_id", "sequence"])
    assert sequences == [("r:0", None), ("r:2", 6), ("r:5", 7)]
    books = deltalake.DeltaTable(silver.table_url("book_snapshots")).to_pyarrow_table()
    found = {
        row["event_id"]: [(level["price"], level["qty"]) for level in row["bids"]]
        for row in books.to_pylist()
    }
    assert found == {"r:1": [(9, None)], "r:3": [(9, 2)]}
    assert stored(silver, "quotes", ["event_id", "bid_price"]) == [("r:4", 8)]
    assert stored(silver, "quarantine", ["table", "event_id", "text"]) == [("trades", "r:2", "x")]
    assert stored(silver, "bars_1m", ["open", "close", "trades"]) == [(10, 12, 2)]
