"""Events for tests."""

from __future__ import annotations

from typing import Any

from bronze_sidecar.envelope.event import Event


def event(**facts: Any) -> Event:
    """Return an event with the given facts, and ordinary others."""
    ordinary: dict[str, Any] = {
        "envelope": b"envelope",
        "id": "stream:7",
        "payload_case": "trade",
        "exchange": "binance",
        "symbol": "BTCUSDT",
        "data_type": "trade",
        "source": "tardis",
        "origin": "replay",
        "meta": {"data_type": "trade", "request_id": "r1"},
    }
    return Event(**(ordinary | facts))
