"""Reads a JetStream stream back and compares it with the messages that were sent.

Nothing here is the sidecar's: a plain consumer of nats-py, the generated types, and the JSON as it was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import nats
from bronze_client.schema import NormalizedEvent
from nats.aio.msg import Msg

SHOWN_CASES = ("trade", "bookChange", "tradeBar")

Place = tuple[int, int]
"""Position in the stream, and level within a book change."""
NO_LEVEL = 0
NOWHERE = (-1, 0)


@dataclass
class Sample:
    """One event of the stream, to be shown."""

    subject: str
    headers: dict[str, str]
    event: NormalizedEvent


@dataclass
class Findings:
    """What the stream holds."""

    expected: int
    """Events that the messages should have become."""
    events: int = 0
    cases: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events by payload case and exchange."""
    subjects: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    duplicates: int = 0
    foreign: int = 0
    """Events that no message became."""
    disordered: int = 0
    """Events that came behind a later one of their subject."""
    ends: int = 0
    """Events that say that the stream has ended, after as many messages as there are."""
    samples: dict[str, Sample] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether everything is there once and in order."""
        wrong = self.missing, self.duplicates, self.foreign, self.disordered
        return not any(wrong) and self.events == self.expected and self.ends == 1


async def read_back(url: str, stream: str, stream_id: str, messages: Sequence[bytes]) -> Findings:
    """Read the whole stream; find what is missing, double or out of order by the events' ids."""
    levels = [level_count(message) for message in messages]
    findings = Findings(expected=sum(max(1, count) for count in levels))
    seen: set[Place] = set()
    newest: dict[str, Place] = {}
    at_end = asyncio.Event()

    async def take(message: Msg) -> None:
        event = NormalizedEvent.FromString(message.data)
        if not message.metadata.num_pending:
            at_end.set()
        if event.meta["event_id"] == f"{stream_id}~end:{len(messages)}":
            findings.ends += 1
            return
        place = _place(event.meta["event_id"], stream_id)
        _count(findings, message, event)
        findings.duplicates += place in seen
        findings.disordered += place <= newest.get(message.subject, NOWHERE)
        seen.add(place)
        newest[message.subject] = place

    client = await nats.connect(url)
    try:
        await client.jetstream().subscribe("bronze.>", stream=stream, ordered_consumer=True, cb=take)
        await at_end.wait()
    finally:
        await client.close()
    wanted = {
        (position, level)
        for position, count in enumerate(levels)
        for level in (range(count) if count else (NO_LEVEL,))
    }
    findings.missing = len(wanted - seen)
    findings.foreign = len(seen - wanted)
    return findings


def level_count(message: bytes) -> int:
    """Return how many events a book change becomes; 0 for a message that is one event."""
    if not message.startswith(b'{"type":"book_change"'):
        return 0
    book = json.loads(message)
    return len(book["bids"]) + len(book["asks"])


def _place(event_id: str, stream_id: str) -> Place:
    """Return the position and level in an id."""
    stream, _, place = event_id.rpartition(":")
    if stream != stream_id:
        return NOWHERE
    position, _, level = place.partition(".")
    return int(position), int(level) if level else NO_LEVEL


def _count(findings: Findings, message: Msg, event: NormalizedEvent) -> None:
    headers = message.headers or {}
    case = headers["payloadCase"]
    findings.events += 1
    findings.cases[case, event.exchange] += 1
    findings.subjects[message.subject] += 1
    if case in SHOWN_CASES and case not in findings.samples:
        findings.samples[case] = Sample(message.subject, headers, event)
