"""`bronze-pipeline chart`: draws the trades and bars of one symbol to a PNG file."""

from __future__ import annotations

import argparse
from pathlib import Path

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pyarrow.compute as pc
from bronze_cli.problems import printable

from bronze_pipeline.commands.base import Command, CommandFailed, UsageError
from bronze_pipeline.intervals import parse_interval
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import in_one_line

TRADE_COLUMNS = ["event_ts", "price", "qty", "side"]
BAR_COLUMNS = ["open_ts", "close_ts", "open", "high", "low", "close", "buy_volume", "sell_volume"]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="origin",
        metavar="PLACE",
        required=True,
        help="folder or URL of the silver tables, such as lake/silver",
    )
    parser.add_argument("--exchange", metavar="NAME", required=True, help="the symbol's exchange")
    parser.add_argument("--symbol", metavar="NAME", required=True, help="the symbol")
    parser.add_argument(
        "--bars", metavar="TIME", default="1m", help="interval of the bars, as given to silver (%(default)s)"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="the PNG file to write")


def run(flags: argparse.Namespace) -> int:
    if parse_interval(flags.bars) is None:
        raise UsageError([f"--bars: '{printable(flags.bars)}' is no time. It looks like 1s, 5m or 1h."])
    try:
        from bronze_pipeline.chart import draw  # noqa: PLC0415 - an extra that this command alone needs
    except ImportError as error:
        raise CommandFailed("charts need Matplotlib: pip install 'bronze-sidecar[chart]'") from error
    lake = Lake(flags.origin)
    trades = _rows(lake, "trades", TRADE_COLUMNS, flags)
    bars = _rows(lake, f"bars_{flags.bars}", BAR_COLUMNS, flags)
    if not len(bars):
        raise CommandFailed(f"there are no bars of {printable(flags.symbol)} on {printable(flags.exchange)}.")
    title = f"{flags.symbol} on {flags.exchange}, {flags.bars} bars"
    try:
        draw(trades, bars, title).savefig(Path(flags.out), format="png")
    except OSError as error:
        raise CommandFailed(f"cannot write {flags.out}: {error.strerror}") from error
    print(f"{flags.out}: {len(trades):,} trades, {len(bars):,} bars")
    return 0


def _rows(lake: Lake, name: str, columns: list[str], flags: argparse.Namespace) -> pa.Table:
    try:
        table = deltalake.DeltaTable(lake.table_url(name))
    except deltalake.exceptions.TableNotFoundError as error:
        raise UsageError([f"--from: there is no table {name} at {flags.origin}."]) from error
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise CommandFailed(
            f"cannot read the table {name} at {flags.origin}: {in_one_line(error)}"
        ) from error
    missing = [each for each in columns if each not in {field.name for field in table.schema().fields}]
    if missing:
        raise UsageError([f"--from: the table {name} at {flags.origin} has no column {missing[0]}."])
    wanted = (pc.field("exchange") == flags.exchange) & (pc.field("symbol") == flags.symbol)
    try:
        return table.to_pyarrow_dataset().to_table(columns=columns, filter=wanted)
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"cannot read the table {name} at {flags.origin}: {in_one_line(error)}"
        ) from error


CHART = Command("chart", "draw the trades and bars of one symbol", add_flags, run)
