"""`bronze-pipeline chart`: draws the trades and bars of one symbol as a PNG file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.compute as pc
from bronze_cli.given import Names, from_flags, missing, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError, Problem, printable
from bronze_cli.program import CommandFailed
from bronze_cli.values import Text

from bronze_pipeline.commands.places import Place
from bronze_pipeline.commands.storage_options import StorageOptions, use_storage_options
from bronze_pipeline.intervals import Interval, Time, trusted
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.storage import storage_options
from bronze_pipeline.tables.tables import in_one_line

TRADE_COLUMNS = ["event_ts", "price", "qty", "side"]
BAR_COLUMNS = ["open_ts", "close_ts", "open", "high", "low", "close", "buy_volume", "sell_volume"]


DESCRIPTION = "Draws the trades and bars of one symbol, from silver tables, as a PNG file."


@dataclass(frozen=True)
class ChartOptions(StorageOptions):
    """What the command takes."""

    from_: str = option(Place(), "Folder or URL of the silver tables, such as lake/silver.", required=True)
    exchange: str = option(Text(), "Exchange of the symbol.", required=True)
    symbol: str = option(Text(), "Symbol to draw.", required=True)
    bars: Interval = option(Time(), "Interval of the bars, as passed to silver.", default=trusted("1m"))
    out: str = option(Text(), "PNG file to write.", required=True)


OPTIONS = options_of(ChartOptions)
NAMES = Names(OPTIONS, listed_by="bronze-pipeline chart --help")


def run(arguments: Sequence[str]) -> int:
    """Draw the chart."""
    given = from_flags(arguments, NAMES)
    use_storage_options(given)
    values = parsed(given.values, NAMES, given.problems)
    if problems := [*given.problems, *missing(given.values, OPTIONS)]:
        raise ConfigError(problems)
    options = ChartOptions(**{NAMES.by_path[path].attribute: value for path, value in values.items()})
    try:
        from bronze_pipeline.chart import draw  # noqa: PLC0415 - an extra that only this command needs
    except ImportError as error:
        raise CommandFailed("charts need Matplotlib: pip install 'bronze-sidecar[chart]'") from error
    trades = _rows(options, "trades", TRADE_COLUMNS)
    bars = _rows(options, f"bars_{options.bars.label}", BAR_COLUMNS)
    if not len(bars):
        what = f"{printable(options.symbol)} on {printable(options.exchange)}"
        raise CommandFailed(f"there are no bars for {what}.")
    title = f"{options.symbol} on {options.exchange}, {options.bars.label} bars"
    try:
        draw(trades, bars, title).savefig(Path(options.out), format="png")
    except OSError as error:
        raise CommandFailed(f"cannot write {options.out}: {error.strerror}") from error
    print(f"{options.out}: {len(trades):,} trades, {len(bars):,} bars")
    return 0


def _rows(options: ChartOptions, name: str, columns: list[str]) -> pa.Table:
    place = options.from_
    try:
        url = Lake(place).table_url(name)
        table = deltalake.DeltaTable(url, storage_options=storage_options(url))
    except deltalake.exceptions.TableNotFoundError as error:
        raise ConfigError([Problem("--from", f"there is no table {name} at {place}.")]) from error
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise CommandFailed(f"cannot read the table {name} at {place}: {in_one_line(error)}") from error
    absent = [each for each in columns if each not in {field.name for field in table.schema().fields}]
    if absent:
        what = f"the table {name} at {place} has no column {absent[0]}."
        raise ConfigError([Problem("--from", what)])
    wanted = (pc.field("exchange") == options.exchange) & (pc.field("symbol") == options.symbol)
    try:
        return table.to_pyarrow_dataset().to_table(columns=columns, filter=wanted)
    except (OSError, ValueError) as error:
        raise CommandFailed(f"cannot read the table {name} at {place}: {in_one_line(error)}") from error
