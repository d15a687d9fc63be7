"""Every option, by hand: its names in each source, its value, and that nothing is undocumented."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from bronze_cli.options import options_of
from bronze_sidecar.configuration.config import OPTIONS, load
from bronze_sidecar.configuration.documentation import option_tables
from bronze_sidecar.routing.template import Template
from bronze_sidecar.sinks import BACKENDS
from configurations import MINIMAL, ConfigFile, problems_of, without


def words(text: str) -> list[str]:
    return text.split()


PROCESS = words("""
    --config --listen --admin-listen --tls-cert-file --tls-key-file --tls-client-ca-file --insecure
    --socket-mode --log-level --log-format --grace-seconds --max-event-bytes
    --memory-limit --max-queue-events --max-queue-bytes --max-streams --max-sessions --native
    --workers
    --tap --spool-dir --spool-max-bytes --retry-limit --retry-backoff-ms --retry-backoff-max-ms
    --dead-letter-file --dead-letter-max-bytes
""")
KAFKA = words("""
    --kafka-brokers --kafka-topic --kafka-topic-routing --kafka-topic-template --kafka-key-template
    --kafka-dead-letter-topic
    --kafka-include-payloads --kafka-static-headers --kafka-meta-headers-prefix --kafka-client-id
    --kafka-ssl --kafka-ssl-ca-file --kafka-ssl-cert-file --kafka-ssl-key-file
    --kafka-sasl-mechanism --kafka-sasl-username --kafka-sasl-password
    --kafka-oauth-token-url --kafka-oauth-client-id --kafka-oauth-client-secret --kafka-oauth-scope
    --kafka-oauth-ca-file --kafka-aws-region
    --kafka-compression --kafka-acks --kafka-idempotent
    --kafka-schema-registry-url --kafka-schema-registry-ca-file
    --kafka-schema-registry-auth-username --kafka-schema-registry-auth-password
    --kafka-max-batch-size --kafka-max-batch-delay-ms
    --kafka-when-full
""")
NATS = words("""
    --nats-servers --nats-subject --nats-subject-routing --nats-subject-template --nats-include-payloads
    --nats-static-headers --nats-meta-headers-prefix --nats-user --nats-pass --nats-token --nats-creds-file
    --nats-tls --nats-tls-ca-file --nats-tls-cert-file --nats-tls-key-file --nats-jetstream --nats-stream
    --nats-dead-letter-subject --nats-batching --nats-max-batch-size --nats-max-batch-delay-ms
    --nats-when-full
""")
KINESIS = words("""
    --kinesis-stream --kinesis-region --kinesis-stream-routing --kinesis-partition-key-template
    --kinesis-dead-letter-stream --kinesis-include-payloads --kinesis-static-headers
    --kinesis-access-key --kinesis-secret-key --kinesis-session-token --kinesis-endpoint-url
    --kinesis-tls-ca-file --kinesis-strict-order --kinesis-aggregation
    --kinesis-max-record-bytes --kinesis-max-call-bytes
    --kinesis-max-batch-size --kinesis-max-batch-delay-ms
    --kinesis-when-full
""")
REDIS = words("""
    --redis-host --redis-url --redis-stream --redis-port --redis-password --redis-username
    --redis-tls --redis-tls-ca-file --redis-tls-cert-file --redis-tls-key-file --redis-db
    --redis-dead-letter-stream
    --redis-stream-routing --redis-stream-template --redis-include-payloads --redis-static-headers
    --redis-sentinels --redis-sentinel-name --redis-sentinel-username --redis-sentinel-password
    --redis-wait-aof --redis-wait-replicas
    --redis-meta-headers-prefix --redis-maxlen --redis-max-batch-size --redis-max-batch-delay-ms
    --redis-when-full
""")
SQS = words("""
    --sqs-dead-letter-queue-url
    --sqs-queue-url --sqs-region --sqs-queue-routing --sqs-include-payloads --sqs-static-attributes
    --sqs-message-attributes --sqs-message-group-template
    --sqs-access-key --sqs-secret-key --sqs-session-token --sqs-endpoint-url
    --sqs-tls-ca-file --sqs-strict-order --sqs-max-call-bytes --sqs-max-batch-size --sqs-max-batch-delay-ms
    --sqs-when-full
""")
FLAGS = [*PROCESS, *KAFKA, *NATS, *KINESIS, *REDIS, *SQS]
REQUIRED = words("""
    --kafka-brokers --kafka-topic --nats-servers --nats-subject --kinesis-stream --kinesis-region
    --redis-host --redis-stream --sqs-queue-url --sqs-region
""")
SECRETS = words("""
    --kafka-sasl-password --kafka-oauth-client-secret --kafka-schema-registry-auth-password
    --nats-pass --nats-token
    --kinesis-access-key --kinesis-secret-key --kinesis-session-token --redis-url --redis-password
    --redis-sentinel-password --sqs-access-key --sqs-secret-key --sqs-session-token
""")

OAUTH = words("""
    --kafka-sasl-mechanism=oauthbearer --kafka-oauth-token-url=https://i/token --kafka-oauth-client-id=c
    --kafka-oauth-client-secret=s
""")
QUEUE = "https://sqs.eu-central-1.amazonaws.com/123456789012/"
# Option, what is written, the value, and what else it needs. FILE stands for a file that exists.
VALUES: list[tuple[str, str, object, list[str]]] = [
    ("--listen", "127.0.0.1:1,unix:///run/b.sock", ("127.0.0.1:1", "unix:///run/b.sock"), []),
    ("--tls-cert-file", "FILE", "FILE", ["--tls-key-file=FILE"]),
    ("--tls-key-file", "FILE", "FILE", ["--tls-cert-file=FILE"]),
    ("--tls-client-ca-file", "FILE", "FILE", ["--tls-cert-file=FILE", "--tls-key-file=FILE"]),
    ("--insecure", "true", True, []),
    ("--socket-mode", "660", 0o660, []),
    ("--admin-listen", "[::1]:9000", "[::1]:9000", []),
    ("--log-level", "debug", "debug", []),
    ("--log-format", "json", "json", []),
    ("--spool-dir", ".", ".", ["--redis-host=r", "--redis-stream=s", "--redis-when-full=spill"]),
    ("--spool-max-bytes", "2Mi", 2_097_152, []),
    ("--grace-seconds", "2.5", 2.5, []),
    ("--max-event-bytes", "2048", 2048, []),
    ("--max-queue-events", "7", 7, []),
    ("--max-queue-bytes", "2097152", 2_097_152, []),
    ("--memory-limit", "256Mi", 268_435_456, []),
    ("--kafka-dead-letter-topic", "dead", "dead", []),
    ("--nats-dead-letter-subject", "dead.{{symbol}}", "dead.{{symbol}}", []),
    ("--kinesis-dead-letter-stream", "dead", "dead", []),
    ("--redis-dead-letter-stream", "dead", "dead", []),
    ("--sqs-dead-letter-queue-url", f"{QUEUE}dead", f"{QUEUE}dead", []),
    ("--dead-letter-file", "FILE", "FILE", []),
    ("--dead-letter-max-bytes", "30Mi", 31_457_280, ["--dead-letter-file=FILE"]),
    ("--max-streams", "5", 5, []),
    ("--max-sessions", "9", 9, []),
    ("--native", "false", False, []),
    ("--workers", "2", 2, []),
    ("--tap", "false", False, []),
    ("--retry-limit", "3", 3, []),
    ("--retry-backoff-ms", "20", 20, []),
    ("--retry-backoff-max-ms", "5000", 5000, []),
    ("--kafka-brokers", "a:1, b:2", ("a:1", "b:2"), []),
    ("--kafka-topic", "ticks", "ticks", []),
    ("--kafka-topic-routing", "trade:t,quote:q", {"trade": "t", "quote": "q"}, []),
    ("--kafka-topic-template", "b.{{exchange}}", "b.{{exchange}}", []),
    ("--kafka-key-template", "{{symbol}}", "{{symbol}}", []),
    ("--kafka-include-payloads", "trade,book_change", frozenset({"trade", "bookChange"}), []),
    ("--kafka-static-headers", "env:prod,team:md", {"env": "prod", "team": "md"}, []),
    ("--kafka-meta-headers-prefix", "m-", "m-", []),
    ("--kafka-client-id", "sidecar 1", "sidecar 1", []),
    ("--kafka-ssl", "true", True, []),
    ("--kafka-ssl-ca-file", "FILE", "FILE", ["--kafka-ssl"]),
    ("--kafka-ssl-cert-file", "FILE", "FILE", ["--kafka-ssl", "--kafka-ssl-key-file=FILE"]),
    ("--kafka-ssl-key-file", "FILE", "FILE", ["--kafka-ssl", "--kafka-ssl-cert-file=FILE"]),
    (
        "--kafka-sasl-mechanism",
        "scram-sha-512",
        "scram-sha-512",
        ["--kafka-sasl-username=u", "--kafka-sasl-password=p"],
    ),
    ("--kafka-sasl-username", "u", "u", ["--kafka-sasl-mechanism=plain", "--kafka-sasl-password=p"]),
    ("--kafka-sasl-password", "p", "p", ["--kafka-sasl-mechanism=plain", "--kafka-sasl-username=u"]),
    ("--kafka-oauth-token-url", "https://i/token", "https://i/token", [*OAUTH[:1], *OAUTH[2:]]),
    ("--kafka-oauth-client-id", "c", "c", [*OAUTH[:2], *OAUTH[3:]]),
    ("--kafka-oauth-client-secret", "s", "s", OAUTH[:3]),
    ("--kafka-oauth-scope", "a b", "a b", OAUTH),
    ("--kafka-oauth-ca-file", "FILE", "FILE", OAUTH),
    ("--kafka-aws-region", "eu-west-1", "eu-west-1", ["--kafka-sasl-mechanism=aws_msk_iam"]),
    ("--kafka-compression", "zstd", "zstd", []),
    ("--kafka-acks", "-1", "-1", []),
    ("--kafka-idempotent", "false", False, []),
    ("--kafka-schema-registry-url", "https://r:8081", "https://r:8081", []),
    ("--kafka-schema-registry-ca-file", "FILE", "FILE", ["--kafka-schema-registry-url=https://r"]),
    (
        "--kafka-schema-registry-auth-username",
        "u",
        "u",
        ["--kafka-schema-registry-url=http://r", "--kafka-schema-registry-auth-password=p"],
    ),
    (
        "--kafka-schema-registry-auth-password",
        "p",
        "p",
        ["--kafka-schema-registry-url=http://r", "--kafka-schema-registry-auth-username=u"],
    ),
    ("--kafka-max-batch-size", "1", 1, []),
    ("--kafka-max-batch-delay-ms", "0", 0, []),
    ("--kafka-when-full", "spill", "spill", ["--spool-dir=."]),
    ("--nats-servers", "nats://a:1,tls://b:2,c:3", ("nats://a:1", "tls://b:2", "c:3"), []),
    ("--nats-subject", "a.b", "a.b", []),
    ("--nats-subject-routing", "error:a.b,disconnect:c", {"error": "a.b", "disconnect": "c"}, []),
    ("--nats-subject-template", "b.{{symbol}}", "b.{{symbol}}", []),
    ("--nats-include-payloads", "quote", frozenset({"quote"}), []),
    ("--nats-static-headers", "env:prod", {"env": "prod"}, []),
    ("--nats-meta-headers-prefix", "m-", "m-", []),
    ("--nats-user", "u", "u", ["--nats-pass=p"]),
    ("--nats-pass", "p", "p", ["--nats-user=u"]),
    ("--nats-token", "t", "t", []),
    ("--nats-creds-file", "FILE", "FILE", []),
    ("--nats-tls", "yes", True, []),
    ("--nats-tls-ca-file", "FILE", "FILE", ["--nats-tls"]),
    ("--nats-tls-cert-file", "FILE", "FILE", ["--nats-tls", "--nats-tls-key-file=FILE"]),
    ("--nats-tls-key-file", "FILE", "FILE", ["--nats-tls", "--nats-tls-cert-file=FILE"]),
    ("--nats-jetstream", "off", False, []),
    ("--nats-stream", "BRONZE", "BRONZE", []),
    ("--nats-batching", "off", "off", []),
    ("--nats-max-batch-size", "100000", 100_000, []),
    ("--nats-max-batch-delay-ms", "60000", 60_000, []),
    ("--nats-when-full", "spill", "spill", ["--spool-dir=."]),
    ("--kinesis-stream", "s_1.x-y", "s_1.x-y", []),
    ("--kinesis-region", "us-gov-west-1", "us-gov-west-1", []),
    ("--kinesis-stream-routing", "trade:t", {"trade": "t"}, []),
    ("--kinesis-partition-key-template", "{{exchange}}", "{{exchange}}", []),
    ("--kinesis-include-payloads", "TRADE", frozenset({"trade"}), []),
    ("--kinesis-static-headers", "env:prod", {"env": "prod"}, []),
    ("--kinesis-access-key", "a", "a", ["--kinesis-secret-key=s"]),
    ("--kinesis-secret-key", "s", "s", ["--kinesis-access-key=a"]),
    ("--kinesis-session-token", "t", "t", ["--kinesis-access-key=a", "--kinesis-secret-key=s"]),
    ("--kinesis-endpoint-url", "http://localhost:4567", "http://localhost:4567", []),
    ("--kinesis-tls-ca-file", "FILE", "FILE", []),
    ("--kinesis-strict-order", "false", False, []),
    ("--kinesis-aggregation", "true", True, []),
    ("--kinesis-max-record-bytes", "2048", 2048, []),
    ("--kinesis-max-call-bytes", "2097152", 2_097_152, []),
    ("--kinesis-max-batch-size", "500", 500, []),
    ("--kinesis-max-batch-delay-ms", "1", 1, []),
    ("--kinesis-when-full", "spill", "spill", ["--spool-dir=."]),
    ("--redis-host", "::1", "::1", []),
    ("--redis-url", "rediss://u:p@h:6380/1", "rediss://u:p@h:6380/1", []),
    ("--redis-stream", "a:b", "a:b", []),
    ("--redis-port", "6380", 6380, []),
    ("--redis-password", "p", "p", []),
    ("--redis-username", "u", "u", ["--redis-password=p"]),
    ("--redis-tls", "1", True, []),
    ("--redis-tls-ca-file", "FILE", "FILE", ["--redis-tls"]),
    ("--redis-tls-cert-file", "FILE", "FILE", ["--redis-tls", "--redis-tls-key-file=FILE"]),
    ("--redis-tls-key-file", "FILE", "FILE", ["--redis-tls", "--redis-tls-cert-file=FILE"]),
    ("--redis-sentinels", "a:1, [::1]:2", ("a:1", "[::1]:2"), ["--redis-sentinel-name=n"]),
    ("--redis-sentinel-name", "my primary", "my primary", ["--redis-sentinels=a:1"]),
    (
        "--redis-sentinel-username",
        "u",
        "u",
        ["--redis-sentinels=a:1", "--redis-sentinel-name=n", "--redis-sentinel-password=p"],
    ),
    ("--redis-sentinel-password", "p", "p", ["--redis-sentinels=a:1", "--redis-sentinel-name=n"]),
    ("--redis-wait-aof", "true", True, []),
    ("--redis-wait-replicas", "2", 2, []),
    ("--redis-db", "15", 15, []),
    ("--redis-stream-routing", "trade:a:b", {"trade": "a:b"}, []),
    ("--redis-stream-template", "{{source}}:x", "{{source}}:x", []),
    ("--redis-include-payloads", "trade-bar", frozenset({"tradeBar"}), []),
    ("--redis-static-headers", "env:prod", {"env": "prod"}, []),
    ("--redis-meta-headers-prefix", "m:", "m:", []),
    ("--redis-maxlen", "1000000", 1_000_000, []),
    ("--redis-max-batch-size", "2", 2, []),
    ("--redis-max-batch-delay-ms", "3", 3, []),
    ("--redis-when-full", "spill", "spill", ["--spool-dir=."]),
    ("--sqs-queue-url", QUEUE + "q.fifo", QUEUE + "q.fifo", []),
    ("--sqs-region", "eu-west-1", "eu-west-1", []),
    (
        "--sqs-queue-routing",
        f"trade:{QUEUE}t,quote:{QUEUE}q",
        {"trade": f"{QUEUE}t", "quote": f"{QUEUE}q"},
        [],
    ),
    ("--sqs-include-payloads", "bookTicker", frozenset({"bookTicker"}), []),
    ("--sqs-static-attributes", "env:prod", {"env": "prod"}, []),
    ("--sqs-message-attributes", "ex:{{exchange}}", {"ex": "{{exchange}}"}, []),
    ("--sqs-message-group-template", "{{symbol}}", "{{symbol}}", [f"--sqs-queue-url={QUEUE}q.fifo"]),
    ("--sqs-access-key", "a", "a", ["--sqs-secret-key=s"]),
    ("--sqs-secret-key", "s", "s", ["--sqs-access-key=a"]),
    ("--sqs-session-token", "t", "t", ["--sqs-access-key=a", "--sqs-secret-key=s"]),
    ("--sqs-endpoint-url", "https://e", "https://e", []),
    ("--sqs-tls-ca-file", "FILE", "FILE", []),
    ("--sqs-strict-order", "no", False, []),
    ("--sqs-max-call-bytes", "262144", 262_144, []),
    ("--sqs-max-batch-size", "10", 10, []),
    ("--sqs-max-batch-delay-ms", "0", 0, []),
    ("--sqs-when-full", "spill", "spill", ["--spool-dir=."]),
]


def variable_of(flag: str) -> str:
    return "SIDECAR_" + flag.removeprefix("--").replace("-", "_").upper()


def key_of(flag: str) -> tuple[str, str]:
    """Return the back end, empty for the process, and the key within it."""
    group, _, name = flag.removeprefix("--").partition("-")
    if group in MINIMAL:
        return group, name.replace("-", "_")
    return "", flag.removeprefix("--").replace("-", "_")


def plain(value: object) -> object:
    """Write templates and paths as their text."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, Template):
        return value.text
    return str(value) if hasattr(value, "parts") else value


def spelled(name: str) -> str:
    """Return the field that holds an option."""
    return {"pass": "pass_"}.get(name, re.sub("^ssl", "tls", name))


def value_in(config, flag):
    group, name = key_of(flag)
    owner = config.backends[0] if group else config
    return plain(getattr(owner, spelled(name)))


@pytest.fixture
def existing(tmp_path):
    """Replace FILE by the path of a file."""
    path = tmp_path / "some.pem"
    path.write_text("content")
    return lambda text: text.replace("FILE", str(path)) if isinstance(text, str) else text


def companions(flag: str, needs: list[str]) -> list[str]:
    group, _ = key_of(flag)
    instead = ["--redis-host"] if flag.startswith(("--redis-url", "--redis-sentinel")) else []
    return [*without(MINIMAL.get(group, ()), flag, *needs, *instead), *needs]


each_value = pytest.mark.parametrize(
    ("flag", "text", "expected", "needs"), VALUES, ids=[flag for flag, *_ in VALUES]
)


def test_the_options_are_exactly_these():
    assert sorted(option.flag for option in OPTIONS) == sorted(FLAGS)


def test_every_option_but_the_file_itself_has_a_value_here():
    assert {flag for flag, *_ in VALUES} == {*FLAGS} - {"--config"}


@each_value
def test_a_flag_gives_the_option(flag, text, expected, needs, existing):
    arguments = [*map(existing, companions(flag, needs)), f"{flag}={existing(text)}"]
    assert value_in(load(arguments, {}), flag) == existing(expected)


@each_value
def test_a_flag_takes_the_argument_behind_it(flag, text, expected, needs, existing):
    arguments = [*map(existing, companions(flag, needs)), flag, existing(text)]
    assert value_in(load(arguments, {}), flag) == existing(expected)


@each_value
def test_a_variable_gives_the_option(flag, text, expected, needs, existing):
    arguments = [existing(each) for each in companions(flag, needs)]
    assert value_in(load(arguments, {variable_of(flag): existing(text)}), flag) == existing(expected)


@each_value
def test_the_file_gives_the_option(flag, text, expected, needs, existing):
    group, name = key_of(flag)
    entry = {name: existing(text)}
    content = json.dumps({group: entry} if group else entry)
    arguments = [existing(each) for each in companions(flag, needs)]
    config = ConfigFile(Path(existing("FILE")).parent).load(content, *arguments)
    assert value_in(config, flag) == existing(expected)


@pytest.mark.parametrize(
    ("flag", "text", "expected"),
    [(flag, text, value) for flag, text, value, _ in VALUES if isinstance(value, bool | int | float)],
)
def test_the_file_gives_numbers_and_switches_without_quotes(flag, text, expected, tmp_path):
    group, name = key_of(flag)
    line = f"{name}: {text}"
    config = ConfigFile(tmp_path).load(f"{group}:\n  {line}" if group else line, *companions(flag, []))
    assert value_in(config, flag) == expected


def test_the_config_file_may_be_named_by_a_variable(tmp_path):
    file = ConfigFile(tmp_path)
    file.flag("log_level: error")
    assert load([], {"SIDECAR_CONFIG": str(file.path)}).log_level == "error"


@pytest.mark.parametrize("flag", SECRETS)
def test_a_secret_may_stand_in_a_file_named_by_flag(flag, tmp_path):
    config = load([*secret_companions(flag), f"{flag}-file={secret_file(tmp_path, flag)}"], {})
    assert value_in(config, flag) == secret_value(flag)


@pytest.mark.parametrize("flag", SECRETS)
def test_a_secret_may_stand_in_a_file_named_by_variable(flag, tmp_path):
    environ = {variable_of(flag) + "_FILE": secret_file(tmp_path, flag)}
    assert value_in(load(secret_companions(flag), environ), flag) == secret_value(flag)


@pytest.mark.parametrize("flag", SECRETS)
def test_a_secret_may_stand_in_a_file_named_in_the_file(flag, tmp_path):
    group, name = key_of(flag)
    content = json.dumps({group: {f"{name}_file": secret_file(tmp_path, flag)}})
    config = ConfigFile(tmp_path).load(content, *secret_companions(flag))
    assert value_in(config, flag) == secret_value(flag)


def secret_value(flag: str) -> str:
    return "redis://:password@h" if flag == "--redis-url" else "pass word"


def secret_file(folder: Path, flag: str) -> str:
    path = folder / "secret"
    path.write_text(secret_value(flag) + "\n")
    return str(path)


def secret_companions(flag: str) -> list[str]:
    return companions(flag, next(needs for name, _, _, needs in VALUES if name == flag))


def test_exactly_these_options_are_secret():
    assert sorted(option.flag for option in OPTIONS if option.secret) == sorted(SECRETS)


def test_exactly_these_options_are_required():
    assert sorted(option.flag for option in OPTIONS if option.required) == sorted(REQUIRED)


def test_what_is_no_secret_has_no_file_form():
    assert problems_of("--kafka-topic-file=x") == [
        "--kafka-topic-file: no such option. Did you mean --kafka-topic?"
    ]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_an_option_has_a_doc_string_that_is_a_sentence(option):
    assert option.doc[0].isupper()
    assert option.doc.endswith(".")
    assert not option.doc.endswith("..")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_an_option_has_a_name_for_its_value_unless_it_is_a_switch(option):
    assert bool(option.value_type.metavar) is not option.is_switch


@pytest.mark.parametrize("flag", FLAGS)
def test_an_option_has_a_row_in_the_tables(flag):
    rows = [
        line for line in option_tables().splitlines() if line.startswith((f"| `{flag}`", f"| **`{flag}`"))
    ]
    assert len(rows) == 1


# Each back end, whatever comes


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_back_end_is_named_after_its_package(backend):
    assert backend.__module__ == f"bronze_sidecar.sinks.{backend.name}.options"


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_back_end_has_a_title_of_its_own(backend):
    assert [each.title for each in BACKENDS].count(backend.title) == 1
    assert backend.title.lower() == backend.name


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_back_end_has_a_doc_string(backend):
    assert backend.__doc__.endswith(".")


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_every_field_of_a_back_end_is_an_option_with_a_row_in_the_tables(backend):
    fields = {field.name for field in dataclasses.fields(backend)}
    options = options_of(backend, backend.name)
    assert {option.attribute for option in options} == fields
    table = option_tables().partition(f"#### {backend.title} ")[2].partition("####")[0]
    assert all(f"`{option.flag}`" in table for option in options)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_back_end_has_required_options_and_the_options_of_batches(backend):
    options = options_of(backend, backend.name)
    assert any(option.required for option in options)
    assert {"max_batch_size", "max_batch_delay_ms"} <= {option.name for option in options}
