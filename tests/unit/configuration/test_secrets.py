"""No secret is ever shown, however it is given."""

from __future__ import annotations

import json

import pytest
from bronze_cli.problems import ConfigError
from bronze_sidecar.cli.main import main
from bronze_sidecar.configuration.config import load
from configurations import KAFKA, KINESIS, NATS, REDIS, SQS, ConfigFile

MARKER = "hunter2"
# Each secret: its flag, and what it needs to be accepted.
SECRETS = {
    "--kafka-sasl-password": [*KAFKA, "--kafka-sasl-mechanism=plain", "--kafka-sasl-username=u"],
    "--kafka-oauth-client-secret": [
        *KAFKA,
        "--kafka-sasl-mechanism=oauthbearer",
        "--kafka-oauth-token-url=https://i/token",
        "--kafka-oauth-client-id=c",
    ],
    "--kafka-schema-registry-auth-password": [
        *KAFKA,
        "--kafka-schema-registry-url=http://r",
        "--kafka-schema-registry-auth-username=u",
    ],
    "--nats-pass": [*NATS, "--nats-user=u"],
    "--nats-token": [*NATS],
    "--kinesis-access-key": [*KINESIS, "--kinesis-secret-key=s"],
    "--kinesis-secret-key": [*KINESIS, "--kinesis-access-key=a"],
    "--kinesis-session-token": [*KINESIS, "--kinesis-access-key=a", "--kinesis-secret-key=s"],
    "--redis-password": [*REDIS],
    "--redis-url": ["--redis-stream=s"],
    "--redis-sentinel-password": [
        "--redis-stream=s",
        "--redis-sentinels=a:1",
        "--redis-sentinel-name=n",
    ],
    "--sqs-access-key": [*SQS, "--sqs-secret-key=s"],
    "--sqs-secret-key": [*SQS, "--sqs-access-key=a"],
    "--sqs-session-token": [*SQS, "--sqs-access-key=a", "--sqs-secret-key=s"],
}
each_secret = pytest.mark.parametrize("flag", SECRETS)


def value_of(flag: str) -> str:
    return f"redis://:{MARKER}@h" if flag == "--redis-url" else MARKER


def variable_of(flag: str) -> str:
    return "SIDECAR_" + flag.removeprefix("--").replace("-", "_").upper()


def key_of(flag: str) -> tuple[str, str]:
    group, _, name = flag.removeprefix("--").partition("-")
    return group, name.replace("-", "_")


@pytest.fixture
def shown(capsys, monkeypatch):
    """Run `check` both ways, and return all that anyone could see of it."""

    def run(*flags: str, environ: dict[str, str] | None = None) -> str:
        with monkeypatch.context() as patch:
            for variable, value in (environ or {}).items():
                patch.setenv(variable, value)
            if main(["check", *flags]) == 0:
                main(["check", "--json", *flags])
        output = capsys.readouterr()
        seen = str(output.out + output.err)
        try:
            config = load(flags, environ or {})
        except ConfigError as error:
            return seen + str(error) + repr(error) + repr(error.problems)
        return seen + repr(config) + str(config)

    return run


# Given rightly


@each_secret
def test_a_secret_by_flag_is_not_shown(flag, shown):
    seen = shown(*SECRETS[flag], f"{flag}={value_of(flag)}")
    assert "The configuration is valid." in seen
    assert MARKER not in seen


@each_secret
def test_a_secret_by_variable_is_not_shown(flag, shown):
    seen = shown(*SECRETS[flag], environ={variable_of(flag): value_of(flag)})
    assert "The configuration is valid." in seen
    assert MARKER not in seen


@each_secret
def test_a_secret_in_the_file_is_not_shown(flag, shown, tmp_path):
    group, key = key_of(flag)
    seen = shown(*SECRETS[flag], ConfigFile(tmp_path).flag(json.dumps({group: {key: value_of(flag)}})))
    assert "The configuration is valid." in seen
    assert MARKER not in seen


@each_secret
def test_a_secret_in_its_own_file_is_not_shown(flag, shown, tmp_path):
    (tmp_path / "secret").write_text(value_of(flag))
    seen = shown(*SECRETS[flag], f"{flag}-file={tmp_path}/secret")
    assert "The configuration is valid." in seen
    assert MARKER not in seen


# Given wrongly


def refused(seen: str) -> str:
    """Make sure that something is wrong, so that the test means something."""
    assert " in the configuration" in seen
    return seen


@each_secret
def test_a_secret_behind_a_mistyped_flag_is_not_shown(flag, shown):
    for separator in ("=", " ", ":", ": ", "= "):
        seen = shown(*SECRETS[flag], *f"{flag}s{separator}{value_of(flag)}".split(" "))
        assert MARKER not in refused(seen)


@each_secret
def test_a_secret_with_dashes_behind_a_mistyped_flag_is_not_shown(flag, shown):
    assert MARKER not in refused(shown(*SECRETS[flag], f"{flag}x", f"--{MARKER}"))


@each_secret
def test_a_secret_joined_to_its_flag_by_another_sign_is_not_shown(flag, shown):
    for separator in ":;/@":
        assert MARKER not in refused(shown(*SECRETS[flag], f"{flag}{separator}{MARKER}"))


@each_secret
def test_a_secret_behind_a_flag_with_one_dash_is_not_shown(flag, shown):
    assert MARKER not in refused(shown(*SECRETS[flag], flag[1:], value_of(flag)))


@each_secret
def test_a_secret_split_by_the_shell_is_not_shown(flag, shown):
    assert MARKER not in refused(shown(*SECRETS[flag], flag, "first", MARKER))


@each_secret
def test_a_secret_given_twice_is_not_shown(flag, shown):
    seen = shown(*SECRETS[flag], f"{flag}={value_of(flag)}", f"{flag}={value_of(flag)}")
    assert MARKER not in refused(seen)


@each_secret
def test_a_secret_in_a_mistyped_variable_is_not_shown(flag, shown):
    assert MARKER not in refused(shown(environ={variable_of(flag) + "S": value_of(flag)}))


@each_secret
def test_a_secret_with_odd_characters_is_not_shown(flag, shown):
    for text in (f"{MARKER}\x00", f"\udcff{MARKER}", f"{MARKER}@@://\n"):
        assert MARKER not in shown(*SECRETS[flag], f"{flag}={text}")


@each_secret
def test_a_secret_in_place_of_its_file_is_not_shown(flag, shown):
    for text in (MARKER, f"{MARKER}/x", f"/{MARKER}", f"/{MARKER * 999}"):
        assert MARKER not in refused(shown(*SECRETS[flag], f"{flag}-file={text}"))
        assert MARKER not in refused(shown(*SECRETS[flag], environ={f"{variable_of(flag)}_FILE": text}))


@each_secret
def test_a_secret_in_a_file_that_cannot_be_read_is_not_shown(flag, shown, tmp_path):
    for content in (f"{MARKER}\xff".encode("latin-1"), f"{MARKER * 20_000}".encode()):
        (tmp_path / "secret").write_bytes(content)
        assert MARKER not in refused(shown(*SECRETS[flag], f"{flag}-file={tmp_path}/secret"))


@pytest.mark.parametrize(
    "value",
    [
        f"!{MARKER}",
        f"!{MARKER} x",
        f"!{MARKER}!x y",
        f"!<{MARKER}",
        f"*{MARKER}",
        f"&{MARKER} [x]",
        f"@{MARKER}",
        f"%{MARKER}",
        f"`{MARKER}",
        f'"{MARKER}',
        f"'{MARKER}",
        f'"\\{MARKER}"',
        f'"\\x{MARKER}"',
        f'"{MARKER}" {MARKER}',
        f"'{MARKER}' '{MARKER}'",
        f"|{MARKER}",
        f">{MARKER}\n  x",
        f"x: {MARKER}",
        f"{MARKER}: {MARKER}",
        f"[{MARKER}]",
        f"[{MARKER}",
        f"[[{MARKER}]]",
        f"{{{MARKER}: x}}",
        f"{{{MARKER}: x, {MARKER}: y}}",
        f"{{[{MARKER}]: {MARKER}}}",
        f"{{{MARKER}",
        f"\n    - {MARKER}",
        f"\n    {MARKER}: [{MARKER}]",
        f"{MARKER}\x01",
        f"{MARKER}\n{MARKER}: {MARKER}: x",
        f"\t{MARKER}\n\t\t- {MARKER}",
        f'"{MARKER}\\ud800"',
    ],
)
def test_a_secret_in_broken_yaml_is_not_shown(value, shown, tmp_path):
    for flag, needs in SECRETS.items():
        group, key = key_of(flag)
        seen = shown(*needs, ConfigFile(tmp_path).flag(f"{group}:\n  {key}: {value}\n"))
        assert MARKER not in seen


@pytest.mark.parametrize(
    "text",
    [
        "{group}: {{{key}:MARKER}}",
        "{group}: {{{key}=MARKER}}",
        "{group}: {{{key} MARKER}}",
        "{group}:\n  {key}:MARKER",
        "{group}:\n  {key}=MARKER",
        "{group}:\n  {key} MARKER",
        "{group}:\n  {key}:MARKER\n  x: y",
        "{group}:\n  {key}s: MARKER",
        "{group}:\n  {key}: MARKER\n  {key}: MARKER",
        "{key}: MARKER",
        "{group}_{key}: MARKER",
        "{group}: MARKER",
        "{group}:\n  {key}_file: MARKER",
        "{group}:\n  {key}_file: [MARKER]",
        "{group}:\n  {key}_file: {{MARKER: MARKER}}",
        "MARKER",
        "- MARKER",
        "? [MARKER]\n: MARKER",
    ],
)
def test_a_secret_in_the_wrong_place_of_the_file_is_not_shown(text, shown, tmp_path):
    for flag, needs in SECRETS.items():
        group, key = key_of(flag)
        content = text.format(group=group, key=key).replace("MARKER", MARKER)
        assert MARKER not in refused(shown(*needs, ConfigFile(tmp_path).flag(content)))


# Credentials inside addresses

ADDRESSES = {
    "--listen": [],
    "--admin-listen": [],
    "--kafka-brokers": ["--kafka-topic=t"],
    "--kafka-schema-registry-url": [*KAFKA],
    "--kafka-oauth-token-url": [*KAFKA],
    "--nats-servers": ["--nats-subject=s"],
    "--kinesis-endpoint-url": [*KINESIS],
    "--redis-host": ["--redis-stream=s"],
    "--redis-url": ["--redis-stream=s"],
    "--redis-sentinels": ["--redis-stream=s", "--redis-sentinel-name=n"],
    "--sqs-endpoint-url": [*SQS],
    "--sqs-queue-url": ["--sqs-region=eu-west-1"],
    "--sqs-queue-routing": [*SQS],
}


@pytest.mark.parametrize(
    "address",
    [
        f"user:{MARKER}@host",
        f"user:{MARKER}@host:1",
        f"http://user:{MARKER}@host:1/1/q",
        f"https://{MARKER}@host/1/q",
        f"nats://user:{MARKER}@host:4222",
        f"nats://user:pass,{MARKER}@host:4222",
        f"nats://user:{MARKER},pass@host:4222",
        f"tls://{MARKER}@host:4222",
        f"redis://user:{MARKER}@host:port",
        f"redis://user:{MARKER}@[host",
        f"rediss://:{MARKER}@",
        f"trade:https://user:{MARKER}@host/1/q",
        f"trade:https://user:{MARKER},x@host/1/q",
        f"trde:https://user:x,{MARKER}@host/1/q",
        f"trade:https://user:{MARKER}@host/{{{{symbl}}}}",
        f"https://user:{MARKER}@host/1/{{{{x",
    ],
)
def test_credentials_in_an_address_are_not_shown(address, shown):
    for flag, needs in ADDRESSES.items():
        assert MARKER not in shown(*needs, f"{flag}={address}")


@pytest.mark.parametrize("flag", ADDRESSES)
def test_credentials_in_an_address_in_the_file_are_not_shown(flag, shown, tmp_path):
    group, key = key_of(flag)
    address = f"http://user:{MARKER}@host:1/1/q"
    for value in (address, [address, f"x:{address}"], {"trade": address, "nothing": address}):
        content = {group: {key: value}} if flag.count("-") > 3 else {flag[2:].replace("-", "_"): value}
        assert MARKER not in shown(*ADDRESSES[flag], ConfigFile(tmp_path).flag(json.dumps(content)))


# The command line as a whole


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--nats-pass={MARKER}", "check"],
        ["--nats-pass", MARKER, "check"],
        ["schema", f"--nats-pass={MARKER}"],
        ["explain", "--meta", f"--nats-pass={MARKER}"],
        ["explain", "--meta", "--nats-pass", MARKER],
        ["check", f"nats-pass={MARKER}"],
    ],
)
def test_a_secret_in_a_wrong_command_line_is_not_shown(arguments, capsys):
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert MARKER not in output.out + output.err
