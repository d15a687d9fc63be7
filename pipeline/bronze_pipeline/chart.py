"""Draws the trades and bars of one symbol; needs Matplotlib."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

RISING, FALLING, INK, GRID = "#2a9d8f", "#e05a47", "#30343f", "#e6e8ec"
BODY_SHARE = 0.7
"""How much of its interval a candle covers."""
WIDTH_INCHES, HEIGHT_INCHES = 12, 7
DOTS_PER_INCH = 120
SMALLEST_DOT, LARGEST_DOT = 4.0, 90.0
UNCROWDED_TRADES = 300
"""With more trades, dots are smaller: the candles behind them must stay visible."""


def draw(trades: pa.Table, bars: pa.Table, title: str) -> Figure:
    """Draw candles with the trades on top, and the volumes below.

    `trades` has `event_ts`, `price`, `qty` and `side`; `bars` has `open_ts`, `close_ts`, `open`, `high`,
    `low`, `close`, `buy_volume` and `sell_volume`.
    """
    figure = Figure(
        figsize=(WIDTH_INCHES, HEIGHT_INCHES), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white"
    )
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.15)  # type: ignore[union-attr,call-arg] # as chosen above
    prices, volumes = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for axes in (prices, volumes):
        _tidy(axes)
    rows = bars.sort_by("open_ts").to_pylist()
    _candles(prices, rows)
    _dots(prices, trades)
    _volumes(volumes, rows)
    prices.set_title(title, loc="left", fontsize=15, fontweight="bold", color=INK, pad=14)
    subtitle = f"{len(trades):,} trades in {len(rows):,} bars{_span(rows)}"
    prices.annotate(
        subtitle, (1, 1), xytext=(0, 14), xycoords="axes fraction", textcoords="offset points",
        ha="right", va="bottom", color="#7a7f8c",
    )  # fmt: skip
    prices.set_ylabel("price", color=INK)
    volumes.set_ylabel("volume", color=INK)
    locator = AutoDateLocator()
    volumes.xaxis.set_major_locator(locator)
    volumes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    return figure


def _tidy(axes: Axes) -> None:
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.spines[:].set_visible(False)
    axes.margins(x=0.02, y=0.08)


def _candles(axes: Axes, rows: list[dict[str, Any]]) -> None:
    for color, own in _by_direction(rows):
        wicks = [[(_middle(row), float(row["low"])), (_middle(row), float(row["high"]))] for row in own]
        bodies = [_box(row, float(row["open"]), float(row["close"])) for row in own]
        axes.add_collection(LineCollection(wicks, colors=color, linewidths=1.1, zorder=2))
        # The trades on top stay visible.
        axes.add_collection(
            PolyCollection(bodies, facecolors=f"{color}66", edgecolors=color, linewidths=1.1, zorder=3)
        )
    axes.autoscale_view()


def _volumes(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Stack sold volume on bought volume."""
    bought = [float(row["buy_volume"]) for row in rows]
    sold = [float(row["sell_volume"]) for row in rows]
    middles = [_middle(row) for row in rows]
    widths = [_width(row) * BODY_SHARE for row in rows]
    axes.bar(middles, bought, width=widths, color=RISING, alpha=0.8, label="bought")
    axes.bar(middles, sold, width=widths, bottom=bought, color=FALLING, alpha=0.8, label="sold")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, ncols=2, fontsize=9, labelcolor=INK)


def _dots(axes: Axes, trades: pa.Table) -> None:
    usable = trades.filter(pc.and_(pc.is_valid(trades["price"]), pc.is_valid(trades["qty"])))
    if not len(usable):
        return
    quantities = [float(each) for each in usable["qty"].to_pylist()]
    largest = max(quantities) or 1.0
    room = min(1.0, UNCROWDED_TRADES / len(quantities))
    # Areas grow with quantities.
    widest = SMALLEST_DOT + (LARGEST_DOT - SMALLEST_DOT) * room
    sizes = [SMALLEST_DOT + (widest - SMALLEST_DOT) * each / largest for each in quantities]
    colors = [FALLING if side == "sell" else RISING for side in usable["side"].to_pylist()]
    axes.scatter(
        date2num(usable["event_ts"].to_pylist()),
        [float(each) for each in usable["price"].to_pylist()],
        s=sizes, c=colors, alpha=0.45, linewidths=0.5 * room, edgecolors="white", zorder=4,
    )  # fmt: skip


def _by_direction(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    rising = [row for row in rows if row["close"] >= row["open"]]
    falling = [row for row in rows if row["close"] < row["open"]]
    return [(RISING, rising), (FALLING, falling)]


def _box(row: dict[str, Any], first: float, second: float) -> list[tuple[float, float]]:
    half = _width(row) * BODY_SHARE / 2
    left, right = _middle(row) - half, _middle(row) + half
    return [(left, first), (right, first), (right, second), (left, second)]


def _middle(row: dict[str, Any]) -> float:
    opened: datetime = row["open_ts"]
    closed: datetime = row["close_ts"]
    return float(date2num(opened + (closed - opened) / 2))


def _width(row: dict[str, Any]) -> float:
    length: timedelta = row["close_ts"] - row["open_ts"]
    return length / timedelta(days=1)


def _span(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    return f", {rows[0]['open_ts']:%Y-%m-%d %H:%M:%S} to {rows[-1]['close_ts']:%Y-%m-%d %H:%M:%S} UTC"
