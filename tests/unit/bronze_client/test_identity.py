"""The same replay has the same stream id, in every language."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest
from bronze_client import stream_id_for
from clients import ClientUnderTest

REQUEST = {
    "exchange": "binance",
    "symbols": ["btcusdt", "ethusdt"],
    "dataTypes": ["trade", "book_change"],
    "from": "2020-01-01",
    "to": "2020-01-02",
}


def test_the_id_is_a_digest_of_the_canonical_text(client: ClientUnderTest) -> None:
    text = (
        '{"dataTypes":["trade","book_change"],"exchange":"binance","from":"2020-01-01",'
        '"symbols":["btcusdt","ethusdt"],"to":"2020-01-02"}'
    )
    assert client.stream_id_for(REQUEST) == hashlib.blake2b(text.encode()).hexdigest()[:32]


def test_the_id_never_changes(client: ClientUnderTest) -> None:
    assert client.stream_id_for(REQUEST) == "b391e7736c547419c055ca9b7b494d39"


@pytest.mark.parametrize(
    "request_",
    [
        dict(reversed(REQUEST.items())),
        REQUEST | {"symbols": ("btcusdt", "ethusdt")},
        REQUEST | {"withDisconnectMessages": None},
    ],
)
def test_order_of_keys_and_absence_make_no_difference(
    client: ClientUnderTest, request_: dict[str, object]
) -> None:
    assert client.stream_id_for(request_) == client.stream_id_for(REQUEST)


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
def test_every_difference_makes_another_id(client: ClientUnderTest, request_: dict[str, object]) -> None:
    assert client.stream_id_for(request_) != client.stream_id_for(REQUEST)


def test_text_is_written_in_utf_8_with_few_escapes(client: ClientUnderTest) -> None:
    text = '{"s":["𝄞","币","a\\"\\\\\\n\\u0001\x7f"]}'
    assert (
        client.stream_id_for({"s": ["𝄞", "币", 'a"\\\n\x01\x7f']})
        == hashlib.blake2b(text.encode()).hexdigest()[:32]
    )


@pytest.mark.parametrize("request_", [{"a": 1.5}, {"a": [{"b": -0.5}]}, ["a"], "a", None])
def test_values_that_languages_write_differently_are_refused(
    client: ClientUnderTest, request_: object
) -> None:
    with pytest.raises(TypeError, match=r"pass it as a string|A request must be a"):
        client.stream_id_for(request_)


@pytest.mark.parametrize("request_", [{"a": dt.datetime.now(tz=dt.UTC)}, {"a": b"b"}, {1: "a"}])
def test_values_that_only_python_has_are_refused(request_: object) -> None:
    with pytest.raises(TypeError, match=r"pass it as a string|keys must be strings"):
        stream_id_for(request_)  # type: ignore[arg-type]


def test_keys_are_sorted_by_their_bytes(client: ClientUnderTest) -> None:
    # In UTF-16 the order of the last two is another.
    text = '{"":1,"B":2,"a":3,"\uffee":4,"𝄞":5}'
    request = {"𝄞": 5, "\uffee": 4, "a": 3, "": 1, "B": 2}
    assert client.stream_id_for(request) == hashlib.blake2b(text.encode()).hexdigest()[:32]


def test_nulls_count_in_lists_alone(client: ClientUnderTest) -> None:
    request = {"a": [None, {"b": None, "c": [True, False, -1, 9007199254740991]}]}
    text = '{"a":[null,{"c":[true,false,-1,9007199254740991]}]}'
    assert client.stream_id_for(request) == hashlib.blake2b(text.encode()).hexdigest()[:32]
