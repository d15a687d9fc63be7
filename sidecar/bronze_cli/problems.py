"""What is wrong with a configuration, worded so that an operator can fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a value, and the remedy; it does not know where the value came from."""

    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault and where to fix it: a flag, a variable, or a file and line."""

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return printable(f"{self.where}: {self.what}{f' {self.remedy}' if self.remedy else ''}")


class ConfigError(Exception):
    """The configuration cannot be used. Carries every problem, not just the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        count = len(self.problems)
        lines = [f"{count} problem{'s' if count != 1 else ''} in the configuration", *map(str, self.problems)]
        super().__init__("\n  ".join(lines))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the entry of `names` that was probably meant by `name`."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a remedy that names the nearest valid name, or all of them."""
    names = tuple(names)
    close = nearest(name, names)
    return f"Did you mean '{close}'?" if close else f"Choose from {', '.join(names)}."


def printable(text: str) -> str:
    """Replace characters that could upset a terminal or break a line."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def shorten(text: str) -> str:
    """Shorten a bad value to fit a message."""
    return printable(text if len(text) <= 60 else text[:57] + "…")


def control_character(text: str) -> str | None:
    """Name the first control character of `text`, or return None."""
    for character in text:
        if ord(character) < 32 or ord(character) == 127:
            return f"the control character U+{ord(character):04X}"
    return None


def not_among(text: str, allowed: frozenset[str]) -> str | None:
    """Name the first character of `text` that is not allowed, or return None."""
    for character in text:
        if character not in allowed:
            return control_character(character) or f"'{character}'"
    return None
