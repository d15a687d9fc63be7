"""What templates render, by examples."""

from __future__ import annotations

import pytest
from bronze_cli.problems import Fault
from bronze_sidecar.routing.rules import DEFAULT_KEY, FREE_TEXT
from bronze_sidecar.routing.template import Template, parse, trusted
from bronze_sidecar.sinks.kafka.options import KEY, TOPIC
from bronze_sidecar.sinks.nats.options import SUBJECT
from bronze_sidecar.sinks.sqs.options import QUEUE_URL
from events import event

QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/"


def rendered(text, target=SUBJECT, **facts):
    return trusted(text, target).renderer()(event(**facts))


@pytest.mark.parametrize(
    ("placeholder", "value"),
    [
        ("exchange", "binance"),
        ("symbol", "BTCUSDT"),
        ("payloadCase", "trade"),
        ("dataType", "trade"),
        ("source", "tardis"),
        ("origin", "replay"),
        ("meta.request_id", "r1"),
        ("meta.data_type", "trade"),
    ],
)
def test_each_placeholder_gives_its_value(placeholder, value):
    assert rendered(f"a.{{{{{placeholder}}}}}.b") == f"a.{value}.b"


def test_the_event_id_is_a_meta_entry_to_templates():
    assert rendered("{{meta.event_id}}", FREE_TEXT) == "stream:7"


def test_a_meta_entry_that_is_missing_renders_as_an_empty_value():
    assert rendered("a.{{meta.nothing}}") == "a.%%"
    assert rendered("a.{{meta.nothing}}", TOPIC) == "a.__"


def test_a_meta_entry_that_is_missing_leaves_nothing_where_values_are_not_escaped():
    assert rendered("a{{meta.nothing}}b", FREE_TEXT) == "ab"


def test_an_empty_symbol_renders_as_the_escape_of_nothing():
    assert rendered("a.{{symbol}}.b", symbol="") == "a.%%.b"


@pytest.mark.parametrize("text", ["a.{{ symbol }}", "a.{{symbol  }}", "a.{{\tsymbol\n}}"])
def test_spaces_are_allowed_inside_the_braces(text):
    assert rendered(text) == "a.BTCUSDT"


def test_text_without_placeholders_stays_as_it_is():
    assert rendered("bronze.trades") == "bronze.trades"


def test_a_placeholder_may_stand_alone():
    assert rendered("{{symbol}}") == "BTCUSDT"


def test_a_placeholder_may_be_used_twice():
    assert rendered("{{symbol}}.{{symbol}}") == "BTCUSDT.BTCUSDT"


def test_a_key_of_meta_may_be_all_digits_or_underscores():
    assert rendered("{{meta.1}}.{{meta.__}}", meta={"1": "a", "__": "b"}) == "a.b"


def test_the_default_key_is_exchange_symbol_and_payload_case():
    assert rendered(DEFAULT_KEY, KEY, exchange="deribit", symbol="BTC/USD", payload_case="quote") == (
        "deribit|BTC%2FUSD|quote"
    )


def test_quotes_and_backslashes_in_a_template_are_only_text():
    assert rendered("""a'b"c\\d.{{symbol}}'""") == """a'b"c\\d.BTCUSDT'"""


@pytest.mark.parametrize(
    ("symbol", "subject"),
    [
        ("BTC/USDT", "b.BTC%2FUSDT.trade"),
        ("1000SHIB*", "b.1000SHIB%2A.trade"),
        ("BTC-26NOV26-100000-C", "b.BTC-26NOV26-100000-C.trade"),
        ("XBT.P", "b.XBT%2EP.trade"),
        ("a b", "b.a%20b.trade"),
        (">", "b.%3E.trade"),
    ],
)
def test_a_symbol_makes_no_tokens_or_wildcards_on_nats(symbol, subject):
    assert rendered("b.{{symbol}}.{{payloadCase}}", symbol=symbol) == subject


def test_a_queue_url_keeps_its_text_and_its_suffix():
    assert (
        rendered(f"{QUEUE}b-{{{{symbol}}}}.fifo", QUEUE_URL, symbol="BTC-USD") == f"{QUEUE}b-BTC_2DUSD.fifo"
    )


def test_values_share_the_room_that_the_text_leaves():
    # 249 less "a" and "." is 247, for each value 123.
    name = rendered("a{{exchange}}.{{symbol}}", TOPIC, exchange="x" * 123, symbol="y" * 124)
    assert name[:125] == "a" + "x" * 123 + "."
    assert name[125:222] == "y" * 97
    assert name[222:224] == "_h"
    assert len(name) == 248


@pytest.mark.parametrize(
    "text",
    [
        "{{exchange}}.{{symbol}}",
        "{{exchange}}.x-{{symbol}}",
        "{{exchange}}-.-{{symbol}}",
        "{{payloadCase}}-{{symbol}}",
        "{{symbol}}-{{payloadCase}}",
        "{{origin}}-{{symbol}}-{{payloadCase}}",
        "{{origin}}_{{payloadCase}}_{{symbol}}",
        "b.{{exchange}}.{{payloadCase}}-{{symbol}}",
        "{{symbol}}",
    ],
)
def test_these_topics_are_not_ambiguous(text):
    assert isinstance(parse(text, TOPIC), Template)


@pytest.mark.parametrize(
    "text",
    [
        "{{exchange}}{{symbol}}",
        "{{exchange}}-{{symbol}}",
        "{{exchange}}_{{symbol}}",
        "{{exchange}}x{{symbol}}",
        "{{exchange}}2F{{symbol}}",
        "{{payloadCase}}x{{symbol}}",
        "{{payloadCase}}{{origin}}",
        "{{exchange}}.{{symbol}}-{{source}}.{{dataType}}",
        "{{meta.a}}-{{meta.b}}",
    ],
)
def test_these_topics_are_ambiguous(text):
    faults = parse(text, TOPIC)
    assert isinstance(faults, list)
    assert "is ambiguous" in faults[0].what


def test_what_is_not_escaped_may_be_ambiguous():
    assert rendered("{{exchange}}{{symbol}}", FREE_TEXT) == "binanceBTCUSDT"


def test_the_nearest_placeholder_is_suggested():
    assert parse("{{payload_case}}", SUBJECT) == [
        Fault(
            "no placeholder 'payload_case'.",
            "Did you mean '{{payloadCase}}'?"
            " The placeholders are exchange, symbol, payloadCase, dataType, source, origin, meta.<key>.",
        )
    ]


def test_a_wrong_template_of_our_own_is_a_bug():
    with pytest.raises(ValueError, match="no placeholder"):
        trusted("{{nothing}}", SUBJECT)


def test_a_template_knows_whether_it_uses_meta():
    assert trusted("{{symbol}}.{{meta.a}}", SUBJECT).uses_meta is True
    assert trusted("{{symbol}}", SUBJECT).uses_meta is False
