"""The silver job with all its queries, killed while bronze and maintenance run: the tables are exact."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.tables.lake import Lake
from pipeline_jobs import JobProcess, maintained, publish
from servers import NatsServer
from silver_frames import at, stored
from small_market import (
    DEPTH,
    Level,
    MadeTrade,
    bronze_events,
    comparable,
    expected_bars,
    expected_books,
    expected_trades,
)

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

END_SECONDS = 600.0
TRADE = ("symbol", "trade_id", "side", "price", "qty", "event_ts")
BAR = (
    "symbol", "open_ts", "open", "high", "low", "close", "volume", "buy_volume", "sell_volume", "trades",
    "turnover", "vwap",
)  # fmt: skip
# Dies before or after a commit of a table.
DYING = """
import os, signal, sys
from bronze_pipeline.cli import main
from bronze_pipeline.tables.lean_delta import LeanDeltaTable

commit = LeanDeltaTable.commit
moment, table = sys.argv.pop(1).split()

def dying(self, files, *given, **named):
    if not files or self.folder.url.rpartition("/")[2] != table:
        return commit(self, files, *given, **named)
    if moment == "after":
        commit(self, files, *given, **named)
    os.killpg(0, signal.SIGKILL)

LeanDeltaTable.commit = dying
sys.exit(main(sys.argv[1:]))
"""
MOMENTS = ("after trades", "before bars_1m", "after book_top")


def market() -> tuple[list[MadeTrade], list[Level]]:
    chance = random.Random(5)  # noqa: S311 - no secret
    trades = [
        MadeTrade(
            symbol=chance.choice(["A", "A|B"]),
            trade_id=f"{place}" if (is_known := place % 5 > 0) else "",
            side=chance.choice(["BUY", "SELL"]),
            price=f"{chance.randrange(1, 500)}",
            qty=chance.choice(["1", "0.25", "3e-18"]),
            time=at(chance.randrange(600)) + timedelta(microseconds=place),
            # Every other one is in two streams.
            ids=(f"r:{place}", f"s:{place}")[: 1 + (is_known and place % 2)],
        )
        for place in range(300)
    ]
    levels = [
        Level(
            position,
            level,
            chance.choice(["BUY", "SELL"]),
            chance.randrange(1, 200),
            chance.randrange(3),
            position % 40 == 0,
            date(2024, 1, 1),
        )
        for position in range(200)
        for level in range(1 + position % 3)
    ]
    return trades, levels


def envelope(row: dict[str, Any]) -> bytes:
    """Return a bronze row as it comes from a bus."""
    event = NormalizedEvent(exchange=row["exchange"], symbol=row["symbol"])
    event.local_ts.FromDatetime(row["local_ts"])
    event.meta.update(row["meta"])
    event.meta["event_id"] = row["event_id"]
    payload = getattr(event, "trade" if "trade" in row else "book_change")
    fields = row.get("trade") or row["book_change"]
    times = {name: value for name, value in fields.items() if isinstance(value, datetime)}
    payload.MergeFrom(type(payload)(**{name: value for name, value in fields.items() if name not in times}))
    for name, value in times.items():
        getattr(payload, name).FromDatetime(value)
    found: bytes = event.SerializeToString()
    return found


def parts(values: Sequence[bytes], count: int) -> list[Sequence[bytes]]:
    size = -(-len(values) // count)
    return [values[first : first + size] for first in range(0, len(values), size)]


def count_in(table: Path) -> int:
    """Return how many rows a table has by its log."""
    if not (table / "_delta_log" / f"{0:020}.json").exists():
        return 0
    return int(pc.sum(pa.table(deltalake.DeltaTable(table).get_add_actions())["num_records"]).as_py() or 0)


def test_silver_killed_while_bronze_and_maintenance_run(
    java: None, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    trades, levels = market()
    events = [envelope(row) for row in bronze_events(trades, levels)]
    random.Random(6).shuffle(events)  # noqa: S311 - no secret
    first, *others = parts(events, len(MOMENTS) + 1)
    asyncio.run(publish(server.url, "S", *first))
    logs = {name: tmp_path / f"{name}.log" for name in ("bronze", "silver")}
    lake, lake_of_bronze = Lake(str(tmp_path / "silver")), tmp_path / "lake/bronze"
    bronze = JobProcess(
        logs["bronze"],
        *("--from", f"{server.url}/S", "--to", str(tmp_path / "lake")),
        *("--trigger", "500ms", "--cores", "1"),
    )
    flags = (
        *("--from", str(lake_of_bronze), "--to", lake.place, "--cores", "2"),
        *("--bars", "1m", "--book-depth", str(DEPTH), "--trigger", "500ms"),
    )
    try:
        bronze.wait_for(lambda: count_in(lake_of_bronze) > 0, END_SECONDS)
        tables = [Path(lake.place, name) for name in ("trades", "book_changes", "bars_1m", "book_top")]
        with maintained(lake_of_bronze, *tables) as statuses:
            for moment, part in zip(MOMENTS, others, strict=True):
                program = [sys.executable, "-c", DYING, moment]
                dying = JobProcess(logs["silver"], *flags, program=program, command="silver")
                # While it starts.
                asyncio.run(publish(server.url, "S", *part))
                assert dying.finish(END_SECONDS)[0] == -9, logs["silver"].read_text()
            bronze.wait_for(lambda: count_in(lake_of_bronze) == len(events), END_SECONDS)
            bronze.stop()
            assert bronze.finish(END_SECONDS)[0] == 0, logs["bronze"].read_text()
            last = JobProcess(logs["silver"], *flags, "--available-now", command="silver")
            status, summary = last.finish(END_SECONDS)
    finally:
        bronze.kill()
    assert (status, summary["faults"], summary["late"]) == (0, 0, 0), logs["silver"].read_text()
    assert set(statuses) <= {0, -signal.SIGKILL}
    assert 0 in statuses
    assert comparable(stored(lake, "trades", TRADE)) == expected_trades(trades)
    assert comparable(stored(lake, "bars_1m", BAR)) == expected_bars(trades)
    books = [
        (position, began, *([(level["price"], level["qty"]) for level in side] for side in sides))
        for position, began, *sides in stored(lake, "book_top", ("position", "has_snapshot", "bids", "asks"))
    ]
    assert books == expected_books(levels)
