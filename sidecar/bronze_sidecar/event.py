"""What flows through the router: an event with the few facts that routing reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Event(msgspec.Struct, gc=False):
    """One encoded envelope and its routing facts, read once and never decoded again."""

    envelope: bytes
    """The encoded NormalizedEvent, as it will be published."""
    id: str
    """`<stream id>:<position>`, with `.<level>` for a level of a book change."""
    payload_case: str
    """One of the twelve names of `payloads.PAYLOAD_CASES`."""
    exchange: str
    symbol: str
    data_type: str
    """The normalized message's type; empty if unknown."""
    source: str
    origin: str
    """`realtime`, `replay`, `archive` or `unspecified`."""
    meta: Mapping[str, str]
    """The envelope's meta without `event_id`, which is `id`. Levels of one message share it."""
