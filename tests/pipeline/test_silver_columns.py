"""Exact numbers in the columns of the silver tables."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
from bronze_pipeline.silver.columns import NumberColumn, NumberKind, enum_names, json_arrays
from bronze_pipeline.silver.records import PRICE

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
    # Zeros that say nothing, in each part.
    ("1e00005", "100000", 10000000000000, None),
    ("1e+00005", "100000", 10000000000000, None),
    ("25E-00003", "0.025", 2500000, None),
    ("-1.5e-000000000000000000000000000000000000000008", "-0.000000015", None, None),
    ("1e0", "1", 100000000, None),
    ("1e-0", "1", 100000000, None),
    ("1.e2", "100", 10000000000, None),
    ("+7e00000000000000000000", "7", 700000000, None),
    ("-000000000000000000000000012.50", "-12.5", -1250000000, None),
    ("000000000000000000000000000000000000000000.1", "0.1", 10000000, None),
    ("-0000000000000000000000000000000000", "0", 0, None),
    ("0.0000000000000000000000000000001e30", "0.1", 10000000, None),
    ("100000000000000000000000000000e-29", "1", 100000000, None),
    ("1" + "0" * 5_000 + "e-5000", "1", 100000000, None),
    ("0." + "0" * 5_000 + "1e5001", "1", 100000000, None),
    ("0" * 5_000 + "3e" + "0" * 5_000 + "2", "300", 30000000000, None),
    ("0e99999999999999999999999999", "0", 0, None),
    ("-0.000e-99999999999999999999999999", "0", 0, None),
    ("99999999999999999999.999999999999999999e0", "99999999999999999999.999999999999999999", None, None),
    ("999999999999999999990e-1", "99999999999999999999", None, None),
    ("1e00020", None, None, "does not fit decimal(38,18)"),
    ("1e-00019", None, None, "does not fit decimal(38,18)"),
    ("1e99999999999999999999999999", None, None, "does not fit decimal(38,18)"),
    ("-1e-99999999999999999999999999", None, None, "does not fit decimal(38,18)"),
    ("1e" + "9" * 5_000, None, None, "does not fit decimal(38,18)"),
    ("000100000000000000000000", None, None, "does not fit decimal(38,18)"),
    ("1e", None, None, "not a number"),
    ("1e+", None, None, "not a number"),
    ("1e5.0", None, None, "not a number"),
    ("--1", None, None, "not a number"),
    (".5", None, None, "not a number"),
    ("1,5", None, None, "not a number"),
    ("NaN", None, None, "not a number"),
    (" 1", None, None, "not a number"),
    ("1\n", None, None, "not a number"),
    ("٣", None, None, "not a number"),
    ("", None, None, None),
    (None, None, None, None),
]


def numbers(texts: list[str | None], kind: NumberKind) -> NumberColumn:
    # A slice, whose values do not begin where their memory does.
    return NumberColumn.of("price", pa.array(["7", None, *texts], pa.string())[2:], kind)


def reasons(found: NumberColumn) -> list[str | None]:
    return [
        found.reason(text) if is_faulty else None
        for text, is_faulty in zip(found.texts.to_pylist(), found.faulty().to_pylist(), strict=True)
    ]


def test_text_becomes_the_exact_number_or_a_fault() -> None:
    found = numbers([text for text, *_ in NUMBERS], PRICE)
    values = found.values.to_pylist()
    assert found.values.type == pa.decimal128(38, 18)
    assert values == [value and Decimal(value) for _, value, *_ in NUMBERS]
    assert found.scaled().to_pylist() == [scaled for _, _, scaled, _ in NUMBERS]
    assert reasons(found) == [reason for *_, reason in NUMBERS]


def test_other_scales() -> None:
    texts: list[str | None] = ["0.000000001", "0.0000000001", "-12.345678"]
    found = [numbers(texts, NumberKind(places=30, scaled=scaled)).scaled() for scaled in (9, 6)]
    assert [each.to_pylist() for each in found] == [[1, None, -12345678000], [None, None, -12345678]]


def test_other_places() -> None:
    texts: list[str | None] = [
        "0.00012345678901234567",
        "1.2345678901234567e-13",
        "99999999.5",
        "100000000",
        "1e8",
        "1e-31",
        "0.0000000000000000000000000000001",
    ]
    found = numbers(texts, NumberKind(places=30, scaled=9))
    assert found.values.to_pylist() == [*(Decimal(text or "") for text in texts[:3]), None, None, None, None]
    assert reasons(found) == [None, None, None, *["does not fit decimal(38,30)"] * 4]


def test_a_number_has_one_text_however_it_is_written() -> None:
    texts = [
        "10",
        "10.0",
        "1e1",
        "+10",
        "0010",
        "-0.50",
        "0",
        "-0",
        "-0.00",
        "100",
        "1e-7",
        "0.0000001",
        "1.",
    ]
    odd = ["1e40", "ten", "", None]
    expected = ["10", "10", "10", "10", "10", "-0.5", "0", "0", "0", "100", "0.0000001", "0.0000001", "1"]
    assert numbers([*texts, *odd], PRICE).one_form.to_pylist() == [*expected, *odd]


def test_names_of_enumeration_values() -> None:
    names = pa.array(["SIDE_BUY", "SIDE_UNSPECIFIED", "7", None])
    assert enum_names(names, "SIDE_").to_pylist() == ["buy", None, "7", None]


def test_texts_become_json() -> None:
    first = pa.array(["a", None, 'say "hi"\\', "tab\there", "bell\x07\x1f\x7f", "ä/😀\u2028"])
    second = pa.array(["1", "null", "", None, "\n", "\b\f\r"])
    assert json_arrays(first, second).to_pylist() == [
        '["a","1"]',
        '[null,"null"]',
        r'["say \"hi\"\\",""]',
        r'["tab\there",null]',
        '["bell\\u0007\\u001F\x7f","\\n"]',
        '["ä/😀\u2028","\\b\\f\\r"]',
    ]
    assert [json.loads(text) for text in json_arrays(first, second).to_pylist()] == [
        list(pair) for pair in zip(first.to_pylist(), second.to_pylist(), strict=True)
    ]
