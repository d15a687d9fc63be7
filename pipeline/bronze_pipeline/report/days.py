"""Days on an axis: each has its place, also one without events, and many of them share a bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from bronze_pipeline.report.counts import NO_DAY

MOST_BARS = 120


@dataclass(frozen=True)
class Days:
    """The days of one bar."""

    first: str
    last: str

    @property
    def name(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


def bars_of(days: Sequence[str]) -> tuple[list[Days], dict[str, int]]:
    """Return the bars for these days, from the first to the last, and the place of each day among them."""
    dated = sorted(date.fromisoformat(day) for day in days if day != NO_DAY)
    bars: list[Days] = []
    places: dict[str, int] = {}
    if dated:
        count = (dated[-1] - dated[0]).days + 1
        length = -(-count // MOST_BARS)
        for start in range(0, count, length):
            first = dated[0] + timedelta(start)
            last = min(first + timedelta(length - 1), dated[-1])
            bars.append(Days(first.isoformat(), last.isoformat()))
        places = {day.isoformat(): (day - dated[0]).days // length for day in dated}
    if NO_DAY in days:
        places[NO_DAY] = len(bars)
        bars.append(Days(NO_DAY, NO_DAY))
    return bars, places
