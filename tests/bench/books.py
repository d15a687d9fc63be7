"""Measures what silver's books cost: a first snapshot of each, then micro-batches that change some levels.

Each book has a stream of its own. What counts is the processor time of Python, the JVM and the workers,
beside that of a micro-batch in which a single book has changed: that is what Spark itself takes.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bench
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from bronze_pipeline.running.session import NoJava, open_session
from bronze_pipeline.silver.book_query import BookQuery
from bronze_pipeline.silver.queries import QuerySettings, SilverBatchReport, start
from bronze_pipeline.silver.records import PARTITION_COLUMNS, RECORDS
from bronze_pipeline.tables.files import FileWriter
from bronze_pipeline.tables.lake import Lake
from pyspark.sql import SparkSession

from pipeline import measured

BOOKS, LEVELS, QUICK_BOOKS = 20_000, 500, 2_000
BOOKS_AT_ONCE = 500
DEPTH = 5
NOON_US = 1_704_110_400_000_000
CHANGES = next(record for record in RECORDS if record.table == "book_changes").schema()
HEADS = ("micro-batch", "changes", "CPU s", "CPU µs/change", "seconds")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--quick", action="store_true", help="fewer books")
    arguments.add_argument("--books", type=int, help=f"{BOOKS:,} if not given")
    arguments.add_argument("--levels", type=int, default=LEVELS, help="of each book (%(default)s)")
    chosen = arguments.parse_args()
    books = chosen.books or (QUICK_BOOKS if chosen.quick else BOOKS)
    print(f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f} before the start.")
    try:
        spark = open_session("bench")
    except NoJava as reason:
        print(reason)
        return 1
    with tempfile.TemporaryDirectory(prefix="bronze-books-") as folder:
        rows = list(measure(spark, Path(folder), books, chosen.levels))
    spark.stop()
    print(f"\n{books:,} books of {chosen.levels:,} levels\n")
    bench.table(HEADS, rows)
    return 0


def measure(spark: SparkSession, place: Path, books: int, levels: int) -> Iterator[tuple[str, ...]]:
    lake = Lake(str(place))
    table = lake.open("book_changes", CHANGES, PARTITION_COLUMNS)
    whole, one = partial(changes, levels=1, books=range(books)), partial(changes, levels=1, books=range(1))
    batches = {
        "a book": one(position=0),
        "the first snapshot of all": snapshots(books, levels),
        "a book, again": one(position=2),
        "a near level of each": whole(position=3),
        "a near level of each, again": whole(position=4),
        "a far level of each": whole(position=5, first_level=levels - 1),
        "a far level of each, again": whole(position=6, first_level=levels - 1),
    }
    for number, (what, made) in enumerate(batches.items()):
        writer = FileWriter(table.staging, CHANGES, "part")
        count = 0
        for batch in made:
            writer.write(batch)
            count += len(batch)
        assert not table.has("bench", number)
        table.commit(writer.finish(), "bench", number)
        found = measured(spark, "books", what, count, partial(run, spark, lake, place, count))
        yield (
            what,
            f"{count:,}",
            f"{found.cpu:.1f}",
            f"{found.cpu / count * 1e6:,.1f}",
            f"{found.seconds:.1f}",
        )


def run(spark: SparkSession, lake: Lake, place: Path, most: int) -> None:
    reports: list[SilverBatchReport] = []
    how = QuerySettings(
        str(place / "checkpoints"),
        available_now=True,
        trigger="0 seconds",
        max_records=most,
        on_batch=reports.append,
    )
    start(spark, BookQuery(lake, CHANGES, DEPTH), how).awaitTermination()
    assert sum(report.outcome.rows["book_top"] for report in reports if report.outcome)


def snapshots(books: int, levels: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, books, BOOKS_AT_ONCE):
        some = range(first, min(first + BOOKS_AT_ONCE, books))
        yield from changes(some, levels, position=1, is_snapshot=True)


def changes(
    books: range, levels: int, position: int, *, first_level: int = 0, is_snapshot: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield a message for each book: some of its levels, the best first, on both sides."""
    owners = np.repeat(np.arange(books.start, books.stop), levels)
    level = np.tile(np.arange(levels), len(books))
    depth = (first_level + level) // 2
    is_bid = (first_level + level) % 2 == 0
    names = pc.cast(pa.array(owners), pa.string())
    prices = np.where(is_bid, 10_000 - depth, 10_001 + depth)
    made = {
        "exchange": pa.repeat(pa.scalar("exchange"), len(owners)),
        "symbol": pc.binary_join_element_wise("symbol", names, "-"),
        "stream_id": pc.binary_join_element_wise("stream", names, "-"),
        "date": pa.repeat(pa.scalar(NOON_US // 86_400_000_000, pa.int32()), len(owners)),
        "event_ts": pa.repeat(pa.scalar(NOON_US + position), len(owners)),
        "position": pa.repeat(pa.scalar(position), len(owners)),
        "level": pa.array(level),
        "is_snapshot": pa.repeat(pa.scalar(is_snapshot), len(owners)),
        "side": pa.array(np.where(is_bid, "buy", "sell")),
        "price": pa.array(prices),
        "qty": pa.array(1 + (owners + position) % 7),
    }
    columns = [
        made[field.name].cast(field.type) if field.name in made else pa.nulls(len(owners), field.type)
        for field in CHANGES
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=CHANGES)


if __name__ == "__main__":
    sys.exit(main())
