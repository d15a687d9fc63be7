"""The silver queries in real Spark: from bronze to each table, each row once, also after a crash."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from bronze_pipeline.running.failures import lasting_error
from bronze_pipeline.silver.bar_query import BarQuery
from bronze_pipeline.silver.book_query import BookQuery
from bronze_pipeline.silver.book_rows import BOOK
from bronze_pipeline.silver.book_stream import CHANGE_COLUMNS, OUTPUT
from bronze_pipeline.silver.checks import BOOK_COLUMNS, SNAPSHOT_COLUMNS, book_checks, summary
from bronze_pipeline.silver.follow import rows_of, table_frame
from bronze_pipeline.silver.queries import SilverBatchReport
from bronze_pipeline.silver.record_query import RecordQuery
from bronze_pipeline.silver.records import RECORDS
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import TableError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from silver_frames import Bronze, at, change, event, run, stored, trade

pytestmark = pytest.mark.timeout(600)


class Silver:
    """A bronze table, and the silver tables that are made of it."""

    def __init__(self, spark: SparkSession, folder: Path, bronze_format: str = "delta") -> None:
        self.spark = spark
        self.folder = folder
        self.bronze = Bronze(folder / "bronze", bronze_format)
        self.lake = Lake(str(folder / "silver"))
        self.schemas = {record.table: record.schema() for record in RECORDS}

    def records(self, max_records: int = 500_000) -> list[SilverBatchReport]:
        query = RecordQuery(self.bronze.url, self.lake)
        return run(self.spark, query, self.folder, max_records=max_records)

    def bars(self, watermark: str | None = None) -> list[SilverBatchReport]:
        query = BarQuery(self.lake, "1m", "1 minutes", self.schemas["trades"], watermark)
        return run(self.spark, query, self.folder)

    def book(
        self, depth: int = 2, interval_us: int | None = None, max_records: int = 500_000
    ) -> list[SilverBatchReport]:
        label = "10s" if interval_us else None
        query = BookQuery(self.lake, self.schemas["book_changes"], depth, label, interval_us)
        return run(self.spark, query, self.folder, max_records=max_records)

    def forget_commit(self, query: str, batch: int) -> None:
        """Leave the checkpoint as a crash does between the tables' commits and Spark's own."""
        commits = self.folder / "_checkpoints" / query / "commits"
        (commits / str(batch)).unlink()
        (commits / f".{batch}.crc").unlink(missing_ok=True)

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        return stored(self.lake, name, columns)

    def levels(self) -> dict[int, tuple[str, str]]:
        """Return the books of the stream r by position, as text: `pricexquantity`, the best first."""
        found = self.rows("book_top", "stream_id", "position", "bids", "asks")
        return {
            position: (shown(bids), shown(asks)) for stream, position, bids, asks in found if stream == "r"
        }


def shown(levels: list[dict[str, Decimal]]) -> str:
    return " ".join(f"{level['price'].normalize():f}x{level['qty'].normalize():f}" for level in levels)


@pytest.fixture
def silver(spark: SparkSession, tmp_path: Path) -> Silver:
    return Silver(spark, tmp_path)


def test_records_are_stored_once_also_after_crashes(silver: Silver) -> None:
    silver.bronze.add(
        trade("r:0", "10", "1", 0, trade_id="1"),
        trade("r:1", "nothing", "2", 1, trade_id="2"),
        change("r:2.0", "BUY", "9", "1"),
        change("r:2.1", "BUY", "8", "1e40"),
    )
    (first,) = silver.records()
    assert first.outcome
    assert (first.outcome.rows, first.outcome.duplicates, first.outcome.faults) == (
        {"trades": 2, "book_changes": 2},
        0,
        2,
    )
    expected_trades = [("r:0", Decimal(10), 1000000000), ("r:1", None, None)]
    expected_faults = [
        ("book_changes", "r:2.1", "qty", "1e40", "does not fit decimal(38,18)"),
        ("trades", "r:1", "price", "nothing", "not a number"),
    ]

    def check() -> None:
        assert silver.rows("trades", "event_id", "price", "price_e8") == expected_trades
        assert silver.rows("book_changes", "event_id") == [("r:2.0",), ("r:2.1",)]
        assert silver.rows("quarantine", "table", "event_id", "column", "text", "reason") == expected_faults

    check()
    # A crash behind all commits of the tables.
    silver.forget_commit("records", 0)
    (again,) = silver.records()
    assert (again.batch, again.outcome) == (0, None)
    check()
    # A crash before the last of them.
    silver.forget_commit("records", 0)
    (silver.folder / "silver" / "book_changes" / "_delta_log" / f"{1:020}.json").unlink()
    (again,) = silver.records()
    assert again.outcome
    assert again.outcome.rows == {"book_changes": 2}
    check()


def test_a_bronze_table_of_plain_parquet_is_followed_too(spark: SparkSession, tmp_path: Path) -> None:
    silver = Silver(spark, tmp_path, "parquet")
    silver.bronze.add(trade("r:0", "10", "1", 0), change("r:1.0", "BUY", "9", "1", snapshot=True))
    silver.records()
    silver.bronze.add(trade("r:2", "11", "1", 1), trade("r:0", "10", "1", 0))
    (second,) = silver.records()
    assert second.outcome
    assert (second.outcome.rows, second.outcome.duplicates) == ({"trades": 1}, 1)
    assert silver.rows("trades", "event_id", "exchange", "price") == [
        ("r:0", "x", Decimal(10)),
        ("r:2", "x", Decimal(11)),
    ]
    assert silver.rows("book_changes", "event_id") == [("r:1.0",)]
    silver.forget_commit("records", 1)
    (again,) = silver.records()
    assert again.outcome is None


def test_a_trade_that_another_stream_has_too_is_stored_once(silver: Silver) -> None:
    silver.bronze.add(trade("r:0", "10", "1", 0, trade_id="1"), trade("s:0", "10", "1", 0, trade_id="1"))
    silver.bronze.add(trade("r:1", "10", "1", 1, trade_id="2"), trade("r:2", "10", "1", 1, trade_id=""))
    (first,) = silver.records()
    assert first.outcome
    assert first.outcome.duplicates == 1
    silver.bronze.add(
        trade("t:0", "10", "1", 1, trade_id="2"),
        trade("t:1", "10", "1", 1, trade_id=""),
        trade("t:2", "10", "1", 2, trade_id="3"),
    )
    (second,) = silver.records()
    assert second.outcome
    assert (second.outcome.rows, second.outcome.duplicates) == ({"trades": 2}, 1)
    assert silver.rows("trades", "event_id") == [("r:0",), ("r:1",), ("r:2",), ("t:1",), ("t:2",)]


def test_tables_with_columns_of_other_types_are_refused_in_words(silver: Silver) -> None:
    rates = silver.schemas["derivative_tickers"]
    place = rates.get_field_index("funding_rate")
    old = rates.set(place, rates.field(place).with_type(pa.decimal128(38, 18)))
    silver.lake.open("derivative_tickers", old, ("date", "exchange"))
    with pytest.raises(TableError) as caught:
        silver.records()
    assert str(caught.value) == (
        f"the table at {silver.lake.table_url('derivative_tickers')} has other columns: funding_rate is"
        " decimal(38,18), but must be decimal(38,30). Have everything made anew from bronze: with a new --to,"
        " and a new --checkpoint if one is given."
    )


def test_equal_trades_at_other_times_or_sides_are_others_however_they_come(silver: Silver) -> None:
    trades = [
        trade("r:0", "10", "1", 0, trade_id="1"),
        trade("r:1", "10", "1", 600, trade_id="1"),
        trade("r:2", "10", "1", 1200, trade_id="1"),
        trade("r:3", "10", "1", 0, "SELL", trade_id="1"),
        # The first once more, in another stream.
        trade("s:0", "10.0", "1", 0, trade_id="1"),
    ]
    expected = [("r:0",), ("r:1",), ("r:2",), ("r:3",)]
    silver.bronze.add(*trades)
    silver.records()
    assert silver.rows("trades", "event_id") == expected
    one_by_one = Silver(silver.spark, silver.folder / "one by one")
    for each in trades:
        one_by_one.bronze.add(each)
    assert len(one_by_one.records(max_records=1)) == 5
    assert one_by_one.rows("trades", "event_id") == expected


def test_a_new_checkpoint_adds_nothing_twice(silver: Silver) -> None:
    silver.bronze.add(
        trade("r:0", "10", "1", 0), event("disconnect", "r:1", {"reason": "gone"}, exchange="a b/%c")
    )
    silver.bronze.add(trade("r:2", "ten", "one", 0))
    silver.records()
    faults = [("r:2", "price"), ("r:2", "qty")]
    assert silver.rows("quarantine", "event_id", "column") == faults
    silver.folder = silver.folder / "other"
    (report,) = silver.records()
    assert report.outcome
    assert (report.outcome.rows, report.outcome.duplicates) == ({"trades": 0, "disconnects": 0}, 3)
    assert silver.rows("quarantine", "event_id", "column") == faults
    assert silver.rows("disconnects", "event_id", "exchange", "reason") == [("r:1", "a b/%c", "gone")]


def test_bars_change_with_later_trades_and_survive_crashes(silver: Silver) -> None:
    names = ("open_ts", "open", "high", "low", "close", "volume", "trades")
    silver.bronze.add(trade("r:0", "10", "1", 10), trade("r:1", "12", "1", 70))
    silver.records()
    silver.bars()
    first = (at(0), *map(Decimal, (10, 10, 10, 10, 1)), 1)
    assert silver.rows("bars_1m", *names) == [first, (at(60), *map(Decimal, (12, 12, 12, 12, 1)), 1)]
    # The first minute gets an earlier trade, long after the second one began.
    silver.bronze.add(trade("r:2", "9", "2", 5), trade("r:3", "13", "1", 80))
    silver.records()
    silver.bars()
    expected = [
        (at(0), *map(Decimal, (9, 10, 9, 10, 3)), 2),
        (at(60), *map(Decimal, (12, 13, 12, 13, 2)), 2),
    ]
    assert silver.rows("bars_1m", *names) == expected
    silver.forget_commit("bars_1m", 1)
    (report,) = silver.bars()
    assert (report.batch, report.outcome) == (1, None)
    assert silver.rows("bars_1m", *names) == expected
    # The state came through the crash as well.
    silver.bronze.add(trade("r:4", "20", "1", 119))
    silver.records()
    silver.bars()
    assert silver.rows("bars_1m", *names)[1] == (at(60), *map(Decimal, (12, 20, 12, 20, 3)), 3)


def test_trades_behind_the_watermark_are_in_no_bar(silver: Silver) -> None:
    for number, seconds in enumerate((10, 1000, 2000)):
        silver.bronze.add(trade(f"r:{number}", "10", "1", seconds))
        silver.records()
        silver.bars("5 minutes")
    silver.bronze.add(trade("r:3", "99", "1", 11), trade("r:4", "99", "1", 1900))
    silver.records()
    silver.bars("5 minutes")
    assert silver.rows("bars_1m", "open_ts", "close") == [
        (at(0), Decimal(10)),
        (at(960), Decimal(10)),
        (at(1860), Decimal(99)),
        (at(1980), Decimal(10)),
    ]


def test_books_by_hand(silver: Silver) -> None:
    silver.bronze.add(
        change("r:0.0", "BUY", "10", "1", snapshot=True),
        change("r:0.1", "BUY", "9", "2", snapshot=True),
        change("r:0.2", "SELL", "11", "3", snapshot=True),
        change("r:1.0", "BUY", "10", "0"),
        change("r:1.1", "BUY", "8", "4"),
        change("r:1.2", "BUY", "7", "5"),
        # The first half of a snapshot.
        change("r:3.0", "BUY", "5", "1", snapshot=True),
    )
    silver.records()
    silver.book()
    # A message that has come so far only in part is there as it is.
    expected = {0: ("10x1 9x2", "11x3"), 1: ("9x2 8x4", "11x3"), 3: ("5x1", "")}
    assert silver.levels() == expected
    silver.bronze.add(
        change("r:3.1", "SELL", "6", "1", snapshot=True),
        change("r:3.2", "SELL", "7", "0.5", snapshot=True),
        # Behind a later message.
        change("r:2.0", "BUY", "8.5", "1"),
        change("r:4.0", "BUY", "5", "1.5"),
        change("s:0.0", "BUY", "1", "1"),
    )
    silver.records()
    silver.book()
    expected |= {2: ("9x2 8.5x1", "11x3"), 3: ("5x1", "6x1 7x0.5"), 4: ("5x1.5", "6x1 7x0.5")}
    rows = silver.rows("book_top", "stream_id", "position", "has_snapshot")
    assert rows == [
        ("r", 0, True),
        ("r", 1, True),
        ("r", 2, True),
        ("r", 3, True),
        ("r", 4, True),
        ("s", 0, False),
    ]
    assert silver.levels() == expected
    silver.forget_commit("book_top", 1)
    (report,) = silver.book()
    assert (report.batch, report.outcome) == (1, None)
    assert silver.rows("book_top", "stream_id", "position", "has_snapshot") == rows
    # A new checkpoint begins with empty books, and replaces the rows that are there.
    silver.folder = silver.folder / "other"
    silver.book(max_records=1)
    assert silver.rows("book_top", "stream_id", "position", "has_snapshot") == rows
    assert silver.levels() == expected
    silver.bronze.add(change("r:5.0", "BUY", "5", "2"))
    silver.records()
    silver.book()
    assert silver.levels() == expected | {5: ("5x2", "6x1 7x0.5")}


def test_books_of_two_checkpoints_in_turn_have_each_row_once(silver: Silver) -> None:
    own, other = silver.folder, silver.folder / "other"
    for position, checkpoints in enumerate((own, other, own, other, other, own)):
        silver.bronze.add(change(f"r:{position}.0", "BUY", "1", str(position + 1)))
        silver.folder = own
        silver.records()
        silver.folder = checkpoints
        silver.book()
    found = silver.rows("book_top", "position", "bids")
    assert [(position, shown(bids)) for position, bids in found] == [
        (position, f"1x{position + 1}") for position in range(6)
    ]


def test_books_do_not_depend_on_the_order_of_the_files(silver: Silver) -> None:
    """A stream that goes back and forth over midnight, compacted: each day's file has parts of it all."""
    for turn in range(6):
        day = date(2024, 1, 1 + turn % 2)
        first = turn * 4
        silver.bronze.add(
            *(
                change(f"r:{first + place}.0", "BUY", str(first + place + 1), "1", date=day)
                for place in range(4)
            )
        )
    deltalake.DeltaTable(silver.bronze.url).optimize.compact()
    silver.bronze.add(change("r:24.0", "BUY", "25", "1", date=date(2024, 1, 1)))
    assert len(silver.records(max_records=1)) == 3
    assert len(silver.book(depth=30, max_records=1)) == 3
    assert silver.levels() == {
        position: (" ".join(f"{price}x1" for price in range(position + 1, 0, -1)), "")
        for position in range(25)
    }


def test_books_at_intervals_do_not_depend_on_the_order_of_arrival(silver: Silver) -> None:
    for positions in ((0, 1, 12, 25), (2, 13), (11, 26), (3,)):
        silver.bronze.add(*(change(f"r:{each}.0", "BUY", str(each + 1), "1") for each in positions))
        silver.records()
        silver.book(depth=1, interval_us=10_000_000)
    found = [
        (time, position, shown(bids))
        for time, position, bids in silver.rows("book_top_10s", "interval_ts", "position", "bids")
    ]
    assert found == [(at(0), 3, "4x1"), (at(10), 13, "14x1"), (at(20), 26, "27x1")]


def test_books_once_in_an_interval(silver: Silver) -> None:
    silver.bronze.add(
        *(change(f"r:{position}.0", "BUY", "1", str(position)) for position in (1, 4, 9, 12, 18))
    )
    silver.records()
    silver.book(interval_us=10_000_000)
    silver.bronze.add(change("r:19.0", "BUY", "1", "19"), change("r:35.0", "BUY", "1", "35"))
    silver.records()
    silver.book(interval_us=10_000_000)
    found = silver.rows("book_top_10s", "interval_ts", "position")
    assert found == [(at(0), 9), (at(10), 19), (at(30), 35)]


def test_books_and_checks_of_a_long_replay(silver: Silver) -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    plain: dict[tuple[str, int], int] = {}
    expected: dict[int, tuple[str, str]] = {}
    events: list[dict[str, Any]] = []
    wrong = 0
    for position in range(0, 600, 2):
        is_snapshot = position % 200 == 0
        if is_snapshot:
            plain = {}
        for level in range(chance.randrange(1, 5)):
            side, price, quantity = (
                chance.choice(["BUY", "SELL"]),
                chance.randrange(1, 30),
                chance.randrange(4),
            )
            events.append(
                change(f"r:{position}.{level}", side, str(price), str(quantity), snapshot=is_snapshot)
            )
            plain.pop((side, price), None)
            if quantity:
                plain[side, price] = quantity
        bids = sorted(((price, qty) for (side, price), qty in plain.items() if side == "BUY"), reverse=True)
        asks = sorted((price, qty) for (side, price), qty in plain.items() if side == "SELL")
        expected[position] = (text(bids[:3]), text(asks[:3]))
        if position % 10 == 0:
            # What the source says of the book; every fifth of them is false.
            is_wrong = position % 50 == 0
            wrong += is_wrong
            events.append(
                event(
                    "book_snapshot",
                    f"r:{position + 1}",
                    {
                        "depth": 5,
                        "bids": levels([(99, 9)] if is_wrong else bids[:5]),
                        "asks": levels(asks[:5]),
                        "event_ts": at(position),
                    },
                    meta=[("data_name", "book_snapshot_5_0ms")],
                )
            )
    for first in range(0, len(events), 150):
        # The cuts are anywhere, also within messages.
        silver.bronze.add(*events[first : first + 150])
        silver.records()
        silver.book(depth=3)
    assert silver.levels() == expected
    book = table_frame(silver.spark, silver.lake.table_url("book_top"), BOOK_COLUMNS)
    snapshots = table_frame(silver.spark, silver.lake.table_url("book_snapshots"), SNAPSHOT_COLUMNS)
    (counts,) = summary(book_checks(book, snapshots, 3)).collect()
    assert tuple(counts) == ("x", "A", "book_snapshot_5_0ms", 48, 12)
    assert wrong == 12


def text(found: list[tuple[int, int]]) -> str:
    return " ".join(f"{price}x{quantity}" for price, quantity in found)


def levels(found: list[tuple[int, int]]) -> list[dict[str, str]]:
    return [{"price_str": str(price), "qty_str": str(quantity)} for price, quantity in found]


def test_a_checkpoint_whose_books_are_text_is_refused_in_words(silver: Silver) -> None:
    class TextBooks(StatefulProcessor):
        """Keeps books as programs did until 0.5."""

        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("book", "book string, emitted long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            self._state.update(("{}", len(list(rows))))
            return iter(())

    class TextBookQuery(BookQuery):
        def read(self, files: DataFrame) -> DataFrame:
            changes = rows_of(files, self.source, self.changes, CHANGE_COLUMNS)
            books = changes.groupBy(*BOOK).transformWithStateInPandas(
                TextBooks(), outputStructType=OUTPUT, outputMode="append", timeMode="none"
            )
            empty = super().read(files).schema
            return books.select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in empty))

    silver.bronze.add(change("r:0.0", "BUY", "10", "1", snapshot=True))
    silver.records()
    run(silver.spark, TextBookQuery(silver.lake, silver.schemas["book_changes"], 2), silver.folder)
    silver.bronze.add(change("r:1.0", "BUY", "11", "1"))
    silver.records()
    with pytest.raises(StreamingQueryException) as caught:
        silver.book()
    checkpoint = silver.folder / "_checkpoints/book_top"
    assert lasting_error(str(caught.value)) == (
        f"the state in the checkpoint {checkpoint} is of another version of this program."
        " Rename that folder: the query begins anew, and replaces the rows that are stored."
    )
    checkpoint.rename(checkpoint.with_name("old"))
    silver.book()
    assert silver.levels() == {0: ("10x1", ""), 1: ("11x1 10x1", "")}
