"""What `check` shows: for every back end and payload case, what becomes of an event."""

from __future__ import annotations

import json

import pytest
from bronze_sidecar.cli import check
from bronze_sidecar.cli.main import main
from bronze_sidecar.configuration.config import load
from bronze_sidecar.envelope.event import Event
from configurations import KAFKA, KINESIS, MINIMAL, NATS, REDIS, SQS
from events import event

QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/bronze"
DATA_TYPES = {
    "trade": "trade",
    "bookChange": "book_change",
    "bookSnapshot": "book_snapshot",
    "groupedBookSnapshot": "book_snapshot",
    "quote": "quote",
    "derivativeTicker": "derivative_ticker",
    "liquidation": "liquidation",
    "optionSummary": "option_summary",
    "bookTicker": "book_ticker",
    "tradeBar": "trade_bar",
    "error": "error",
    "disconnect": "disconnect",
}
CASES = list(DATA_TYPES)


@pytest.fixture
def shown(capsys):
    """Run `check`; return what it prints."""

    def run(*flags: str) -> str:
        assert main(["check", *flags]) == 0
        return str(capsys.readouterr().out)

    return run


@pytest.fixture
def routes(shown):
    return lambda *flags: json.loads(shown("--json", *flags))["routes"]


# As JSON


@pytest.mark.parametrize("group", MINIMAL)
def test_every_payload_case_is_shown_for_every_back_end(group, routes):
    rows = routes(*MINIMAL[group])
    assert [row["payloadCase"] for row in rows] == CASES
    assert {row["backend"] for row in rows} == {group}
    assert {row["filtered"] for row in rows} == {False}


def test_several_back_ends_are_shown_one_after_the_other(routes):
    rows = routes(*SQS, *KAFKA, *NATS)
    assert [row["backend"] for row in rows] == ["kafka"] * 12 + ["nats"] * 12 + ["sqs"] * 12


def test_the_route_of_a_kafka_record_is_shown(routes):
    row = routes(*KAFKA, "--kafka-topic-routing=bookChange:b.{{symbol}}", "--kafka-static-headers=env:prod")[
        1
    ]
    assert row == {
        "backend": "kafka",
        "payloadCase": "bookChange",
        "eventId": "sample:1.0",
        "filtered": False,
        "destination": "b.BTC-PERPETUAL",
        "key": "deribit|BTC-PERPETUAL|bookChange",
        "headers": {
            "payloadCase": "bookChange",
            "dataType": "book_change",
            "env": "prod",
            "eventId": "sample:1.0",
        },
    }


def test_the_route_of_a_nats_message_is_shown(routes):
    row = routes(*NATS)[0]
    assert (row["destination"], row["key"]) == ("bronze", "bronze")
    assert row["headers"] == {"payloadCase": "trade", "dataType": "trade", "Nats-Msg-Id": "sample:0"}


def test_the_route_of_a_kinesis_record_is_shown(routes):
    row = routes(*KINESIS, "--kinesis-static-headers=env:prod")[0]
    assert (row["destination"], row["key"]) == ("bronze", "deribit|BTC-PERPETUAL|trade")
    assert row["meta"] == {"env": "prod"}


def test_the_route_of_a_redis_entry_is_shown(routes):
    row = routes(*REDIS)[0]
    assert (row["destination"], row["key"]) == ("bronze", "bronze")
    assert row["fields"] == {
        "payloadCase": "trade",
        "dataType": "trade",
        "eventId": "sample:0",
        "meta.data_type": "trade",
        "meta.request_id": "sample-request",
    }


def test_the_route_of_an_sqs_message_is_shown(routes):
    row = routes(*SQS, "--sqs-message-attributes=ex:{{exchange}},no:{{meta.no}}")[0]
    assert (row["destination"], row["key"]) == (QUEUE, "deribit|BTC-PERPETUAL|trade")
    assert row["attributes"] == {"payloadCase": "trade", "dataType": "trade", "ex": "deribit"}


def test_where_what_is_refused_for_good_goes_is_shown(routes, shown):
    flags = (*NATS, "--nats-dead-letter-subject=dead.{{payloadCase}}")
    assert [row["deadLetters"] for row in routes(*flags)][:2] == ["dead.trade", "dead.bookChange"]
    lines = shown(*flags).splitlines()
    assert lines[1].split() == ["payload", "case", "destination", "dead", "letters", "headers"]
    assert lines[3].split()[:3] == ["trade", "bronze", "dead.trade"]


@pytest.mark.parametrize("group", MINIMAL)
def test_a_filtered_case_is_shown_as_such(group, routes):
    rows = routes(*MINIMAL[group], f"--{group}-include-payloads=quote")
    assert [row["payloadCase"] for row in rows if not row["filtered"]] == ["quote"]
    assert rows[0] == {"backend": group, "payloadCase": "trade", "eventId": "sample:0", "filtered": True}


def test_without_a_back_end_there_are_no_routes(routes):
    assert routes() == []


def test_a_sample_has_the_data_type_of_its_case():
    assert {sample.payload_case: sample.data_type for sample in check.sample_events()} == DATA_TYPES


# As a table


@pytest.mark.parametrize(
    ("group", "columns"), [("kafka", "key headers"), ("redis", "fields"), ("sqs", "key attributes")]
)
def test_the_table_has_a_title_a_heading_and_a_row_for_each_case(group, columns, shown):
    lines = shown(*MINIMAL[group]).splitlines()
    assert lines[0].lower() == group
    assert lines[1].split() == ["payload", "case", "destination", *columns.split()]
    assert set(lines[2]) == {" ", "-"}
    assert [line.split()[0] for line in lines[3:15]] == CASES
    assert lines[15:] == ["", "The configuration is valid."]


def test_a_row_of_the_table_is_aligned(shown):
    row = shown(*KAFKA, "--kafka-include-payloads=trade").splitlines()[3]
    assert row == (
        "  trade                bronze       deribit|BTC-PERPETUAL|trade"
        "  payloadCase=trade dataType=trade eventId=sample:0"
    )


def test_a_filtered_row_says_so(shown):
    assert "  quote                (filtered)\n" in shown(*KAFKA, "--kafka-include-payloads=trade")


def test_the_table_has_a_part_for_each_back_end(shown):
    lines = shown(*KAFKA, *NATS, *REDIS, *SQS, *KINESIS).splitlines()
    assert [line for line in lines if line and line[0] != " "] == [
        "Kafka",
        "NATS",
        "Kinesis",
        "Redis",
        "SQS",
        "The configuration is valid.",
    ]


def test_without_a_back_end_publishing_is_off(shown):
    assert shown() == "The configuration is valid. No back end is configured: publishing is off.\n"


def test_the_table_shows_no_control_characters():
    config = load(REDIS, {})
    rows = check.report(config, [event(meta={"name": "a\nb\x1b[31m"})])
    table = check.as_table(config, rows)
    assert "meta.name=a\ufffdb\ufffd[31m" in table


def test_the_report_takes_any_event():
    rows = check.report(load(NATS, {}), [event(symbol="a b", id="s:1")])
    assert [(row["eventId"], row["destination"]) for row in rows] == [("s:1", "bronze")]


def test_the_sample_events_are_of_the_type_that_routes_take():
    assert all(isinstance(sample, Event) for sample in check.sample_events())
