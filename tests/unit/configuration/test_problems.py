"""What is refused: every problem with its place, its reason and a remedy, and all of them at once."""

from __future__ import annotations

import os

import pytest
from bronze_cli.problems import ConfigError, Problem
from bronze_sidecar.configuration.config import load
from configurations import KAFKA, KINESIS, NATS, REDIS, SQS, backend_of, problems_of, problems_with_minimum

QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/"
CASES = (
    "trade, bookChange, bookSnapshot, groupedBookSnapshot, quote, derivativeTicker, liquidation,"
    " optionSummary, bookTicker, tradeBar, error, disconnect"
)


# All at once


def test_all_problems_are_reported_together():
    assert problems_of(
        "--kafka-brokers=localhost:9092",
        "--kafka-topic=bronze",
        "--kafka-topic-routing=bookchnge:books,trade:trades",
        "--nats-subject=x",
        "--log-levl=info",
        environ={"SIDECAR_GRACE_SECONDS": "soon", "SIDECAR_KAFKA_TOPICS": "x"},
    ) == [
        "--log-levl: no such option. Did you mean --log-level?",
        "SIDECAR_KAFKA_TOPICS: no such option. Did you mean SIDECAR_KAFKA_TOPIC?",
        "SIDECAR_GRACE_SECONDS: 'soon' is not a valid number. It must be a number from 0 to 3600.",
        "--kafka-topic-routing: 'bookchnge' is not a payload case. Did you mean 'bookChange'?",
        (
            "--nats-subject: NATS is half configured: its servers are missing."
            " Add --nats-servers (SIDECAR_NATS_SERVERS, or nats.servers in the file)."
        ),
    ]


def test_every_wrong_entry_of_one_option_is_reported():
    assert problems_with_minimum("--kafka-include-payloads=trad,quot,trade,zzz") == [
        "--kafka-include-payloads: 'trad' is not a payload case. Did you mean 'trade'?",
        "--kafka-include-payloads: 'quot' is not a payload case. Did you mean 'quote'?",
        f"--kafka-include-payloads: 'zzz' is not a payload case. Choose from {CASES}.",
    ]


def test_the_error_counts_the_problems_and_gives_each_a_line():
    with pytest.raises(ConfigError) as caught:
        load(["--x", "--y=1"], {})
    assert str(caught.value) == (
        "2 problems in the configuration\n"
        "  --x: no such option. `bronze-sidecar help options` lists them all.\n"
        "  --y: no such option. `bronze-sidecar help options` lists them all."
    )


def test_one_problem_is_singular():
    with pytest.raises(ConfigError, match=r"^1 problem in the configuration\n"):
        load(["--x"], {})


def test_the_same_problem_is_reported_once():
    problem = Problem("--x", "is wrong.", "Put it right.")
    assert ConfigError([problem, problem]).problems == (problem,)


def test_a_problem_is_one_line_without_control_characters():
    assert str(Problem("a\nb", "c\x1b[31m", "d\u202e")) == "a\ufffdb: c\ufffd[31m d\ufffd"


# Names


def test_an_unknown_flag_is_named_with_the_nearest():
    assert problems_of("--kafka-broker=a:1") == [
        "--kafka-broker: no such option. Did you mean --kafka-brokers?"
    ]


def test_an_unknown_flag_takes_its_value_with_it():
    assert problems_of("--log-levl", "debug") == ["--log-levl: no such option. Did you mean --log-level?"]


def test_an_unknown_flag_leaves_the_next_flag_alone():
    assert problems_of("--log-levl", "--log-formt=x") == [
        "--log-levl: no such option. Did you mean --log-level?",
        "--log-formt: no such option. Did you mean --log-format?",
    ]


def test_an_argument_without_dashes_is_unexpected():
    assert problems_of("stray", "--log-level", "info", "other") == [
        "command line: unexpected argument after the command.",
        "command line: unexpected argument after --log-level.",
    ]


def test_a_single_dash_is_no_flag():
    assert problems_of("-log-level=info") == ["command line: unexpected argument after the command."]


@pytest.mark.parametrize("rest", [(), ("--log-format=json",), ("--log-format", "json")])
def test_a_flag_without_a_value_is_named(rest):
    assert problems_of("--kafka-topic", *rest, environ={"SIDECAR_KAFKA_BROKERS": "a:1"}) == [
        "--kafka-topic: needs a value. Write --kafka-topic=TEMPLATE."
    ]


def test_a_mistyped_flag_is_not_taken_for_a_value():
    assert problems_of("--log-level", "--log-fromat=json") == [
        "--log-level: needs a value. Write --log-level=debug|info|warning|error.",
        "--log-fromat: no such option. Did you mean --log-format?",
    ]


def test_a_flag_given_twice_is_refused():
    assert problems_of("--log-level=info", "--log-level=debug") == [
        "--log-level: is given twice. Give it once."
    ]


def test_a_secret_and_its_file_are_refused_together(tmp_path):
    (tmp_path / "secret").write_text("x")
    assert problems_of(*REDIS, "--redis-password=x", f"--redis-password-file={tmp_path}/secret") == [
        "--redis-password-file: is given twice; --redis-password also sets it. Give it once."
    ]


def test_an_unknown_variable_is_named_with_the_nearest():
    assert problems_of(environ={"SIDECAR_LOGLEVEL": "info"}) == [
        "SIDECAR_LOGLEVEL: no such option. Did you mean SIDECAR_LOG_LEVEL?"
    ]


def test_a_redis_port_that_kubernetes_set_is_explained():
    assert problems_of(*REDIS, environ={"SIDECAR_REDIS_PORT": "tcp://10.0.0.1:6379"}) == [
        (
            "SIDECAR_REDIS_PORT: 'tcp://10.0.0.1:6379' is not a valid number."
            " It must be a whole number from 1 to 65535."
            " Kubernetes sets variables like this one for a Service; set enableServiceLinks: false."
        )
    ]


# Half configured


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        (
            "--kafka-brokers=a:1",
            (
                "Kafka is half configured: its topic is missing."
                " Add --kafka-topic (SIDECAR_KAFKA_TOPIC, or kafka.topic in the file)."
            ),
        ),
        (
            "--kafka-topic=t",
            (
                "Kafka is half configured: its brokers are missing."
                " Add --kafka-brokers (SIDECAR_KAFKA_BROKERS, or kafka.brokers in the file)."
            ),
        ),
        (
            "--kafka-acks=all",
            (
                "Kafka is half configured: its brokers and topic are missing."
                " Add --kafka-brokers (SIDECAR_KAFKA_BROKERS, or kafka.brokers in the file),"
                " --kafka-topic (SIDECAR_KAFKA_TOPIC, or kafka.topic in the file)."
            ),
        ),
        (
            "--nats-servers=a:1",
            (
                "NATS is half configured: its subject is missing."
                " Add --nats-subject (SIDECAR_NATS_SUBJECT, or nats.subject in the file)."
            ),
        ),
        (
            "--kinesis-stream=s",
            (
                "Kinesis is half configured: its region is missing."
                " Add --kinesis-region (SIDECAR_KINESIS_REGION, or kinesis.region in the file)."
            ),
        ),
        (
            "--kinesis-region=eu-west-1",
            (
                "Kinesis is half configured: its stream is missing."
                " Add --kinesis-stream (SIDECAR_KINESIS_STREAM, or kinesis.stream in the file)."
            ),
        ),
        (
            "--redis-stream=s",
            (
                "Redis is half configured: its host is missing."
                " Add --redis-host (SIDECAR_REDIS_HOST, or redis.host in the file) or --redis-url"
                " or --redis-sentinels."
            ),
        ),
        (
            "--redis-host=h",
            (
                "Redis is half configured: its stream is missing."
                " Add --redis-stream (SIDECAR_REDIS_STREAM, or redis.stream in the file)."
            ),
        ),
        (
            "--redis-url=redis://h",
            (
                "Redis is half configured: its stream is missing."
                " Add --redis-stream (SIDECAR_REDIS_STREAM, or redis.stream in the file)."
            ),
        ),
        (
            f"--sqs-queue-url={QUEUE}q",
            (
                "SQS is half configured: its region is missing."
                " Add --sqs-region (SIDECAR_SQS_REGION, or sqs.region in the file)."
            ),
        ),
        (
            "--sqs-region=eu-west-1",
            (
                "SQS is half configured: its queue url is missing."
                " Add --sqs-queue-url (SIDECAR_SQS_QUEUE_URL, or sqs.queue_url in the file)."
            ),
        ),
    ],
)
def test_a_half_configured_back_end_names_what_is_missing(flag, problem):
    assert problems_of(flag) == [f"{flag.partition('=')[0]}: {problem}"]


def test_what_is_given_in_a_wrong_way_is_not_called_missing():
    assert problems_of("--redis-stream=s", "--redis-url-file=/nowhere") == [
        "--redis-url-file: the file does not exist. Give the path of a file that holds the secret."
    ]


# Templates


@pytest.mark.parametrize(
    "flag",
    [
        "--kafka-topic",
        "--kafka-topic-template",
        "--kafka-key-template",
        "--nats-subject",
        "--nats-subject-template",
        "--kinesis-stream",
        "--kinesis-partition-key-template",
        "--redis-stream",
        "--redis-stream-template",
        "--sqs-queue-url",
        "--sqs-message-group-template",
    ],
)
def test_an_unknown_placeholder_lists_what_exists(flag):
    assert problems_with_minimum(f"{flag}={QUEUE}{{{{symbl}}}}") == [
        (
            f"{flag}: no placeholder 'symbl'. Did you mean '{{{{symbol}}}}'?"
            " The placeholders are exchange, symbol, payloadCase, dataType, source, origin, meta.<key>."
        )
    ]


@pytest.mark.parametrize(
    "name",
    ["", "zzz", "Exchange", "meta", "meta.", "meta.a-b", "meta.a.b", "meta.é", "exchange symbol", "a}b"],
)
def test_these_are_no_placeholders(name):
    (problem,) = problems_with_minimum(f"--kafka-topic={{{{{name}}}}}")
    assert problem.startswith(f"--kafka-topic: no placeholder '{name}'.")


def test_every_unknown_placeholder_is_reported():
    found = problems_with_minimum("--kafka-topic={{a1}}.{{b2}}.{{symbol}}")
    assert [problem.partition("'.")[0] for problem in found] == [
        "--kafka-topic: no placeholder 'a1",
        "--kafka-topic: no placeholder 'b2",
    ]


@pytest.mark.parametrize(
    "text",
    ["{{exchange", "exchange}}", "{exchange}", "a{b", "a}b", "{{{symbol}}}", "{{a{{symbol}}", "{{symbol}}}"],
)
def test_unbalanced_braces_are_refused(text):
    assert problems_with_minimum(f"--kafka-topic={text}") == [
        f"--kafka-topic: unbalanced braces in '{text}'. Write a placeholder as {{{{name}}}}."
    ]


@pytest.mark.parametrize("text", ["", " ", "\t"])
def test_an_empty_template_is_refused(text):
    assert problems_with_minimum(f"--kafka-topic={text}") == [
        "--kafka-topic: the template is empty. Give a Kafka topic."
    ]


def test_a_bad_template_in_routing_names_its_case():
    assert problems_with_minimum("--kafka-topic-routing=trade:a b,quote:") == [
        (
            "--kafka-topic-routing: for 'trade', 'a b' is not a valid Kafka topic: it contains ' ';"
            " only letters, digits, '.', '_' and '-' are allowed."
        ),
        "--kafka-topic-routing: for 'quote', the template is empty. Give a Kafka topic.",
    ]


@pytest.mark.parametrize(
    "template", ["{{exchange}}{{symbol}}", "{{exchange}}-{{symbol}}", "{{exchange}}_x_{{symbol}}"]
)
def test_an_ambiguous_topic_is_refused_with_a_separator_to_use(template):
    assert problems_with_minimum(f"--kafka-topic=b.{template}") == [
        (
            f"--kafka-topic: 'b.{template}' is ambiguous: different values of {{{{exchange}}}} and"
            " {{symbol}} can give the same Kafka topic. Separate them with '.'."
        )
    ]


def test_an_ambiguous_queue_can_be_separated_by_a_dash():
    (problem,) = problems_with_minimum(f"--sqs-queue-url={QUEUE}{{{{exchange}}}}_{{{{symbol}}}}")
    assert problem.endswith("can give the same SQS queue URL. Separate them with '-'.")


def test_a_template_without_room_for_values_is_refused():
    (problem,) = problems_with_minimum(f"--kafka-topic={'x' * 220}{{{{symbol}}}}")
    assert problem.endswith(
        "leaves 29 characters for each value; a Kafka topic has at most 249, and a value needs 34."
        " Shorten the text or use fewer placeholders."
    )


def test_a_placeholder_outside_the_name_of_a_queue_is_refused():
    assert problems_with_minimum("--sqs-queue-url=https://{{exchange}}/1/q") == [
        (
            "--sqs-queue-url: 'https://{{exchange}}/1/q':"
            " a placeholder may only appear in the last part, the name."
        )
    ]


def test_a_template_that_can_give_a_topic_of_kafka_is_refused():
    (problem,) = problems_with_minimum("--kafka-topic={{symbol}}consumer_offsets")
    assert problem == (
        "--kafka-topic: '{{symbol}}consumer_offsets' can give an illegal or ambiguous Kafka topic:"
        " symbol '' gives '__consumer_offsets': this topic belongs to Kafka itself."
    )


# Destinations


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("a/b", "it contains '/'; only letters, digits, '.', '_' and '-' are allowed"),
        ("a b", "it contains ' '; only letters, digits, '.', '_' and '-' are allowed"),
        ("größe", "it contains 'ö'; only letters, digits, '.', '_' and '-' are allowed"),
        (
            "a\x01",
            "it contains the control character U+0001; only letters, digits, '.', '_' and '-' are allowed",
        ),
        (".", "Kafka does not allow this name"),
        ("..", "Kafka does not allow this name"),
        ("__consumer_offsets", "this topic belongs to Kafka itself"),
    ],
)
def test_an_illegal_kafka_topic_is_refused(topic, reason):
    shown = topic.replace("\x01", "\ufffd")
    assert problems_with_minimum(f"--kafka-topic={topic}") == [
        f"--kafka-topic: '{shown}' is not a valid Kafka topic: {reason}."
    ]


def test_a_kafka_topic_has_at_most_249_characters():
    assert problems_with_minimum(f"--kafka-topic={'x' * 249}") == []
    assert problems_with_minimum(f"--kafka-topic={'x' * 250}") == [
        f"--kafka-topic: '{'x' * 57}…' is not a valid Kafka topic: it has more than 249 characters."
    ]


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("a.*", "it contains a wildcard, '*' or '>', and nothing can be published to a wildcard"),
        ("a.>", "it contains a wildcard, '*' or '>', and nothing can be published to a wildcard"),
        ("a..b", "it has an empty token: a '.' at the start or end, or two in a row"),
        (".a", "it has an empty token: a '.' at the start or end, or two in a row"),
        ("a.", "it has an empty token: a '.' at the start or end, or two in a row"),
        ("a b", "it contains a space"),
        ("a\u00a0b", "it contains a space"),
        ("a\tb", "it contains the control character U+0009"),
        ("$SYS.x", "subjects that begin with '$' belong to NATS itself"),
    ],
)
def test_an_illegal_nats_subject_is_refused(subject, reason):
    (problem,) = problems_with_minimum(f"--nats-subject={subject}")
    assert problem.endswith(f"is not a valid NATS subject: {reason}.")


def test_a_nats_subject_has_at_most_255_characters():
    assert problems_with_minimum(f"--nats-subject={'x' * 255}") == []
    (problem,) = problems_with_minimum(f"--nats-subject={'x' * 256}")
    assert problem.endswith("is not a valid NATS subject: it has more than 255 characters.")


@pytest.mark.parametrize("character", [" ", ".", "*", ">", "/", "\\"])
def test_an_illegal_jetstream_stream_is_refused(character):
    assert problems_with_minimum(f"--nats-stream=a{character}b") == [
        f"--nats-stream: is not a stream name: it contains '{character}'."
    ]


@pytest.mark.parametrize("character", ["/", " ", ":", "é", "|"])
def test_an_illegal_kinesis_stream_is_refused(character):
    assert problems_with_minimum(f"--kinesis-stream=a{character}") == [
        (
            f"--kinesis-stream: 'a{character}' is not a valid Kinesis stream name: it contains '{character}';"
            " only letters, digits, '_', '.' and '-' are allowed."
        )
    ]


def test_a_kinesis_stream_has_at_most_128_characters():
    assert problems_with_minimum(f"--kinesis-stream={'x' * 128}") == []
    (problem,) = problems_with_minimum(f"--kinesis-stream={'x' * 129}")
    assert problem.endswith("is not a valid Kinesis stream name: it has more than 128 characters.")


@pytest.mark.parametrize(
    ("flag", "noun", "limit"),
    [
        ("--kafka-key-template", "Kafka record key", 1024),
        ("--kinesis-partition-key-template", "Kinesis partition key", 256),
        ("--redis-stream", "Redis stream key", 1024),
    ],
)
def test_a_key_has_a_limit_and_no_control_characters(flag, noun, limit):
    assert problems_with_minimum(f"{flag}={'x' * limit}") == []
    assert problems_with_minimum(f"{flag}={'x' * (limit + 1)}") == [
        f"{flag}: '{'x' * 57}…' is not a valid {noun}: it has more than {limit} characters."
    ]
    assert problems_with_minimum(f"{flag}=a\x7f") == [
        f"{flag}: 'a\ufffd' is not a valid {noun}: it contains the control character U+007F."
    ]


@pytest.mark.parametrize(
    "url",
    [
        "bronze",
        "sqs.eu-central-1.amazonaws.com/1/q",
        "ftp://h/1/q",
        "https:///1/q",
        "https://h/1/q?x=1",
        "https://h/1/q#f",
        "https://h/1/a b",
        "https://h/ /q",
        "https://größe/1/q",
        "arn:aws:sqs:eu-central-1:1:q",
    ],
)
def test_what_is_no_queue_url_is_refused(url):
    assert problems_with_minimum(f"--sqs-queue-url={url}") == [
        (
            f"--sqs-queue-url: '{url}' is not a valid SQS queue URL: it is not a queue URL"
            " such as https://sqs.eu-central-1.amazonaws.com/123456789012/name."
        )
    ]


@pytest.mark.parametrize("url", ["https://h:x/1/q", "https://[::1/1/q", "https://h:99999/1/q"])
def test_a_queue_url_with_a_broken_host_is_refused(url):
    assert problems_with_minimum(f"--sqs-queue-url={url}") == [
        f"--sqs-queue-url: '{url}' is not a valid SQS queue URL: it is not a valid URL."
    ]


@pytest.mark.parametrize("url", ["https://h/1/a.b", "https://h/1/", "https://h/1/.fifo", "https://h/1/a+b"])
def test_a_queue_url_without_a_queue_name_is_refused(url):
    assert problems_with_minimum(f"--sqs-queue-url={url}") == [
        (
            f"--sqs-queue-url: '{url}' is not a valid SQS queue URL: its last part is not a queue name"
            " of letters, digits, '-' and '_' (and '.fifo' at the end)."
        )
    ]


@pytest.mark.parametrize("url", ["https://h/q", "https://h//q", "https://h", "https://h/a+b/q"])
def test_a_queue_url_without_an_account_is_refused(url):
    assert problems_with_minimum(f"--sqs-queue-url={url}") == [
        (
            f"--sqs-queue-url: '{url}' is not a valid SQS queue URL: its path has no account before"
            " the queue's name."
        )
    ]


def test_a_queue_name_has_at_most_80_characters():
    assert problems_with_minimum(f"--sqs-queue-url={QUEUE}{'x' * 75}.fifo") == []
    (problem,) = problems_with_minimum(f"--sqs-queue-url={QUEUE}{'x' * 76}.fifo")
    assert problem.endswith("is not a valid SQS queue URL: the queue's name has more than 80 characters.")


# Headers and attributes

HEADER_FLAGS = [
    "--kafka-static-headers",
    "--nats-static-headers",
    "--kinesis-static-headers",
    "--redis-static-headers",
    "--sqs-static-attributes",
    "--sqs-message-attributes",
]


@pytest.mark.parametrize("flag", HEADER_FLAGS)
@pytest.mark.parametrize("name", ["payloadCase", "dataType", "payload_case", "DATATYPE"])
def test_the_sidecars_own_headers_are_reserved(flag, name):
    assert problems_with_minimum(f"{flag}={name}:x") == [
        f"{flag}: header '{name}' is reserved: the sidecar writes it itself."
    ]


@pytest.mark.parametrize("flag", HEADER_FLAGS)
def test_a_header_without_a_name_is_refused(flag):
    assert problems_with_minimum(f"{flag}=:x") == [f"{flag}: a header's name is empty."]


@pytest.mark.parametrize("flag", HEADER_FLAGS[:-1])
def test_a_header_without_a_value_is_refused(flag):
    assert problems_with_minimum(f"{flag}=a:,b: ") == [
        f"{flag}: header 'a' has an empty value.",
        f"{flag}: header 'b' has an empty value.",
    ]


@pytest.mark.parametrize("flag", HEADER_FLAGS)
def test_a_header_given_twice_is_refused(flag):
    assert problems_with_minimum(f"{flag}=a:x,b:y,a:z") == [f"{flag}: 'a' is given twice."]


@pytest.mark.parametrize("flag", HEADER_FLAGS)
def test_a_header_without_a_colon_is_refused(flag):
    (problem,) = problems_with_minimum(f"{flag}=a")
    assert problem.startswith(f"{flag}: 'a' has no ':'. Write NAME:")


@pytest.mark.parametrize("flag", HEADER_FLAGS)
def test_no_headers_at_all_are_refused(flag):
    assert problems_with_minimum(f"{flag}=,") == [f"{flag}: is empty."]


@pytest.mark.parametrize("flag", HEADER_FLAGS[:-1])
def test_a_header_value_with_a_line_break_is_refused(flag):
    assert problems_with_minimum(f"{flag}=a:b\nc") == [
        f"{flag}: the value of header 'a' contains the control character U+000A."
    ]


@pytest.mark.parametrize("flag", HEADER_FLAGS[:1] + HEADER_FLAGS[2:4])
def test_a_header_name_with_a_control_character_is_refused(flag):
    assert problems_with_minimum(f"{flag}=a\x01:b") == [
        f"{flag}: a header's name contains the control character U+0001."
    ]


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--kafka-static-headers", "eventId"),
        ("--redis-static-headers", "eventId"),
        ("--redis-static-headers", "data"),
    ],
)
def test_the_header_of_the_event_id_is_reserved(flag, name):
    assert problems_with_minimum(f"{flag}={name}:x") == [
        f"{flag}: header '{name}' is reserved: the sidecar writes it itself."
    ]


@pytest.mark.parametrize("name", ["Nats-Msg-Id", "nats-expected-stream"])
def test_headers_of_nats_are_reserved(name):
    assert problems_with_minimum(f"--nats-static-headers={name}:x") == [
        (
            f"--nats-static-headers: header '{name}' is reserved:"
            " names that begin with 'Nats-' belong to NATS itself."
        )
    ]


@pytest.mark.parametrize("name", ["a b", "ä", "a\x01"])
def test_a_nats_header_name_is_printable_ascii(name):
    (problem,) = problems_with_minimum(f"--nats-static-headers={name}:x")
    assert problem.endswith("is not a header name: it has a space, a ':' or a character that is not ASCII.")


@pytest.mark.parametrize(
    "name",
    [
        "event_id",
        "data_name",
        "is_snapshot",
        "symbols",
        "request_id",
        "session_id",
        "interval",
        "grouping",
        "depth",
        "sequence",
        "trades",
    ],
)
def test_meta_entries_that_the_sidecar_writes_are_reserved_on_kinesis(name):
    assert problems_with_minimum(f"--kinesis-static-headers={name}:x") == [
        f"--kinesis-static-headers: header '{name}' is reserved: the sidecar writes that meta entry itself."
    ]


@pytest.mark.parametrize("name", ["a b", ".a", "a.", "a..b", "é", "x" * 257])
def test_an_illegal_sqs_attribute_name_is_refused(name):
    (problem,) = problems_with_minimum(f"--sqs-static-attributes={name}:x")
    assert problem.endswith("is not a name of up to 256 letters, digits, '_', '-' and single dots.")


@pytest.mark.parametrize("name", ["AWS.x", "amazon.y", "Amazon.Z"])
def test_sqs_attribute_names_of_aws_are_refused(name):
    assert problems_with_minimum(f"--sqs-message-attributes={name}:x") == [
        f"--sqs-message-attributes: attribute '{name}' is reserved: such names belong to AWS."
    ]


def test_an_sqs_message_has_at_most_ten_attributes():
    eight = ",".join(f"a{number}:x" for number in range(8))
    nine = ",".join(f"a{number}:x" for number in range(9))
    assert problems_with_minimum(f"--sqs-static-attributes={eight}") == []
    assert problems_with_minimum(f"--sqs-static-attributes={nine}") == [
        (
            "--sqs-static-attributes: a message would have 11 attributes; SQS allows 10,"
            " including payloadCase and dataType. Remove 1."
        )
    ]


def test_the_attributes_of_dead_letters_count_too():
    seven = ",".join(f"a{number}:x" for number in range(7))
    queue = "--sqs-dead-letter-queue-url=https://sqs.eu-central-1.amazonaws.com/123456789012/dead"
    assert problems_with_minimum(f"--sqs-static-attributes={seven}", queue) == [
        (
            "--sqs-static-attributes: a message would have 11 attributes; SQS allows 10, including"
            " payloadCase and dataType and deadLetterReason and deadLetterDestination. Remove 1."
        )
    ]


def test_static_and_templated_sqs_attributes_are_counted_together():
    static = ",".join(f"a{number}:x" for number in range(5))
    templated = ",".join(f"b{number}:x" for number in range(5))
    assert problems_with_minimum(
        f"--sqs-static-attributes={static}", f"--sqs-message-attributes={templated}"
    ) == [
        (
            "--sqs-message-attributes: a message would have 12 attributes; SQS allows 10,"
            " including payloadCase and dataType. Remove 2."
        )
    ]


def test_an_sqs_attribute_is_either_static_or_templated():
    assert problems_with_minimum("--sqs-static-attributes=a:x", "--sqs-message-attributes=a:y") == [
        "--sqs-message-attributes: 'a' is given twice. --sqs-static-attributes already has it."
    ]


@pytest.mark.parametrize("group", ["kafka", "nats", "redis"])
def test_a_static_header_under_the_prefix_of_meta_headers_is_refused(group):
    assert problems_with_minimum(f"--{group}-meta-headers-prefix=m-", f"--{group}-static-headers=m-a:x") == [
        (
            f"--{group}-static-headers: header 'm-a' starts with 'm-', the prefix of meta headers."
            " Rename one of them."
        )
    ]


# Numbers, switches, choices, addresses


@pytest.mark.parametrize(
    ("flag", "least", "most"),
    [
        ("--max-event-bytes", 1024, 67_108_864),
        ("--max-queue-events", 1, 100_000_000),
        ("--max-queue-bytes", 1_048_576, 1_099_511_627_776),
        ("--retry-limit", 0, 1_000_000),
        ("--retry-backoff-ms", 1, 60_000),
        ("--retry-backoff-max-ms", 1, 3_600_000),
        ("--kafka-max-batch-size", 1, 100_000),
        ("--kafka-max-batch-delay-ms", 0, 60_000),
        ("--nats-max-batch-size", 1, 100_000),
        ("--nats-max-batch-delay-ms", 0, 60_000),
        ("--kinesis-max-batch-size", 1, 100_000),
        ("--kinesis-max-record-bytes", 1024, 10_485_760),
        ("--kinesis-max-call-bytes", 1024, 10_485_760),
        ("--kinesis-max-batch-delay-ms", 0, 60_000),
        ("--redis-port", 1, 65_535),
        ("--redis-db", 0, 2_147_483_647),
        ("--redis-wait-replicas", 0, 100),
        ("--redis-maxlen", 1, 9_007_199_254_740_992),
        ("--redis-max-batch-size", 1, 100_000),
        ("--redis-max-batch-delay-ms", 0, 60_000),
        ("--sqs-max-batch-size", 1, 100_000),
        ("--sqs-max-call-bytes", 1024, 10_485_760),
        ("--sqs-max-batch-delay-ms", 0, 60_000),
    ],
)
def test_a_number_out_of_range_is_refused(flag, least, most):
    for number in (least - 1, most + 1):
        found = problems_of(*flags_with(f"{flag}={number}"))
        assert f"{flag}: {number} is out of range. It must be a whole number from {least} to {most}." in found


def flags_with(flag: str) -> list[str]:
    return [*KAFKA, *NATS, *KINESIS, *REDIS, *SQS, flag]


@pytest.mark.parametrize(
    "text",
    ["", "x", "1.5", "1e3", "0x10", "1_000", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 19, "--1", "1 ", "nan"],
)
def test_what_is_no_whole_number_is_refused(text):
    assert problems_with_minimum(f"--redis-db={text}") == [
        f"--redis-db: '{text}' is not a valid number. It must be a whole number from 0 to 2147483647."
    ]


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e3", ".5", "5.", "1,5"])
def test_what_is_no_decimal_number_is_refused(text):
    assert problems_of(f"--grace-seconds={text}") == [
        f"--grace-seconds: '{text}' is not a valid number. It must be a number from 0 to 3600."
    ]


@pytest.mark.parametrize("text", ["-1", "3600.1"])
def test_a_decimal_number_out_of_range_is_refused(text):
    assert problems_of(f"--grace-seconds={text}") == [
        f"--grace-seconds: {text} is out of range. It must be a number from 0 to 3600."
    ]


def test_a_switch_is_true_or_false():
    assert problems_with_minimum("--kafka-ssl=maybe") == ["--kafka-ssl: 'maybe' is neither true nor false."]


def test_a_wrong_choice_is_refused_with_the_nearest():
    assert problems_with_minimum("--kafka-compression=gzipp") == [
        "--kafka-compression: 'gzipp' is not one of the choices. Did you mean 'gzip'?"
    ]


def test_a_choice_that_is_near_to_none_lists_all():
    assert problems_with_minimum("--kafka-compression=brotli") == [
        "--kafka-compression: 'brotli' is not one of the choices. Choose from none, gzip, snappy, lz4, zstd."
    ]


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:", ":1", "a:65536", "a:-1", "a b:1", "::1:1", "http://a:1"]
)
def test_what_is_no_address_is_refused(address):
    assert problems_of(f"--admin-listen={address}") == [
        "--admin-listen: is not an address. Write host:port, with a port up to 65535."
    ]


def test_a_wrong_entry_of_a_list_is_counted():
    assert problems_with_minimum("--kafka-brokers=a:1,b,c:0") == [
        "--kafka-brokers: entry 2 is not an address. Write host:port, with a port up to 65535.",
        "--kafka-brokers: entry 3 is not an address. Write host:port, with a port up to 65535.",
    ]


def test_an_entry_given_twice_is_refused():
    assert problems_with_minimum("--kafka-brokers=a:1,a:1") == ["--kafka-brokers: 'a:1' is given twice."]


@pytest.mark.parametrize("flag", ["--kafka-brokers", "--nats-servers", "--listen"])
def test_an_empty_list_is_refused(flag):
    found = problems_of(f"{flag}=,") if flag == "--listen" else problems_with_minimum(f"{flag}=,")
    assert found == [f"{flag}: is empty."]


def test_an_empty_allow_list_is_refused():
    assert problems_with_minimum("--kafka-include-payloads=,") == [
        f"--kafka-include-payloads: is empty. The payload cases are {CASES}."
    ]


@pytest.mark.parametrize("socket", ["unix:relative", "unix://relative/path", "unix:/x", "unix://"])
def test_a_unix_socket_has_an_absolute_path(socket):
    assert problems_of(f"--listen={socket}") == [
        f"--listen: '{socket}' is not a unix socket. Write unix:///absolute/path."
    ]


def test_a_unix_socket_has_at_most_107_bytes():
    assert problems_of(f"--listen=unix:///{'x' * 106}") == []
    assert problems_of(f"--listen=unix:///{'x' * 107}") == [
        "--listen: the socket's path has more than 107 bytes. Choose a shorter one."
    ]


def test_the_admin_address_is_no_unix_socket():
    assert problems_of("--admin-listen=unix:///x") == [
        "--admin-listen: is not an address. Write host:port, with a port up to 65535."
    ]


@pytest.mark.parametrize("host", ["", "a:6379", "a b", "redis://a", "é", "a/b"])
def test_what_is_no_host_is_refused(host):
    assert problems_with_minimum(f"--redis-host={host}") == [
        "--redis-host: is not a host. Write only its name or IP address, without a port or credentials."
    ]


@pytest.mark.parametrize(
    "url", ["", "r:8081", "ftp://r", "http://", "HTTP://r", "http://r:x", "http://[r", "http://a b"]
)
def test_what_is_no_url_is_refused(url):
    assert problems_with_minimum(f"--kafka-schema-registry-url={url}") == [
        "--kafka-schema-registry-url: is not a valid URL. It looks like http://host:port."
    ]


@pytest.mark.parametrize(
    "server", ["http://a:1", "nats://a:1/x", "nats://a:1?x", "nats://a:1#x", "NATS://a:1"]
)
def test_what_is_no_nats_url_is_refused(server):
    assert problems_with_minimum(f"--nats-servers={server}") == [
        "--nats-servers: is not a valid URL. It looks like nats://host:4222 or tls://host:4222."
    ]


def test_a_nats_url_needs_a_port():
    assert problems_with_minimum("--nats-servers=nats://a") == [
        "--nats-servers: is not an address. Write host:port, with a port up to 65535."
    ]


@pytest.mark.parametrize("region", ["", "Frankfurt", "eu-central", "eu_central_1", "EU-CENTRAL-1"])
def test_what_is_no_region_is_refused(region):
    for flag in ("--kinesis-region", "--sqs-region"):
        assert problems_with_minimum(f"{flag}={region}") == [
            f"{flag}: '{region}' is not a region. It looks like eu-central-1."
        ]


def test_text_that_is_not_utf8_is_refused_wherever_it_comes_from():
    assert problems_of(
        *KAFKA, "--kafka-client-id=\udcff", environ={"SIDECAR_KAFKA_SASL_USERNAME": "\udcfe"}
    ) == [
        "--kafka-client-id: is not valid UTF-8.",
        "SIDECAR_KAFKA_SASL_USERNAME: is not valid UTF-8.",
    ]


def test_text_with_a_control_character_is_refused():
    assert problems_with_minimum("--kafka-client-id=a\x00") == [
        "--kafka-client-id: contains the control character U+0000."
    ]


def test_an_empty_text_is_refused():
    assert problems_with_minimum("--kafka-client-id=") == ["--kafka-client-id: is empty."]


# Files


FILE_FLAGS = [
    "--config",
    "--kafka-ssl-ca-file",
    "--nats-creds-file",
    "--redis-tls-key-file",
]


@pytest.mark.parametrize("flag", FILE_FLAGS)
def test_a_file_that_does_not_exist_is_refused(flag):
    assert f"{flag}: the file '/no/such' does not exist." in problems_of(*flags_with(f"{flag}=/no/such"))


@pytest.mark.parametrize("flag", FILE_FLAGS)
def test_a_folder_is_no_file(flag, tmp_path):
    assert f"{flag}: the file '{tmp_path}' is a folder." in problems_of(*flags_with(f"{flag}={tmp_path}"))


@pytest.mark.parametrize("flag", FILE_FLAGS)
def test_a_file_that_is_not_readable_is_refused(flag, tmp_path, monkeypatch):
    # Tests may run as root, for whom everything is readable.
    monkeypatch.setattr(os, "access", lambda *_: False)
    path = tmp_path / "file"
    path.write_text("")
    found = problems_of(*flags_with(f"{flag}={path}"))
    assert f"{flag}: the file '{path}' is not readable by this user." in found


@pytest.mark.parametrize("path", ["", "\0", "a\0b"])
def test_these_are_no_names_of_files(path):
    assert problems_with_minimum(f"--nats-creds-file={path}") == ["--nats-creds-file: does not name a file."]


def test_a_path_that_is_too_long_is_refused():
    assert problems_with_minimum(f"--nats-creds-file=/{'x' * 5000}") == [
        "--nats-creds-file: the file cannot be read: File name too long."
    ]


def test_a_secret_file_must_hold_something(tmp_path):
    (tmp_path / "secret").write_text("\n")
    assert problems_with_minimum(f"--nats-token-file={tmp_path}/secret") == [
        "--nats-token-file: the file is empty."
    ]


def test_a_secret_file_must_be_utf8(tmp_path):
    (tmp_path / "secret").write_bytes(b"\xff")
    assert problems_with_minimum(f"--nats-token-file={tmp_path}/secret") == [
        "--nats-token-file: the file is not readable UTF-8 text."
    ]


@pytest.mark.timeout(60)
def test_a_secret_file_without_an_end_is_refused():
    assert problems_with_minimum("--nats-token-file=/dev/zero") == [
        "--nats-token-file: the file has more than 65536 bytes."
    ]


# Options that go together


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--kafka-ssl-ca-file=FILE"], "--kafka-ssl-ca-file: has no effect. Add --kafka-ssl."),
        (
            ["--kafka-schema-registry-url=http://r", "--kafka-schema-registry-ca-file=FILE"],
            "--kafka-schema-registry-ca-file: has no effect. Give --kafka-schema-registry-url with https.",
        ),
        (
            ["--kafka-ssl", "--kafka-ssl-cert-file=FILE"],
            "--kafka-ssl-cert-file: has no effect on its own. Add --kafka-ssl-key-file.",
        ),
        (
            ["--kafka-ssl", "--kafka-ssl-key-file=FILE"],
            "--kafka-ssl-key-file: has no effect on its own. Add --kafka-ssl-cert-file.",
        ),
        (
            ["--kafka-sasl-mechanism=plain"],
            "--kafka-sasl-mechanism: has no effect on its own. Add --kafka-sasl-username.",
        ),
        (
            ["--kafka-sasl-password=p"],
            "--kafka-sasl-password: has no effect on its own. Add --kafka-sasl-username.",
        ),
        (
            ["--kafka-sasl-username=u", "--kafka-sasl-password=p"],
            "--kafka-sasl-username: has no effect on its own. Add --kafka-sasl-mechanism.",
        ),
        (
            [
                "--kafka-sasl-mechanism=oauthbearer",
                "--kafka-oauth-client-id=c",
                "--kafka-oauth-token-url=http://i",
            ],
            "--kafka-sasl-mechanism: 'oauthbearer' needs more. Add --kafka-oauth-client-secret.",
        ),
        (
            ["--kafka-sasl-mechanism=AWS_MSK_IAM"],
            "--kafka-sasl-mechanism: 'aws_msk_iam' needs more. Add --kafka-aws-region.",
        ),
        (
            [
                *("--kafka-sasl-mechanism=aws_msk_iam", "--kafka-aws-region=eu-west-1"),
                *("--kafka-sasl-username=u", "--kafka-sasl-password=p"),
            ],
            "--kafka-sasl-username: has no effect with 'aws_msk_iam'. Leave it out.",
        ),
        (
            ["--kafka-oauth-scope=s"],
            "--kafka-oauth-scope: has no effect. Set --kafka-sasl-mechanism=oauthbearer.",
        ),
        (
            ["--kafka-aws-region=eu-west-1"],
            "--kafka-aws-region: has no effect. Set --kafka-sasl-mechanism=aws_msk_iam.",
        ),
        (
            ["--kafka-schema-registry-auth-username=u", "--kafka-schema-registry-auth-password=p"],
            "--kafka-schema-registry-auth-username: has no effect. Add --kafka-schema-registry-url.",
        ),
        (
            ["--kafka-idempotent", "--kafka-acks=leader"],
            "--kafka-idempotent: cannot be combined with acks 'leader'. Set --kafka-acks to all.",
        ),
        (
            ["--kafka-idempotent", "--kafka-acks=0"],
            "--kafka-idempotent: cannot be combined with acks '0'. Set --kafka-acks to all.",
        ),
        (["--nats-user=u"], "--nats-user: has no effect on its own. Add --nats-pass."),
        (["--nats-pass=p"], "--nats-pass: has no effect on its own. Add --nats-user."),
        (
            ["--nats-user=u", "--nats-pass=p", "--nats-token=t"],
            "--nats-token: cannot be combined with --nats-user. Choose one way to log in.",
        ),
        (
            ["--nats-token=t", "--nats-creds-file=FILE"],
            "--nats-creds-file: cannot be combined with --nats-token. Choose one way to log in.",
        ),
        (["--nats-tls-ca-file=FILE"], "--nats-tls-ca-file: has no effect. Add --nats-tls."),
        (
            ["--nats-stream=S", "--nats-jetstream=false"],
            "--nats-stream: has no effect without JetStream. Remove it, or --nats-jetstream=false.",
        ),
        (["--redis-url=redis://h"], "--redis-url: cannot be combined with --redis-host. Choose one of them."),
        (
            ["--redis-sentinels=a:1", "--redis-sentinel-name=n"],
            "--redis-sentinels: cannot be combined with --redis-host. Choose one of them.",
        ),
        (
            ["--redis-sentinel-name=n"],
            "--redis-sentinel-name: has no effect on its own. Add --redis-sentinels.",
        ),
        (
            ["--redis-sentinel-password=p"],
            "--redis-sentinel-password: has no effect. Add --redis-sentinels.",
        ),
        (["--redis-username=u"], "--redis-username: has no effect on its own. Add --redis-password."),
        (["--redis-tls-ca-file=FILE"], "--redis-tls-ca-file: has no effect. Add --redis-tls."),
        (
            ["--kinesis-access-key=a"],
            "--kinesis-access-key: has no effect on its own. Add --kinesis-secret-key.",
        ),
        (["--sqs-secret-key=s"], "--sqs-secret-key: has no effect on its own. Add --sqs-access-key."),
        (["--sqs-session-token=t"], "--sqs-session-token: has no effect on its own. Add --sqs-access-key."),
        (
            ["--sqs-message-group-template={{symbol}}"],
            "--sqs-message-group-template: has no effect: no queue is a FIFO queue. Remove it.",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(flags, problem, tmp_path):
    (tmp_path / "file").write_text("")
    assert problems_with_minimum(*(flag.replace("FILE", f"{tmp_path}/file") for flag in flags)) == [problem]


@pytest.mark.parametrize("acks", ["all", "-1"])
def test_idempotence_goes_with_all_acks(acks):
    assert backend_of(*KAFKA, "--kafka-idempotent", f"--kafka-acks={acks}").idempotent is True


def test_a_tls_url_encrypts_as_the_switch_does(tmp_path):
    (tmp_path / "file").write_text("")
    assert problems_with_minimum("--nats-servers=tls://a:1", f"--nats-tls-ca-file={tmp_path}/file") == []


def test_the_first_retry_must_not_wait_longer_than_any():
    problem = "--retry-backoff-ms: is greater than --retry-backoff-max-ms."
    assert problems_of("--retry-backoff-ms=200", "--retry-backoff-max-ms=100") == [problem]
    assert problems_of("--retry-backoff-max-ms=50") == [problem]
    assert problems_of("--retry-backoff-ms=20000") == [problem]


def test_the_largest_event_must_fit_into_the_queue():
    problem = "--max-event-bytes: is larger than the whole queue, --max-queue-bytes."
    assert problems_of("--max-event-bytes=2000000", "--max-queue-bytes=1048576") == [problem]


# Variables that were meant for the sidecar


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("BRONZE_SIDECAR_NATS_SERVERS", "SIDECAR_NATS_SERVERS"),
        ("BRONZE_NATS_SERVERS", "SIDECAR_NATS_SERVERS"),
        ("BRONZE_SIDECAR_REDIS_PASSWORD_FILE", "SIDECAR_REDIS_PASSWORD_FILE"),
    ],
)
def test_a_variable_with_the_products_name_before_it_is_noticed(variable, meant):
    assert problems_of(environ={variable: "x"}) == [
        f"{variable}: is not read by the sidecar. Did you mean {meant}?"
    ]


@pytest.mark.parametrize(
    "variable",
    [
        "BRONZE_SIDECAR_ADDRESS",
        "BRONZE_SIDECAR_META",
        "BRONZE_SIDECAR_TLS_CERT_FILE",
        "BRONZE_SIDECAR_TLS_KEY_FILE",
        "BRONZE_PIPELINE_SPARK_LOG",
        "BRONZE_AGE",
    ],
)
def test_variables_of_others_are_left_alone(variable):
    assert problems_of(environ={variable: "x"}) == []


def test_an_empty_variable_is_left_alone_whatever_its_name():
    assert problems_of(environ={"BRONZE_SIDECAR_NATS_SERVERS": ""}) == []


# Paths where addresses belong


@pytest.mark.parametrize("path", ["/run/s.sock", "/s"])
def test_the_path_of_a_socket_is_offered_as_an_address(path):
    assert problems_of(f"--listen={path}") == [
        f"--listen: '{path}' is a path. For a unix socket write unix://{path}."
    ]
