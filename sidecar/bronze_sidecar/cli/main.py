"""The command line."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bronze_cli.problems import ConfigError, did_you_mean, printable, shorten
from bronze_cli.values import file_fault

from bronze_sidecar.cli import check
from bronze_sidecar.cli.health import fault_of
from bronze_sidecar.configuration.config import NAMES, load
from bronze_sidecar.configuration.documentation import help_text, json_schema
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.wire import timestamp_field
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from bronze_sidecar.telemetry.logs import set_up_logging

USAGE = """\
usage: bronze-sidecar COMMAND [OPTIONS]

Routes normalized market-data events from a local gRPC stream to Kafka, NATS,
Kinesis, Redis Streams and SQS.

commands:
  run                             serve until told to stop
  check [--json] [--event FILE]   validate the options; show where every event would go
  health                          ask the sidecar that runs with these options whether it lives
  schema                          print the JSON Schema of the YAML file
  send FILE --to ADDRESS          send normalized messages to a running sidecar; see `send --help`

A flag beats its environment variable, which beats the YAML file (--config).
"""
EXIT_UNHEALTHY, EXIT_USAGE = 1, 2


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character shows its number instead.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _run(*(arguments or ["--help"]))
        if sys.stdout:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader, `head` for one, has seen enough; nothing more may be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _run(command: str, *rest: str) -> int:
    if command in {"-h", "--help", "help"} or ("--help" in rest and command != "send"):
        print(USAGE + help_text())
        return 0
    commands = {"run": _serve, "check": _check, "health": _health, "schema": _schema, "send": _send}
    if command.startswith("-"):
        # Not shown: it may hold a secret.
        return _refuse("the command must come before the options. `bronze-sidecar --help` lists all.")
    if command not in commands:
        return _refuse(f"no command '{shorten(command)}'. {did_you_mean(command, commands)}")
    try:
        return commands[command](rest)
    except ConfigError as error:
        return _refuse(str(error))


def _refuse(message: str) -> int:
    print(f"bronze-sidecar: {message}", file=sys.stderr)
    return EXIT_USAGE


def _serve(arguments: Sequence[str]) -> int:
    config = load(arguments, os.environ)
    _hide_secrets(arguments)
    set_up_logging(config.log_level, config.log_format)
    # Only now: the other commands need neither gRPC nor an event loop.
    import uvloop  # noqa: PLC0415

    from bronze_sidecar.app import Sidecar  # noqa: PLC0415

    async def run() -> int:
        return await Sidecar(config).run()

    return uvloop.run(run())


def _hide_secrets(arguments: Sequence[str]) -> None:
    """Start anew with secrets in the environment instead of the command line, which every user can read."""
    kept: list[str] = []
    environment = dict(os.environ)
    pending = list(reversed(arguments))
    while pending:
        argument = pending.pop()
        flag, equals, value = argument.partition("=")
        option, is_file = NAMES.flags.get(flag, (None, False))
        if option and option.secret and not is_file:
            environment[option.variable] = value if equals else pending.pop()
            # The flag beats the file that a variable names; as a variable it would stand beside it.
            environment.pop(f"{option.variable}_FILE", None)
        else:
            kept.append(argument)
    if len(kept) < len(arguments):
        program = [sys.executable, "-m", "bronze_sidecar", "run", *kept]
        os.execve(sys.executable, program, environment)  # noqa: S606 - ourselves


def _send(arguments: Sequence[str]) -> int:
    # Only now: the other commands need no client.
    from bronze_sidecar.cli.send import send  # noqa: PLC0415

    return send(arguments)


def _health(arguments: Sequence[str]) -> int:
    fault = fault_of(load(arguments, os.environ))
    if fault:
        print(f"bronze-sidecar: {fault}", file=sys.stderr)
    return EXIT_UNHEALTHY if fault else 0


def _schema(arguments: Sequence[str]) -> int:
    if arguments:
        return _refuse("schema takes no options.")
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0


def _check(arguments: Sequence[str]) -> int:
    options = list(arguments)
    wants_json = "--json" in options
    options = [each for each in options if each != "--json"]
    event_file, options = _take(options, "--event")
    if event_file == "":
        return _refuse("--event: needs a value. Write --event=FILE.")
    config = load(options, os.environ)
    events = _events_of(event_file) if event_file is not None else check.sample_events()
    if isinstance(events, str):
        return _refuse(events)
    rows = check.report(config, events)
    print(check.as_json(rows) if wants_json else check.as_table(config, rows))
    return 0


def _take(arguments: list[str], flag: str) -> tuple[str | None, list[str]]:
    """Take a flag that only one command has out of the options; its value is empty if it has none."""
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2], arguments[:index] + arguments[index + 1 :]
        if argument == flag:
            following = arguments[index + 1 : index + 2]
            if not following or following[0].startswith("--"):
                return "", arguments[:index] + arguments[index + 1 :]
            return following[0], arguments[:index] + arguments[index + 2 :]
    return None, arguments


def _events_of(path: str) -> list[Event] | str:
    """Map the normalized messages of a file, one a line; return what is wrong if that fails."""
    fault = None if path == "-" else file_fault(path)
    if fault:
        return f"--event: {printable(fault.what)}"
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        return f"--event: the file cannot be read: {error.strerror}."
    mapper = Mapper(StreamContext(stream_id="check", source="check"))
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    ingest_field = timestamp_field(5, seconds, nanoseconds)
    events: list[Event] = []
    for position, line in enumerate(content.splitlines()):
        if not line.strip():
            continue
        try:
            events += mapper.events(line, position, ingest_field)
        except Rejected as error:
            return printable(f"--event: {path}:{position + 1}: {error}")
    return events or printable(f"--event: '{path}' holds no message.")
