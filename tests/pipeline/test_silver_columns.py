"""Exact numbers in Spark's columns."""

from __future__ import annotations

from decimal import Decimal

import pytest
from bronze_pipeline.silver.columns import NumberKind, decimal, enum_name, fault, number_text, scaled
from bronze_pipeline.silver.records import PRICE
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

pytestmark = pytest.mark.timeout(400)

# Text, the decimal, scaled by 8 digits, what is wrong.
NUMBERS = [
    ("7996.5", "7996.5", 799650000000, None),
    ("-0.00000001", "-0.00000001", -1, None),
    ("5e-8", "5e-8", 5, None),
    ("1.50E+3", "1500", 150000000000, None),
    ("100e-20", "1e-18", None, None),
    ("0.0000123456789", "0.0000123456789", None, None),
    ("0.000000000000000001", "1e-18", None, None),
    ("1.000000000000000000000", "1", 100000000, None),
    ("0e-400", "0", 0, None),
    ("92233720368.54775807", "92233720368.54775807", 9223372036854775807, None),
    ("92233720368.54775808", "92233720368.54775808", None, None),
    ("99999999999999999999", "99999999999999999999", None, None),
    ("100000000000000000000", None, None, "does not fit decimal(38,18)"),
    ("0.0000000000000000001", None, None, "does not fit decimal(38,18)"),
    ("1e-19", None, None, "does not fit decimal(38,18)"),
    ("15e-19", None, None, "does not fit decimal(38,18)"),
    ("1e20", None, None, "does not fit decimal(38,18)"),
    ("1e9999", None, None, "does not fit decimal(38,18)"),
    ("1,5", None, None, "not a number"),
    ("NaN", None, None, "not a number"),
    (" 1", None, None, "not a number"),
    ("1\n", None, None, "not a number"),
    ("٣", None, None, "not a number"),
    ("", None, None, None),
    (None, None, None, None),
]


def test_text_becomes_the_exact_number_or_a_fault(spark: SparkSession) -> None:
    texts = spark.createDataFrame([(text,) for text, *_ in NUMBERS], "text string")
    typed = texts.select("text", decimal(F.col("text"), PRICE).alias("value")).select(
        "text",
        "value",
        scaled(F.col("value"), PRICE).alias("e8"),
        fault("price", F.col("text"), F.col("value"), PRICE).alias("fault"),
    )
    expected = [
        (text, value and Decimal(value), e8, reason and Row(column="price", text=text, reason=reason))
        for text, value, e8, reason in NUMBERS
    ]
    assert [tuple(row) for row in typed.collect()] == expected


def test_other_scales(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("0.000000001",), ("0.0000000001",), ("-12.345678",)], "text string")
    kinds = [NumberKind(places=30, scaled=9), NumberKind(places=30, scaled=6)]
    found = rows.select(*(scaled(decimal(F.col("text"), kind), kind) for kind in kinds)).collect()
    assert [tuple(row) for row in found] == [(1, None), (None, None), (-12345678000, -12345678)]


def test_other_places(spark: SparkSession) -> None:
    texts = [
        "0.00012345678901234567",
        "1.2345678901234567e-13",
        "99999999.5",
        "100000000",
        "1e8",
        "1e-31",
        "0.0000000000000000000000000000001",
    ]
    kind = NumberKind(places=30, scaled=9)
    rows = spark.createDataFrame([(text,) for text in texts], "text string")
    value = decimal(F.col("text"), kind)
    found = [tuple(row) for row in rows.select(value, fault("rate", F.col("text"), value, kind)).collect()]
    assert [each[0] for each in found] == [*map(Decimal, texts[:3]), None, None, None, None]
    assert [each[1] and each[1].reason for each in found[2:]] == [None, *["does not fit decimal(38,30)"] * 4]


def test_a_number_has_one_text_however_it_is_written(spark: SparkSession) -> None:
    texts = ["10", "10.0", "1e1", "+10", "-0.50", "0", "100", "1e40", "ten", "", None]
    rows = spark.createDataFrame([(text,) for text in texts], "text string")
    found = [row[0] for row in rows.select(number_text(F.col("text"), PRICE)).collect()]
    assert found == ["10", "10", "10", "10", "-0.5", "0", "100", "1e40", "ten", "", None]


def test_names_of_enumeration_values(spark: SparkSession) -> None:
    names = spark.createDataFrame([("SIDE_BUY",), ("SIDE_UNSPECIFIED",), ("7",), (None,)], "name string")
    assert [row[0] for row in names.select(enum_name(F.col("name"), "SIDE_")).collect()] == [
        "buy",
        None,
        "7",
        None,
    ]
