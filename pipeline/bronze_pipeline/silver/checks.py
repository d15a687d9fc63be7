"""Compares the books with the source's own snapshots of them.

A snapshot in the stream shows the book after the last change before it. Snapshots taken at intervals, or
with crossed levels removed, may differ for good reason; counts are kept separately by `data_name`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

from bronze_pipeline.silver.book_rows import BOOK

SNAPSHOT_COLUMNS = (*BOOK, "position", "data_name", "depth", "bids", "asks")
BOOK_COLUMNS = (*BOOK, "position", "has_snapshot", "bids", "asks")


def book_checks(book: DataFrame, snapshots: DataFrame, depth: int) -> DataFrame:
    """Return for each snapshot whether the book of `depth` levels matches it, as far as both go."""
    shown = [_plain("bids"), _plain("asks")]
    own = book.where("has_snapshot").select(
        *BOOK,
        "position",
        F.lit(None).cast("string").alias("data_name"),
        F.lit(None).cast("long").alias("depth"),
        F.struct(*shown).alias("book"),
        F.lit(None).cast("boolean").alias("is_snapshot"),
    )
    theirs = snapshots.select(
        *BOOK,
        "position",
        "data_name",
        "depth",
        F.struct(*shown).alias("book"),
        F.lit(True).alias("is_snapshot"),
    )
    before = Window.partitionBy(*BOOK).orderBy("position").rowsBetween(Window.unboundedPreceding, -1)
    last = F.last(F.when(F.col("is_snapshot").isNull(), F.col("book")), ignorenulls=True).over(before)
    both = own.unionByName(theirs).withColumn("last", last).where("is_snapshot")
    compared = F.least(F.col("depth"), F.lit(depth)).cast("int")
    # Before the first snapshot of the book there is nothing to compare with.
    return both.where(F.col("last").isNotNull()).select(
        *BOOK,
        "position",
        "data_name",
        (_first(F.col("last"), compared) == _first(F.col("book"), compared)).alias("matches"),
    )


def summary(checks: DataFrame) -> DataFrame:
    """Count matches and mismatches for each book and kind of snapshot."""
    return (
        checks.groupBy("exchange", "symbol", "data_name")
        .agg(F.count_if("matches").alias("matches"), F.count_if(~F.col("matches")).alias("mismatches"))
        .orderBy("exchange", "symbol", "data_name")
    )


def _plain(side: str) -> Column:
    levels = F.transform(
        F.col(side), lambda level: F.struct(level["price"].alias("price"), level["qty"].alias("qty"))
    )
    return levels.alias(side)


def _first(book: Column, count: Column) -> Column:
    return F.struct(F.slice(book["bids"], F.lit(1), count), F.slice(book["asks"], F.lit(1), count))
