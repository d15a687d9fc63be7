"""`bronze-pipeline verify`: shows whether a bronze table has every message of its streams exactly once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import deltalake.exceptions
from bronze_cli.given import Names, from_flags, missing, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError, Problem
from bronze_cli.program import CommandFailed
from bronze_cli.values import Integer, Switch, Text

from bronze_pipeline.commands.places import BronzeTable
from bronze_pipeline.ledger.examining import examine_ledger
from bronze_pipeline.ledger.store import Damaged
from bronze_pipeline.positions import Report, StreamReport, examine
from bronze_pipeline.tables.committed import CommittedTable
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import in_one_line

SHOWN = 5


DESCRIPTION = """
Shows, for each stream in a bronze table, whether every message is there exactly once: gaps, repetitions, and
incomplete messages. Messages that are missing at the end are noticed where the stream's end was published, or
with --messages.

Exit status: 0 complete · 1 not complete, or the table cannot be read · 2 the command line is wrong.
"""


@dataclass(frozen=True)
class VerifyOptions:
    """What the command takes."""

    table: str = option(BronzeTable(), "Bronze table, such as lake/bronze.", required=True)
    stream: str | None = option(Text(), "Check only this stream.")
    messages: int | None = option(
        Integer(0, 10**18), "How many messages the stream should have, if its own end does not say it."
    )
    files: bool = option(
        Switch(), "Read the ids in the table's files, even if its ledger has them.", default=False
    )
    json: bool = option(Switch(), "Print JSON, with every gap.", default=False)


OPTIONS = options_of(VerifyOptions)
NAMES = Names(OPTIONS, listed_by="bronze-pipeline verify --help")


def run(arguments: Sequence[str]) -> int:
    """Print what is there; return the exit status."""
    given = from_flags(arguments, NAMES)
    problems = given.problems
    options = VerifyOptions(**parsed(given.values, NAMES, problems))
    problems += missing(given.values, OPTIONS)
    if options.messages is not None and options.stream is None:
        problems.append(
            Problem("--messages", "has no effect on its own.", "Add the --stream that should have this many.")
        )
    if problems:
        raise ConfigError(problems)
    try:
        report = _report(options)
    except (OSError, ValueError, deltalake.exceptions.DeltaError) as error:
        raise CommandFailed(f"cannot read the table at {options.table}: {in_one_line(error)}") from error
    print(_to_json(report) if options.json else "\n".join(_lines(report)))
    return 0 if report.is_complete else 1


def _report(options: VerifyOptions) -> Report:
    url = Lake(options.table).url
    if not options.files:
        try:
            found = examine_ledger(url, options.stream, options.messages)
        except Damaged as error:
            print(f"the ledger cannot be used: {error}; the table's files are read instead", file=sys.stderr)
        else:
            if found is not None:
                return found
    return examine(CommittedTable(url).read, options.stream, options.messages)


def _to_json(report: Report) -> str:
    streams = [
        {**asdict(stream), "missing_messages": stream.missing_messages, "complete": stream.is_complete}
        for stream in report.streams
    ]
    return json.dumps({"complete": report.is_complete, "without_id": report.without_id, "streams": streams})


def _lines(report: Report) -> Iterator[str]:
    names = ["stream", "messages", "events", "missing", "duplicates", "cut", ""]
    rows = [names, *([*_cells(stream)] for stream in report.streams)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    for row in rows:
        first, *others, last = (
            cell.ljust(width) if column in (0, len(names) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *others, last]).rstrip()
    for stream in report.streams:
        if stream.missing:
            yield f"{stream.stream_id}: missing {_listed(_gap(*gap) for gap in stream.missing)}"
        if stream.cut:
            yield f"{stream.stream_id}: levels are missing at {_listed(map(str, stream.cut))}"
    if report.without_id:
        yield f"{report.without_id} events have no id, or an id without stream and position."
    yield "complete" if report.is_complete else "NOT complete"


def _cells(stream: StreamReport) -> Iterator[str]:
    yield stream.stream_id
    for count in (
        stream.messages,
        stream.events,
        stream.missing_messages,
        stream.duplicates,
        len(stream.cut),
    ):
        yield f"{count:,}"
    yield ("complete" if stream.is_complete else "incomplete") + ("" if stream.has_end else ", no end seen")


def _gap(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _listed(texts: Iterable[str]) -> str:
    every: list[Any] = list(texts)
    rest = len(every) - SHOWN
    return ", ".join(every[:SHOWN]) + (f" and {rest} more; --json shows all" if rest > 0 else "")
