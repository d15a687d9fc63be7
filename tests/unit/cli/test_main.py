"""The program as it is run: commands, exit status, what goes to which stream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bronze_sidecar.cli import run as run_command
from bronze_sidecar.cli.main import main
from bronze_sidecar.configuration.documentation import help_text
from configurations import KAFKA, REDIS

PROGRAM = Path(sys.executable).parent / "bronze-sidecar"
TRADE = b'{"type":"trade","symbol":"S","exchange":"e","price":1,"amount":2,"side":"buy"}'


def run(*arguments, stdin=b"", **environ):
    """Run the installed program by itself."""
    return subprocess.run(
        [PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"]} | environ,
    )


COMPLETE = """\
eval "$($0 completion bash)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_bronze_sidecar
printf '%s\\n' "${COMPREPLY[@]}"
"""

# The program


def test_two_problems_of_different_back_ends_are_listed_and_end_with_status_2():
    result = run(
        *("check", "--kafka-brokers", "localhost:9092", "--kafka-topic", "bronze"),
        *("--kafka-topic-routing", "bookchnge:books,trade:trades", "--nats-subject", "x"),
    )
    assert result.returncode == 2
    assert result.stdout == b""
    assert result.stderr.decode().splitlines() == [
        "bronze-sidecar: 2 problems in the configuration",
        "  --kafka-topic-routing: 'bookchnge' is not a payload case. Did you mean 'bookChange'?",
        (
            "  --nats-subject: NATS is half configured: its servers are missing."
            " Add --nats-servers (SIDECAR_NATS_SERVERS, or nats.servers in the file)."
        ),
    ]


def test_a_valid_configuration_ends_with_status_0_and_is_shown():
    result = run("check", SIDECAR_NATS_SERVERS="a:1", SIDECAR_NATS_SUBJECT="s")
    assert result.returncode == 0
    assert result.stdout.startswith(b"NATS\n")
    assert result.stdout.endswith(b"The configuration is valid.\n")
    assert result.stderr == b""


def test_bytes_that_are_not_utf8_are_refused():
    result = run("check", *KAFKA, b"--kafka-client-id=\xff", SIDECAR_KAFKA_SASL_USERNAME=b"\xfe")
    assert result.returncode == 2
    assert b"--kafka-client-id: is not valid UTF-8." in result.stderr
    assert b"SIDECAR_KAFKA_SASL_USERNAME: is not valid UTF-8." in result.stderr


def test_a_terminal_without_unicode_shows_everything():
    result = run("check", *KAFKA, "--kafka-static-headers=größe:✓", PYTHONIOENCODING="ascii")
    assert result.returncode == 0
    assert rb"gr\xf6\xdfe=\u2713" in result.stdout


@pytest.mark.parametrize("command", [["schema"], ["--help"], ["check"]])
def test_a_reader_that_stops_early_is_no_error(command):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed_pipe:
        result = subprocess.run(
            [PROGRAM, *command], stdout=closed_pipe, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (result.returncode, result.stderr) == (0, b"")


def test_the_schema_may_be_piped_to_head():
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {PROGRAM} schema | head -1"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"{\n", b"")


def test_the_program_may_be_run_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "bronze_sidecar", "chek"], capture_output=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr == b"bronze-sidecar: there is no command 'chek'. Did you mean 'check'?\n"


# Commands


@pytest.fixture
def refused(capsys):
    """Run a command that must be refused; return what it says."""

    def refuse(*arguments: str) -> str:
        assert main(arguments) == 2
        output = capsys.readouterr()
        assert output.out == ""
        return str(output.err).removeprefix("bronze-sidecar: ").removesuffix("\n")

    return refuse


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["help"]])
def test_help_is_short_and_lists_the_commands(arguments, capsys):
    assert main(arguments) == 0
    output = capsys.readouterr()
    assert output.out.startswith("usage: bronze-sidecar COMMAND [OPTIONS]\n")
    for command in ("run", "check", "send", "dead-letters", "health", "schema", "completion"):
        assert f"\n  {command} " in output.out
    assert len(output.out.splitlines()) < 20
    assert output.err == ""


@pytest.mark.parametrize("command", ["run", "check", "send", "dead-letters", "health", "schema"])
@pytest.mark.parametrize("form", ["{} --help", "{} -h", "{} --unknown --help", "help {}"])
def test_help_on_a_command_is_about_itself(command, form, capsys):
    assert main(form.format(command).split()) == 0
    output = capsys.readouterr()
    assert output.out.startswith(f"usage: bronze-sidecar {command}")
    assert ("--json" in output.out) == (command in {"check", "dead-letters"})
    assert ("--grace-seconds N" in output.out) == (command == "run")
    assert "--kafka-brokers" not in output.out
    assert all(len(line) <= 100 for line in output.out.splitlines())
    assert output.err == ""


def test_help_on_options_lists_all(capsys):
    assert main(["help", "options"]) == 0
    assert capsys.readouterr().out == help_text() + "\n"


def test_help_on_nothing_that_there_is_names_the_nearest(refused):
    assert refused("help", "option") == "there is no help on 'option'. Did you mean 'options'?"


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_printed(word, capsys):
    assert main([word]) == 0
    assert re.fullmatch(r"bronze-sidecar 0\.1\.0 \((compiled|python) hot path\)\n", capsys.readouterr().out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_name_commands_and_flags(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("health", "kafka-brokers", "nats-pass-file", "connect-timeout", "event"):
        assert re.search(rf"\b{word}\b", script), word


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("bronze-sidecar he", ["health", "help"]),
        ("bronze-sidecar send --conn", ["--connect-timeout"]),
        ("bronze-sidecar explain --ori", ["--origin"]),
        ("bronze-sidecar run --ev", []),
        ("bronze-sidecar run --nats-pass", ["--nats-pass", "--nats-pass-file"]),
    ],
)
def test_bash_completes_what_is_typed(typed, offered):
    words = typed.split()
    completed = subprocess.run(
        [
            "bash",
            "-c",
            COMPLETE,
            str(PROGRAM),
            *words,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split() == offered


@pytest.mark.parametrize("arguments", [[], ["tcsh"], ["bash", "zsh"]])
def test_completion_takes_one_shell(arguments, refused):
    assert refused("completion", *arguments) == "completion takes the name of a shell: bash, zsh, fish."


@pytest.mark.parametrize(("word", "meant"), [("chek", "check"), ("Schema", "schema"), ("scheme", "schema")])
def test_an_unknown_command_is_refused_with_the_nearest(word, meant, refused):
    assert refused(word) == f"there is no command '{word}'. Did you mean '{meant}'?"


def test_an_unknown_command_near_to_none_lists_all(refused):
    assert refused("frobnicate").startswith("there is no command 'frobnicate'. Choose from run, check, ")


def test_an_unknown_command_is_shown_without_control_characters(refused):
    assert refused("\x1b[31m" + "x" * 100).startswith("there is no command '\ufffd[31mxxx")


def test_options_without_a_command_are_refused(refused):
    assert refused("--kafka-topic=x") == (
        "the command must come before the options. `bronze-sidecar --help` lists the commands."
    )


def test_schema_takes_no_options(refused):
    assert refused("schema", "--config=x", "y").splitlines()[1:] == [
        "  --config: no such option. `bronze-sidecar schema --help` lists them all.",
        "  command line: unexpected argument after --config.",
    ]


def test_the_environment_is_read(refused, monkeypatch):
    monkeypatch.setenv("SIDECAR_LOG_LEVEL", "loud")
    assert (
        refused("check").splitlines()[1].startswith("  SIDECAR_LOG_LEVEL: 'loud' is not one of the choices.")
    )


# explain


@pytest.fixture
def problem(refused):
    """Run a command that must be refused for one reason; return that."""

    def refuse(*arguments: str) -> str:
        count, reason = refused(*arguments).split("\n  ")
        assert count == "1 problem in the configuration"
        return str(reason)

    return refuse


def test_the_file_to_explain_must_be_named(problem):
    assert problem("explain", "--json") == (
        "FILE: is missing. Write the path of a file, or - for standard input."
    )


def test_a_broken_configuration_is_reported_together_with_the_file_to_explain(refused):
    assert refused("explain", "/no/such", "--x", "--meta=event_id:1", "--log-level=loud").splitlines() == [
        "4 problems in the configuration",
        "  --x: no such option. `bronze-sidecar help options` lists them all.",
        "  FILE: the file '/no/such' does not exist.",
        "  --meta: must not have the key 'event_id': the sidecar writes it.",
        "  --log-level: 'loud' is not one of the choices. Choose from debug, info, warning, error.",
    ]


# run


def started_anew(monkeypatch, *arguments):
    """Return the command line and the environment that the program would start itself anew with."""
    started = []
    monkeypatch.setattr(os, "execve", lambda *call: started.append(call))
    run_command._hide_secrets(arguments)
    return started


def test_secrets_leave_the_command_line_for_the_environment(monkeypatch):
    ((_, program, environment),) = started_anew(
        monkeypatch, *REDIS, "--redis-password", "--p4ss", "--redis-tls", "--kafka-sasl-password=k"
    )
    assert program[1:] == ["-m", "bronze_sidecar", "run", *REDIS, "--redis-tls"]
    assert environment["SIDECAR_REDIS_PASSWORD"] == "--p4ss"  # noqa: S105 - of a test
    assert environment["SIDECAR_KAFKA_SASL_PASSWORD"] == "k"  # noqa: S105 - of a test


def test_without_secrets_nothing_is_started_anew(monkeypatch):
    assert started_anew(monkeypatch, *REDIS, "--redis-password-file=/x", "--redis-tls", "true") == []


def test_a_secret_by_flag_beats_its_file_by_variable_also_when_started_anew(monkeypatch):
    monkeypatch.setenv("SIDECAR_REDIS_PASSWORD_FILE", "/no/such")
    ((_, _, environment),) = started_anew(monkeypatch, *REDIS, "--redis-password=p")
    assert environment["SIDECAR_REDIS_PASSWORD"] == "p"  # noqa: S105 - of a test
    assert "SIDECAR_REDIS_PASSWORD_FILE" not in environment
