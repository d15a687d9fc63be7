"""The chart of trades and bars: what is on it, not how it looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from bronze_pipeline.chart import FALLING, RISING, draw
from bronze_pipeline.cli import main
from bronze_pipeline.silver.upserts import UpsertTable
from bronze_pipeline.tables.lake import Lake
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.dates import date2num
from matplotlib.patches import Rectangle

OPENED = datetime(2024, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def bar(number: int, prices: tuple[str, str, str, str], bought: str, sold: str) -> dict[str, object]:
    numbers = zip(("open", "high", "low", "close"), map(Decimal, prices), strict=True)
    times = {"open_ts": OPENED + number * MINUTE, "close_ts": OPENED + (number + 1) * MINUTE}
    volumes = {"buy_volume": Decimal(bought), "sell_volume": Decimal(sold)}
    return {"exchange": "x", "symbol": "A", **times, **dict(numbers), **volumes}


def trade(seconds: int, price: str | None, side: str | None) -> dict[str, object]:
    number = None if price is None else Decimal(price)
    return {
        "exchange": "x",
        "symbol": "A",
        "event_ts": OPENED + timedelta(seconds=seconds),
        "price": number,
        "qty": Decimal(1),
        "side": side,
    }


BARS = pa.Table.from_pylist(
    [bar(1, ("11", "12", "8", "9"), "0", "3"), bar(0, ("10", "13", "9", "11"), "2", "1")]
)
TRADES = pa.Table.from_pylist([trade(1, "10", "buy"), trade(61, "9", "sell"), trade(62, None, None)])


def corners(candles: Collection) -> list[list[tuple[float, float]]]:
    return [[(x, y) for x, y in np.asarray(path.vertices).tolist()] for path in candles.get_paths()]


def test_a_candle_for_each_bar_and_a_dot_for_each_trade() -> None:
    prices, volumes = draw(TRADES, BARS, "A on x").axes
    rising_wick, rising_body, falling_wick, falling_body, dots = prices.collections
    first, second = (float(date2num(OPENED + MINUTE * number / 2)) for number in (1, 3))
    assert corners(rising_wick) == [[(first, 9), (first, 13)]]
    assert corners(falling_wick) == [[(second, 8), (second, 12)]]
    assert [{y for _, y in candle} for candle in corners(rising_body)] == [{10, 11}]
    assert [{y for _, y in candle} for candle in corners(falling_body)] == [{9, 11}]
    assert [y for _, y in np.asarray(dots.get_offsets()).tolist()] == [10, 9]
    assert [to_hex(tuple(color)) for color in np.asarray(dots.get_facecolor())] == [RISING, FALLING]
    heights = [(bar.get_y(), bar.get_height()) for bar in volumes.patches if isinstance(bar, Rectangle)]
    assert heights == [(0, 2), (0, 0), (2, 1), (0, 3)]
    assert prices.get_title(loc="left") == "A on x"
    assert [text.get_text() for text in prices.texts] == [
        "3 trades in 2 bars, 2024-01-01 12:00:00 to 2024-01-01 12:02:00 UTC"
    ]


def test_a_chart_without_trades_can_be_drawn(tmp_path: Path) -> None:
    figure = draw(TRADES.slice(0, 0), BARS, "A on x")
    figure.savefig(tmp_path / "chart.png")
    assert len(figure.axes[0].collections) == 4


def test_the_command_writes_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deltalake.write_deltalake(str(tmp_path / "trades"), TRADES)
    deltalake.write_deltalake(str(tmp_path / "bars_1m"), BARS)
    target = tmp_path / "chart.png"
    flags = ["--from", str(tmp_path), "--exchange", "x", "--symbol", "A", "--out", str(target)]
    assert main(["chart", *flags]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{target}: 3 trades, 2 bars\n"


def test_bars_that_were_replaced_can_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deltalake.write_deltalake(str(tmp_path / "trades"), TRADES)
    date = pa.array([OPENED.date()] * len(BARS))
    bars = BARS.append_column("date", date)
    table = UpsertTable(Lake(str(tmp_path)), "bars_1m", bars.schema, ("date", "open_ts"))
    table.put(bars, "tests", 0)
    table.put(bars.slice(0, 1), "tests", 1)
    target = tmp_path / "chart.png"
    flags = ["--from", str(tmp_path), "--exchange", "x", "--symbol", "A", "--out", str(target)]
    assert main(["chart", *flags]) == 0
    assert capsys.readouterr().out == f"{target}: 3 trades, 2 bars\n"


def test_tables_of_another_kind_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def says(status: int, problem: str) -> None:
        out = str(tmp_path / "c.png")
        flags = ["--from", str(tmp_path), "--exchange", "x", "--symbol", "A", "--out", out]
        assert main(["chart", *flags]) == status
        assert problem in capsys.readouterr().err

    Lake(str(tmp_path), "parquet").events()
    says(2, f"--from: there is no table trades at {tmp_path}.\n")
    deltalake.write_deltalake(str(tmp_path / "trades"), TRADES)
    deltalake.write_deltalake(str(tmp_path / "bars_1m"), TRADES)
    says(2, f"--from: the table bars_1m at {tmp_path} has no column open_ts.\n")
    for file in (tmp_path / "trades").glob("*.parquet"):
        file.write_bytes(b"no Parquet")
    says(1, f"cannot read the table trades at {tmp_path}: ")
    for entry in (tmp_path / "trades" / "_delta_log").iterdir():
        entry.write_text("no log")
    says(1, f"cannot read the table trades at {tmp_path}: ")


@pytest.mark.parametrize(
    ("flags", "status", "problem"),
    [
        (["--bars", "soon"], 2, "--bars: 'soon' is not a duration. It looks like 500ms, 30s, 5m, 1h or 1d."),
        (["--bars", "1h"], 2, "--from: there is no table bars_1h at {place}."),
        (["--symbol", "B"], 1, "there are no bars for B on x."),
    ],
)
def test_what_cannot_be_drawn_is_said(
    flags: list[str], status: int, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deltalake.write_deltalake(str(tmp_path / "trades"), TRADES)
    deltalake.write_deltalake(str(tmp_path / "bars_1m"), BARS)
    ordinary = {"--from": str(tmp_path), "--exchange": "x", "--symbol": "A", "--out": str(tmp_path / "c.png")}
    given = ordinary | {flags[0]: flags[1]}
    assert main(["chart", *(word for pair in given.items() for word in pair)]) == status
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.removeprefix("bronze-pipeline: ").strip() == problem.format(place=tmp_path)
