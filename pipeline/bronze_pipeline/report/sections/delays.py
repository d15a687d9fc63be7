"""The section on delays."""

from __future__ import annotations

import math

import numpy as np

from bronze_pipeline.report.delays import CLASSES_IN_DECADE, STEPS, Delays, Spread, seconds_of
from bronze_pipeline.report.markup import Markup, joined, tag
from bronze_pipeline.report.plots import spread
from bronze_pipeline.report.sections.parts import figure, numbers

SHARES = (0.5, 0.9, 0.99)
EXPLANATIONS = {
    STEPS[0]: "From the exchange's time in the event to the time at which the recorder had it.",
    STEPS[1]: "From the recorder to the sidecar; live events alone.",
    STEPS[2]: "From the sidecar, over the bus, into the table; files that compaction rewrote are left out.",
}
NAMES = (
    (1e-6, "1 µs"), (1e-5, "10 µs"), (1e-4, "100 µs"), (1e-3, "1 ms"), (1e-2, "10 ms"), (0.1, "100 ms"),
    (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36_000.0, "10 h"),
    (86_400.0, "1 d"), (864_000.0, "10 d"), (8_640_000.0, "100 d"), (86_400_000.0, "1000 d"),
)  # fmt: skip


def delays_section(found: Delays, files: int) -> Markup:
    said = []
    if found.files < files:
        said.append(f"Looked up in {found.files:,} of {files:,} files, spread evenly over the days.")
    if found.replayed:
        said.append(f"{found.replayed:,} events are replayed, and left out between recorder and sidecar.")
    plots = [_step(step, found.of_step(step)) for step in STEPS]
    rows = [
        [exchange, step, f"{own.events:,}", *(duration(own.quantile(share)) for share in SHARES)]
        for exchange in found.exchanges()
        for step in STEPS
        if (own := found.spreads.get((step, exchange))) is not None
    ]
    heads = ["exchange", "step", "events", "median", "90 %", "99 %"]
    return joined(
        [tag("p", " ".join(said))] if said else [],
        tag("div", plots, class_="columns"),
        numbers(heads, rows, "Delays by exchange", texts=2),
    )


def _step(step: str, found: Spread) -> Markup:
    title = step[0].upper() + step[1:]
    explained = tag("p", EXPLANATIONS[step])
    if not found.events:
        return figure(title, explained, tag("p", "No event has both times."))
    there = np.flatnonzero(found.classes)
    # Whole decades, so that the names have room.
    first, last = (int(there[0]), int(there[-1])) if len(there) else (0, 0)
    first -= first % CLASSES_IN_DECADE
    last += CLASSES_IN_DECADE - last % CLASSES_IN_DECADE
    shares = (found.classes[first:last] / found.events).tolist()

    def place(seconds: float) -> float:
        return (math.log10(max(seconds, 1e-6) * 1e6) * CLASSES_IN_DECADE - first) / (last - first)

    names = [(float(place(at)), name) for at, name in NAMES if 0 <= place(at) < 0.98]
    quantiles = [found.quantile(share) for share in SHARES]
    words = ", ".join(
        f"{what} {duration(quantile)}"
        for what, quantile in zip(("median", "90 %", "99 %"), quantiles, strict=True)
    )
    said = f"{words} of {found.events:,} events"
    if found.negative:
        said += f"; {found.negative:,} ended before they began, for clocks differ"
    marks = [float(place(quantile)) for quantile in quantiles if place(quantile) >= 0]
    ranges = [
        [f"{duration(seconds_of(first + at))} to {duration(seconds_of(first + at + 1))}", f"{share:.2%}"]
        for at, share in enumerate(shares)
        if share
    ]
    return figure(
        title,
        explained,
        spread(shares, names, marks, label=f"{title}: {said}"),
        tag("p", said, class_="note"),
        numbers(["delay", "share of events"], ranges, title),
    )


def duration(seconds: float) -> str:
    """Return a time with a unit in which it is easy to read."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:{'.3g' if seconds < 999 * unit else ',.0f'}} {name}"
    return f"{seconds * 1e6:.3g} µs"
