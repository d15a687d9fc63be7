"""A small market in any order, cut anywhere, with kills and compactions: the tables are always the same.

Each example takes many runs of Spark, so there are few; `PROPERTY_EXAMPLES=50` tries more.
"""

from __future__ import annotations

import os
from pathlib import Path

import deltalake
import pytest
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.book_query import BookQuery
from bronze_pipeline.silver.queries import Query
from bronze_pipeline.silver.record_query import RecordQuery
from bronze_pipeline.silver.records import RECORDS
from bronze_pipeline.tables.lake import Lake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from silver_frames import Bronze, run, stored
from small_market import (
    DEPTH,
    Level,
    MadeTrade,
    Rows,
    bronze_events,
    comparable,
    expected_bars,
    expected_books,
    expected_trades,
    levels,
    trades,
)

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "2"))
pytestmark = pytest.mark.timeout(600 * EXAMPLES)

QUERIES = ("records", "bars_1m", "book_top")
TABLES = ("bronze", "trades", "book_changes", "bars_1m", "book_top")
TRADE = ("symbol", "trade_id", "side", "price", "qty", "event_ts")
BAR = (
    "symbol", "open_ts", "open", "high", "low", "close", "volume", "buy_volume", "sell_volume", "trades",
    "turnover", "vwap",
)  # fmt: skip


class Silver:
    """The silver tables of a bronze table."""

    def __init__(self, spark: SparkSession, folder: Path, bronze: Bronze) -> None:
        self._spark, self._folder, self._bronze = spark, folder, bronze
        self._lake = Lake(str(folder / "silver"))
        self._schemas = {record.table: record.schema() for record in RECORDS}

    def run(self, name: str, max_records: int = 500_000) -> None:
        run(self._spark, self._query(name), self._folder, max_records=max_records)

    def _query(self, name: str) -> Query:
        if name == "records":
            return RecordQuery(self._bronze.url, self._lake)
        if name == "bars_1m":
            return BarQuery(self._lake, "1m", "1 minutes", self._schemas["trades"])
        return BookQuery(self._lake, self._schemas["book_changes"], DEPTH)

    def kill(self, name: str) -> None:
        """Leave the checkpoint as a kill does between the tables' commits and Spark's own."""
        commits = self._folder / "_checkpoints" / name / "commits"
        batches = [int(path.name) for path in commits.glob("[0-9]*")]
        if batches:
            (commits / str(max(batches))).unlink()
            (commits / f".{max(batches)}.crc").unlink(missing_ok=True)

    def compact(self, name: str) -> None:
        url = self._bronze.url if name == "bronze" else self._lake.table_url(name)
        if deltalake.DeltaTable.is_deltatable(url):
            deltalake.DeltaTable(url).optimize.compact()

    def check(self, market: list[MadeTrade], book: list[Level]) -> None:
        assert comparable(stored(self._lake, "trades", TRADE)) == expected_trades(market)
        assert comparable(stored(self._lake, "bars_1m", BAR)) == expected_bars(market)
        assert self._books() == expected_books(book)

    def _books(self) -> Rows:
        found = stored(self._lake, "book_top", ("position", "has_snapshot", "bids", "asks"))
        return [
            (position, began, *([(level["price"], level["qty"]) for level in side] for side in sides))
            for position, began, *sides in found
        ]


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    # Looking for the smallest example would take hours.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(market=trades(), book=levels(), draw=st.data())
def test_tables_do_not_depend_on_how_their_events_came(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    market: list[MadeTrade],
    book: list[Level],
    draw: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("market")
    bronze = Bronze(folder / "bronze")
    silver = Silver(spark, folder, bronze)
    arriving = draw.draw(st.permutations(bronze_events(market, book)))
    for _ in range(draw.draw(st.integers(1, 3))):
        size = draw.draw(st.integers(1, max(1, len(arriving))))
        batch, arriving = arriving[:size], arriving[size:]
        if batch:
            bronze.add(*batch)
        silver.run("records")
        for name in draw.draw(st.lists(st.sampled_from(QUERIES[1:]), unique=True)):
            silver.run(name)
        silver.kill(draw.draw(st.sampled_from(QUERIES)))
        for name in draw.draw(st.lists(st.sampled_from(TABLES), unique=True)):
            silver.compact(name)
    if arriving:
        bronze.add(*arriving)
    for name in QUERIES:
        silver.run(name)
    silver.check(market, book)
    # Everything anew, from files in another order, a file at a time.
    silver.compact("bronze")
    anew = Silver(spark, folder / "anew", bronze)
    for name in QUERIES:
        anew.run(name, max_records=1)
    anew.check(market, book)
