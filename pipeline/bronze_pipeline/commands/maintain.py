"""`bronze-pipeline maintain`: compacts a table, and removes what it no longer needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import deltalake.exceptions
from bronze_cli.given import Names, from_flags, missing, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError, Fault, Problem
from bronze_cli.program import CommandFailed
from bronze_cli.values import Switch

from bronze_pipeline.commands.places import Place
from bronze_pipeline.intervals import Interval, Time, trusted
from bronze_pipeline.tables.cleaning import Ages, Removed, clean, trim_log
from bronze_pipeline.tables.compaction import Compacted, compact
from bronze_pipeline.tables.history import Forgotten
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import format_of, in_one_line

DESCRIPTION = """
Makes few large files of a table's many small ones, and removes files of killed attempts, files that were
replaced, and old entries of the table's log. Jobs may read and write the table meanwhile. A plain Parquet
table is not compacted and has no log to trim; of that only the files of killed attempts are removed.

Exit status: 0 done · 1 the table cannot be read or written · 2 the command line is wrong.
"""

# After this time a checkpoint of the log forgets which files were replaced.
LONGEST_KEPT = trusted("7d")
# A micro-batch takes less, from the first file that a task writes to its commit.
SHORTEST_ORPHAN = trusted("1h")


class AnyTable(Place):
    """A table of either format."""

    def read(self, text: str) -> str | list[Fault]:
        if not text:
            return [Fault("is empty.")]
        try:
            found = format_of(Lake(text).url)
        except (OSError, ValueError) as error:
            return [Fault(f"the table at {text} cannot be read: {in_one_line(error)}")]
        return text if found else [Fault(f"there is no table at {text}.")]


@dataclass(frozen=True)
class MaintainOptions:
    """What the command takes."""

    table: str = option(AnyTable(), "Table, such as lake/bronze or lake/silver/trades.", required=True)
    open_days: bool = option(
        Switch(), "Compact today's files too (UTC), to which jobs are still adding.", default=False
    )
    replaced_after: Interval = option(
        Time(),
        "How long replaced files stay for readers that are behind; 7d at most.",
        default=LONGEST_KEPT,
    )
    orphans_after: Interval = option(
        Time(),
        "How long files that no commit has stay; more than a micro-batch takes, and 1h at least.",
        default=trusted("1d"),
    )
    log_after: Interval = option(
        Time(), "How long entries of the log stay for readers that follow it.", default=trusted("30d")
    )
    dry_run: bool = option(Switch(), "Change nothing; say what would be done.", default=False)


OPTIONS = options_of(MaintainOptions)
NAMES = Names(OPTIONS, listed_by="bronze-pipeline maintain --help")


def run(arguments: Sequence[str]) -> int:
    """Maintain the table and say what was done; return the exit status."""
    given = from_flags(arguments, NAMES)
    problems = given.problems
    options = MaintainOptions(**parsed(given.values, NAMES, problems))
    problems += [*missing(given.values, OPTIONS), *_conflicts(options)]
    if problems:
        raise ConfigError(problems)
    try:
        for line in _maintain(options):
            print(line, flush=True)
    except (OSError, ValueError, Forgotten, deltalake.exceptions.DeltaError) as error:
        raise CommandFailed(f"cannot maintain the table at {options.table}: {in_one_line(error)}") from error
    return 0


def _conflicts(options: MaintainOptions) -> Iterator[Problem]:
    if options.replaced_after.microseconds > LONGEST_KEPT.microseconds:
        yield Problem(
            "--replaced-after", f"is more than {LONGEST_KEPT.label}.", "The log remembers no longer."
        )
    if options.orphans_after.microseconds < SHORTEST_ORPHAN.microseconds:
        yield Problem(
            "--orphans-after",
            f"is less than {SHORTEST_ORPHAN.label}.",
            "Files of a micro-batch that is being written would be removed.",
        )


def _maintain(options: MaintainOptions) -> Iterator[str]:
    url = Lake(options.table).url
    kind = format_of(url) or ""
    if kind == "delta":
        until = None if options.open_days else datetime.now(UTC).date()
        yield from _of_compaction(compact(url, until=until, dry_run=options.dry_run), options)
    ages = Ages(_seconds(options.orphans_after), _seconds(options.replaced_after))
    orphans, replaced = clean(url, kind, ages, dry_run=options.dry_run)
    yield _of_files(orphans, "that no commit has", options)
    if kind == "delta":
        yield _of_files(replaced, f"replaced more than {options.replaced_after.label} ago", options)
        count = trim_log(url, _seconds(options.log_after), dry_run=options.dry_run)
        yield f"{_did('removed', options)} {count:,} files of the log older than {options.log_after.label}"


def _of_compaction(done: Compacted, options: MaintainOptions) -> Iterator[str]:
    into = "" if options.dry_run else f" into {done.after:,}"
    yield (
        f"{_did('compacted', options)} {done.before:,} files{into}, {done.rows:,} rows"
        f" in {done.partitions:,} partitions"
    )
    for partition in done.left:
        yield f"left {partition} as it is: something else changed its files meanwhile"


def _of_files(removed: Removed, which: str, options: MaintainOptions) -> str:
    return f"{_did('removed', options)} {removed.files:,} files {which}, {removed.bytes:,} bytes"


def _did(word: str, options: MaintainOptions) -> str:
    return f"would have {word}" if options.dry_run else word


def _seconds(interval: Interval) -> float:
    return interval.microseconds / 1e6
