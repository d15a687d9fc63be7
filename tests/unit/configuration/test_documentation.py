"""The options as documentation: help, JSON Schema, the README's tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from bronze_sidecar.cli.main import main
from bronze_sidecar.configuration.config import OPTIONS
from bronze_sidecar.configuration.documentation import help_text, json_schema, option_tables
from configurations import ConfigFile

ROOT = Path(__file__).resolve().parents[3]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())

# Configurations that load; the schema must accept each of them.
ACCEPTED = [
    "{}",
    "log_level: info\ngrace_seconds: 2.5\nlisten: 127.0.0.1:1",
    "listen: [127.0.0.1:1, 'unix:///tmp/x']\nadmin_listen: localhost:9000",
    "kafka: {brokers: a:1, topic: t}",
    "kafka:\nnats:\n  servers: [a:1, tls://b:2]\n  subject: s\n  jetstream: false\n",
    "kafka: {brokers: [a:1], topic: 2024, acks: 1, compression: none, ssl: true, client_id: 7}",
    "kafka: {brokers: a:1, topic: t, acks: all, idempotent: true, max_batch_size: 1}",
    "kafka: {brokers: a:1, topic: t, topic_routing: {trade: a, book-change: 'b.{{symbol}}'}}",
    "kafka: {brokers: a:1, topic: t, topic_routing: 'trade:a', include_payloads: trade}",
    "kafka: {brokers: a:1, topic: t, topic_routing: ['trade:a'], include_payloads: [trade, book_change]}",
    "kafka: {brokers: a:1, topic: t, static_headers: {a: b, n: 1, f: 1.5, t: true}}",
    "kafka: {brokers: a:1, topic: t, sasl_mechanism: plain, sasl_username: u, sasl_password: 12345}",
    "kinesis: {stream: s, region: eu-west-1, access_key: a, secret_key: b, endpoint_url: 'http://h:1'}",
    "redis: {host: h, stream: s, port: 6380, db: 1, maxlen: 10, meta_headers_prefix: ''}",
    "redis: {url: 'redis://u:p@h/0', stream: s, tls: no}",
    "sqs: {queue_url: 'https://h/1/q.fifo', region: eu-west-1, message_group_template: '{{symbol}}'}",
    (
        "sqs: {queue_url: 'https://h/1/q', region: eu-west-1, static_attributes: {a: b},"
        " message_attributes: {s: '{{symbol}}'}}"
    ),
]


# JSON Schema


def test_the_schema_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_command_prints_the_schema(capsys):
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert printed == json_schema()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_the_schema_accepts_the_examples(example):
    VALIDATOR.validate(yaml.safe_load(example.read_text()))


@pytest.mark.parametrize("text", ACCEPTED)
def test_the_schema_accepts_what_loads(text, tmp_path):
    ConfigFile(tmp_path).load(text)
    VALIDATOR.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "log_levle: info",
        "kafak: {}",
        "kafka: {brokrs: a:1}",
        "config: other.yaml",
        "nats: {subject_file: x}",
        "log_level: loud",
        "grace_seconds: soon",
        "grace_seconds: -1",
        "max_queue_events: 0",
        "redis: {port: 65536}",
        "redis: {port: 1.5}",
        "kafka: {ssl: maybe}",
        "kafka: {acks: 2}",
        "kafka: {topic: [a]}",
        "kafka: {topic_routing: {trade: [a]}}",
        "kafka: {brokers: []}",
        "kafka: [a]",
        "[]",
    ],
)
def test_the_schema_and_the_program_refuse_the_same(text, tmp_path):
    assert ConfigFile(tmp_path).problems(text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_every_option_that_the_file_may_hold_is_described_in_the_schema():
    properties = json_schema()["properties"]
    for option in OPTIONS:
        place = properties[option.group]["properties"] if option.group else properties
        assert (option.name in place) is (option.flag != "--config")
        if option.in_file:
            assert place[option.name]["description"] == option.doc


def test_secrets_have_a_file_in_the_schema():
    kafka = json_schema()["properties"]["kafka"]["properties"]
    assert {name for name in kafka if name.endswith("password_file")} == {
        "sasl_password_file",
        "schema_registry_auth_password_file",
    }


def test_defaults_are_in_the_schema():
    schema = json_schema()["properties"]
    assert schema["listen"]["default"] == ["127.0.0.1:50051"]
    assert schema["grace_seconds"]["default"] == 25.0
    assert schema["nats"]["properties"]["jetstream"]["default"] is True
    assert (
        schema["kafka"]["properties"]["key_template"]["default"] == "{{exchange}}|{{symbol}}|{{payloadCase}}"
    )
    assert schema["redis"]["properties"]["meta_headers_prefix"]["default"] == "meta."


def test_defaults_in_the_schema_are_themselves_valid():
    def defaults(schema):
        return {name: entry["default"] for name, entry in schema["properties"].items() if "default" in entry}

    schema = json_schema()
    whole = defaults(schema) | {
        name: defaults(entry) for name, entry in schema["properties"].items() if "properties" in entry
    }
    VALIDATOR.validate(whole)


# Help


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_help_mentions_every_flag_and_variable(option):
    assert re.search(rf"^  {option.flag}( |$)", help_text(), re.MULTILINE)
    assert re.search(rf"\$SIDECAR_{option.flag[2:].replace('-', '_').upper()}\b", help_text())


def test_help_names_the_files_of_secrets():
    assert "$SIDECAR_NATS_PASS_FILE or --nats-pass-file" in " ".join(help_text().split())


def test_help_shows_defaults_and_what_is_required():
    text = " ".join(help_text().split())
    assert "[$SIDECAR_LISTEN; default 127.0.0.1:50051]" in text
    assert "[$SIDECAR_KAFKA_BROKERS; required]" in text
    assert "[$SIDECAR_NATS_JETSTREAM; default true]" in text


def test_a_switch_is_shown_without_a_value():
    assert "\n  --kafka-ssl\n" in help_text()


def test_help_fits_its_width():
    assert all(len(line) <= 100 for line in help_text(100).splitlines())


def test_help_tells_the_commands(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {command} " in text for command in ("check", "schema"))


# The tables


def test_every_row_of_the_tables_has_three_cells():
    rows = [line for line in option_tables().splitlines() if line.startswith("|")]
    assert len(rows) > 100
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)


def test_a_required_option_is_bold():
    assert "| **`--kafka-brokers`** |  | Brokers to contact first, as host:port. |" in option_tables()


def test_a_secret_is_marked():
    assert "| `--kafka-sasl-password` |  | Password for SASL. Secret. |" in option_tables()


def test_choices_are_listed():
    assert "One of `none`, `gzip`, `snappy`, `lz4`, `zstd`." in option_tables()


def test_a_bar_in_a_default_is_escaped():
    assert "`{{exchange}}\\|{{symbol}}\\|{{payloadCase}}`" in option_tables()
