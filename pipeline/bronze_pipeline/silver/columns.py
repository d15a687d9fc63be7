"""Columns of the silver tables: exact decimals, scaled integers, names of enum values.

A decimal has 38 digits, which is as many as Spark and Delta hold; `NumberKind` says how many of them are
behind the point. Text that it cannot hold exactly becomes NULL and a fault, never a rounded number. Next to
it is the integer scaled by a power of ten (`price_e8`), which is faster to calculate with; it is NULL unless
it is exact too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark

DIGITS = 38
# In Java's patterns, `$` would allow a line break after the number.
NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\z"
SCIENTIFIC = r"^[+-]?([0-9]+)(?:\.([0-9]*))?[eE]([+-]?[0-9]{1,4})\z"
NO_NUMBER = "not a number"


@dataclass(frozen=True)
class NumberKind:
    """A kind of number."""

    places: int
    """Behind the point."""
    scaled: int
    """The power of ten of the integer next to it."""

    @property
    def type(self) -> str:
        return f"decimal({DIGITS},{self.places})"

    @property
    def plain(self) -> str:
        """The pattern of a text without an exponent that fits."""
        return rf"^[+-]?[0-9]{{1,{DIGITS - self.places}}}(\.[0-9]{{0,{self.places}}}0*)?\z"


def decimal(text: Column, kind: NumberKind) -> Column:
    """Return a text as a number, or NULL if it is not one or cannot be held exactly."""
    number = text.try_cast(kind.type)
    return (
        F.when(text.rlike(kind.plain), number)
        .when(text.rlike(SCIENTIFIC) & (_fraction_digits(text) <= kind.places), number)
        .otherwise(F.lit(None).cast(kind.type))
    )


def scaled(value: Column, kind: NumberKind) -> Column:
    """Return a decimal times a power of ten as a 64-bit integer, or NULL if that is not exact."""
    # Narrow enough that the product has at most 38 digits, and Spark does not round it.
    narrow = value.try_cast(f"decimal({DIGITS - 2 - kind.scaled},{kind.scaled})")
    whole = (narrow * F.lit(10**kind.scaled).cast(f"decimal({kind.scaled + 1},0)")).try_cast("bigint")
    return F.when(narrow.try_cast(kind.type) == value, whole)


def number_text(text: Column, kind: NumberKind) -> Column:
    """Return a number's text in one form, however it was written; what is not a number stays as it is."""
    plain = decimal(text, kind).cast("string")
    return F.coalesce(F.rtrim(F.rtrim(plain, F.lit("0")), F.lit(".")), text)


def fault(column: str, text: Column, value: Column, kind: NumberKind) -> Column:
    """Return what is wrong with a text that did not become a decimal; NULL if nothing is."""
    reason = F.when(text.rlike(NUMBER), f"does not fit {kind.type}").otherwise(NO_NUMBER)
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
