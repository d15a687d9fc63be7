"""What flows through the router: an event with the few facts that routing reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from bronze_sidecar.envelope.wire import heads, map_entry

META = heads(10)

# The entry of `event_id` in an envelope's meta up to the id, by the id's length. No id is longer: 64
# characters of stream, 20 of position, 10 of level and two marks between them.
EVENT_ID_HEADS = tuple(map_entry(META, "event_id", "x" * length)[: -length or None] for length in range(100))

Facts: TypeAlias = tuple[str, str, str, str, str, Mapping[str, str]]
"""The last fields of an event, from `exchange` on: those that messages alike share."""


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


Groups: TypeAlias = Sequence[Sequence[Event]]
"""The events of each message. They differ in envelope and id alone."""
