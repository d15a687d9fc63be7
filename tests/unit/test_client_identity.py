"""The same replay has the same stream id, in every language."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest
from bronze_client import stream_id_for

REQUEST = {
    "exchange": "binance",
    "symbols": ["btcusdt", "ethusdt"],
    "dataTypes": ["trade", "book_change"],
    "from": "2020-01-01",
    "to": "2020-01-02",
}


def test_the_id_is_a_digest_of_the_canonical_text() -> None:
    text = (
        '{"dataTypes":["trade","book_change"],"exchange":"binance","from":"2020-01-01",'
        '"symbols":["btcusdt","ethusdt"],"to":"2020-01-02"}'
    )
    assert stream_id_for(REQUEST) == hashlib.blake2b(text.encode()).hexdigest()[:32]


def test_the_id_never_changes() -> None:
    assert stream_id_for(REQUEST) == "b391e7736c547419c055ca9b7b494d39"


@pytest.mark.parametrize(
    "request_",
    [
        dict(reversed(REQUEST.items())),
        REQUEST | {"symbols": ("btcusdt", "ethusdt")},
        REQUEST | {"withDisconnectMessages": None},
    ],
)
def test_order_of_keys_and_absence_make_no_difference(request_: dict[str, object]) -> None:
    assert stream_id_for(request_) == stream_id_for(REQUEST)


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST | {"to": "2020-01-03"},
        REQUEST | {"dataTypes": ["book_change", "trade"]},
        REQUEST | {"symbols": ["btcusdt"]},
        REQUEST | {"symbols": ["btcusdt", "btcusdt", "ethusdt"]},
        REQUEST | {"withDisconnectMessages": True},
        REQUEST | {"withDisconnectMessages": 1},
        {},
    ],
)
def test_every_difference_makes_another_id(request_: dict[str, object]) -> None:
    assert stream_id_for(request_) != stream_id_for(REQUEST)


def test_text_is_written_in_utf_8_with_few_escapes() -> None:
    text = '{"s":["𝄞","币","a\\"\\\\\\n\\u0001\x7f"]}'
    assert (
        stream_id_for({"s": ["𝄞", "币", 'a"\\\n\x01\x7f']}) == hashlib.blake2b(text.encode()).hexdigest()[:32]
    )


@pytest.mark.parametrize(
    "request_",
    [{"a": 1.5}, {"a": dt.datetime.now(tz=dt.UTC)}, {"a": b"b"}, {1: "a"}, ["a"], "a"],
)
def test_values_that_languages_write_differently_are_refused(request_: object) -> None:
    with pytest.raises(TypeError, match=r"give it as text|keys are text|is a mapping"):
        stream_id_for(request_)  # type: ignore[arg-type]
