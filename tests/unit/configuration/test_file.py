"""What is wrong with the YAML file, with the line that it is wrong in."""

from __future__ import annotations

import pytest
from bronze_sidecar.configuration import file as config_file
from bronze_sidecar.configuration.config import Config
from configurations import ConfigFile, problems_of

GROUPS = "kafka, nats, kinesis, redis, sqs"


@pytest.fixture
def file(tmp_path):
    return ConfigFile(tmp_path)


def test_a_wrong_value_is_reported_with_its_line_and_key(file):
    assert file.problems("# options\nlog_level: loud\n\nkafka:\n  brokers: a:1\n  topic: a b\n") == [
        (
            "sidecar.yaml:2: log_level: 'loud' is not one of the choices."
            " Choose from debug, info, warning, error."
        ),
        (
            "sidecar.yaml:6: kafka.topic: 'a b' is not a valid Kafka topic: it contains ' ';"
            " only letters, digits, '.', '_' and '-' are allowed."
        ),
    ]


def test_an_unknown_key_is_reported_with_the_nearest(file):
    assert file.problems("log_levle: info\nkafka:\n  brokrs: a:1\n") == [
        "sidecar.yaml:1: log_levle: no such option. Did you mean 'log_level'?",
        "sidecar.yaml:3: kafka.brokrs: no such option. Did you mean 'brokers'?",
    ]


def test_an_unknown_back_end_is_reported_with_the_nearest(file):
    assert file.problems("kafak: {}") == ["sidecar.yaml:1: kafak: no such option. Did you mean 'kafka'?"]


def test_a_key_near_to_none_lists_all(file):
    (problem,) = file.problems("zzz: 1")
    assert problem.startswith("sidecar.yaml:1: zzz: no such option. Choose from listen, admin_listen,")
    assert problem.endswith(f"{GROUPS}.")


def test_the_file_cannot_name_another_file(file):
    (problem,) = file.problems("config: other.yaml")
    assert problem.startswith("sidecar.yaml:1: config: no such option.")


def test_a_half_configured_back_end_is_reported_at_what_is_given(file):
    assert file.problems("nats:\n  subject: x") == [
        (
            "sidecar.yaml:2: nats.subject: NATS is half configured: its servers are missing."
            " Add --nats-servers (SIDECAR_NATS_SERVERS, or nats.servers in the file)."
        )
    ]


def test_a_key_given_twice_is_reported_with_both_lines(file):
    assert file.problems("log_level: info\nkafka: {}\n\nlog-level: debug\n") == [
        "sidecar.yaml:4: 'log-level' is given twice, first on line 1."
    ]


def test_a_key_given_twice_in_a_back_end_is_reported_with_both_lines(file):
    assert file.problems("kafka:\n  topic: a\n  brokers: b:1\n  topic: c\n") == [
        "sidecar.yaml:4: 'topic' is given twice, first on line 2."
    ]


def test_a_back_end_given_twice_is_reported_with_both_lines(file):
    assert file.problems("kafka: {brokers: 'b:1', topic: t}\nkafka: {topic: u}\n") == [
        "sidecar.yaml:2: 'kafka' is given twice, first on line 1."
    ]


def test_a_payload_case_given_twice_is_reported_with_both_lines(file):
    text = "kafka:\n  brokers: b:1\n  topic: t\n  topic_routing:\n    trade: a\n    trade: b\n"
    assert file.problems(text) == ["sidecar.yaml:6: 'trade' is given twice, first on line 5."]


def test_two_spellings_of_a_payload_case_are_one(file):
    text = "kafka:\n  brokers: b:1\n  topic: t\n  topic_routing:\n    book_change: a\n    bookChange: b\n"
    assert file.problems(text) == ["sidecar.yaml:4: kafka.topic_routing: 'bookChange' is given twice."]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "1:5: invalid YAML: expected the node content, but found '<stream end>'."),
        ("listen: [a:1\nlog_level: x", "2:10: invalid YAML: expected ',' or ']', but got ':'."),
        ("a: b: c", "1:5: invalid YAML: mapping values are not allowed here."),
        ("a:\n\tb: c", "2:1: invalid YAML: found character '\\t' that cannot start any token."),
        ("log_level: 'x", "1:14: invalid YAML: found unexpected end of stream."),
        ("a: 1\n---\nb: 2", "2:1: invalid YAML: but found another document."),
        ("- *nothing", "1:3: invalid YAML: found undefined alias …."),
        ("a: @x", "1:4: invalid YAML: found character '@' that cannot start any token."),
        ("a: b\n c\nd", "3:2: invalid YAML: could not find expected ':'."),
        ("a: x\x01y", "1:5: invalid YAML: the character U+0001 is not allowed."),
        ("a: 1\nb: \x7f", "2:4: invalid YAML: the character U+007F is not allowed."),
    ],
)
def test_invalid_yaml_is_reported_with_line_and_column(file, text, problem):
    assert file.problems(text) == [f"sidecar.yaml:{problem}"]


def test_a_file_that_is_not_utf8_is_reported_with_line_and_column(file):
    assert file.problems(b"log_level: info\na: \xff") == ["sidecar.yaml:2:4: invalid YAML: it is not UTF-8."]


def test_a_character_half_of_which_is_missing_is_not_utf8(file):
    assert file.problems(b"\xc3\xa9\nb: \xc3") == ["sidecar.yaml:2:4: invalid YAML: it is not UTF-8."]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_file_nested_too_deeply_is_refused(file, opening):
    (problem,) = file.problems(opening * 1000)
    assert problem == "sidecar.yaml: invalid YAML: it is nested too deeply."


def test_a_file_that_is_too_large_is_refused(file):
    assert file.problems("#" * (1 << 20)) == []
    assert file.problems("#" * ((1 << 20) + 1)) == ["sidecar.yaml: has more than 1048576 bytes."]


@pytest.mark.timeout(60)
def test_a_file_without_an_end_is_refused():
    assert problems_of("--config=/dev/zero") == ["/dev/zero: has more than 1048576 bytes."]


def test_a_file_that_fails_while_it_is_read_is_refused(file, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(config_file, "start_of", fail)
    assert file.problems("") == ["sidecar.yaml: cannot be read: Input/output error."]


@pytest.mark.parametrize("text", ["text", "- a\n- b", "5"])
def test_a_file_that_is_no_mapping_is_refused(file, text):
    assert file.problems(text) == ["sidecar.yaml:1: the file must be a mapping of options."]


@pytest.mark.parametrize("value", ["text", "[a, b]", "5", "''"])
def test_a_back_end_that_is_no_mapping_is_refused(file, value):
    assert file.problems(f"\nkafka: {value}") == ["sidecar.yaml:2: 'kafka' must be a mapping of options."]


def test_a_key_that_is_no_text_is_refused(file):
    assert file.problems("[a, b]: c\n? {x: y}\n: z\n") == [
        "sidecar.yaml:1: a key must be text.",
        "sidecar.yaml:2: a key must be text.",
    ]


def test_a_list_where_one_value_belongs_is_refused(file):
    assert file.problems("log_level: [info]") == ["sidecar.yaml:1: log_level: must be one value, not a list."]


def test_a_mapping_where_one_value_belongs_is_refused(file):
    assert file.problems("log_level: {info: x}") == [
        "sidecar.yaml:1: log_level: must be one value, not a mapping."
    ]


@pytest.mark.parametrize("key", ["listen", "kafka: {brokers: b:1, topic: t, include_payloads"])
def test_a_mapping_where_a_list_belongs_is_refused(file, key):
    (problem,) = file.problems(f"{key}: {{a: b}}{'}' if 'kafka' in key else ''}")
    assert problem.endswith(": must be a list, not a mapping.")


def test_a_list_inside_a_list_is_refused(file):
    assert file.problems("listen:\n  - [a:1]") == [
        "sidecar.yaml:1: listen: an entry must be one value, not a list or mapping."
    ]


def test_a_mapping_in_a_list_of_pairs_is_refused(file):
    text = "kafka:\n  brokers: b:1\n  topic: t\n  topic_routing:\n    - trade: x\n"
    assert file.problems(text) == [
        "sidecar.yaml:4: kafka.topic_routing: an entry must be one value, not a list or mapping."
    ]


@pytest.mark.parametrize("null", ["", "~", "null"])
def test_a_null_in_a_mapping_is_empty(file, null):
    text = f"kafka:\n  brokers: b:1\n  topic: t\n  static_headers:\n    env: {null}\n"
    assert file.problems(text) == ["sidecar.yaml:4: kafka.static_headers: header 'env' has an empty value."]


def test_a_tag_is_refused(file):
    assert file.problems("log_level: !env LEVEL") == [
        "sidecar.yaml:1: log_level: has a YAML tag; put a value that begins with '!' in quotes."
    ]


def test_a_value_that_begins_with_an_exclamation_mark_may_stand_in_quotes(file):
    backend = file.load("redis: {host: h, stream: s, password: '!p'}").backends[0]
    assert backend.password == "!p"  # noqa: S105 - of a test


def test_an_escaped_surrogate_is_not_utf8(file):
    assert file.problems('kafka: {brokers: "a:1", topic: t, client_id: "\\ud800"}') == [
        "sidecar.yaml:1: kafka.client_id: is not valid UTF-8."
    ]


def test_a_merge_key_is_refused(file):
    (problem, *_) = file.problems("kafka: &k {topic: t, brokers: 'b:1'}\n<<: *k\n")
    assert problem.startswith("sidecar.yaml:2: …: no such option.")


def test_a_mapping_that_holds_itself_is_refused(file):
    assert file.problems("&a\nkafka: *a\n") == [
        (
            "sidecar.yaml:2: kafka.kafka: no such option."
            " Choose from brokers, topic, topic_routing, topic_template, dead_letter_topic, key_template,"
            " static_headers, meta_headers_prefix, client_id, ssl, sasl_mechanism, sasl_username,"
            " sasl_password, sasl_password_file, oauth_token_url, oauth_client_id, oauth_client_secret,"
            " oauth_client_secret_file, oauth_scope, oauth_ca_file, aws_region, compression, acks,"
            " idempotent, schema_registry_url,"
            " schema_registry_ca_file, schema_registry_auth_username, schema_registry_auth_password,"
            " schema_registry_auth_password_file, max_batch_size, ssl_ca_file, ssl_cert_file, ssl_key_file,"
            " include_payloads, max_batch_delay_ms, when_full."
        )
    ]


def test_problems_of_flags_variables_and_file_come_together(file):
    found = file.problems("log_levle: x", "--x=1", environ={"SIDECAR_Y": "1"})
    assert [problem.partition(": ")[0] for problem in found] == ["--x", "SIDECAR_Y", "sidecar.yaml:1"]


def test_a_wrong_value_in_the_file_does_not_matter_if_a_flag_beats_it(file):
    assert file.load("log_level: loud", "--log-level=info") == Config(config=file.path)


# Keys that stand too far left


def test_an_option_that_is_not_indented_below_its_back_end_is_told_so(file):
    assert file.problems("nats:\nservers: a:1\nsubject: s\n") == [
        (
            "sidecar.yaml:2: servers: no such option."
            " If it belongs to 'nats:' above it, indent it by two spaces."
        ),
        (
            "sidecar.yaml:3: subject: no such option."
            " If it belongs to 'nats:' above it, indent it by two spaces."
        ),
    ]


def test_an_option_that_only_one_back_end_has_is_told_where_it_belongs(file):
    assert file.problems("brokers: a:1\n") == [
        "sidecar.yaml:1: brokers: no such option. Write it below 'kafka:', indented by two spaces."
    ]


def test_the_back_end_above_counts_not_one_below(file):
    (problem,) = file.problems("subject_x: s\nkafka:\n  brokers: a:1\n  topic: s\n")
    assert problem.startswith("sidecar.yaml:1: subject_x: no such option.")
    assert "indent" not in problem
