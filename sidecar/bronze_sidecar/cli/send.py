"""`bronze-sidecar send`: normalized messages from a file or a pipe into a running sidecar."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from bronze_cli.given import Names, from_flags, missing, parsed
from bronze_cli.options import options_of
from bronze_cli.problems import ConfigError, Problem, shorten
from bronze_cli.values import InputFile

from bronze_sidecar.cli.lines import Lines
from bronze_sidecar.cli.transfer import SendOptions, Transfer
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.mapper import StreamContext

DESCRIPTION = """
Sends normalized messages, one JSON object per line, to a running sidecar and waits until all of them are
acknowledged. FILE may be compressed with gzip or zstd; `-` is standard input. Every line is one position of
the stream; empty lines are ignored.

At the end it prints a summary as JSON. `sent`, `acknowledged`, `unacknowledged` and `dropped` count messages;
`published`, `filtered` and `failed` count events. A book change becomes several events.

Exit status: 0 every event was published or filtered · 1 some were not · 2 the command line is wrong.
"""
OPTIONS = options_of(SendOptions)
NAMES = Names(OPTIONS, listed_by="bronze-sidecar send --help", takes_operands=True)


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raise ConfigError if the command line is wrong."""
    path, options = read_command_line(arguments)
    # Imported here: only sending needs an event loop.
    import uvloop  # noqa: PLC0415

    transfer = Transfer(Lines(path), options)
    status = uvloop.run(transfer.run())
    try:
        print(json.dumps(transfer.summary()), flush=True)
    except BrokenPipeError:
        # Nobody reads the summary; the status still says how it went.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def read_command_line(arguments: Sequence[str]) -> tuple[str, SendOptions]:
    """Return the file and the options; raise ConfigError with everything that is wrong."""
    given = from_flags(arguments, NAMES)
    problems = given.problems
    options = SendOptions(**parsed(given.values, NAMES, problems))
    problems += missing(given.values, OPTIONS)
    problems += file_problems(given.operands)
    problems += _context_problems(options)
    if problems:
        raise ConfigError(problems)
    return given.operands[0], options


def file_problems(files: Sequence[str]) -> Iterator[Problem]:
    """Yield what is wrong with the file that a command line names."""
    if not files:
        yield Problem("FILE", "is missing.", "Write the path of a file, or - for standard input.")
    for path in files[:1]:
        found = InputFile().read(path)
        if isinstance(found, list):
            yield from (Problem("FILE", fault.what, fault.remedy) for fault in found)
    for path in files[1:]:
        yield Problem("FILE", f"'{shorten(path)}' is a second file.", "Give one at a time.")


def _context_problems(options: SendOptions) -> Iterator[Problem]:
    """Yield what the sidecar would refuse; it reports only the first problem it finds."""
    texts: dict[str, Any] = {
        "source": options.source,
        "request_id": options.request_id,
        "session_id": options.session_id,
    }
    if options.stream_id is not None:
        texts["stream_id"] = options.stream_id
    for name, text in texts.items():
        try:
            StreamContext(**{"stream_id": "send", name: text})
        except Rejected as error:
            yield Problem(f"--{name.replace('_', '-')}", f"{error.reason}.")
    for key, value in (options.meta or {}).items():
        try:
            StreamContext(stream_id="send", meta={key: value})
        except Rejected as error:
            yield Problem("--meta", f"{error.reason}.")
    if (options.tls_cert_file is None) != (options.tls_key_file is None):
        yield Problem("--tls-cert-file and --tls-key-file", "one needs the other.")
    if (options.to or "").startswith("unix:") and (
        options.tls or options.tls_ca_file or options.tls_cert_file
    ):
        yield Problem("--tls", "a unix socket is not encrypted.")
