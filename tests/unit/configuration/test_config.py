"""What counts when several sources give options, and how the values of each kind may be written."""

from __future__ import annotations

import pytest
from bronze_sidecar.configuration.config import Config, load
from bronze_sidecar.sinks.nats.options import Nats
from configurations import KAFKA, NATS, REDIS, SQS, ConfigFile, backend_of, problems_of, with_minimum


@pytest.fixture
def file(tmp_path):
    return ConfigFile(tmp_path)


def test_nothing_given_means_the_defaults():
    config = load([], {})
    assert config == Config()
    assert config.listen == ("127.0.0.1:50051",)
    assert config.backends == ()


# A flag beats a variable, which beats the file


def test_a_flag_beats_the_variable():
    assert load(["--log-level=error"], {"SIDECAR_LOG_LEVEL": "debug"}).log_level == "error"


def test_a_variable_beats_the_file(file):
    environ = {"SIDECAR_LOG_LEVEL": "debug"}
    assert file.load("log_level: warning", environ=environ).log_level == "debug"


def test_a_flag_beats_variable_and_file(file):
    environ = {"SIDECAR_LOG_LEVEL": "debug"}
    assert file.load("log_level: warning", "--log-level=error", environ=environ).log_level == "error"


def test_lists_are_replaced_as_a_whole(file):
    environ = {"SIDECAR_LISTEN": "127.0.0.1:2,127.0.0.1:3"}
    assert file.load("listen: [127.0.0.1:1]", environ=environ).listen == ("127.0.0.1:2", "127.0.0.1:3")
    assert file.load("listen: ['127.0.0.1:1']", "--listen=127.0.0.1:4", environ=environ).listen == (
        "127.0.0.1:4",
    )


def test_routing_is_replaced_as_a_whole(file):
    text = "kafka: {brokers: a:1, topic: t, topic_routing: {trade: from-file, quote: from-file}}"
    environ = {"SIDECAR_KAFKA_TOPIC_ROUTING": "trade:from-variable"}
    assert routing(file.load(text)) == {"trade": "from-file", "quote": "from-file"}
    assert routing(file.load(text, environ=environ)) == {"trade": "from-variable"}
    assert routing(file.load(text, "--kafka-topic-routing=error:from-flag", environ=environ)) == {
        "error": "from-flag"
    }


def routing(config):
    return {case: template.text for case, template in config.backends[0].topic_routing.items()}


def test_headers_are_replaced_as_a_whole(file):
    text = "kafka: {brokers: a:1, topic: t, static_headers: {env: file, team: file}}"
    environ = {"SIDECAR_KAFKA_STATIC_HEADERS": "env:variable"}
    flags = ["--kafka-static-headers=region:flag"]
    assert file.load(text).backends[0].static_headers == {"env": "file", "team": "file"}
    assert file.load(text, environ=environ).backends[0].static_headers == {"env": "variable"}
    assert file.load(text, *flags, environ=environ).backends[0].static_headers == {"region": "flag"}


def test_a_back_end_may_be_given_by_several_sources(file):
    backend = file.load(
        "nats: {subject: s}",
        "--nats-user=u",
        environ={"SIDECAR_NATS_SERVERS": "n:1", "SIDECAR_NATS_PASS": "p"},
    ).backends[0]
    assert (backend.subject.text, backend.user, backend.servers, backend.pass_) == ("s", "u", ("n:1",), "p")


def test_a_secret_file_by_flag_beats_the_secret_by_variable(tmp_path):
    (tmp_path / "secret").write_text("from-file")
    flags = [*REDIS, f"--redis-password-file={tmp_path}/secret"]
    backend = backend_of(*flags, environ={"SIDECAR_REDIS_PASSWORD": "from-variable"})
    assert backend.password == "from-file"  # noqa: S105 - of a test


def test_a_switch_that_is_on_can_be_turned_off(file):
    text = "nats: {servers: n:1, subject: s, jetstream: true}"
    assert file.load(text, "--nats-jetstream=false").backends[0].jetstream is False


def test_several_back_ends_may_be_on():
    backends = load([*KAFKA, *NATS, *REDIS, *SQS], {}).backends
    assert [backend.name for backend in backends] == ["kafka", "nats", "redis", "sqs"]


# Empty means not set


def test_an_empty_variable_counts_as_not_set(file):
    environ = {"SIDECAR_LOG_LEVEL": "", "SIDECAR_KAFKA_TOPIC": "", "SIDECAR_NATS_PASS_FILE": ""}
    assert file.load("log_level: error", environ=environ).log_level == "error"


def test_a_null_in_the_file_counts_as_not_set(file):
    assert file.load("log_level:\nlisten: ~\nkafka:\n") == Config(config=file.path)


def test_an_empty_file_gives_nothing(file):
    assert file.load("") == Config(config=file.path)
    assert file.load("# nothing\n---\n") == Config(config=file.path)


def test_other_programs_variables_are_left_alone():
    environ = {"SIDECARS": "x", "HOME": "/", "KAFKA_BROKERS": "a:1", "sidecar_log_level": "debug"}
    assert load([], environ) == Config()


@pytest.mark.parametrize(
    "variable",
    [
        "SIDECAR_SERVICE_HOST",
        "SIDECAR_SERVICE_PORT",
        "SIDECAR_SERVICE_PORT_GRPC",
        "SIDECAR_PORT",
        "SIDECAR_PORT_50051_TCP",
        "SIDECAR_PORT_50051_TCP_ADDR",
        "SIDECAR_BRONZE_SERVICE_HOST",
        "SIDECAR_BRONZE_PORT_50051_TCP_PROTO",
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_are_left_alone(variable):
    assert load([], {variable: "tcp://10.0.0.1:50051"}) == Config()


# How flags are written


def test_a_switch_needs_no_value():
    assert backend_of(*KAFKA, "--kafka-ssl").tls is True


def test_a_switch_takes_a_truth_value_behind_it():
    assert backend_of("--kafka-ssl", "off", *KAFKA).tls is False


def test_a_switch_takes_nothing_else_behind_it():
    assert problems_of(*KAFKA, "--kafka-ssl", "maybe") == [
        "command line: unexpected argument after --kafka-ssl."
    ]


def test_a_switch_is_also_turned_off_by_no_before_its_name():
    config = load(["--no-tap", "--no-nats-jetstream", *NATS], {"SIDECAR_TAP": "true"})
    assert config.tap is False
    (nats,) = config.backends
    assert isinstance(nats, Nats)
    assert nats.jetstream is False
    assert config.places["tap"] == "--no-tap"


def test_only_switches_are_turned_off_so():
    assert problems_of("--no-listen") == ["--no-listen: no such option. Did you mean --listen?"]
    assert problems_of("--no-tap=true") == ["--no-tap: no such option. Did you mean --tap?"]
    assert problems_of("--tap", "--no-tap") == ["--no-tap: is given twice; --tap also sets it. Give it once."]


def test_a_value_may_hold_an_equals_sign():
    assert with_minimum("--kafka-static-headers=a:b=c").static_headers == {"a": "b=c"}


def test_a_secret_may_begin_with_dashes():
    assert backend_of(*REDIS, "--redis-password", "--p4ss").password == "--p4ss"  # noqa: S105 - of a test


def test_listen_may_be_given_several_times():
    config = load(["--listen", "127.0.0.1:1", "--listen=127.0.0.1:2,unix:///s"], {})
    assert config.listen == ("127.0.0.1:1", "127.0.0.1:2", "unix:///s")


# How values are written


@pytest.mark.parametrize("word", ["true", "True", "YES", "on", "1"])
def test_these_words_mean_true(word):
    assert with_minimum(f"--kafka-ssl={word}").tls is True


@pytest.mark.parametrize("word", ["false", "False", "NO", "off", "0"])
def test_these_words_mean_false(word):
    assert with_minimum(f"--nats-jetstream={word}").jetstream is False


@pytest.mark.parametrize("spelling", ["bookChange", "book_change", "BookChange", "book-change", "BOOKCHANGE"])
def test_a_payload_case_may_be_spelt_in_many_ways(spelling):
    assert with_minimum(f"--kafka-include-payloads={spelling}").include_payloads == {"bookChange"}
    assert [*with_minimum(f"--kafka-topic-routing={spelling}:books").topic_routing] == ["bookChange"]


@pytest.mark.parametrize(
    "case",
    [
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
    ],
)
def test_each_of_the_twelve_payload_cases_can_be_chosen(case):
    assert with_minimum(f"--redis-include-payloads={case}").include_payloads == {case}


def test_spaces_and_empty_places_around_commas_count_for_nothing():
    assert with_minimum("--kafka-brokers= a:1 ,, b:2,").brokers == ("a:1", "b:2")
    assert with_minimum("--kafka-static-headers= a : b ,c:d").static_headers == {"a": "b", "c": "d"}


def test_the_file_may_hold_lists(file):
    backend = file.load(
        "nats: {servers: ['a:1', 'b:2'], subject: s, include_payloads: [trade, book-change]}"
    ).backends[0]
    assert backend.servers == ("a:1", "b:2")
    assert backend.include_payloads == {"trade", "bookChange"}


def test_the_file_may_hold_routing_as_a_mapping_a_list_or_text(file):
    start = "kafka: {brokers: a:1, topic: t, topic_routing: "
    expected = {"trade": "x", "quote": "y"}
    assert routing(file.load(start + "{trade: x, quote: y}}")) == expected
    assert routing(file.load(start + "['trade:x', 'quote:y']}")) == expected
    assert routing(file.load(start + "'trade:x,quote:y'}")) == expected


def test_a_destination_may_hold_colons():
    url = "https://sqs.eu-central-1.amazonaws.com:443/123456789012/trades"
    assert with_minimum(f"--sqs-queue-routing=trade:{url}").queue_routing["trade"].text == url


def test_a_header_in_the_file_may_hold_what_text_cannot(file):
    backend = file.load("kafka: {brokers: a:1, topic: t, static_headers: {'a:b': 'c,d', n: 1.50, t: yes}}")
    assert backend.backends[0].static_headers == {"a:b": "c,d", "n": "1.50", "t": "yes"}


def test_headers_that_differ_in_dashes_or_case_are_different(file):
    text = "kafka: {brokers: a:1, topic: t, static_headers: {x-a: '1', x_a: '2', X-A: '3'}}"
    assert file.load(text).backends[0].static_headers == {"x-a": "1", "x_a": "2", "X-A": "3"}


def test_keys_in_the_file_may_have_dashes_and_capitals(file):
    assert file.load("Log-Level: error\nKAFKA: {Brokers: 'a:1', topic: t}").log_level == "error"


def test_anchors_and_aliases_work_in_the_file(file):
    text = "kafka: {brokers: &hosts ['a:1', 'b:2'], topic: t}\nnats: {servers: *hosts, subject: s}"
    assert file.load(text).backends[1].servers == ("a:1", "b:2")


def test_a_file_with_a_byte_order_mark_is_read(file):
    assert file.load("\ufefflog_level: error").log_level == "error"


@pytest.mark.parametrize("number", ["007", "+7", "7"])
def test_a_number_may_have_a_sign_or_zeros_before_it(number):
    assert with_minimum(f"--redis-db={number}").db == 7


def test_a_choice_may_have_capitals():
    assert with_minimum("--kafka-compression=LZ4").compression == "lz4"


def test_a_secret_in_a_file_loses_one_newline_and_keeps_its_spaces(tmp_path):
    (tmp_path / "secret").write_bytes(b" a b \n\r\n")
    assert with_minimum(f"--redis-password-file={tmp_path}/secret").password == " a b \n"  # noqa: S105 - of a test


def test_an_empty_prefix_turns_meta_fields_off():
    assert with_minimum("--redis-meta-headers-prefix=").meta_headers_prefix == ""


@pytest.mark.parametrize("host", ["localhost", "redis-0.redis.svc", "10.0.0.1", "::1", "fe80::1:2", "a_b"])
def test_a_redis_host_is_a_name_or_an_address(host):
    assert with_minimum(f"--redis-host={host}").host == host


@pytest.mark.parametrize(
    "server", ["a:4222", "nats://a:4222", "tls://a:4222", "nats://[::1]:4222", "nats://a:4222/"]
)
def test_a_nats_server_is_an_address_or_a_url(server):
    assert with_minimum(f"--nats-servers={server}").servers == (server,)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "localhost:65535", "[::1]:50051", "unix:///tmp/x.sock", "unix:///a@b"]
)
def test_listen_takes_addresses_and_unix_sockets(address):
    assert load([f"--listen={address}"], {}).listen == (address,)
