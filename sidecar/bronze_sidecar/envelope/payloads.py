"""The names that payloads and origins have in options, templates and headers."""

from __future__ import annotations

PAYLOAD_CASES = (
    "trade",
    "bookChange",
    "bookSnapshot",
    "groupedBookSnapshot",
    "quote",
    "derivativeTicker",
    "liquidation",
    "optionSummary",
    "bookTicker",
    "tradeBar",
    "error",
    "disconnect",
)

ORIGINS = ("unspecified", "realtime", "replay", "archive")
"""Indexed by the number of the envelope's `Origin`."""


def snake_case(case: str) -> str:
    """Return a payload case as the envelope's field spells it."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in case)


def fold(name: str) -> str:
    """Reduce a name to what must agree: spellings that differ in case, `_` or `-` are one name."""
    return name.lower().replace("_", "").replace("-", "")


CASE_BY_FOLDED_NAME = {fold(case): case for case in PAYLOAD_CASES}
