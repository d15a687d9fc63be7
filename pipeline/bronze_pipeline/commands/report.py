"""`bronze-pipeline report`: shows what a bronze table holds, as one HTML page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import deltalake.exceptions
from bronze_cli.given import Names, from_flags, missing, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError
from bronze_cli.program import CommandFailed
from bronze_cli.progress import Progress
from bronze_cli.values import Text

from bronze_pipeline.commands.places import BronzeTable
from bronze_pipeline.positions import examine
from bronze_pipeline.report.completeness import lines, worst_first
from bronze_pipeline.report.counts import count
from bronze_pipeline.report.delays import measure
from bronze_pipeline.report.page import Findings, page
from bronze_pipeline.report.quarantine import Quarantined, look_through
from bronze_pipeline.tables.committed import CommittedTable
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import format_of, in_one_line

MOST_STREAMS = 100
QUARANTINE = "quarantine"

DESCRIPTION = """
Writes a page about a bronze table: events by day, exchange and kind, the gaps of each stream, delays, what
is in the quarantine table beside it, sizes and files. The page is one HTML file that loads nothing from
elsewhere.
"""


@dataclass(frozen=True)
class ReportOptions:
    """What the command takes."""

    table: str = option(BronzeTable(), "Bronze table, such as lake/bronze.", required=True)
    out: str = option(Text(), "HTML file to write.", required=True)


OPTIONS = options_of(ReportOptions)
NAMES = Names(OPTIONS, listed_by="bronze-pipeline report --help")


def run(arguments: Sequence[str]) -> int:
    """Write the page."""
    given = from_flags(arguments, NAMES)
    values = parsed(given.values, NAMES, given.problems)
    if problems := [*given.problems, *missing(given.values, OPTIONS)]:
        raise ConfigError(problems)
    options = ReportOptions(**values)
    progress = Progress(sys.stderr)
    try:
        found = look(options.table, progress)
    except (OSError, ValueError, deltalake.exceptions.DeltaError) as error:
        raise CommandFailed(f"cannot read the table at {options.table}: {in_one_line(error)}") from error
    finally:
        progress.end("")
    try:
        Path(options.out).write_text(page(found), encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"cannot write {options.out}: {error.strerror}") from error
    print(f"{options.out}: {found.counts.events.total():,} events, {found.streams:,} streams")
    return 0


def look(place: str, progress: Progress) -> Findings:
    """Look through the table at a place, and the quarantine table beside it."""
    url = Lake(place).url
    table = CommittedTable(url)
    files = len(table.files)
    counts = count(table, _Steps(progress, "counting events", files))
    progress.show("looking for gaps")
    report = examine(table.read)
    shown = lines(table, worst_first(report.streams)[:MOST_STREAMS])
    delays = measure(table, _Steps(progress, "looking up delays", files))
    return Findings(
        place=place,
        made=datetime.now(UTC),
        counts=counts,
        streams=len(report.streams),
        incomplete=sum(not each.is_complete for each in report.streams),
        without_id=report.without_id,
        lines=shown,
        delays=delays,
        quarantined=_quarantined(f"{url.rpartition('/')[0]}/{QUARANTINE}", progress),
    )


def _quarantined(url: str, progress: Progress) -> Quarantined | None:
    if format_of(url) is None:
        return None
    table = CommittedTable(url)
    return look_through(table, _Steps(progress, "looking through the quarantine", len(table.files)))


class _Steps:
    """Shows how many files are done."""

    def __init__(self, progress: Progress, what: str, files: int) -> None:
        self._progress, self._what, self._files = progress, what, files
        self._done = 0

    def __call__(self) -> None:
        self._done += 1
        share = self._done / max(1, self._files)
        self._progress.show(f"{self._what}: {self._done:,} of {self._files:,} files", share)
