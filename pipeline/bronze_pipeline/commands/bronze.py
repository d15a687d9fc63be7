"""`bronze-pipeline bronze`: reads a bus into the tables `bronze` and `quarantine`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import SplitResult, urlsplit

from bronze_cli.given import GivenValues, Names, from_flags, missing, parsed
from bronze_cli.options import Raw, option, options_of
from bronze_cli.problems import ConfigError, Fault, Problem, did_you_mean, shorten
from bronze_cli.values import Choice, Scalar, Switch

from bronze_pipeline.commands.job_options import JobOptions
from bronze_pipeline.commands.storage_options import use_storage_options
from bronze_pipeline.sources import BUS_BY_SCHEME, BUSES, Bus
from bronze_pipeline.sources.options import StreamOptions, made, option_name
from bronze_pipeline.tables.lake import FORMATS, Lake

DESCRIPTION = """
Reads a bus with Spark Structured Streaming into the tables `bronze` and `quarantine`, each event exactly
once, and resumes where it stopped. SIGTERM or SIGINT stops it; at the end it prints a summary as JSON.

Exit status: 0 stopped, or everything is stored · 1 the job failed · 2 the command line is wrong.
"""


class BusUrl(Scalar):
    """The bus, and what to read on it."""

    metavar = "URL"

    def read(self, text: str) -> SplitResult | list[Fault]:
        url = urlsplit(text)
        if url.scheme in BUS_BY_SCHEME:
            return url
        known = did_you_mean(url.scheme, BUS_BY_SCHEME)
        return [Fault(f"no bus has the scheme '{shorten(url.scheme)}'.", known)]


@dataclass(frozen=True)
class BronzeOptions(JobOptions, StreamOptions):
    """What the command takes for every bus."""

    from_: SplitResult = option(
        BusUrl(), f"Bus to read: {', '.join(bus.url_form for bus in BUSES)}.", required=True
    )
    format: str = option(Choice(*FORMATS), "Table format.", default=FORMATS[0])
    keep_raw: bool = option(Switch(), "Keep each envelope's bytes in the column raw.", default=False)


OPTIONS = (
    *options_of(BronzeOptions),
    *(each for bus in BUSES for each in options_of(bus.access, bus.name)),
)
NAMES = Names(OPTIONS, listed_by="bronze-pipeline bronze --help")


@dataclass(frozen=True)
class BronzePlan:
    """A command line that can be used."""

    bus: Bus
    source_options: dict[str, str]
    """As passed to Spark."""
    lake: Lake
    checkpoint: str
    options: BronzeOptions


def plan(arguments: Sequence[str]) -> BronzePlan:
    """Check the command line; raise ConfigError with every problem."""
    given = from_flags(arguments, NAMES)
    use_storage_options(given)
    problems = given.problems
    values = parsed(given.values, NAMES, problems)
    problems += missing(given.values, OPTIONS)
    options = BronzeOptions(
        **{each.attribute: values[each.path] for each in options_of(BronzeOptions) if each.path in values}
    )
    bus = BUS_BY_SCHEME[options.from_.scheme] if options.from_ else None
    source = _source(bus, options.from_, given.values, problems) if bus else {}
    lake = Lake(options.to or "", options.format)
    if problems or bus is None:
        raise ConfigError(problems)
    checkpoint = options.checkpoint or _default_checkpoint(lake, bus, source)
    return BronzePlan(bus, source, lake, checkpoint, options)


def _source(bus: Bus, url: SplitResult, given: GivenValues, problems: list[Problem]) -> dict[str, str]:
    """Return the options of a bus's source: from the URL, from flags for every bus, and from its own."""
    from_url = bus.from_url(url)
    if isinstance(from_url, Fault):
        problems.append(Problem("--from", from_url.what, from_url.remedy))
        return {}
    texts: dict[str, tuple[str, Raw | None]] = {name: ("--from", text) for name, text in from_url.items()}
    for group, cls in (("", StreamOptions), (bus.name, bus.access)):
        for each in options_of(cls, group):
            if each.path in given:
                texts[each.name] = given[each.path]
    made(bus.options, texts, problems)
    return {option_name(name): text for name, (_, text) in texts.items() if isinstance(text, str)}


def _default_checkpoint(lake: Lake, bus: Bus, source: Mapping[str, str]) -> str:
    subject = "-".join(source[name] for name in bus.subject if name in source)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", subject)
    if name != subject:
        # The replaced characters may be the only difference from another name.
        name += f"-{blake2b(subject.encode(), digest_size=4).hexdigest()}"
    return f"{lake.url}/_checkpoints/bronze-{bus.name}-{name}"


def run(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    chosen = plan(arguments)
    from bronze_pipeline.bronze.command import run_bronze  # noqa: PLC0415 - a wrong command line fails without loading Spark

    return run_bronze(chosen)
