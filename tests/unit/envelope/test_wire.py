"""The wire format, against bytes written by hand and against Protobuf's own encoder."""

import pytest
from bronze_client.schema import BookSnapshot, NormalizedEvent
from bronze_sidecar.envelope import wire


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**21 - 1, "ffff7f"),
        (2**21, "80808001"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**42 - 1, "ffffffffff7f"),
        (2**42, "80808080808001"),
        (2**63 - 1, "ffffffffffffffff7f"),
        (2**64 - 1, "ffffffffffffffffff01"),
        (-1, "ffffffffffffffffff01"),
        (-(2**63), "80808080808080808001"),
    ],
)
def test_varints(value, encoded):
    assert wire.varint(value).hex() == encoded


@pytest.mark.parametrize("value", [1, -1, 2**62 + 12345, -(2**63), 2**63 - 1, -987654321])
def test_varints_are_read_back_as_int64(value):
    assert BookSnapshot.FromString(wire.varint_field(14, value)).sequence == value


def test_a_zero_is_left_out():
    assert wire.varint_field(1, 0) == b""


def test_a_true_is_one():
    assert wire.varint_field(13, True).hex() == "6801"


def test_an_empty_string_is_left_out():
    assert wire.string_field(wire.heads(2), "") == b""


def test_a_string():
    assert wire.string_field(wire.heads(2), "é").hex() == "1202c3a9"


def test_a_long_string_has_a_length_of_two_bytes():
    assert wire.string_field(wire.heads(2), "a" * 300) == b"\x12\xac\x02" + b"a" * 300


def test_an_empty_message_is_written():
    assert wire.delimited(wire.heads(100), b"").hex() == "a20600"


def test_a_long_message_in_a_field_with_a_long_tag():
    assert wire.delimited(wire.heads(100), b"a" * 128) == b"\xa2\x06\x80\x01" + b"a" * 128


def test_a_map_entry_has_key_and_value():
    assert wire.map_entry(wire.heads(10), "k", "vw") == b"\x52\x07\x0a\x01k\x12\x02vw"


def test_a_map_entry_with_an_empty_value():
    assert wire.map_entry(wire.heads(10), "k", "") == b"\x52\x05\x0a\x01k\x12\x00"


@pytest.mark.parametrize(
    ("seconds", "nanos", "encoded"),
    [
        (1, 2, "2a0408011002"),
        (0, 0, "2a0408001000"),
        (300, 0, "2a0508ac021000"),
        (-1, 999_999_999, "2a1108ffffffffffffffffff0110ff93ebdc03"),
    ],
)
def test_timestamps(seconds, nanos, encoded):
    assert wire.timestamp_field(5, seconds, nanos).hex() == encoded


def test_an_appended_timestamp_replaces_an_earlier_one():
    earlier = wire.timestamp_field(5, 1_700_000_000, 5)
    event = NormalizedEvent.FromString(earlier + wire.timestamp_field(5, 0, 0))
    assert (event.ingest_ts.seconds, event.ingest_ts.nanos) == (0, 0)
