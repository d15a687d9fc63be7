"""`bronze-sidecar send`: normalized messages from a file or a pipe into a running sidecar."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from bronze_cli.given import Names, from_flags
from bronze_cli.options import Option, options_of
from bronze_cli.problems import ConfigError, Problem, nearest, shorten
from bronze_cli.values import file_fault

from bronze_sidecar.cli.lines import STANDARD_INPUT, Lines
from bronze_sidecar.cli.transfer import SendOptions, Transfer
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.mapper import StreamContext

USAGE = """\
usage: bronze-sidecar send FILE --to ADDRESS [OPTIONS]

Sends normalized messages, one JSON object a line, to a running sidecar, and waits until every one of
them is acknowledged. FILE may be compressed with gzip or zstd; `-` is standard input. Every line is
one position of the stream; empty lines count for nothing.

At the end a summary is printed as JSON. `sent`, `acknowledged`, `unacknowledged` and `dropped` count
messages; `published`, `filtered` and `failed` count events, of which a book change becomes several.
The exit status is 0 if every event was published or filtered, 1 if not, 2 if the command line is
wrong.

options:
"""


OPTIONS = options_of(SendOptions, "")
NAMES = Names(OPTIONS)


def send(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raise ConfigError if the command line is wrong."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(help_text())
        return 0
    path, options, meta = read_command_line(arguments)
    # Only now: only sending needs an event loop.
    import uvloop  # noqa: PLC0415

    transfer = Transfer(Lines(path), options, meta)
    status = uvloop.run(transfer.run())
    try:
        print(json.dumps(transfer.summary()), flush=True)
    except BrokenPipeError:
        # Nobody reads the summary; the status still says how it went.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def help_text() -> str:
    """Describe the command."""
    lines = []
    for each in OPTIONS:
        lines.append(f"  {each.flag}{' ' if each.value_type.metavar else ''}{each.value_type.metavar}")
        notes = "required" if each.required else f"default {each.default}" if each.default else ""
        lines += textwrap.wrap(
            f"{each.doc}{f' [{notes}]' if notes else ''}",
            100,
            initial_indent=" " * 6,
            subsequent_indent=" " * 6,
        )
    return USAGE + "\n".join(lines)


# -- the command line


def read_command_line(arguments: Sequence[str]) -> tuple[str, SendOptions, dict[str, str]]:
    """Return the file, the options and the meta; raise ConfigError with everything that is wrong."""
    flags, metas, files = _sorted_out(arguments)
    given = from_flags(flags, NAMES)
    problems = list(given.problems)
    values: dict[str, Any] = {}
    for path, (where, raw) in given.values.items():
        value = NAMES.by_path[path].value_type.parse(raw) if raw is not None else []
        if isinstance(value, list):
            problems += [Problem(where, fault.what, fault.remedy) for fault in value]
        else:
            values[NAMES.by_path[path].attribute] = value
    problems += [
        Problem(each.flag, "is missing.", f"Write {each.flag}={each.value_type.metavar}.")
        for each in OPTIONS
        if each.required and each.path not in given.values
    ]
    problems += _file_problems(files)
    meta = _meta(metas, problems)
    options = SendOptions(**values)
    problems += _context_problems(options, meta)
    if problems:
        raise ConfigError(problems)
    return files[0], options, meta


def _sorted_out(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the flags, each with its value in one piece; the values of --meta; and the files."""
    flags, metas, files = [], [], []
    pending = list(reversed(arguments))
    while pending:
        argument = pending.pop()
        name, equals, value = argument.partition("=")
        if not argument.startswith("--"):
            files.append(argument)
            continue
        # What follows a mistyped flag is that flag's value, not the file.
        meant = _meant(name)
        takes_value = meant is not None and not meant.is_switch and not equals
        if takes_value and pending and not pending[-1].startswith("--"):
            value = pending.pop()
            argument = f"{name}={value}"
        if name == "--meta" and "=" in argument:
            metas.append(value)
        else:
            flags.append(argument)
    return flags, metas, files


def _meant(flag: str) -> Option[Any] | None:
    name = flag if flag in NAMES.flags else nearest(flag, NAMES.flags)
    return NAMES.flags[name][0] if name else None


def _file_problems(files: Sequence[str]) -> Iterator[Problem]:
    if not files:
        yield Problem("FILE", "is missing.", "Write the path of a file, or - for standard input.")
    for path in files[:1]:
        fault = None if path == STANDARD_INPUT else file_fault(path)
        if fault:
            yield Problem("FILE", fault.what, fault.remedy)
    for path in files[1:]:
        yield Problem("FILE", f"'{shorten(path)}' is a second file.", "Give one at a time.")


def _meta(texts: Sequence[str], problems: list[Problem]) -> dict[str, str]:
    meta: dict[str, str] = {}
    for text in texts:
        key, colon, value = text.partition(":")
        if not colon:
            problems.append(Problem("--meta", f"'{shorten(text)}' has no ':'.", "Write --meta=KEY:VALUE."))
        elif key in meta:
            problems.append(Problem("--meta", f"'{shorten(key)}' is given twice."))
        meta[key] = value
    return meta


def _context_problems(options: SendOptions, meta: dict[str, str]) -> Iterator[Problem]:
    """Yield what the sidecar would refuse; it says so only of the first thing it finds."""
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
    for key, value in meta.items():
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
