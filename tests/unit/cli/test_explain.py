"""What `explain` says of each message: where it goes and by which option, or why it does not."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from bronze_sidecar.cli.main import main
from configurations import KAFKA, KINESIS, NATS, REDIS, SQS

TIMES = '"timestamp":"2026-01-02T03:04:05.000Z","localTimestamp":"2026-01-02T03:04:05.001Z"'
TRADE = (
    '{"type":"trade","symbol":"BTC/USDT","exchange":"binance","id":"1","price":1.5,"amount":2,"side":"buy",'
    f"{TIMES}}}"
)
BOOK_CHANGE = (
    '{"type":"book_change","symbol":"X","exchange":"okex","isSnapshot":false,"bids":[{"price":1,"amount":2}],'
    f'"asks":[{{"price":3,"amount":0}}],{TIMES}}}'
)
QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/bronze"
DEFAULT_KEY = "{{exchange}}|{{symbol}}|{{payloadCase}}"
OWN = "the sidecar itself"


@pytest.fixture
def explain(tmp_path, capsys):
    """Explain lines; return the exit status and what is printed."""
    path = tmp_path / "events.json"

    def run(lines: list[str], *flags: str) -> tuple[int, str]:
        path.write_text("\n".join(lines))
        status = main(["explain", str(path), *flags])
        output = capsys.readouterr()
        return status, str(output.out or output.err).replace(f"{tmp_path}/", "")

    return run


@pytest.fixture
def explained(explain):
    def run(lines: list[str], *flags: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in explain(lines, "--json", *flags)[1].splitlines()]

    return run


def on(backend: str, found: dict[str, Any]) -> Any:
    return found["backends"][backend]


def test_a_routing_entry_beats_the_template_which_beats_the_base(explained):
    flags = ["--kafka-topic-routing=trade:t.{{exchange}}", "--kafka-topic-template=x.{{exchange}}"]
    trade, level = explained([TRADE, BOOK_CHANGE], *KAFKA, *flags)
    assert on("kafka", trade)["destination"] == {
        "value": "t.binance",
        "by": "--kafka-topic-routing, trade:t.{{exchange}}",
    }
    assert on("kafka", level)["destination"] == {
        "value": "x.okex",
        "by": "--kafka-topic-template=x.{{exchange}}",
    }
    (base,) = explained([TRADE], *KAFKA)
    assert on("kafka", base)["destination"] == {"value": "bronze", "by": "--kafka-topic=bronze"}


def test_keys_are_explained(explained):
    (found,) = explained([TRADE], *KAFKA, *NATS, *SQS, "--kafka-key-template={{symbol}}", *KINESIS)
    assert {name: row["key"] for name, row in found["backends"].items()} == {
        "kafka": {"value": "BTC%2FUSDT", "by": "--kafka-key-template={{symbol}}"},
        "nats": {"value": "bronze", "by": "the destination itself"},
        "kinesis": {
            "value": "binance|BTC%2FUSDT|trade",
            "by": f"the default of --kinesis-partition-key-template={DEFAULT_KEY}",
        },
        "sqs": {"value": "binance|BTC%2FUSDT|trade", "by": f"the default, {DEFAULT_KEY}"},
    }


def test_every_header_is_explained(explained):
    flags = ["--kafka-static-headers=team:md", "--kafka-meta-headers-prefix=m-", "--meta=tenant:a:b"]
    attributes = ["--sqs-message-attributes=sym:{{symbol}}", "--sqs-static-attributes=team:md"]
    (found,) = explained([TRADE], *KAFKA, *flags, *SQS, *attributes)
    assert [[*each.values()] for each in on("kafka", found)["headers"]] == [
        ["payloadCase", "trade", OWN],
        ["dataType", "trade", OWN],
        ["team", "md", "--kafka-static-headers"],
        ["m-data_type", "trade", "--kafka-meta-headers-prefix=m-"],
        ["m-tenant", "a:b", "--kafka-meta-headers-prefix=m-"],
        ["eventId", "explain:0", OWN],
    ]
    assert [[*each.values()] for each in on("sqs", found)["attributes"]] == [
        ["payloadCase", "trade", OWN],
        ["dataType", "trade", OWN],
        ["team", "md", "--sqs-static-attributes"],
        ["sym", "BTC/USDT", "--sqs-message-attributes, sym:{{symbol}}"],
    ]


def test_the_stream_is_as_the_flags_say(explained):
    flags = ["--nats-subject-template={{origin}}.{{source}}.{{meta.tenant}}", "--meta=tenant:a"]
    (found,) = explained([TRADE], *NATS, *flags, "--origin=archive", "--source=loader/1")
    assert on("nats", found)["destination"]["value"] == "archive.loader%2F1.a"


def test_the_option_that_filters_is_named(explained):
    (found,) = explained([TRADE], *KAFKA, "--kafka-include-payloads=quote", *REDIS)
    assert on("kafka", found) == {"filtered": True, "by": "--kafka-include-payloads"}
    assert on("redis", found)["filtered"] is False


def test_events_that_go_the_same_way_are_explained_once(explained):
    (found,) = explained([BOOK_CHANGE], *NATS)
    assert (found["events"], found["eventId"]) == (2, "explain:0.0")


def test_events_of_a_message_that_part_are_explained_one_by_one(explained):
    found = explained([BOOK_CHANGE], "--nats-servers=a:1", "--nats-subject=b.{{meta.event_id}}")
    assert [(each["events"], on("nats", each)["destination"]["value"]) for each in found] == [
        (1, "b.explain%3A0%2E0"),
        (1, "b.explain%3A0%2E1"),
    ]


def test_it_goes_on_after_what_is_rejected(explain):
    status, text = explain([TRADE, "", '{"type":"trade"}', "\x1b[2J", TRADE], *NATS)
    assert status == 1
    places = [line for line in text.splitlines() if line.startswith("events.json")]
    assert places == [
        "events.json:1: trade binance BTC/USDT",
        "events.json:3: rejected: trade: field 'exchange': is missing or empty",
        "events.json:4: rejected: the message is not valid JSON: invalid character (byte 0)",
        "events.json:5: trade binance BTC/USDT",
    ]


def test_rejected_messages_are_json_too(explained):
    assert explained(["{}"], *NATS) == [
        {"line": 1, "rejected": "field 'type': is missing or empty"},
    ]


def test_the_limit_of_the_sidecar_holds(explained):
    (found,) = explained([TRADE.replace("BTC", "B" * 1024)], *NATS, "--max-event-bytes=1024")
    assert "--max-event-bytes allows 1024" in found["rejected"]


def test_the_text_has_a_line_for_each_reason(explain):
    flags = ["--kafka-include-payloads=bookChange", "--nats-dead-letter-subject=dead"]
    status, text = explain([TRADE], *KAFKA, *NATS, *flags)
    assert status == 0
    assert text.splitlines() == [
        "events.json:1: trade binance BTC/USDT",
        "  kafka: filtered by --kafka-include-payloads",
        "  nats",
        "    destination  bronze                 by --nats-subject=bronze",
        "    key          bronze                 by the destination itself",
        "    dead letters dead                   by --nats-dead-letter-subject=dead",
        "    header       payloadCase=trade      by the sidecar itself",
        "    header       dataType=trade         by the sidecar itself",
        "    header       Nats-Msg-Id=explain:0  by the sidecar itself",
    ]


def test_options_may_come_from_variables_and_a_file(explained, tmp_path, monkeypatch):
    config = tmp_path / "sidecar.yaml"
    config.write_text("nats:\n  servers: a:1\n  subject: from.file\n")
    monkeypatch.setenv("SIDECAR_KAFKA_BROKERS", "a:1")
    monkeypatch.setenv("SIDECAR_KAFKA_TOPIC", "from.variable")
    (found,) = explained([TRADE], f"--config={config}")
    destinations = {name: row["destination"]["value"] for name, row in found["backends"].items()}
    assert destinations == {"kafka": "from.variable", "nats": "from.file"}


def test_without_a_back_end_messages_are_still_checked(explain):
    status, text = explain([TRADE, "{}"])
    assert status == 1
    assert text.splitlines() == [
        "No back end is configured: publishing is off.",
        "events.json:1: trade binance BTC/USDT",
        "events.json:2: rejected: field 'type': is missing or empty",
    ]


@pytest.mark.parametrize("lines", [[], [" ", ""]])
def test_a_file_without_messages_is_a_failure(lines, explain):
    assert explain(lines, *NATS) == (1, "bronze-sidecar: 'events.json' contains no messages.\n")


def test_messages_may_come_compressed(tmp_path, capsys):
    path = tmp_path / "events.gz"
    path.write_bytes(gzip.compress(TRADE.encode()))
    assert main(["explain", str(path), *NATS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["line"] == 1


def test_what_cannot_be_read_to_its_end_is_explained_up_to_there(tmp_path, capsys):
    path = tmp_path / "events.gz"
    path.write_bytes(gzip.compress(f"{TRADE}\n{TRADE}\n".encode())[:-9])
    assert main(["explain", str(path), *NATS, "--json"]) == 1
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[0])["line"] == 1
    assert "the gzip data is cut off" in output.err


def test_a_trace_of_the_stream_is_explained(explain):
    _, text = explain([TRADE], *NATS, "--meta", "traceparent:00-a-b-01")
    assert "header       traceparent=00-a-b-01  by the stream's trace context (--meta)" in " ".join(
        part for part in text.splitlines() if "traceparent" in part
    )
