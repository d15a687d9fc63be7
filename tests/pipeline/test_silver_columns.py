"""Exact numbers in Spark's columns."""

from __future__ import annotations

from decimal import Decimal

import pytest
from bronze_pipeline.silver.columns import decimal, enum_name, fault, product, scaled
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
    typed = texts.select("text", decimal(F.col("text")).alias("value")).select(
        "text",
        "value",
        scaled(F.col("value"), 8).alias("e8"),
        fault("price", F.col("text"), F.col("value")).alias("fault"),
    )
    expected = [
        (text, value and Decimal(value), e8, reason and Row(column="price", text=text, reason=reason))
        for text, value, e8, reason in NUMBERS
    ]
    assert [tuple(row) for row in typed.collect()] == expected


def test_other_scales(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("0.000000001",), ("0.0000000001",), ("-12.345678",)], "text string")
    value = decimal(F.col("text"))
    found = rows.select(scaled(value, 9).alias("e9"), scaled(value, 6).alias("e6")).collect()
    assert [tuple(row) for row in found] == [(1, None), (None, None), (-12345678000, -12345678)]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("97000.12345678", "0.00000001", "0.0009700012345678"),
        ("0.0000123456789", "1000000", "12.3456789"),
        ("-1.5", "2.5", "-3.75"),
        ("1234567890.123456789", "0.123456789", "152415787.517146788750190521"),
        ("0.000000001", "0.0000000001", "0"),
        ("0.000000001", "0.0000000006", "0.000000000000000001"),
        ("99999999", "99999999", "9999999800000001"),
        ("99999999999", "99999999999", None),
    ],
)
def test_products_have_18_places(spark: SparkSession, left: str, right: str, expected: str | None) -> None:
    frame = spark.createDataFrame([(Decimal(left), Decimal(right))], "l decimal(38,18), r decimal(38,18)")
    (row,) = frame.select(product(F.col("l"), F.col("r"))).collect()
    assert row[0] == (None if expected is None else Decimal(expected))


def test_names_of_enumeration_values(spark: SparkSession) -> None:
    names = spark.createDataFrame([("SIDE_BUY",), ("SIDE_UNSPECIFIED",), ("7",), (None,)], "name string")
    assert [row[0] for row in names.select(enum_name(F.col("name"), "SIDE_")).collect()] == [
        "buy",
        None,
        "7",
        None,
    ]
