"""A back end that does what a test tells it: it stores records in memory and fails on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field

from bronze_cli.problems import Fault
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Address, Record, Rules
from bronze_sidecar.routing.template import trusted
from bronze_sidecar.sinks.base import Backend, Failed, Limits
from bronze_sidecar.sinks.nats.options import SUBJECT

Answer = Callable[[Sequence[Record]], Sequence[Failed]]


@dataclass
class Script:
    """What the back end does next, and what it has done."""

    answers: list[Answer] = field(default_factory=list)
    """One for each coming write; without one, everything is stored."""
    openings: list[Exception | None] = field(default_factory=list)
    """One for each coming connection; without one, it succeeds."""
    stored: list[str] = field(default_factory=list)
    """Ids in the order in which they were stored."""
    writes: list[list[str]] = field(default_factory=list)
    """Ids of each write, stored or not."""
    prepared: list[list[str]] = field(default_factory=list)
    """Ids of each write that was prepared ahead, made or not."""
    handed: list[list[str]] = field(default_factory=list)
    """Ids of each write that was made as it was prepared."""
    addresses: list[Address] = field(default_factory=list)
    """Where each of these was to go."""
    opened: int = 0
    pings: int = 0
    gate: asyncio.Event | None = None
    """While it is not set, writes wait."""


class ScriptedSink:
    limits = Limits(records=1000, bytes=1 << 20)
    forgets_ids_after: float | None = None
    order = "strict"
    has_one_path = True
    advice = ""

    def __init__(self, script: Script, limits: Limits) -> None:
        self.script = script
        self.limits = limits

    async def ping(self) -> None:
        self.script.pings += 1

    def prepare(self, batch: Sequence[Record]) -> list[str]:
        ids = [record.event.id for record in batch]
        self.script.prepared.append(ids)
        return ids

    async def write(self, batch: Sequence[Record], prepared: list[str] | None = None) -> Sequence[Failed]:
        script = self.script
        if prepared is not None:
            assert prepared == [record.event.id for record in batch]
            script.handed.append(prepared)
        if script.gate:
            await script.gate.wait()
        script.writes.append([record.event.id for record in batch])
        script.addresses += [record.address for record in batch]
        failures = script.answers.pop(0)(batch) if script.answers else ()
        failed = {failure.place for failure in failures}
        script.stored += [record.event.id for place, record in enumerate(batch) if place not in failed]
        return failures


@dataclass(frozen=True)
class Scripted(Backend):
    name = "scripted"
    title = "Scripted"
    script: Script
    _: KW_ONLY
    max_batch_size: int = 1000
    max_batch_delay_ms: int = 0
    limits: Limits = ScriptedSink.limits
    template: str = "{{exchange}}.{{symbol}}"
    include: frozenset[str] | None = None
    meta_prefix: str = ""
    dead_letter: str = ""

    @asynccontextmanager
    async def open(self, route: Route) -> AsyncIterator[ScriptedSink]:
        self.script.opened += 1
        failure = self.script.openings.pop(0) if self.script.openings else None
        if failure:
            raise failure
        yield ScriptedSink(self.script, self.limits)

    def rules(self) -> Rules:
        return Rules(
            destination=trusted(self.template, SUBJECT),
            dead_letter=trusted(self.dead_letter, SUBJECT) if self.dead_letter else None,
            include=self.include,
            meta_prefix=self.meta_prefix,
        )

    def faults(self) -> Iterator[tuple[str, Fault]]:
        return iter(())


def event(event_id: str, *, symbol: str = "XBTUSD", size: int = 10, case: str = "trade") -> Event:
    return Event(
        envelope=b"x" * size,
        id=event_id,
        payload_case=case,
        exchange="bitmex",
        symbol=symbol,
        data_type=case,
        source="test",
        origin="replay",
        meta={},
    )


def record(event_id: str, key: str = "a", size: int = 10) -> Record:
    """Make a record whose order is kept by `key`."""
    return Record(Address(key, key, ()), event(event_id, symbol=key, size=size))
