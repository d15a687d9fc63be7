"""Durations as written on the command line: 500ms, 30s, 5m, 1h, 1d."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bronze_cli.problems import Fault, shorten
from bronze_cli.values import Scalar

UNITS = {
    "ms": ("milliseconds", 1_000),
    "s": ("seconds", 1_000_000),
    "m": ("minutes", 60_000_000),
    "h": ("hours", 3_600_000_000),
    "d": ("days", 86_400_000_000),
}
PATTERN = re.compile(rf"([1-9]\d{{0,5}})({'|'.join(UNITS)})")


@dataclass(frozen=True)
class Interval:
    """A duration."""

    label: str
    """As written."""
    words: str
    """As Spark wants it."""
    microseconds: int


def parse_interval(text: str) -> Interval | None:
    """Read a duration; None if the text is not one."""
    found = PATTERN.fullmatch(text)
    if found is None:
        return None
    word, microseconds = UNITS[found[2]]
    return Interval(text, f"{found[1]} {word}", int(found[1]) * microseconds)


class Time(Scalar):
    """A duration."""

    metavar = "TIME"

    def read(self, text: str) -> Interval | list[Fault]:
        found = parse_interval(text)
        if found is None:
            return [Fault(f"'{shorten(text)}' is not a duration.", "It looks like 500ms, 30s, 5m, 1h or 1d.")]
        return found

    def show(self, value: Interval) -> str:
        return value.label


def trusted(text: str) -> Interval:
    """Read a duration of our own."""
    found = parse_interval(text)
    if found is None:
        raise ValueError(text)
    return found
