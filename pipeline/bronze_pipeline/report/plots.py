"""Plots as SVG in HTML: the marks stretch with the page, and the texts beside them stay as large as others.

Every plot has a text that says what is in it; the numbers stand in a table behind it (`page.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bronze_pipeline.report.markup import Markup, tag

SIZE = 1000
"""Of the coordinates, in both directions."""
MOST_LABELS = 6
THINNEST = 4
"""A mark that is narrower than this could not be seen."""
COLORS = 8
"""How many the style sheet has; the last is for everything else."""


@dataclass(frozen=True)
class Bar:
    """A bar, of one part for each series."""

    name: str
    parts: Sequence[float]


@dataclass(frozen=True)
class Span:
    """A part of a line, with both ends as shares of its length."""

    start: float
    end: float
    what: str
    kind: str
    """Its class in the style sheet."""


def compact(number: float) -> str:
    """Return a number with at most three digits and a unit."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{name}"
    return f"{number:.3g}"


def stacked(bars: Sequence[Bar], series: Sequence[str], *, label: str, unit: str = "") -> Markup:
    """Return stacked bars with a legend; the last series is grey if there are as many as colours."""
    top, steps = _scale(max((sum(bar.parts) for bar in bars), default=0))
    width = SIZE / max(1, len(bars))
    gap = width * 0.12 if len(bars) <= 100 else 0.0
    marks = [_grid(step / top) for step in steps]
    for place, bar in enumerate(bars):
        floor = 0.0
        for number, part in enumerate(bar.parts):
            if part:
                height = part / top * SIZE
                what = f"{bar.name}: {compact(part)}{unit} {series[number]}".strip()
                box = (place * width + gap / 2, SIZE - floor - height, width - gap, height)
                marks.append(_box(box, what, f"c{number}"))
                floor += height
    names = [(place / len(bars) + 0.5 / len(bars), bar.name) for place, bar in enumerate(bars)]
    labels = [(step / top, compact(step) + unit) for step in steps]
    legend = tag(
        "ul",
        [tag("li", tag("i", class_=f"c{number}"), name) for number, name in enumerate(series)],
        class_="legend",
        aria_hidden="true",
    )
    return Markup((legend if len(series) > 1 else "") + _frame(marks, labels, names, label))


def spread(
    shares: Sequence[float], names: Sequence[tuple[float, str]], marks: Sequence[float], *, label: str
) -> Markup:
    """Return a distribution, with names at places of its axis and lines at others."""
    top, steps = _scale(max(shares, default=0))
    width = SIZE / max(1, len(shares))
    found = [_grid(step / top) for step in steps]
    found += [
        _box((place * width, SIZE - share / top * SIZE, width, share / top * SIZE), f"{share:.1%}", "c0")
        for place, share in enumerate(shares)
        if share
    ]
    found += [
        tag(
            "line", x1=_round(at * SIZE), x2=_round(at * SIZE), y1=0, y2=SIZE, class_="mark",
            vector_effect="non-scaling-stroke",
        )
        for at in marks
    ]  # fmt: skip
    return _frame(
        found,
        [(step / top, f"{step * 100:.3g}%") for step in steps],
        names,
        label,
    )


def line(spans: Sequence[Span], *, label: str) -> Markup:
    """Return one line of a time line."""
    marks = []
    for span in spans:
        wide = max(span.end * SIZE - span.start * SIZE, THINNEST)
        start = min(span.start * SIZE, SIZE - wide)
        marks.append(_box((start, 0, wide, SIZE), span.what, span.kind))
    return _svg(marks, label, "line")


def axis(names: Sequence[tuple[float, str]]) -> Markup:
    """Return the names below a plot; where there is little room, every other one."""
    step = max(1, math.ceil(len(names) / MOST_LABELS))
    shown = names[::step]
    return tag(
        "div",
        [
            tag("span", name, style=f"left:{at:.2%}", class_="spare" if place % 2 else None)
            for place, (at, name) in enumerate(shown)
        ],
        class_="x",
        aria_hidden="true",
    )


def _frame(
    marks: Sequence[Markup],
    values: Sequence[tuple[float, str]],
    names: Sequence[tuple[float, str]],
    label: str,
) -> Markup:
    scale = [tag("span", text, style=f"bottom:{at:.2%}") for at, text in values]
    return tag(
        "div",
        tag("div", scale, class_="y", aria_hidden="true"),
        _svg(marks, label, "area"),
        axis(names),
        class_="frame",
    )


def _svg(marks: Sequence[Markup], label: str, kind: str) -> Markup:
    return tag(
        "svg", marks, viewBox=f"0 0 {SIZE} {SIZE}", preserveAspectRatio="none", role="img",
        aria_label=label, class_=kind,
    )  # fmt: skip


def _box(area: tuple[float, float, float, float], what: str, kind: str) -> Markup:
    x, y, width, height = map(_round, area)
    return tag("rect", tag("title", what), x=x, y=y, width=width, height=height, class_=kind)


def _grid(share: float) -> Markup:
    at = _round(SIZE - share * SIZE)
    return tag("line", x1=0, x2=SIZE, y1=at, y2=at, class_="grid", vector_effect="non-scaling-stroke")


def _round(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _scale(highest: float) -> tuple[float, list[float]]:
    """Return the top of an axis, and the values to name: round ones, three to six of them."""
    if highest <= 0:
        return 1.0, [0.0]
    rough = highest / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    count = math.ceil(highest / step - 1e-9)
    return step * count, [step * number for number in range(count + 1)]
