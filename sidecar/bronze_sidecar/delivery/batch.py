"""Records on their way to a sink: in chunks as they came, one by one after a failure, and in writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from bronze_sidecar.routing.rules import Record

TOGETHER = 256
"""Records that are saved together, if they are looked at one by one."""


class OutcomeListener(Protocol):
    """Whoever waits for records of one batch."""

    is_durable: bool
    """Whether the records are on disk as well."""

    def stored(self, count: int) -> None:
        """Take note that so many records are done."""

    def failed(self, record: Record, backend: str, reason: str) -> None:
        """Take note that a record will never be stored."""


@dataclass(slots=True)
class Chunk:
    """Records of one ticket that nobody has tried to write yet, in order."""

    ticket: OutcomeListener
    records: list[Record]
    bytes: int
    since: float


@dataclass(slots=True)
class Item:
    """A record that is looked at by itself, because it failed or waits behind one that did."""

    ticket: OutcomeListener
    record: Record
    since: float
    attempts: int = 0
    """Failed writes of this record. One that it was left out of does not count."""
    may_be_stored: bool = False
    """Whether a write of it ended without an answer."""
    losses: int = 0
    """Connections lost by writes of this record alone."""
    fruitful_before: int = 0
    """How many writes had stored something when the first of these connections was lost."""
    reason: str = ""
    """How the last of them was lost."""

    @property
    def order(self) -> tuple[str, str]:
        return self.record.address.order

    @property
    def size(self) -> int:
        return len(self.record.event.envelope)


@dataclass(slots=True)
class WriteBatch:
    """What one write carries: records, and whose they are."""

    records: list[Record] = field(default_factory=list)
    parts: list[tuple[OutcomeListener, int, float]] = field(default_factory=list)
    """The ticket of so many records, and since when they have waited."""
    bytes: int = 0
    tried: dict[int, Item] = field(default_factory=dict)
    """Those that came as items, by their place."""
    is_alone: bool = False
    """Whether it carries one record only, because that may be at fault for lost connections."""
    is_probe: bool = False
    """Whether that is the record behind the suspect, to see whether it can be stored; it waits on."""
    prepared: Any = None
    """What the sink made ready for it, if it was taken ahead."""

    def add(self, chunk: Chunk) -> None:
        self.records += chunk.records
        self.parts.append((chunk.ticket, len(chunk.records), chunk.since))
        self.bytes += chunk.bytes

    def add_item(self, item: Item) -> None:
        self.tried[len(self.records)] = item
        self.records.append(item.record)
        self.parts.append((item.ticket, 1, item.since))
        self.bytes += item.size

    def items(self) -> list[Item]:
        """Return the records one by one."""
        owners = ((ticket, since) for ticket, count, since in self.parts for _ in range(count))
        return [
            self.tried.get(place) or Item(ticket, record, since)
            for place, (record, (ticket, since)) in enumerate(zip(self.records, owners, strict=True))
        ]

    def chunks(self) -> list[Chunk]:
        """Return the records as chunks again."""
        chunks: list[Chunk] = []
        start = 0
        for ticket, count, since in self.parts:
            records = self.records[start : start + count]
            chunks.append(Chunk(ticket, records, size_of(records), since))
            start += count
        return chunks

    @property
    def since(self) -> float:
        """Since when the oldest record has waited."""
        return min(since for _, _, since in self.parts)


class Unsaved(NamedTuple):
    """Records in memory alone, those who wait for them, and how to let somebody else wait instead."""

    records: list[Record]
    tickets: list[tuple[OutcomeListener, int]]
    bind: Callable[[OutcomeListener], None]


def unsaved_of(batch: WriteBatch) -> list[Unsaved]:
    """Return what a batch holds in memory alone."""
    found: list[Unsaved] = []
    start = 0
    for index, (ticket, count, _) in enumerate(batch.parts):
        if not ticket.is_durable:
            records = batch.records[start : start + count]
            found.append(Unsaved(records, [(ticket, count)], partial(_bind_part, batch, index, start)))
        start += count
    return found


def _bind_part(batch: WriteBatch, index: int, start: int, ticket: OutcomeListener) -> None:
    _, count, since = batch.parts[index]
    batch.parts[index] = ticket, count, since
    for place in range(start, start + count):
        if place in batch.tried:
            batch.tried[place].ticket = ticket


def unsaved_items(items: Iterable[Item]) -> list[Unsaved]:
    """Return what of these records is in memory alone."""
    mine = [item for item in items if not item.ticket.is_durable]
    return [_unsaved(mine[start : start + TOGETHER]) for start in range(0, len(mine), TOGETHER)]


def _unsaved(items: list[Item]) -> Unsaved:
    def bind(ticket: OutcomeListener) -> None:
        for item in items:
            item.ticket = ticket

    return Unsaved([item.record for item in items], [(item.ticket, 1) for item in items], bind)


def size_of(records: Sequence[Record]) -> int:
    return sum(len(record.event.envelope) for record in records)
