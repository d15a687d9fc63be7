"""Small charts of the last ten minutes, drawn as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from bronze_sidecar.status.history import MOST_SAMPLES
from bronze_sidecar.status.markup import Element, element

WIDTH, HEIGHT = 240, 36


def chart(name: str, values: Sequence[float], write: Callable[[float], str], most: float = 0) -> Element:
    """Draw figures over time, the newest at the right; a screen reader hears the newest and the largest."""
    return _chart(name, tuple(values), write, most)


@lru_cache(64)
def _chart(name: str, values: tuple[float, ...], write: Callable[[float], str], most: float) -> Element:
    # Most looks come between two samples, and find the chart as it was.
    top = max([most, *values]) or 1
    step = WIDTH / (MOST_SAMPLES - 2)
    left = WIDTH - step * (len(values) - 1)
    points = [
        f"{left + step * index:.1f},{HEIGHT - 1 - (HEIGHT - 3) * value / top:.1f}"
        for index, value in enumerate(values)
    ]
    text = (
        f"{name}, the last ten minutes: now {write(values[-1])}, at most {write(max(values))}"
        if values
        else f"{name}: nothing yet"
    )
    area = f"{left:.1f},{HEIGHT} {' '.join(points)} {WIDTH},{HEIGHT}" if points else ""
    drawing = element(
        "svg",
        element("title", text),
        element("polygon", points=area),
        element("polyline", points=" ".join(points)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
    )
    most_text = f"at most {write(max(values))}" if values else ""
    return element(
        "figure",
        element("figcaption", f"{name} ", element("small", most_text)),
        drawing,
        class_="chart",
    )
