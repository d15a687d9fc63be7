"""The second half of the demo: tables and a chart of the stream, by the commands that a user would type."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
from bronze_pipeline.running.session import NoJava, require_java
from quick_java import quick_java

PROGRAM = "bronze-pipeline"
EXCHANGE, SYMBOL = "bitmex", "XBTUSD"
BARS = "2s"
SHOWN = 5


class CommandFailed(Exception):  # noqa: N818 - named for what it says
    """A command did not end well."""


@dataclass(frozen=True)
class Places:
    """Where the second half of the demo writes to."""

    lake: Path
    chart: Path


def missing_java() -> str | None:
    """Say what Spark lacks here; None if nothing."""
    try:
        require_java()
    except NoJava as reason:
        return str(reason)
    return None


def bronze_command(nats: str, stream: str, places: Places) -> list[str]:
    return ["bronze", "--from", f"{nats}/{stream}", "--to", str(places.lake), "--available-now"]


def verify_command(stream_id: str, messages: int, places: Places) -> list[str]:
    counts = ["--stream", stream_id, "--messages", str(messages)]
    return ["verify", "--table", str(places.lake / "bronze"), *counts]


def silver_command(places: Places) -> list[str]:
    tables = ["--from", str(places.lake / "bronze"), "--to", str(places.lake / "silver")]
    return ["silver", *tables, "--bars", BARS, "--available-now"]


def chart_command(places: Places) -> list[str]:
    what = ["--exchange", EXCHANGE, "--symbol", SYMBOL, "--bars", BARS]
    return ["chart", "--from", str(places.lake / "silver"), *what, "--out", str(places.chart)]


def run(command: Sequence[str], seconds: float) -> str:
    """Run a command, with its progress where it is seen; return what it printed."""
    shows_progress = sys.stderr.isatty()
    with subprocess.Popen(
        [sys.executable, "-m", "bronze_pipeline", *command],
        stdout=subprocess.PIPE,
        stderr=None if shows_progress else subprocess.PIPE,
        text=True,
        env={"SPARK_SUBMIT_OPTS": quick_java(), **os.environ},
        start_new_session=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=seconds)
        except BaseException:
            # With its Java process, which would go on by itself for a while.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise CommandFailed(f"{PROGRAM} {command[0]} ended with status {process.returncode}.\n{said or ''}")
    return printed


def bronze_summary(text: str) -> str:
    found = json.loads(text)
    return f"{found['events']:,} events in the table, {found['quarantined']:,} in quarantine"


def silver_counts(text: str) -> list[tuple[str, str]]:
    return [(name, f"{rows:,}") for name, rows in json.loads(text)["rows"].items()]


def book_summary(text: str) -> str:
    """Compare the books that were built of changes with the snapshots that the market sent."""
    checks = json.loads(text)["book_checks"]
    same, different = (sum(each[name] for each in checks) for name in ("matches", "mismatches"))
    return f"{same:,} snapshots of the market show the books as they were built; {different:,} do not."


def samples(places: Places) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Return a few rows of some tables, each with a title and heads."""
    where = f"{SYMBOL} on {EXCHANGE}"
    yield f"trades, {where}", _trades(places)
    yield f"bars_{BARS}, {where}", _bars(places)
    yield f"book_top, {where}", _books(places)


def _trades(places: Places) -> list[tuple[str, ...]]:
    names = ("event_ts", "side", "price", "qty", "price_e8", "trade_id")
    return _shown(places, "trades", names, "position")


def _bars(places: Places) -> list[tuple[str, ...]]:
    names = ("open_ts", "open", "high", "low", "close", "volume", "trades", "vwap")
    return _shown(places, f"bars_{BARS}", names, "open_ts")


def _books(places: Places) -> list[tuple[str, ...]]:
    """Return the best bids and asks, as `quantity @ price`."""
    rows = _rows(places, "book_top", ("event_ts", "bids", "asks", "position"), "position")
    heads = ("event_ts", "second bid", "best bid", "best ask", "second ask")
    levels = [(row["event_ts"], *reversed(row["bids"][:2]), *row["asks"][:2]) for row in rows]
    return [heads, *(tuple(map(_text, cells)) for cells in levels)]


def _shown(places: Places, table: str, names: Sequence[str], order: str) -> list[tuple[str, ...]]:
    rows = _rows(places, table, dict.fromkeys((*names, order)), order)
    return [tuple(names), *(tuple(_text(row[name]) for name in names) for row in rows)]


def _rows(
    places: Places, table: str, names: Sequence[str] | dict[str, None], order: str
) -> list[dict[str, Any]]:
    """Return a few rows of the symbol, from the middle of the table."""
    stored = deltalake.DeltaTable(places.lake / "silver" / table).to_pyarrow_table(
        columns=[*names, "exchange", "symbol"]
    )
    rows = [row for row in stored.to_pylist() if (row["exchange"], row["symbol"]) == (EXCHANGE, SYMBOL)]
    rows.sort(key=lambda row: row[order])
    middle = max(0, len(rows) // 2 - SHOWN // 2)
    return rows[middle : middle + SHOWN]


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%H:%M:%S}.{value.microsecond // 1000:03}"
    if isinstance(value, dict):
        return f"{_text(value['qty'])} @ {_text(value['price'])}"
    if isinstance(value, Decimal):
        whole = value.normalize()
        return f"{whole:f}" if -whole.as_tuple().exponent <= 8 else f"{value:.4f}"  # type: ignore[operator]
    return "" if value is None else f"{value}"
