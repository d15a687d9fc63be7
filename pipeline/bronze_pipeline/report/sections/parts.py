"""What the sections share: plots with a title, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bronze_pipeline.report.markup import Markup, behind, table, tag
from bronze_pipeline.report.plots import compact

MOST_ROWS = 1000
"""Of a table; more would make the page slow."""


def figure(title: str, *inside: str | Iterable[str]) -> Markup:
    return tag("figure", tag("figcaption", title), *inside)


def numbers(heads: Sequence[str], rows: Sequence[Iterable[str]], what: str, *, texts: int = 1) -> Markup:
    """Return the table behind a plot."""
    rest = len(rows) - MOST_ROWS
    more = [tag("p", f"{rest:,} more are not listed.")] if rest > 0 else []
    return behind(
        f"{what} as a table", table(heads, rows[:MOST_ROWS], label=f"{what}, table", texts=texts), *more
    )


def byte_text(size: float) -> str:
    return f"{compact(size)}B"
