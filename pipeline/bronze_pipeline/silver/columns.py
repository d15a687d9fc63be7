"""Columns of the silver tables: exact decimals, scaled integers, names of enum values.

A decimal is `decimal(38,18)`: twenty digits before the point, eighteen after it. Text that it cannot hold
exactly becomes NULL and a fault, never a rounded number. Next to it is the integer scaled by a power of ten
(`price_e8`), which is faster to calculate with; it is NULL unless it is exact too.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

DECIMAL = "decimal(38,18)"
FRACTION_DIGITS = 18
# In Java's patterns, `$` would allow a line break after the number.
NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\z"
PLAIN = r"^[+-]?[0-9]{1,20}(\.[0-9]{0,18}0*)?\z"
SCIENTIFIC = r"^[+-]?([0-9]+)(?:\.([0-9]*))?[eE]([+-]?[0-9]{1,4})\z"
NO_NUMBER = "not a number"
TOO_LONG = "does not fit decimal(38,18)"


def decimal(text: Column) -> Column:
    """Return a text as a number, or NULL if it is not one or cannot be held exactly."""
    return (
        F.when(text.rlike(PLAIN), text.try_cast(DECIMAL))
        .when(text.rlike(SCIENTIFIC) & (_fraction_digits(text) <= FRACTION_DIGITS), text.try_cast(DECIMAL))
        .otherwise(F.lit(None).cast(DECIMAL))
    )


def scaled(value: Column, digits: int) -> Column:
    """Return a decimal times a power of ten as a 64-bit integer, or NULL if that is not exact."""
    # Narrow enough that the product has at most 38 digits, and Spark does not round it.
    narrow = value.try_cast(f"decimal({36 - digits},{digits})")
    whole = (narrow * F.lit(10**digits).cast(f"decimal({digits + 1},0)")).try_cast("bigint")
    return F.when(narrow.cast(DECIMAL) == value, whole)


def product(left: Column, right: Column) -> Column:
    """Return the product of two decimals as a decimal, rounded at the 18th place; NULL if it does not fit.

    Spark's own product of two such decimals keeps six places. Here, whole and fractional parts are multiplied
    separately, each with a type that holds the result.
    """
    parts = [
        _whole(left) * _whole(right),
        _whole(left) * _broken(right),
        _broken(left) * _whole(right),
        _broken(left) * _broken(right),
    ]
    # Each sum needs one more digit than its parts.
    first, *others = [part.try_cast("decimal(35,18)") for part in parts]
    for part in others:
        first = first + part
    return first.cast(DECIMAL)


def fault(column: str, text: Column, value: Column) -> Column:
    """Return what is wrong with a text that did not become a decimal; NULL if nothing is."""
    reason = F.when(text.rlike(NUMBER), TOO_LONG).otherwise(NO_NUMBER)
    found = F.struct(F.lit(column).alias("column"), text.alias("text"), reason.alias("reason"))
    return F.when(present(text).isNotNull() & value.isNull(), found)


def present(text: Column) -> Column:
    """Return a text, or NULL if the envelope has none."""
    return F.when(text != "", text)


def enum_name(name: Column, prefix: str) -> Column:
    """Return the short name of an enum value: `SIDE_BUY` is `buy`, an unspecified one is NULL."""
    return F.when(name != f"{prefix}UNSPECIFIED", F.lower(F.replace(name, F.lit(prefix), F.lit(""))))


def _fraction_digits(text: Column) -> Column:
    """Return how many decimal places a number in scientific notation needs."""
    whole, broken, exponent = (F.regexp_extract(text, SCIENTIFIC, group) for group in (1, 2, 3))
    digits = F.concat(whole, broken)
    significant = F.length(F.rtrim(digits, F.lit("0")))
    needed = F.length(broken) - exponent.try_cast("int") - (F.length(digits) - significant)
    return F.when(significant == 0, 0).otherwise(needed)


def _whole(value: Column) -> Column:
    return F.when(value >= 0, F.floor(value)).otherwise(F.ceil(value)).try_cast("decimal(18,0)")


def _broken(value: Column) -> Column:
    return (value % F.lit(1).cast("decimal(1,0)")).cast("decimal(18,18)")
