"""Spilling: moving what a lane holds to its queue on disk, and back when the bus takes it.

While a lane spills, everything that comes goes to the disk, and what waits in memory is there as well: what
is acknowledged is on the disk, in the order in which it came, whatever happens to the process. What is on the
disk is read into the backlog as there is room, and removed when it is settled. If the disk takes nothing,
nothing is acknowledged from it, and what the bus takes meanwhile goes past it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from bronze_sidecar.delivery.backlog import Backlog
from bronze_sidecar.delivery.batch import OutcomeListener, WriteBatch, size_of
from bronze_sidecar.delivery.spool import Spool, SpooledChunk, Unusable
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record

RETRY_SECONDS = 1.0
FLUSH_SECONDS = 0.01
MOST_PENDING_BYTES = 8 << 20
"""On the way to the disk, and most that one commit carries."""

Result = TypeVar("Result")


@dataclass(slots=True)
class SpooledTicket:
    """Hears of the records of one chunk; when all are settled, the chunk can go."""

    number: int
    open: int
    done: Callable[[int], None]
    on_failed: Callable[[Record, str], None]
    is_durable: bool = True

    def stored(self, count: int) -> None:
        self.open -= count
        if not self.open:
            self.done(self.number)

    def failed(self, record: Record, backend: str, reason: str) -> None:  # noqa: ARG002
        # Its producer was told that it is safe; whoever keeps the logs hears of it.
        self.on_failed(record, reason)
        self.stored(1)


@dataclass(slots=True)
class Pending:
    """A chunk that is not on the disk yet, and who waits for that."""

    number: int
    events: list[Event]
    size: int
    tickets: list[tuple[OutcomeListener, int]]


class SpillBounds(NamedTuple):
    """How much may be on the disk and in memory."""

    disk_bytes: int
    memory_events: int
    memory_bytes: int


class Spilling:
    """What a lane has on its disk, and what is on the way there and back.

    `in_memory` says that everything on the disk is in the backlog too. Then new records may go to the backlog
    alone: they come after those.
    """

    def __init__(
        self,
        path: Path,
        bounds: SpillBounds,
        backlog: Backlog,
        route: Route,
        *,
        on_change: Callable[[], None],
        on_trouble: Callable[[str], None],
        on_failed: Callable[[Record, str], None],
    ) -> None:
        self.events = 0
        """On the disk or on the way there."""
        self.bytes = 0
        self.max_bytes = bounds.disk_bytes
        self.trouble = ""
        """Why the disk takes nothing; empty if it does."""
        self.events_on_the_way = 0
        """Events that are not on the disk yet."""
        self._most_events, self._most_bytes = bounds.memory_events, bounds.memory_bytes
        self._spool = Spool(path)
        self._backlog = backlog
        self._route = route
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._on_failed = on_failed
        self._pending: list[Pending] = []
        self._pending_bytes = 0
        self._is_writing = False
        self._settled: list[int] = []
        self._sizes: dict[int, tuple[int, int]] = {}
        """Events and bytes of the chunks that are in the backlog."""
        self._last_number = 0
        self._last_read = 0
        """The newest chunk that is in the backlog."""
        self._work = asyncio.Event()
        self._is_pausing = False
        """After trouble, before the next attempt to write."""
        self._thread = ThreadPoolExecutor(1, "spool")

    async def open(self) -> None:
        """Open the queue; raise Permanent if it cannot be used."""
        self._last_number, self.events, self.bytes = await self._in_thread(self._spool.open)
        self._last_read = 0 if self.events else self._last_number
        self._work.set()

    async def close(self) -> None:
        """Close the queue, after what is on its way."""
        await self._in_thread(self._spool.close)
        self._thread.shutdown()

    @property
    def in_memory(self) -> bool:
        """Whether nothing is on the disk that is not in the backlog as well."""
        return self._last_read == self._last_number

    def has_room(self, size: int) -> bool:
        """Whether more may be on its way to the disk."""
        start = self._backlog.bytes if self.in_memory else 0
        return (
            self._pending_bytes < MOST_PENDING_BYTES
            and self.events_on_the_way < self._most_events
            and self.bytes + start + size <= self.max_bytes
        )

    # -- to the disk

    def put(
        self, ticket: OutcomeListener, records: list[Record], size: int, in_flight: WriteBatch | None
    ) -> None:
        """Take records that the backlog has no room for; the ticket hears when they are on the disk."""
        if self.in_memory:
            self.save(in_flight)
        self._add([record.event for record in records], size, [(ticket, len(records))])

    def save(self, in_flight: WriteBatch | None) -> None:
        """Bring to the disk what is in memory alone; it stays there too."""
        was_in_memory = self.in_memory
        for unsaved in self._backlog.unsaved(in_flight):
            size = size_of(unsaved.records)
            self._add([record.event for record in unsaved.records], size, unsaved.tickets)
            unsaved.bind(self._in_backlog(self._last_number, len(unsaved.records), size))
        if was_in_memory:
            self._last_read = self._last_number

    async def flush(self) -> None:
        """Return when everything that is on its way is on the disk."""
        while self._pending or self._is_writing:  # noqa: ASYNC110 - once, when the process ends
            await asyncio.sleep(FLUSH_SECONDS)

    def _add(self, events: list[Event], size: int, tickets: list[tuple[OutcomeListener, int]]) -> None:
        self._last_number += 1
        self._pending.append(Pending(self._last_number, events, size, tickets))
        self._pending_bytes += size
        self.events_on_the_way += len(events)
        self.events += len(events)
        self.bytes += size
        self._work.set()

    def _in_backlog(self, number: int, events: int, size: int) -> SpooledTicket:
        self._sizes[number] = events, size
        return SpooledTicket(number, events, self._is_settled, self._on_failed)

    def _is_settled(self, number: int) -> None:
        self._settled.append(number)
        self._work.set()

    # -- the disk's side

    def look(self) -> None:
        """See whether there is room in the backlog for what is on the disk."""
        if not self.in_memory:
            self._work.set()

    async def run(self) -> None:
        """Write, remove and read, each as there is something to do, until cancelled.

        Raise Permanent if the file turns out to be damaged.
        """
        while True:
            await self._work.wait()
            self._work.clear()
            # One by one: what is on the disk can be read even if it takes nothing more.
            for step in (self._write, self._read):
                try:
                    await step()
                except Unusable as error:
                    # Nothing is lost: what is not on the disk is not acknowledged, what is there stays.
                    self.trouble = str(error)
                    self._on_trouble(self.trouble)
                    if not self._is_pausing:
                        self._is_pausing = True
                        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._is_pausing = False
        self._work.set()

    async def _write(self) -> None:
        self._skip_delivered()
        if self._is_pausing or not (self._pending or self._settled or self.trouble):
            return
        pending, settled = self._next_pending(), self._settled
        self._settled, self._is_writing = [], True
        try:
            obstacle = await self._in_thread(self._change, pending, settled)
        except BaseException:
            self._pending[:0], self._settled[:0] = pending, settled
            raise
        finally:
            self._is_writing = False
        for number in settled:
            self._forget(*self._sizes.pop(number))
        if obstacle:
            self._pending[:0] = pending
        else:
            for each in pending:
                self._arrived(each)
        self._on_change()
        if obstacle:
            raise Unusable(obstacle)
        self._be_well()
        if self._pending:
            self._work.set()

    def _change(self, pending: Sequence[Pending], settled: Sequence[int]) -> str:
        """Remove what is settled, which makes room, and add what can be; return what keeps it from that."""
        obstacle = self._spool.obstacle(sum(each.size for each in pending)) if pending or self.trouble else ""
        added = [] if obstacle else [(each.number, each.events) for each in pending]
        self._spool.change(added, settled)
        return obstacle

    def _skip_delivered(self) -> None:
        """Leave out what the bus took before the disk did."""
        delivered = {*self._settled} & {each.number for each in self._pending}
        if not delivered:
            return
        for each in self._pending:
            if each.number in delivered:
                self._arrived(each)
                self._forget(*self._sizes.pop(each.number))
        self._pending = [each for each in self._pending if each.number not in delivered]
        self._settled = [number for number in self._settled if number not in delivered]
        self._on_change()

    def _next_pending(self) -> list[Pending]:
        """Take what one commit carries: a chunk, and more up to the limit."""
        count = size = 0
        while count < len(self._pending) and (not count or size < MOST_PENDING_BYTES):
            size += self._pending[count].size
            count += 1
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken

    def _arrived(self, each: Pending) -> None:
        """Let those hear who wait until a chunk is safe."""
        self._leave(each)
        for ticket, count in each.tickets:
            ticket.stored(count)

    def _leave(self, each: Pending) -> None:
        self._pending_bytes -= each.size
        self.events_on_the_way -= len(each.events)

    def _forget(self, events: int, size: int) -> None:
        self.events -= events
        self.bytes -= size

    def _be_well(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._on_trouble("")

    async def _read(self) -> None:
        """Read on into the backlog while less than half of it is in use."""
        while not self.in_memory and self._wants_more():
            backlog = self._backlog
            newest = self._pending[0].number - 1 if self._pending else self._last_number
            chunks = await self._in_thread(
                self._spool.read,
                self._last_read,
                self._most_events - backlog.events,
                self._most_bytes - backlog.bytes,
            )
            for chunk in chunks:
                self._put_back(chunk)
            if not chunks:
                # What was between has been settled.
                self._last_read = max(self._last_read, newest)
                self._go_past()

    def _wants_more(self) -> bool:
        backlog = self._backlog
        return backlog.events * 2 < self._most_events and backlog.bytes * 2 < self._most_bytes

    def _go_past(self) -> None:
        """Put what is on its way to the disk into the backlog instead: all that was before it is there.

        All of it: what comes next may go to the disk, and must not get there first.
        """
        behind = [each for each in self._pending if each.number > self._last_read]
        self._pending = [each for each in self._pending if each.number <= self._last_read]
        for each in behind:
            self._leave(each)
            self._forget(len(each.events), each.size)
            # What was saved from the backlog is not behind it, so this came as one batch.
            ((ticket, _),) = each.tickets
            self._backlog.put(ticket, self._addressed(each.events), each.size, time.monotonic())
        self._last_read = self._last_number
        self._on_change()

    def _put_back(self, chunk: SpooledChunk) -> None:
        self._last_read = chunk.number
        size = sum(len(event.envelope) for event in chunk.events)
        ticket = self._in_backlog(chunk.number, len(chunk.events), size)
        records = self._addressed(chunk.events)
        if records:
            self._backlog.put(ticket, records, size_of(records), time.monotonic())
        if len(records) < len(chunk.events):
            # Another configuration: these are not wanted any more.
            ticket.stored(len(chunk.events) - len(records))
        self._on_change()

    def _addressed(self, events: Sequence[Event]) -> list[Record]:
        addresses = self._route.addresses([[event] for event in events], are_traced=True)
        addressed = zip(addresses, events, strict=True)
        return [Record(address, event) for address, event in addressed if address is not None]

    async def _in_thread(self, call: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(call, *arguments))
