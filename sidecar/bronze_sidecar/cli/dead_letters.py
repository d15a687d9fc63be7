"""`bronze-sidecar dead-letters`: shows what was not published, and publishes it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bronze_cli.given import Names, from_flags, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError, Problem, did_you_mean, shorten
from bronze_cli.values import Choice, File, InputFile, ListenAddress, ListOf, Number, Switch, Text

from bronze_sidecar.cli.letters.selection import Letters, groups
from bronze_sidecar.sinks import BACKENDS

DESCRIPTION = """
`show` groups the events of dead-letter files by back end and reason, with counts, times and samples. `send`
publishes them again through a running sidecar and waits until all of them are acknowledged. FILE may be given
several times, the oldest first; `-` is standard input.

What is sent again has the ids that it had, so a reader drops what it knows already. It goes to every back end
of the sidecar; start one with a single back end to send to that alone.

At the end `send` prints a summary as JSON. `sent`, `acknowledged` and `unacknowledged` count letters without
repetitions; `published`, `filtered` and `failed` count events.

Exit status: 0 every event was published or filtered · 1 some were not, or a line is no letter · 2 the command
line is wrong.
"""
ACTIONS = ("show", "send")


@dataclass(frozen=True)
class DeadLetterOptions:
    """What the command takes."""

    to: str | None = option(ListenAddress(unix=True), "For `send`: the sidecar, host:port or unix:///path.")
    backend: tuple[str, ...] = option(
        ListOf(Choice(*(backend.name for backend in BACKENDS))),
        "Only what these back ends gave up; everything if not given.",
        default=(),
    )
    reason: str = option(Text(), "Only what has this text in its reason.", default="")
    dry_run: bool = option(Switch(), "Let `send` show what it would send.", default=False)
    json: bool = option(Switch(), "Let `show` print JSON.", default=False)
    connect_timeout: float = option(
        Number(0.1, 1e9), "Give up if no sidecar answers within this many seconds.", default=30.0
    )
    timeout: float | None = option(
        Number(0.1, 1e9), "Give up if nothing is acknowledged for this many seconds; never if not given."
    )
    tls: bool = option(Switch(), "Encrypt the connection.", default=False)
    tls_ca_file: Path | None = option(File(), "CA certificates to trust instead of the system's.")
    tls_cert_file: Path | None = option(File(), "Client certificate, for mutual TLS.")
    tls_key_file: Path | None = option(File(), "Private key of the client certificate.")


OPTIONS = options_of(DeadLetterOptions)
NAMES = Names(OPTIONS, listed_by="bronze-sidecar dead-letters --help", takes_operands=True)


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raise ConfigError if the command line is wrong."""
    given = from_flags(arguments, NAMES)
    problems = given.problems
    options = DeadLetterOptions(**parsed(given.values, NAMES, problems))
    action, *files = given.operands or [""]
    problems += _operand_problems(action, files)
    if action == "send":
        problems += _connection_problems(options)
    if problems:
        raise ConfigError(problems)
    letters = Letters(files, options.backend, options.reason)
    if action == "show" or options.dry_run:
        return _show(letters, as_json=options.json)
    return _send(letters, options)


def _operand_problems(action: str, files: Sequence[str]) -> Iterator[Problem]:
    if action not in ACTIONS:
        what = f"there is no action '{shorten(action)}'." if action else "the action is missing."
        yield Problem("dead-letters", what, did_you_mean(action, ACTIONS))
    if not files:
        yield Problem("FILE", "is missing.", "Write the path of a dead-letter file, or - for standard input.")
    for path in files:
        found = InputFile().read(path)
        if isinstance(found, list):
            yield from (Problem("FILE", fault.what, fault.remedy) for fault in found)


def _connection_problems(options: DeadLetterOptions) -> Iterator[Problem]:
    if options.to is None and not options.dry_run:
        yield Problem("--to", "is missing.", f"Write --to={ListenAddress.metavar}.")
    if (options.tls_cert_file is None) != (options.tls_key_file is None):
        yield Problem("--tls-cert-file and --tls-key-file", "one needs the other.")
    if (options.to or "").startswith("unix:") and (
        options.tls or options.tls_ca_file or options.tls_cert_file
    ):
        yield Problem("--tls", "a unix socket is not encrypted.")


def _show(letters: Letters, *, as_json: bool) -> int:
    found = groups(letters)
    count = sum(group.count for group in found)
    if as_json:
        facts = {"letters": count, "passed_over": letters.passed_over, "unreadable": letters.unreadable}
        print(json.dumps({**facts, "groups": [group.facts() for group in found]}, indent=2))
    else:
        notes = [f"{count:,} letters", f"{letters.passed_over:,} passed over"]
        notes += [f"{len(letters.unreadable):,} lines are no letters"] * bool(letters.unreadable)
        print("\n\n".join([*(group.text() for group in found), ", ".join(notes) + "."]))
        for place in letters.unreadable[:5]:
            print(f"  {place}")
    return 1 if letters.unreadable else 0


def _send(letters: Letters, options: DeadLetterOptions) -> int:
    # Imported here: only sending needs an event loop.
    import uvloop  # noqa: PLC0415
    from bronze_client.options import Options  # noqa: PLC0415

    from bronze_sidecar.cli.letters.resend import Resend  # noqa: PLC0415

    connection = Options(
        options.to,
        tls=options.tls,
        tls_ca_file=options.tls_ca_file,
        tls_cert_file=options.tls_cert_file,
        tls_key_file=options.tls_key_file,
    )
    resend = Resend(letters, connection, options.connect_timeout, options.timeout)
    status = uvloop.run(resend.run())
    print(json.dumps(resend.summary()), flush=True)
    return status
