"""Where events go: filters, precedence, keys, headers, and the memory of what was rendered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from bronze_sidecar.routing import route as routes
from bronze_sidecar.routing.route import Route
from configurations import KAFKA, KINESIS, NATS, REDIS, SQS, backend_of, with_minimum
from events import event

QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/"
CASES = [
    "trade",
    "bookChange",
    "bookSnapshot",
    "groupedBookSnapshot",
    "quote",
    "derivativeTicker",
    "liquidation",
    "optionSummary",
    "bookTicker",
    "tradeBar",
    "error",
    "disconnect",
]


def route_of(*flags):
    return Route(with_minimum(*flags).rules())


def destination(route, **facts):
    address = route.address(event(**facts))
    return address and address.destination


def key(route, **facts):
    return route.address(event(**facts)).key


# Filters


@pytest.mark.parametrize("case", CASES)
def test_without_an_allow_list_every_payload_case_is_published(case):
    assert destination(Route(backend_of(*KAFKA).rules()), payload_case=case) == "bronze"


@pytest.mark.parametrize("case", CASES)
def test_an_allow_list_filters_every_other_payload_case(case):
    route = route_of("--kafka-include-payloads=trade,quote")
    assert destination(route, payload_case=case) == ("bronze" if case in {"trade", "quote"} else None)


def test_routing_does_not_let_a_filtered_case_through():
    route = route_of("--kafka-include-payloads=trade", "--kafka-topic-routing=quote:quotes")
    assert destination(route, payload_case="quote") is None


@pytest.mark.parametrize("group", ["kafka", "nats", "kinesis", "redis", "sqs"])
def test_every_back_end_has_an_allow_list(group):
    route = route_of(f"--{group}-include-payloads=error")
    assert route.address(event(payload_case="trade")) is None
    assert route.address(event(payload_case="error")) is not None


# Groups: the events of one message


def test_the_events_of_a_message_have_one_address():
    route = route_of("--kafka-topic-template=t.{{symbol}}", "--kafka-include-payloads=trade")
    messages = [
        [event(payload_case="trade", symbol="A", id="s:0")],
        [
            event(payload_case="quote", symbol="B", id="s:1.0"),
            event(payload_case="quote", symbol="B", id="s:1.1"),
        ],
        [
            event(payload_case="trade", symbol="C", id="s:2.0"),
            event(payload_case="trade", symbol="C", id="s:2.1"),
        ],
    ]
    found = [address and address.destination for address in route.addresses(messages)]
    assert found == ["t.A", None, None, "t.C", "t.C"]


@pytest.mark.parametrize("option", ["--kafka-topic-template", "--kafka-key-template"])
def test_a_template_with_the_events_id_tells_the_events_of_a_message_apart(option):
    route = route_of(f"{option}={{{{symbol}}}}.{{{{meta.event_id}}}}")
    addresses = route.addresses([[event(id="s:1.0"), event(id="s:1.1")]])
    assert len({(address.destination, address.key) for address in addresses}) == 2


# Precedence


def test_routing_beats_the_template_which_beats_the_base():
    base = route_of("--kafka-topic=base")
    template = route_of("--kafka-topic=base", "--kafka-topic-template=t.{{symbol}}")
    routing = route_of(
        "--kafka-topic=base", "--kafka-topic-template=t.{{symbol}}", "--kafka-topic-routing=trade:trades"
    )
    assert destination(base) == "base"
    assert destination(template) == "t.BTCUSDT"
    assert destination(routing) == "trades"
    assert destination(routing, payload_case="quote") == "t.BTCUSDT"


def test_routing_without_a_template_leaves_other_cases_to_the_base():
    route = route_of("--kafka-topic=base", "--kafka-topic-routing=trade:trades")
    assert destination(route, payload_case="quote") == "base"


def test_base_and_routed_destinations_may_be_templates():
    route = route_of("--nats-subject=b.{{exchange}}", "--nats-subject-routing=trade:t.{{symbol}}.{{origin}}")
    assert destination(route) == "t.BTCUSDT.replay"
    assert destination(route, payload_case="quote") == "b.binance"


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--kafka-topic-routing=bookChange:x", "x"),
        ("--nats-subject-routing=book_change:x", "x"),
        ("--kinesis-stream-routing=BookChange:x", "x"),
        ("--redis-stream-routing=book-change:x:y", "x:y"),
        (f"--sqs-queue-routing=BOOKCHANGE:{QUEUE}x", f"{QUEUE}x"),
    ],
)
def test_every_back_end_routes_by_payload_case(flag, expected):
    assert destination(route_of(flag), payload_case="bookChange") == expected


# Keys


@pytest.mark.parametrize("flags", [KAFKA, KINESIS, SQS], ids=["kafka", "kinesis", "sqs"])
def test_the_default_key_is_exchange_symbol_and_payload_case(flags):
    assert key(Route(backend_of(*flags).rules()), symbol="BTC/USD") == "binance|BTC%2FUSD|trade"


@pytest.mark.parametrize(
    "flags",
    [
        ("--kafka-key-template={{symbol}}",),
        ("--kinesis-partition-key-template={{symbol}}",),
        ("--sqs-message-group-template={{symbol}}", f"--sqs-queue-url={QUEUE}q.fifo"),
    ],
)
def test_a_key_template_replaces_the_default_key(flags):
    assert key(route_of(*flags)) == "BTCUSDT"


@pytest.mark.parametrize("flags", [NATS, REDIS], ids=["nats", "redis"])
def test_order_is_kept_by_the_destination_where_there_is_no_key(flags):
    group = flags[0][2:].partition("-")[0]
    name = {"nats": "subject", "redis": "stream"}[group]
    route = route_of(f"--{group}-{name}=b.{{{{symbol}}}}")
    assert (destination(route), key(route)) == ("b.BTCUSDT", "b.BTCUSDT")


def test_records_of_one_destination_and_key_are_one_order():
    route = route_of("--kafka-key-template={{symbol}}")
    assert route.address(event()).order == ("bronze", "BTCUSDT")


# Headers


def headers(*flags, **facts):
    found = route_of(*flags).headers(event(**facts))
    assert len(dict(found)) == len(found)
    return dict(found)


def test_a_kafka_record_has_its_case_type_and_id():
    assert headers(*KAFKA, payload_case="bookChange", data_type="book_change", id="s:1.2") == {
        "payloadCase": "bookChange",
        "dataType": "book_change",
        "eventId": "s:1.2",
    }


def test_a_nats_message_has_its_case_type_and_id():
    assert headers(*NATS, id="s:1") == {"payloadCase": "trade", "dataType": "trade", "Nats-Msg-Id": "s:1"}


def test_a_redis_entry_has_its_case_type_id_and_meta():
    assert headers(*REDIS, meta={"data_type": "trade", "session_id": "x"}) == {
        "payloadCase": "trade",
        "dataType": "trade",
        "eventId": "stream:7",
        "meta.data_type": "trade",
        "meta.session_id": "x",
    }


def test_a_kinesis_record_has_only_static_entries():
    assert headers(*KINESIS) == {}
    assert headers("--kinesis-static-headers=env:prod,team:md") == {"env": "prod", "team": "md"}


def test_an_sqs_message_has_its_case_and_type():
    assert headers(*SQS) == {"payloadCase": "trade", "dataType": "trade"}


def test_an_sqs_message_has_static_and_templated_attributes():
    assert headers(
        "--sqs-static-attributes=env:prod", "--sqs-message-attributes=ex:{{exchange}}:{{symbol}}"
    ) == {
        "payloadCase": "trade",
        "dataType": "trade",
        "env": "prod",
        "ex": "binance:BTCUSDT",
    }


def test_an_sqs_attribute_that_is_empty_is_left_out():
    attributes = headers("--sqs-message-attributes=id:{{meta.event_id}},none:{{meta.nothing}}", data_type="")
    assert attributes == {"payloadCase": "trade", "id": "stream:7"}


def test_values_of_attributes_are_not_escaped():
    assert headers("--sqs-message-attributes=s:{{symbol}}", symbol="a b/é%")["s"] == "a b/é%"


@pytest.mark.parametrize("group", ["kafka", "nats", "redis"])
def test_static_headers_are_added(group):
    assert headers(f"--{group}-static-headers=env:prod,x-y:1")["env"] == "prod"


@pytest.mark.parametrize("group", ["kafka", "nats"])
def test_meta_headers_are_added_under_their_prefix(group):
    found = headers(f"--{group}-meta-headers-prefix=m-", meta={"a": "1", "b_c": ""})
    assert {name: value for name, value in found.items() if name.startswith("m-")} == {
        "m-a": "1",
        "m-b_c": "",
    }


@pytest.mark.parametrize("group", ["kafka", "nats"])
def test_without_a_prefix_meta_makes_no_headers(group):
    assert "request_id" not in str(headers(f"--{group}-max-batch-size=1"))


def test_an_empty_prefix_turns_the_meta_fields_of_redis_off():
    assert headers("--redis-meta-headers-prefix=") == {
        "payloadCase": "trade",
        "dataType": "trade",
        "eventId": "stream:7",
    }


# Remembering what was rendered


@pytest.mark.parametrize(
    ("placeholder", "fact"),
    [
        ("exchange", "exchange"),
        ("symbol", "symbol"),
        ("dataType", "data_type"),
        ("source", "source"),
    ],
)
def test_events_that_differ_in_a_named_fact_are_told_apart(placeholder, fact):
    route = route_of(f"--nats-subject=b.{{{{{placeholder}}}}}")
    assert [destination(route, **{fact: value}) for value in ("one", "two", "one")] == [
        "b.one",
        "b.two",
        "b.one",
    ]


def test_events_that_differ_in_origin_are_told_apart():
    route = route_of("--nats-subject=b.{{origin}}")
    assert [destination(route, origin=origin) for origin in ("realtime", "archive")] == [
        "b.realtime",
        "b.archive",
    ]


def test_events_that_differ_in_payload_case_are_told_apart():
    route = route_of("--nats-subject=b.{{payloadCase}}")
    assert [destination(route, payload_case=case) for case in ("trade", "quote")] == ["b.trade", "b.quote"]


def test_events_that_differ_in_meta_are_told_apart():
    route = route_of("--nats-subject=b.{{meta.a}}")
    assert [destination(route, meta={"a": value}) for value in ("1", "2")] == ["b.1", "b.2"]


def test_events_that_differ_in_their_id_are_told_apart():
    route = route_of("--kafka-key-template={{meta.event_id}}")
    assert [key(route, id=f"s:{position}") for position in (1, 2)] == ["s%3A1", "s%3A2"]


def test_a_fact_that_only_the_key_names_is_told_apart():
    route = route_of("--kafka-topic=t", "--kafka-key-template={{source}}")
    assert [key(route, source=source) for source in ("a", "b")] == ["a", "b"]


def test_headers_follow_the_data_type_though_no_template_names_it():
    route = route_of("--kafka-topic=t")
    kinds = [dict(route.headers(event(data_type=kind)))["dataType"] for kind in ("one", "two")]
    assert kinds == ["one", "two"]


def test_an_address_that_is_known_is_not_made_again():
    route = Route(backend_of(*KAFKA).rules())
    assert route.address(event()) is route.address(event(id="stream:8"))


def test_no_more_addresses_are_remembered_than_the_limit(monkeypatch):
    monkeypatch.setattr(routes, "CACHE_BYTES", 3 * 1250)
    route = route_of("--nats-subject=b.{{symbol}}")
    first = route.address(event(symbol="a"))
    for symbol in ("b", "c", "d"):
        assert destination(route, symbol=symbol) == f"b.{symbol}"
    # The fourth address made the route forget the first.
    again = route.address(event(symbol="a"))
    assert again is not first
    assert again.destination == first.destination


def test_long_values_are_not_remembered():
    route = route_of("--nats-subject=b.{{symbol}}")
    assert route.address(event(symbol="y" * 2000)) is not route.address(event(symbol="y" * 2000))


def test_what_is_remembered_stays_right_while_it_is_forgotten_all_the_time(monkeypatch):
    monkeypatch.setattr(routes, "CACHE_BYTES", 2 * 1250)
    route = route_of("--nats-subject={{source}}.{{dataType}}.{{origin}}.{{symbol}}")
    for number in range(50):
        facts = {"source": f"s{number % 3}", "data_type": f"d{number % 5}", "symbol": f"y{number % 7}"}
        expected = f"s{number % 3}.d{number % 5}.replay.y{number % 7}"
        assert destination(route, **facts) == expected


# What back ends never see


def test_awkward_symbols_never_give_two_instruments_one_topic():
    route = route_of("--kafka-topic=b.{{exchange}}.{{symbol}}")
    pairs = [("a", "b.c"), ("a.b", "c"), ("a", "b_2Ec"), ("a_2Eb", "c"), ("a", "b/c"), ("", "a"), ("a", "")]
    assert len({destination(route, exchange=exchange, symbol=symbol) for exchange, symbol in pairs}) == 7


def test_a_symbol_of_300_characters_fits():
    route = route_of("--kafka-topic=b.{{exchange}}.{{symbol}}.{{payloadCase}}")
    assert len(destination(route, exchange="x" * 300, symbol="y" * 300)) <= 249


TRACE = {"traceparent": "00-aa-bb-01", "tracestate": "a=b"}


def traced_headers(backend: Any, meta: Mapping[str, str], *, are_traced: bool = True) -> list[str]:
    """Return the names of the trace headers that an event with such meta gets."""
    (address,) = Route(backend.rules()).addresses([[event(meta=meta)]], are_traced=are_traced)
    assert address is not None
    return [name for name, _ in address.headers if name in TRACE]


def test_a_trace_goes_into_the_address_of_events_that_have_one():
    nats = backend_of(*NATS)
    assert traced_headers(nats, TRACE) == ["traceparent", "tracestate"]
    assert traced_headers(nats, {"traceparent": "x", "tracestate": ""}) == ["traceparent"]
    assert traced_headers(nats, {}) == []
    assert traced_headers(nats, TRACE, are_traced=False) == []


def test_a_trace_is_left_out_where_there_is_no_room_for_it():
    def sqs(attributes: int) -> Any:
        static = ",".join(f"a{number}:x" for number in range(attributes))
        return backend_of(*SQS, f"--sqs-static-attributes={static}")

    # Two of the ten attributes of a message are the sidecar's own.
    assert traced_headers(sqs(6), TRACE) == ["traceparent", "tracestate"]
    assert traced_headers(sqs(7), TRACE) == ["traceparent"]
    assert traced_headers(sqs(8), TRACE) == []


def test_an_operators_own_header_beats_the_trace():
    assert traced_headers(backend_of(*NATS, "--nats-static-headers=tracestate:mine"), TRACE) == [
        "tracestate",
        "traceparent",
    ]


def test_where_meta_stands_for_headers_nothing_is_there_twice():
    assert traced_headers(backend_of(*KINESIS), TRACE) == []


def test_addresses_of_many_traces_do_not_fill_memory():
    route = Route(backend_of(*NATS).rules())
    for number in range(3000):
        meta = {"traceparent": str(number)}
        (address,) = route.addresses([[event(meta=meta)]], are_traced=True)
        assert address is not None
        assert address.headers[-1] == ("traceparent", str(number))
    assert len(route._traced) <= 1024
