"""The command line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bronze_sidecar import check
from bronze_sidecar.config import load
from bronze_sidecar.errors import Rejected
from bronze_sidecar.event import Event
from bronze_sidecar.kinds import file_fault
from bronze_sidecar.mapping import Mapper, StreamContext
from bronze_sidecar.problems import ConfigError, did_you_mean
from bronze_sidecar.reference import help_text, json_schema
from bronze_sidecar.wire import timestamp_field

USAGE = """\
usage: bronze-sidecar COMMAND [OPTIONS]

Routes normalized market-data events from a local gRPC stream to Kafka, NATS,
Kinesis, Redis Streams and SQS.

commands:
  check [--json] [--event FILE]   validate the options; show where every event would go
  schema                          print the JSON Schema of the YAML file

A flag beats its environment variable, which beats the YAML file (--config).
"""
EXIT_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit status."""
    command, *rest = arguments or ["--help"]
    if command in {"-h", "--help", "help"} or "--help" in rest:
        print(USAGE + help_text())
        return 0
    commands = {"check": _check, "schema": _schema}
    if command not in commands:
        return _refuse(f"no command '{command}'. {did_you_mean(command, commands)}")
    try:
        return commands[command](rest)
    except ConfigError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        # The reader, `head` for one, has seen enough; nothing more may be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _refuse(message: str) -> int:
    print(f"bronze-sidecar: {message}", file=sys.stderr)
    return EXIT_USAGE


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
    config = load(options, os.environ)
    events = _events_of(event_file) if event_file is not None else check.sample_events()
    if isinstance(events, str):
        return _refuse(events)
    rows = check.report(config, events)
    print(check.as_json(rows) if wants_json else check.as_table(config, rows))
    return 0


def _take(arguments: list[str], flag: str) -> tuple[str | None, list[str]]:
    """Take a flag that only one command has out of the options."""
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2], arguments[:index] + arguments[index + 1 :]
        if argument == flag:
            value = arguments[index + 1] if index + 1 < len(arguments) else ""
            return value, arguments[:index] + arguments[index + 2 :]
    return None, arguments


def _events_of(path: str) -> list[Event] | str:
    """Map the normalized messages of a file, one a line; return what is wrong if that fails."""
    if path == "-":
        content = sys.stdin.buffer.read()
    else:
        fault = file_fault(path)
        if fault:
            return f"--event: {fault.what}"
        content = Path(path).read_bytes()
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
            return f"--event: {path}:{position + 1}: {error}"
    return events or f"--event: '{path}' holds no message."
