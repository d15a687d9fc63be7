"""Whatever is said of a failure belongs to one of few classes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bronze_sidecar.errors import Rejected
from bronze_sidecar.ingest.dead_letters import Kind
from bronze_sidecar.ingest.failure_classes import class_of, payload_case_of
from bronze_sidecar.ingest.intake import LONG_NAMES, NO_EXCHANGE, NO_PAYLOAD, NOT_AN_ENVELOPE
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from bronze_sidecar.sinks.kafka.answers import TEXTS
from bronze_sidecar.sinks.nats.answers import PERMANENT_CODES
from bronze_sidecar.sinks.nats.confirmations import FORBIDDEN

TIME = "2026-01-01T00:00:00.000Z"
TRADE: dict[str, Any] = {
    "type": "trade",
    "exchange": "bitmex",
    "symbol": "X",
    "price": 1,
    "amount": 1,
    "side": "buy",
    "timestamp": TIME,
    "localTimestamp": TIME,
}


def reason_for(message: bytes) -> str:
    """Return why the mapper refuses a message."""
    mapper = Mapper(StreamContext("s"))
    with pytest.raises(Rejected) as refused:
        mapper.first_events(message, 0, b"")
    return str(refused.value)


@pytest.mark.parametrize(
    ("message", "expected", "payload_case"),
    [
        (b"{", "not_json", "unknown"),
        (b"\xff", "not_json", "unknown"),
        (b"[1]", "not_json", "unknown"),
        (json.dumps(TRADE | {"type": "trad"}).encode(), "unknown_type", "unknown"),
        (json.dumps(TRADE | {"type": ""}).encode(), "unknown_type", "unknown"),
        (json.dumps(TRADE | {"type": 5}).encode(), "unknown_type", "unknown"),
        (json.dumps(TRADE | {"price": "1"}).encode(), "wrong_field", "trade"),
        (json.dumps(TRADE | {"exchange": ""}).encode(), "wrong_field", "trade"),
        (json.dumps(TRADE | {"type": "book_change", "bids": 1}).encode(), "wrong_field", "bookChange"),
        (json.dumps(TRADE | {"symbol": "s" * 300}).encode(), "wrong_field", "trade"),
    ],
)
def test_what_the_mapper_refuses(message: bytes, expected: str, payload_case: str) -> None:
    reason = reason_for(message)
    assert (class_of("rejected", reason), payload_case_of(reason)) == (expected, payload_case), reason


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        ("rejected", NOT_AN_ENVELOPE, "not_an_envelope"),
        ("rejected", NO_PAYLOAD, "not_an_envelope"),
        ("rejected", NO_EXCHANGE, "not_an_envelope"),
        ("rejected", LONG_NAMES, "wrong_field"),
        ("rejected", "the event has 9 bytes; --max-event-bytes allows 5", "too_large"),
        ("rejected", "something new", "other"),
        ("failed", FORBIDDEN, "forbidden"),
        ("failed", PERMANENT_CODES[10054], "too_large"),
        ("failed", PERMANENT_CODES[10097], "too_large"),
        ("failed", TEXTS[10], "too_large"),
        ("failed", TEXTS[18], "too_large"),
        ("failed", TEXTS[29], "forbidden"),
        ("failed", TEXTS[31], "forbidden"),
        ("failed", TEXTS[87], "other"),
        ("failed", "the event has 9 bytes; the server allows 5", "too_large"),
        ("failed", "not stored after 3 retries: permission denied", "retries"),
        ("failed", "it is unknown whether it was stored; given up after 1 retry: x", "retries"),
        ("failed", "the connection is lost whenever it is written, and others are stored: x", "connection"),
    ],
)
def test_what_else_is_said(kind: Kind, reason: str, expected: str) -> None:
    assert class_of(kind, reason) == expected
