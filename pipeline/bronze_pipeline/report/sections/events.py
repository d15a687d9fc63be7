"""The section on events by day, exchange and kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from bronze_pipeline.report.counts import Counts
from bronze_pipeline.report.days import bars_of
from bronze_pipeline.report.markup import Markup, joined, table
from bronze_pipeline.report.plots import COLORS, Bar, stacked
from bronze_pipeline.report.sections.parts import MOST_ROWS, figure, numbers

OTHERS = "others"


def events_section(counts: Counts) -> Markup:
    by_kind = counts.by("exchange", "case")
    cases = _largest(counts.by("case"))
    exchanges = _largest(counts.by("exchange"))
    rows = [
        [exchange, *(f"{by_kind[exchange, case]:,}" for case in cases), f"{total:,}"]
        for exchange, total in exchanges.items()
    ]
    return joined(
        _by_day("Events by day and exchange", counts.by("day", "exchange"), exchanges),
        _by_day("Events by day and kind", counts.by("day", "case"), cases),
        figure(
            "Events by exchange and kind",
            table(["exchange", *cases, "all"], rows[:MOST_ROWS], label="Events by exchange and kind"),
        ),
    )


def _largest(counts: Counter[tuple[str, ...]]) -> dict[str, int]:
    return {name: events for (name,), events in sorted(counts.items(), key=lambda each: (-each[1], each[0]))}


def _by_day(title: str, counts: Mapping[tuple[str, ...], int], totals: Mapping[str, int]) -> Markup:
    names = list(totals)
    own = names if len(names) <= COLORS else names[: COLORS - 1]
    series = own if own == names else [*own, OTHERS]
    place_of = {name: own.index(name) if name in own else len(own) for name in names}
    bars, places = bars_of(sorted({day for day, _ in counts}))
    parts = [[0] * len(series) for _ in bars]
    for (day, name), events in counts.items():
        parts[places[day]][place_of[name]] += events
    drawn = [Bar(bar.name, each) for bar, each in zip(bars, parts, strict=True)]
    first, last = (bars[0].first, bars[-1].last) if bars else ("", "")
    label = f"{title}, {first} to {last}: {', '.join(f'{name} {totals[name]:,}' for name in own)}"
    rows = [
        [bar.name, *(f"{part:,}" for part in bar.parts), f"{sum(bar.parts):,}"] for bar in reversed(drawn)
    ]
    return figure(title, stacked(drawn, series, label=label), numbers(["day", *series, "all"], rows, title))
