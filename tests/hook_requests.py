"""Requests to a server like tardis-machine with the client in it, and how to read what it published."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from bronze_client.schema import NormalizedEvent
from servers import Unavailable
from tardis_servers import MachineServer, Variant, new_node_program

VARIANTS = ("modules", "commonjs")
Start = Callable[..., MachineServer]


def new_node(variant: Variant) -> str:
    """Return the Node.js that the real server of that kind runs on, or the nearest that there is."""
    try:
        return new_node_program(variant)
    except Unavailable as reason:
        if os.environ.get("REQUIRE_REAL_SERVERS") == "1":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


def replay_of(count: int, **more: Any) -> dict[str, Any]:
    """Return a request that no other test makes."""
    symbol = f"S{uuid.uuid4().hex}"
    return {"exchange": "bitmex", "symbols": [symbol], "dataTypes": ["trade"], "count": count, **more}


def live(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"exchange": "bitmex", "symbols": ["XBTUSD"], "dataTypes": ["trade"], "steps": list(steps), **more}


def positions(events: list[NormalizedEvent]) -> list[int]:
    """Return the events' positions; they are of one stream."""
    ids = [event.meta["event_id"].split(":") for event in events]
    assert len({stream for stream, _ in ids}) == 1
    return [int(position) for _, position in ids]


def by_stream(events: list[NormalizedEvent]) -> list[list[NormalizedEvent]]:
    streams: dict[str, list[NormalizedEvent]] = {}
    for event in events:
        streams.setdefault(event.meta["event_id"].partition(":")[0], []).append(event)
    return list(streams.values())


def trade_ids(events: list[NormalizedEvent]) -> list[str]:
    return [event.trade.trade_id for event in events if event.HasField("trade")]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]
