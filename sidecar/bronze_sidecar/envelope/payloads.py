"""The table of payload cases, and the other names that envelopes, options, templates and headers share."""

from __future__ import annotations

from typing import NamedTuple


class PayloadCase(NamedTuple):
    """A kind of payload."""

    name: str
    """In options, templates and headers."""
    number: int
    """Of its field in the envelope."""
    data_types: tuple[str, ...]
    """The types of normalized messages that become it, the usual one first."""


PAYLOADS = (
    PayloadCase("trade", 100, ("trade",)),
    PayloadCase("bookChange", 101, ("book_change",)),
    PayloadCase("bookSnapshot", 102, ("book_snapshot",)),
    PayloadCase("groupedBookSnapshot", 108, ("book_snapshot", "grouped_book_snapshot")),
    PayloadCase("quote", 103, ("quote",)),
    PayloadCase("derivativeTicker", 104, ("derivative_ticker",)),
    PayloadCase("liquidation", 105, ("liquidation",)),
    PayloadCase("optionSummary", 106, ("option_summary",)),
    PayloadCase("bookTicker", 107, ("book_ticker",)),
    PayloadCase("tradeBar", 109, ("trade_bar",)),
    PayloadCase("error", 150, ("error",)),
    PayloadCase("disconnect", 151, ("disconnect",)),
)
PAYLOAD_CASES = tuple(each.name for each in PAYLOADS)
FIELD_NUMBERS = {each.name: each.number for each in PAYLOADS}

FACTS_IN_META = ("data_type", "data_name", "is_snapshot", "symbols", "request_id", "session_id", "event_id")
FACTS_OF_STREAM_END = ("stream_messages", "stream_dropped")
EXACT_NUMBERS_IN_META = (
    "depth",
    "interval",
    "grouping",
    "sequence",
    "trades",
    "subSequentErrorsCount",
    "subsequentErrors",
)
"""Names of numbers whose exact text stands in meta where their fields cannot hold it."""
META_OF_SIDECAR = frozenset((*FACTS_IN_META, *FACTS_OF_STREAM_END, *EXACT_NUMBERS_IN_META))
"""The keys of meta that the sidecar writes itself, and nobody else may."""

ORIGINS = ("unspecified", "realtime", "replay", "archive")
"""Indexed by the number of the envelope's `Origin`."""


def snake_case(case: str) -> str:
    """Return a payload case as the envelope's field spells it."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in case)


def fold(name: str) -> str:
    """Reduce a name to what must agree: spellings that differ in case, `_` or `-` are one name."""
    return name.lower().replace("_", "").replace("-", "")


CASE_BY_FOLDED_NAME = {fold(case): case for case in PAYLOAD_CASES}
