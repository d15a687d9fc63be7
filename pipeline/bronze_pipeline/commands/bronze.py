"""`bronze-pipeline bronze`: reads a bus into the tables `bronze` and `quarantine`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import urlsplit

from bronze_cli.problems import did_you_mean, printable

from bronze_pipeline.commands.base import Command, UsageError
from bronze_pipeline.commands.places import unwritable
from bronze_pipeline.sources import BUS_BY_SCHEME, BUSES, Bus
from bronze_pipeline.sources.base import DEFAULT_MAX_RECORDS, DEFAULT_PARTITIONS, OptionError
from bronze_pipeline.tables.lake import FORMATS, Lake

UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
DEFAULT_TRIGGER = "30s"
DEFAULT_RETRIES = 10


def add_flags(parser: argparse.ArgumentParser) -> None:
    forms = ", ".join(bus.url_form for bus in BUSES)
    parser.add_argument("--from", dest="origin", metavar="URL", required=True, help=f"the bus: {forms}")
    parser.add_argument(
        "--to", metavar="PLACE", required=True, help="folder or URL in which the tables are, or are made"
    )
    parser.add_argument(
        "--checkpoint", metavar="PLACE", help="where the job notes how far it is; below --to by default"
    )
    parser.add_argument(
        "--available-now", action="store_true", help="end when what is on the bus now is stored"
    )
    parser.add_argument(
        "--trigger",
        metavar="TIME",
        default=DEFAULT_TRIGGER,
        help="time between micro-batches, such as 500ms or 5m (%(default)s)",
    )
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the tables (%(default)s)")
    parser.add_argument(
        "--keep-raw", action="store_true", help="keep each envelope's bytes in the column raw"
    )
    parser.add_argument(
        "--start",
        metavar="POSITION",
        default="earliest",
        help="where a new checkpoint begins: earliest, latest or a position (%(default)s)",
    )
    parser.add_argument(
        "--max-records-per-batch",
        metavar="N",
        default=str(DEFAULT_MAX_RECORDS),
        help="most records of a micro-batch (%(default)s)",
    )
    parser.add_argument(
        "--partitions",
        metavar="N",
        default=str(DEFAULT_PARTITIONS),
        help="tasks of a micro-batch (%(default)s)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "continue"),
        default="fail",
        help="when the bus has lost records that were not read: stop, or note it in quarantine (%(default)s)",
    )
    parser.add_argument(
        "--retries",
        metavar="N",
        default=str(DEFAULT_RETRIES),
        help="how often in a row to start again after the bus or a worker was lost, with growing pauses"
        " (%(default)s)",
    )
    parser.add_argument(
        "--cores", metavar="N", help="cores of this machine to use, without spark-submit (all)"
    )
    for bus in BUSES:
        bus.add_flags(parser)


@dataclass(frozen=True)
class BronzePlan:
    """A command line that can be used."""

    bus: Bus
    options: dict[str, str]
    lake: Lake
    checkpoint: str
    trigger: str
    available_now: bool
    retries: int
    keep_raw: bool
    cores: int | None


def plan(flags: argparse.Namespace) -> BronzePlan:
    """Check the flags; raise UsageError with every problem."""
    problems: list[str] = []
    url = urlsplit(flags.origin)
    bus = BUS_BY_SCHEME.get(url.scheme)
    options: dict[str, str] = {}
    if bus is None:
        known = did_you_mean(url.scheme, BUS_BY_SCHEME)
        problems.append(f"--from: no bus has the scheme '{printable(url.scheme)}'. {known}")
    else:
        try:
            options = bus.options(url, flags)
        except OptionError as error:
            problems.append(str(error))
    for flag in ("max_records_per_batch", "partitions", "cores"):
        value = getattr(flags, flag)
        if value is not None and not _is_count(value):
            problems.append(f"--{flag.replace('_', '-')}: '{printable(value)}' is no whole number from 1 on.")
    if not _is_number(flags.retries):
        problems.append(f"--retries: '{printable(flags.retries)}' is no whole number from 0 on.")
    trigger = re.fullmatch(r"(\d{1,9})(ms|s|m|h)", flags.trigger)
    if trigger is None:
        problems.append(
            f"--trigger: '{printable(flags.trigger)}' is no time. It looks like 500ms, 30s or 5m."
        )
    problems += unwritable(to=flags.to, checkpoint=flags.checkpoint)
    lake = Lake(flags.to, flags.format)
    checkpoint = flags.checkpoint or _default_checkpoint(lake, bus, options)
    if checkpoint is None:
        problems.append(
            "--checkpoint: is required where --to is a URL, in the form that Spark reads, such as s3a://."
        )
    if problems or bus is None or trigger is None or checkpoint is None:
        raise UsageError(problems)
    options |= {
        "start": flags.start,
        "maxRecordsPerBatch": flags.max_records_per_batch,
        "partitions": flags.partitions,
        "onDataLoss": flags.on_data_loss,
    }
    try:
        bus.check(options)
    except OptionError as error:
        raise UsageError([str(error)]) from error
    words = f"{trigger[1]} {UNITS[trigger[2]]}"
    cores = int(flags.cores) if flags.cores else None
    return BronzePlan(
        bus, options, lake, checkpoint, words, flags.available_now, int(flags.retries), flags.keep_raw, cores
    )  # fmt: skip


def run(flags: argparse.Namespace) -> int:
    chosen = plan(flags)
    from bronze_pipeline.bronze.command import run_bronze  # noqa: PLC0415 - a wrong command line need not wait for Spark

    return run_bronze(chosen)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_count(text: str) -> bool:
    return _is_number(text) and int(text) > 0


def _default_checkpoint(lake: Lake, bus: Bus | None, options: Mapping[str, str]) -> str | None:
    if not lake.url.startswith("file://"):
        return None
    subject = "-".join(options[name] for name in bus.subject if name in options) if bus else ""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", subject)
    if name != subject:
        # What was replaced may be all that tells it from another.
        name += f"-{blake2b(subject.encode(), digest_size=4).hexdigest()}"
    return f"{lake.url}/_checkpoints/bronze-{bus.name if bus else ''}-{name}"


BRONZE = Command("bronze", "read a bus into the bronze tables", add_flags, run)
