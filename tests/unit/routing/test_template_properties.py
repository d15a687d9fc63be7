"""Escaping and templates, whatever the values: reversible, legal, unambiguous, never too long."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache
from typing import NamedTuple

import pytest
from bronze_sidecar.routing.naming import Target
from bronze_sidecar.routing.template import Template, parse
from bronze_sidecar.sinks.kafka.options import KEY as KAFKA_KEY
from bronze_sidecar.sinks.kafka.options import TOPIC
from bronze_sidecar.sinks.kinesis.options import PARTITION_KEY
from bronze_sidecar.sinks.kinesis.options import STREAM as KINESIS_STREAM
from bronze_sidecar.sinks.nats.options import SUBJECT
from bronze_sidecar.sinks.redis.options import STREAM as REDIS_STREAM
from bronze_sidecar.sinks.sqs.options import GROUP, QUEUE_URL
from events import event
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st


class Place(NamedTuple):
    """A kind of name, and what its bus demands of it, written down apart from the code."""

    target: Target
    legal: str
    limit: int
    escape: str
    start: str = ""
    """What a template must begin with."""


QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/"
PLACES = [
    Place(TOPIC, r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", 249, "_"),
    Place(KAFKA_KEY, r"[^\x00-\x1f\x7f]{1,1024}", 1024, "%"),
    Place(SUBJECT, r"(?!\$)[^\x00-\x20\x7f.*>\s]+(\.[^\x00-\x20\x7f.*>\s]+)*", 255, "%"),
    Place(KINESIS_STREAM, r"[A-Za-z0-9_.-]{1,128}", 128, "_"),
    Place(PARTITION_KEY, r"[^\x00-\x1f\x7f]{1,256}", 256, "%"),
    Place(REDIS_STREAM, r"[^\x00-\x1f\x7f]{1,1024}", 1024, "%"),
    Place(QUEUE_URL, re.escape(QUEUE) + r"(?=.{1,80}$)[A-Za-z0-9_-]+(\.fifo)?", 80 + len(QUEUE), "_", QUEUE),
    Place(GROUP, r"[!-~]{1,128}", 128, "%"),
]
each_place = pytest.mark.parametrize("place", PLACES, ids=[place.target.noun for place in PLACES])

# Any text, and often text that is made of what could be mistaken for an escape.
values = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="_%.-|:/*>$ hH05FaAé\N{SNOWMAN}", max_size=10),
    st.builds(
        lambda piece, times: piece * times, st.sampled_from(["x", "_", "/", "é", "a-"]), st.integers(100, 400)
    ),
)
PLACEHOLDERS = [
    *("{{exchange}}", "{{ symbol }}", "{{payloadCase}}", "{{dataType}}", "{{source}}", "{{origin}}"),
    *("{{meta.a}}", "{{meta.event_id}}"),
]
PIECES = [
    ".",
    "-",
    "_",
    "|",
    ":",
    "/",
    "bronze",
    "b.b",
    "-.-",
    "2F",
    "%",
    "__",
    "h",
    "*",
    ">",
    "$",
    " ",
    "é",
    "\n",
]
CONFUSING = [
    "",
    "a",
    "b",
    "ab",
    "-",
    "a-",
    "-a",
    "_",
    "_2F",
    "2F",
    "/",
    ".",
    "a.b",
    ".a",
    "|",
    "a|",
    "|a",
    "%",
    "%2F",
]
check = settings(max_examples=40, deadline=None)


@cache
def accepted_templates(place: Place) -> list[Template]:
    """Return many templates that the place accepts, out of all kinds of text and placeholders."""
    pick = random.Random(0)  # noqa: S311 - to be the same in every run
    pieces = [piece for piece in PIECES if re.fullmatch(place.legal, f"{place.start}x{piece}x")]
    texts = set(PIECES)
    for _ in range(2000):
        placeholders = pick.sample(PLACEHOLDERS[:2], k=2) * pick.randint(0, 1)
        placeholders += pick.choices(PLACEHOLDERS, k=pick.randint(0, 2))
        between = ["".join(pick.choices(pieces, k=pick.randint(0, 3))) for _ in placeholders]
        texts.add("".join(itertools.chain(*zip(between, placeholders, strict=True))))
    parsed = (parse(place.start + text, place.target) for text in sorted(texts))
    return [template for template in parsed if isinstance(template, Template)]


def templates_of(place: Place, *placeholders: str) -> list[Template]:
    return [each for each in accepted_templates(place) if set(placeholders) <= set(each.placeholders)]


def unescape(text: str, escape: str) -> str:
    """Undo the escaping, by its description alone."""
    if text == escape * 2:
        return ""
    raw = bytearray()
    position = 0
    while position < len(text):
        if text[position] == escape:
            digits = text[position + 1 : position + 3]
            assert re.fullmatch("[0-9A-F]{2}", digits)
            raw.append(int(digits, 16))
            position += 3
        else:
            raw += text[position].encode("ascii")
            position += 1
    return raw.decode("utf-8", "surrogatepass")


@each_place
@check
@given(value=values)
@example(value="")
@example(value="%%")
@example(value="__")
@example(value="_h" + "0" * 24)
@example(value="\ud800")
def test_an_escaped_value_can_be_read_back(place, value):
    assert unescape(place.target.escape(value, 100_000), place.escape) == value


@each_place
@check
@given(value=values)
def test_an_escaped_value_is_a_legal_name_by_itself(place, value):
    assert re.fullmatch(place.legal, place.start + place.target.escape(value, 34))


@each_place
@check
@given(value=values, room=st.integers(34, 400))
def test_an_escaped_value_keeps_to_its_room(place, value, room):
    escaped = place.target.escape(value, room)
    assert len(escaped) <= room
    assert place.target.escape(value, room) == escaped


@each_place
@check
@given(first=values, second=values, room=st.integers(34, 120))
def test_different_values_are_escaped_differently_also_when_cut(place, first, second, room):
    assume(first != second)
    assert place.target.escape(first, room) != place.target.escape(second, room)


@each_place
def test_there_are_many_templates_to_try(place):
    assert len(accepted_templates(place)) > 100
    assert len(templates_of(place, "exchange", "symbol")) > 20


@each_place
@check
@given(data=st.data(), exchange=values, symbol=values, other=values)
def test_what_an_accepted_template_renders_is_legal(place, data, exchange, symbol, other):
    template = data.draw(st.sampled_from(accepted_templates(place)))
    name = render(template, exchange, symbol, other)
    assert re.fullmatch(place.legal, name)
    assert len(name) <= place.limit


@each_place
@check
@given(data=st.data(), first=st.tuples(values, values), second=st.tuples(values, values), other=values)
def test_two_instruments_never_share_a_name_where_both_parts_are_named(place, data, first, second, other):
    template = data.draw(st.sampled_from(templates_of(place, "exchange", "symbol")))
    assume(first != second)
    one, another = (render(template, exchange, symbol, other) for exchange, symbol in (first, second))
    assert one != another


@each_place
def test_no_two_confusing_instruments_share_a_name(place):
    for template in templates_of(place, "exchange", "symbol"):
        renderer = template.renderer()
        pairs = list(itertools.product(CONFUSING, CONFUSING))
        rendered = {renderer(event(exchange=exchange, symbol=symbol)) for exchange, symbol in pairs}
        assert len(rendered) == len(pairs), template


@each_place
def test_values_of_any_two_placeholders_never_run_together(place):
    for template in templates_of(place, "symbol", "source"):
        renderer = template.renderer()
        pairs = list(itertools.product(CONFUSING, CONFUSING))
        rendered = {renderer(event(source=source, symbol=symbol)) for source, symbol in pairs}
        assert len(rendered) == len(pairs), template


def render(template: Template, exchange: str, symbol: str, other: str) -> str:
    return template.renderer()(
        event(
            exchange=exchange,
            symbol=symbol,
            data_type=other,
            source=other,
            id=f"s:{other}",
            meta={"a": other},
            payload_case="bookChange",
        )
    )


@check
@given(text=st.text(max_size=40))
def test_any_text_is_a_template_or_refused_with_reasons(text):
    for place in PLACES:
        result = parse(text, place.target)
        assert isinstance(result, Template) or all(fault.what.endswith(".") for fault in result)


@check
@given(text=st.text(alphabet="{} symboletaxchn.", max_size=30))
def test_any_braces_are_a_template_or_refused_with_reasons(text):
    result = parse(text, SUBJECT)
    assert isinstance(result, Template) or all(fault.what.endswith(".") for fault in result)
