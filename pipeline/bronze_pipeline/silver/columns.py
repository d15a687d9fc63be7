"""Columns of the silver tables: exact decimals, scaled integers, names of enum values.

A decimal has 38 digits, which is as many as Spark and Delta hold; `NumberKind` says how many of them are
behind the point. Text that it cannot hold exactly becomes NULL and a fault, never a rounded number. Next to
it is the integer scaled by a power of ten (`price_e8`), which is faster to calculate with; it is NULL unless
it is exact too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

DIGITS = 38
# Sign, whole part, fraction, the exponent's sign and the exponent.
NUMBER = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]*))?(?:[eE]([+-]?)(?=[0-9])0*([0-9]*))?")
# An exponent with more digits belongs to a number that is far too large or too small.
EXPONENT_DIGITS = 18
# Sign, whole part and fraction, without a plus and without zeros that say nothing.
PARTS = r"^(?:\+|(-))?0*([0-9]+)(?:\.0*|(\.[0-9]*[1-9])0*)?\z"
NO_NUMBER = "not a number"
LOWEST, HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class NumberKind:
    """A kind of number."""

    places: int
    """Behind the point."""
    scaled: int
    """The power of ten of the integer next to it."""

    @property
    def type(self) -> pa.DataType:
        return pa.decimal128(DIGITS, self.places)

    @property
    def sql(self) -> str:
        """The type's name in SQL."""
        return f"decimal({DIGITS},{self.places})"

    @property
    def plain(self) -> str:
        """The pattern of a text without an exponent that fits."""
        return rf"^[+-]?[0-9]{{1,{DIGITS - self.places}}}(\.[0-9]{{0,{self.places}}}0*)?\z"


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers that came as text."""

    name: str
    texts: pa.Array
    kind: NumberKind
    plain: pa.Array
    """The texts in one form, however they were written; NULL if the kind cannot hold them."""
    values: pa.Array

    @classmethod
    def of(cls, name: str, texts: pa.Array, kind: NumberKind) -> NumberColumn:
        plain = _plain(texts, kind)
        return cls(name, texts, kind, plain, pc.cast(plain, kind.type))

    @property
    def one_form(self) -> pa.Array:
        """The texts in one form; what is not a number stays as it is."""
        return pc.coalesce(self.plain, self.texts)

    def scaled(self) -> pa.Array:
        """Return the values times a power of ten as 64-bit integers; NULL where that is not exact."""
        narrow = pc.cast(self.values, pa.decimal128(DIGITS, self.kind.scaled), safe=False)
        is_exact = pc.equal(narrow.cast(self.kind.type), self.values)
        # The same digits without the point.
        whole = pa.Array.from_buffers(
            pa.decimal128(DIGITS, 0), len(narrow), narrow.buffers(), narrow.null_count, narrow.offset
        )
        fits = pc.and_(
            pc.greater_equal(whole, pa.scalar(Decimal(LOWEST), whole.type)),
            pc.less_equal(whole, pa.scalar(Decimal(HIGHEST), whole.type)),
        )
        return pc.if_else(pc.and_(is_exact, fits), whole, pa.scalar(None, whole.type)).cast(pa.int64())

    def faulty(self) -> pa.Array:
        """Tell where there is a text that did not become a number."""
        return pc.and_(pc.is_valid(present(self.texts)), pc.is_null(self.values))

    def reason(self, text: str) -> str:
        """Return what is wrong with a text that did not become a number."""
        return f"does not fit {self.kind.sql}" if NUMBER.fullmatch(text) else NO_NUMBER


def _plain(texts: pa.Array, kind: NumberKind) -> pa.Array:
    fits = pc.match_substring_regex(texts, kind.plain)
    plain = pc.replace_substring_regex(pc.if_else(fits, texts, None), PARTS, r"\1\2\3")
    plain = pc.if_else(pc.equal(plain, "-0"), "0", plain)
    # Rare.
    is_odd = pc.and_(pc.invert(fits), pc.not_equal(texts, ""))
    return _replaced(plain, texts, is_odd, lambda text: _written_out(text, kind))


def _written_out(text: str, kind: NumberKind) -> str | None:
    """Return a number without an exponent; None if it is none, or the kind cannot hold it exactly."""
    found = NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent_sign, exponent = found.groups("")
    significant = (whole + fraction).lstrip("0")
    digits = significant.rstrip("0")
    if not digits:
        return "0"
    if len(exponent) > EXPONENT_DIGITS:
        return None
    behind_point = len(fraction) - int(f"{exponent_sign}{exponent or 0}") - len(significant) + len(digits)
    if behind_point > kind.places or len(digits) - behind_point > DIGITS - kind.places:
        return None
    return f"{Decimal(f'{sign}{digits}e{-behind_point}'):f}"


def _replaced(
    values: pa.Array, texts: pa.Array, where: pa.Array, replace: Callable[[str], str | None]
) -> pa.Array:
    """Return values with what some texts become in their place."""
    mask = where.fill_null(False)
    if not mask.true_count:
        return values
    made = [replace(text) for text in texts.filter(mask).to_pylist()]
    return pc.replace_with_mask(values, mask, pa.array(made, pa.string()))


def present(texts: pa.Array) -> pa.Array:
    """Return texts, or NULL where the envelope has none."""
    return pc.if_else(pc.equal(texts, ""), None, texts)


def enum_names(names: pa.Array, prefix: str) -> pa.Array:
    """Return short names of enum values: `SIDE_BUY` is `buy`, an unspecified one is NULL."""
    short = pc.utf8_lower(pc.replace_substring(names, prefix, ""))
    return pc.if_else(pc.equal(names, f"{prefix}UNSPECIFIED"), None, short)


_ESCAPES = {
    **{code: f"\\u{code:04X}" for code in range(0x20)},
    **str.maketrans(
        {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r", '"': r"\"", "\\": r"\\"}
    ),
}


def json_arrays(*columns: pa.Array) -> pa.Array:
    """Return the texts of each row as a JSON array."""
    parts = [pc.binary_join_element_wise('"', _escaped(each), '"', "") for each in columns]
    joined = pc.binary_join_element_wise(*(pc.fill_null(part, "null") for part in parts), ",")
    return pc.binary_join_element_wise("[", joined, "]", "")


def _escaped(texts: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(texts, r'["\\\x00-\x1f]')
    return _replaced(texts, texts, special, lambda text: text.translate(_ESCAPES))
