"""How values are escaped to become part of a name, by examples."""

from __future__ import annotations

import pytest
from bronze_sidecar.sinks.kafka.options import KEY as KAFKA_KEY
from bronze_sidecar.sinks.kafka.options import TOPIC
from bronze_sidecar.sinks.kinesis.options import PARTITION_KEY
from bronze_sidecar.sinks.kinesis.options import STREAM as KINESIS_STREAM
from bronze_sidecar.sinks.nats.options import SUBJECT
from bronze_sidecar.sinks.redis.options import STREAM as REDIS_STREAM
from bronze_sidecar.sinks.sqs.options import GROUP, QUEUE_URL

PERCENT = [KAFKA_KEY, PARTITION_KEY, SUBJECT, REDIS_STREAM, GROUP]
UNDERSCORE = [TOPIC, KINESIS_STREAM]


def names(targets):
    return {"argvalues": targets, "ids": [target.noun for target in targets]}


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("BTC-PERPETUAL", "BTC-PERPETUAL"),
        ("btc_usdt", "btc_usdt"),
        ("BTC/USDT", "BTC%2FUSDT"),
        ("XBT.P", "XBT%2EP"),
        ("1000SHIB*", "1000SHIB%2A"),
        (">", "%3E"),
        ("a b", "a%20b"),
        ("a|b", "a%7Cb"),
        ("100%", "100%25"),
        ("%41", "%2541"),
        ("$SYS", "%24SYS"),
        ("日本", "%E6%97%A5%E6%9C%AC"),
        ("é", "%C3%A9"),
        ("\n", "%0A"),
        ("\x00", "%00"),
        ("😀", "%F0%9F%98%80"),
        ("", "%%"),
    ],
)
@pytest.mark.parametrize("target", **names(PERCENT))
def test_where_percent_is_allowed_it_escapes(target, value, escaped):
    assert target.escape(value, 100) == escaped


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("BTC-PERPETUAL", "BTC-PERPETUAL"),
        ("btc_usdt", "btc_5Fusdt"),
        ("BTC/USDT", "BTC_2FUSDT"),
        ("XBT.P", "XBT_2EP"),
        ("1000SHIB*", "1000SHIB_2A"),
        ("a b", "a_20b"),
        ("_41", "_5F41"),
        ("日", "_E6_97_A5"),
        ("", "__"),
    ],
)
@pytest.mark.parametrize("target", **names(UNDERSCORE))
def test_where_percent_is_not_allowed_the_underscore_escapes(target, value, escaped):
    assert target.escape(value, 100) == escaped


@pytest.mark.parametrize(
    ("value", "escaped"), [("BTC-PERPETUAL", "BTC_2DPERPETUAL"), ("a_b", "a_5Fb"), ("A1", "A1"), ("", "__")]
)
def test_in_a_queue_name_the_dash_is_escaped_too_for_it_separates_values(value, escaped):
    assert QUEUE_URL.escape(value, 80) == escaped


def test_a_value_that_fits_exactly_is_not_cut():
    assert TOPIC.escape("x" * 40, 40) == "x" * 40


def test_a_value_that_is_too_long_is_cut_and_ends_in_a_digest():
    # The digest is what `b2sum -l 96` gives for 41 times "x".
    assert TOPIC.escape("x" * 41, 40) == "x" * 14 + "_h" + "1f69e542a2b7279c5fee29a8"


def test_a_cut_never_splits_an_escape():
    # Of 40 characters 26 are the mark and the digest; 14 are left, of which "_2F" may only come whole.
    assert TOPIC.escape("/" * 41, 40).startswith("_2F_2F_2F_2F_h")
    assert TOPIC.escape("a" + "/" * 41, 40).startswith("a_2F_2F_2F_2F_h")
    assert TOPIC.escape("ab" + "/" * 41, 40).startswith("ab_2F_2F_2F_2F_h")
    assert TOPIC.escape("abc" + "/" * 41, 40).startswith("abc_2F_2F_2F_h")


def test_long_values_that_differ_at_the_end_differ_when_cut():
    assert TOPIC.escape("x" * 300 + "a", 40) != TOPIC.escape("x" * 300 + "b", 40)


def test_a_value_is_cut_alike_every_time():
    assert TOPIC.escape("x" * 300, 40) == TOPIC.escape("x" * 300, 40)


def test_a_cut_value_is_different_from_every_value_that_is_not_cut():
    cut = TOPIC.escape("x" * 300, 40)
    # "_h" starts no escape, so the cut text itself, taken as a value, is written differently.
    assert TOPIC.escape(cut, 100) == cut.replace("_h", "_5Fh")
