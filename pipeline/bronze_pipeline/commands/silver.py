"""`bronze-pipeline silver`: types the bronze table's events, and makes bars and books from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bronze_cli.given import Names, from_flags, missing, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError, Problem
from bronze_cli.values import Choice, Integer, ListOf

from bronze_pipeline.commands.job_options import JobOptions
from bronze_pipeline.commands.places import BronzeTable
from bronze_pipeline.intervals import Interval, Time, trusted
from bronze_pipeline.tables.lake import Lake

DESCRIPTION = """
Follows a bronze table: types its events, and makes bars and order books from them, in separate tables.
SIGTERM or SIGINT stops it; at the end it prints a summary as JSON.

Exit status: 0 stopped, or everything is stored · 1 the job failed · 2 the command line is wrong.
"""


@dataclass(frozen=True)
class SilverOptions(JobOptions):
    """What the command takes."""

    from_: str = option(BronzeTable(), "Bronze table: a folder or URL such as lake/bronze.", required=True)
    bars: tuple[Interval, ...] = option(
        ListOf(Time(), may_be_empty=True), "Intervals of the bars; empty for none.", default=(trusted("1m"),)
    )
    watermark: Interval | None = option(
        Time(),
        "How far behind the newest trade a trade may be and still change its bar. This bounds the state of a"
        " job that never ends. Without it, trades may come in any order.",
    )
    book_depth: int = option(
        Integer(0, 1000), "Best levels of the order books to store; 0 for none.", default=10
    )
    book_interval: Interval | None = option(
        Time(), "Store the books once per interval, not after each message."
    )
    max_records_per_batch: int = option(
        Integer(1, 10**9),
        "Maximum events in a micro-batch; a bronze commit is never split.",
        default=500_000,
    )
    on_data_loss: str = option(
        Choice("fail", "continue"),
        "What to do if the log of a table no longer has what was not read: stop, or begin anew with what the"
        " table has now. Rows that are already stored are not stored twice.",
        default="fail",
    )


OPTIONS = options_of(SilverOptions)
NAMES = Names(OPTIONS, listed_by="bronze-pipeline silver --help")


@dataclass(frozen=True)
class SilverPlan:
    """A command line that can be used."""

    bronze: str
    lake: Lake
    checkpoints: str
    options: SilverOptions


def plan(arguments: Sequence[str]) -> SilverPlan:
    """Check the command line; raise ConfigError with every problem."""
    given = from_flags(arguments, NAMES)
    problems = given.problems
    values = parsed(given.values, NAMES, problems)
    problems += missing(given.values, OPTIONS)
    options = SilverOptions(**{NAMES.by_path[path].attribute: value for path, value in values.items()})
    problems += _repeated(options.bars)
    lake = Lake(options.to or "")
    problems += options.problems()
    if problems:
        raise ConfigError(problems)
    return SilverPlan(
        Lake(options.from_).url, lake, options.checkpoint or f"{lake.url}/_checkpoints", options
    )


def _repeated(bars: Sequence[Interval]) -> Iterator[Problem]:
    lengths = [each.microseconds for each in bars]
    for place, each in enumerate(bars):
        if each.microseconds in lengths[:place]:
            yield Problem("--bars", f"'{each.label}' is as long as another one.")


def run(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    chosen = plan(arguments)
    from bronze_pipeline.silver.job import run_silver  # noqa: PLC0415 - a wrong command line fails without loading Spark

    return run_silver(chosen)
