"""Reasons in few words: the sentence of each failure belongs to a class, few enough for metrics."""

from __future__ import annotations

import re
from typing import TypeAlias

from bronze_sidecar.envelope.payloads import CASE_BY_FOLDED_NAME, fold
from bronze_sidecar.ingest.dead_letters import Kind

_Classes: TypeAlias = tuple[tuple[re.Pattern[str], str], ...]
OTHER = "other"
UNKNOWN = "unknown"
# The first that is found counts: later ones may be in words of a bus that follow ours.
CLASSES: dict[Kind, _Classes] = {
    "rejected": (
        (re.compile(r"--max-event-bytes allows"), "too_large"),
        (re.compile(r"^the message (is not valid|is nested|must be a JSON)"), "not_json"),
        (re.compile(r"NormalizedEvent|^the envelope has no"), "not_an_envelope"),
        (re.compile(r"field 'type'"), "unknown_type"),
        (re.compile(r"field '|characters$"), "wrong_field"),
    ),
    "failed": (
        (re.compile(r"^(it is unknown whether it was stored; given up|not stored) after "), "retries"),
        (re.compile(r"^the connection is lost whenever"), "connection"),
        (re.compile(r"\bbytes\b|\blarger\b|too (large|long)|meta entries"), "too_large"),
        (
            re.compile(r"\bmay not\b|not authorized|not permitted|permission|denied", re.IGNORECASE),
            "forbidden",
        ),
    ),
}


def class_of(kind: Kind, reason: str) -> str:
    """Return the class that a reason belongs to."""
    return next((name for pattern, name in CLASSES[kind] if pattern.search(reason)), OTHER)


def payload_case_of(reason: str) -> str:
    """Return the payload case of a message that was rejected, if its reason begins with its type."""
    return CASE_BY_FOLDED_NAME.get(fold(reason.partition(":")[0]), UNKNOWN)
