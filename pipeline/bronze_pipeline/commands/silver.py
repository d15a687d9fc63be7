"""`bronze-pipeline silver`: types the bronze table's events, and makes bars and books of them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bronze_cli.problems import printable

from bronze_pipeline.commands.base import Command, UsageError
from bronze_pipeline.commands.places import problem_with_bronze, unwritable
from bronze_pipeline.intervals import Interval, parse_interval
from bronze_pipeline.tables.lake import Lake

DEFAULT_BARS = "1m"
DEFAULT_TRIGGER = "30s"
DEFAULT_MAX_RECORDS = "500000"
DEEPEST_BOOK = 1000
TIMES = "such as 500ms, 30s, 5m, 1h or 1d"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="PLACE",
        required=True,
        help="the bronze table: a folder or URL such as lake/bronze",
    )
    parser.add_argument(
        "--to",
        metavar="PLACE",
        required=True,
        help="folder or URL in which the silver tables are, or are made, such as lake/silver",
    )
    parser.add_argument(
        "--checkpoint", metavar="PLACE", help="where the job notes how far it is; below --to by default"
    )
    parser.add_argument("--available-now", action="store_true", help="end when what bronze has now is stored")
    parser.add_argument(
        "--trigger",
        metavar="TIME",
        default=DEFAULT_TRIGGER,
        help=f"time between micro-batches, {TIMES} (%(default)s)",
    )
    parser.add_argument(
        "--bars",
        metavar="TIMES",
        default=DEFAULT_BARS,
        help=f"intervals of the bars, separated by commas, {TIMES}; empty for none (%(default)s)",
    )
    parser.add_argument(
        "--watermark",
        metavar="TIME",
        help="how much later than the newest trade one may come and still change its bar; bounds what a job"
        " that never ends has to remember (without it, trades may come in any order)",
    )
    parser.add_argument(
        "--book-depth",
        metavar="N",
        default="10",
        help="best levels of the order books to store; 0 for none (%(default)s)",
    )
    parser.add_argument(
        "--book-interval",
        metavar="TIME",
        help="store the books once in each interval, not after each message",
    )
    parser.add_argument(
        "--max-records-per-batch",
        metavar="N",
        default=DEFAULT_MAX_RECORDS,
        help="most events of a micro-batch; a commit of bronze is never divided (%(default)s)",
    )
    parser.add_argument(
        "--cores", metavar="N", help="cores of this machine to use, without spark-submit (all)"
    )


@dataclass(frozen=True)
class SilverPlan:
    """A command line that can be used."""

    bronze: str
    lake: Lake
    checkpoints: str
    trigger: Interval
    available_now: bool
    bars: tuple[Interval, ...]
    watermark: Interval | None
    book_depth: int
    book_interval: Interval | None
    max_records: int
    cores: int | None


def plan(flags: argparse.Namespace) -> SilverPlan:
    """Check the flags; raise UsageError with every problem."""
    problems: list[str] = []

    def interval(flag: str, text: str) -> Interval | None:
        found = parse_interval(text)
        if found is None:
            problems.append(
                f"--{flag}: '{printable(text)}' is no time. It looks like 500ms, 30s, 5m, 1h or 1d."
            )
        return found

    def count(flag: str, text: str, lowest: int, highest: int) -> int:
        if text.isascii() and text.isdigit() and lowest <= int(text) <= highest:
            return int(text)
        problems.append(f"--{flag}: '{printable(text)}' is no whole number from {lowest} to {highest}.")
        return lowest

    bronze = Lake(flags.origin).url
    problem = problem_with_bronze(flags.origin)
    if problem:
        problems.append(f"--from: {problem}")
    problems += unwritable(to=flags.to, checkpoint=flags.checkpoint)
    lake = Lake(flags.to)
    checkpoints = flags.checkpoint or (f"{lake.url}/_checkpoints" if lake.url.startswith("file://") else None)
    if checkpoints is None:
        problems.append(
            "--checkpoint: is required where --to is a URL, in the form that Spark reads, such as s3a://."
        )
    trigger = interval("trigger", flags.trigger)
    found = [interval("bars", text.strip()) for text in flags.bars.split(",")] if flags.bars.strip() else []
    bars = [each for each in found if each is not None]
    lengths = [each.microseconds for each in bars]
    problems += [
        f"--bars: '{each.label}' is as long as another one."
        for place, each in enumerate(bars)
        if each.microseconds in lengths[:place]
    ]
    watermark = interval("watermark", flags.watermark) if flags.watermark else None
    book_interval = interval("book-interval", flags.book_interval) if flags.book_interval else None
    depth = count("book-depth", flags.book_depth, 0, DEEPEST_BOOK)
    max_records = count("max-records-per-batch", flags.max_records_per_batch, 1, 10**9)
    cores = count("cores", flags.cores, 1, 4096) if flags.cores else None
    if problems or checkpoints is None or trigger is None:
        raise UsageError(problems)
    return SilverPlan(
        bronze, lake, checkpoints, trigger, flags.available_now, tuple(bars), watermark, depth, book_interval,
        max_records, cores,
    )  # fmt: skip


def run(flags: argparse.Namespace) -> int:
    chosen = plan(flags)
    from bronze_pipeline.silver.job import run_silver  # noqa: PLC0415 - a wrong command line need not wait for Spark

    return run_silver(chosen)


SILVER = Command("silver", "make typed tables, bars and books of the bronze table", add_flags, run)
