"""What a lane has not delivered yet: what goes into the next write, and what follows from its outcome.

Records come in chunks and leave in chunks, as long as nothing fails. After a failure the records concerned
are looked at one by one, each with its own count of attempts:

- A record that was refused holds its key back: later records of the key wait behind it, others go on.
- A write that failed as a whole is repeated as it was. If that fails again and again, one of its records may
  be at fault, so the write is halved until the record is alone.
- A record that costs the connection whenever it is written alone, while others are stored, is given up. If
  others may be on another server, only the record behind it counts.

While a write is under way, the next one may be taken ahead. It goes only if everything was stored; otherwise
its records wait in their place again, and what goes next is found as if they had never been taken.

It has no clock of its own and never waits, so that every history can be tried in a test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from bronze_sidecar.delivery.backoff import Backoff
from bronze_sidecar.delivery.batch import (
    Chunk,
    Item,
    OutcomeListener,
    Unsaved,
    WriteBatch,
    size_of,
    unsaved_items,
    unsaved_of,
)
from bronze_sidecar.delivery.held import HeldKey, HeldKeys, Order, take
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Failed

HALVE_AFTER = 3
"""Failures of a whole write."""
POISON_AFTER = 8
"""Lost connections by one record, alone."""


class Settled(NamedTuple):
    """What became of a write."""

    stored: int = 0
    stored_bytes: int = 0
    retried: int = 0
    """Records that failed and will be tried again."""
    not_tried: int = 0
    """Records that go first next time."""
    given_up: int = 0
    trouble: tuple[DeliveryError, Item] | None = None
    """An error after which a record is tried again, and that record."""

    @property
    def is_fruitless(self) -> bool:
        """Whether nothing was stored, and what goes first next time had better wait."""
        return not self.stored and self.not_tried > 0


class Backlog:
    """What waits for one back end."""

    def __init__(
        self,
        backend: str,
        retry_limit: int,
        backoff: Backoff,
        redirect: Callable[[Item, str], tuple[OutcomeListener, list[Record]] | None] | None = None,
    ) -> None:
        self.events = 0
        """Records not settled yet, those in a write included."""
        self.bytes = 0
        self.queued = 0
        """Records that nobody has tried to write yet."""
        self.has_one_path = False
        """Whether one record that is stored shows that any other could be."""
        self._backend = backend
        self._retry_limit = retry_limit
        self._backoff = backoff
        self._redirect = redirect
        """Returns what to write instead of a record that was refused for good, and who waits for it."""
        self._first: deque[Item] = deque()
        """What goes before everything else: records of a write that were not stored, and are not to blame."""
        self._held = HeldKeys()
        self._queue: deque[Chunk] = deque()
        self._ahead: WriteBatch | None = None
        """The next write, of the first of the queue; nothing goes before it and no key is held back."""
        self._whole_failures = 0
        self._searched = 0
        """How many of the first records are being searched for one that fails every write."""
        self._fruitful_writes = 0
        self._was_alone = False
        """Whether the last write carried a suspect only."""

    def put(self, ticket: OutcomeListener, records: list[Record], size: int, now: float) -> None:
        """Take records; the ticket hears of each of them once."""
        self._queue.append(Chunk(ticket, records, size, now))
        self.queued += len(records)
        self.events += len(records)
        self.bytes += size

    # -- what to write next

    def ready_at(self) -> float | None:
        """Return when `take` may have something; None if nothing waits."""
        return 0.0 if self._ahead or self._first or self._queue else self._held.ready_at()

    def oldest(self, in_flight: WriteBatch | None) -> float | None:
        """Return since when the oldest record has waited; None if there is none."""
        times = [item.since for item in self._first]
        times += [self._queue[0].since] if self._queue else []
        times += [batch.since for batch in (in_flight, self._ahead) if batch]
        held = self._held.oldest()
        return min([*times, held] if held is not None else times, default=None)

    def in_doubt(self) -> int:
        """Return how many of the records that failed may be stored all the same."""
        held = (item for key in self._held for item in key.waiting)
        return sum(item.may_be_stored for item in chain(self._first, held))

    @property
    def held(self) -> Sequence[HeldKey]:
        """The keys that are held back."""
        return [key for key in self._held if key.waiting]

    @property
    def queued_since(self) -> float | None:
        """Since when the first record that nobody has tried has waited, if nothing goes before it."""
        return self._queue[0].since if self._queue and not (self._first or self._ahead) else None

    def take(self, now: float, most: int, most_bytes: int) -> WriteBatch | None:
        """Return what the next write carries; None if nothing may be written now."""
        if self._ahead:
            batch, self._ahead = self._ahead, None
            return batch
        suspect = self._held.suspect(now) if self._held else None
        # Others have their turn between two attempts of a suspect, however soon that is ready again.
        if suspect and not self._was_alone:
            self._was_alone = True
            return self._alone(suspect)
        self._was_alone = False
        batch = WriteBatch()
        if self._searched and self._first:
            take(self._first, batch, min(most, max(1, self._searched // 2)), most_bytes)
        elif take(self._first, batch, most, most_bytes):
            if self._held:
                self._held.take_ready(batch, now, most, most_bytes)
            self._take_queued(batch, most, most_bytes)
        if not batch.records and suspect:
            return self._alone(suspect)
        return batch if batch.records else None

    def take_ahead(self, most: int, most_bytes: int) -> WriteBatch | None:
        """Return what the next write carries if the one under way stores everything; None if that may change.

        It has to be full: what is not would miss those that come before it goes.
        """
        if self._ahead or self._first or self._held or self.queued < most:
            return None
        self._ahead = WriteBatch()
        self._take_queued(self._ahead, most, most_bytes)
        return self._ahead

    def give_back(self) -> None:
        """Let what was taken ahead wait in its place again."""
        if self._ahead is None:
            return
        chunks = self._ahead.chunks()
        if self._queue and self._queue[0].ticket is chunks[-1].ticket:
            # Of this one only a part was taken.
            rest = self._queue.popleft()
            chunks[-1].records += rest.records
            chunks[-1].bytes += rest.bytes
        self._queue.extendleft(reversed(chunks))
        self.queued += len(self._ahead.records)
        self._ahead = None

    def _alone(self, suspect: HeldKey) -> WriteBatch:
        """Return a write of a record that may be at fault, or of the one behind it if that alone can tell."""
        is_probe = (
            suspect.probe_next and len(suspect.waiting) > 1 and not self._is_witnessed(suspect.waiting[0])
        )
        batch = WriteBatch(is_alone=True, is_probe=is_probe)
        batch.add_item(suspect.waiting[1] if is_probe else suspect.waiting.popleft())
        return batch

    def _take_queued(self, batch: WriteBatch, most: int, most_bytes: int) -> None:
        queue = self._queue
        while queue:
            chunk = queue[0]
            if self._held and any(record.address.order in self._held for record in chunk.records):
                self._let_follow(chunk)
                if not chunk.records:
                    queue.popleft()
                    continue
            free = most - len(batch.records)
            if len(chunk.records) <= free and batch.bytes + chunk.bytes <= most_bytes:
                queue.popleft()
                self.queued -= len(chunk.records)
                batch.add(chunk)
                continue
            self._take_part(batch, chunk, free, most_bytes)
            return

    def _let_follow(self, chunk: Chunk) -> None:
        """Move the chunk's records of held-back keys behind the records that hold them."""
        free = [
            record
            for record in chunk.records
            if not self._held.follow(Item(chunk.ticket, record, chunk.since))
        ]
        self.queued -= len(chunk.records) - len(free)
        chunk.records, chunk.bytes = free, size_of(free)

    def _take_part(self, batch: WriteBatch, chunk: Chunk, free: int, most_bytes: int) -> None:
        """Take the beginning of a chunk; a single record always goes, and the sink judges its size."""
        records = chunk.records[:free]
        sizes = [len(record.event.envelope) for record in records]
        size = sum(sizes)
        while records and batch.bytes + size > most_bytes and (len(records) > 1 or batch.records):
            records.pop()
            size -= sizes.pop()
        if records:
            batch.add(Chunk(chunk.ticket, records, size, chunk.since))
            chunk.records = chunk.records[len(records) :]
            chunk.bytes -= size
            self.queued -= len(records)
            if not chunk.records:
                self._queue.popleft()

    def unsaved(self, in_flight: WriteBatch | None) -> list[Unsaved]:
        """Return what is in memory alone, in an order that keeps that of each key."""
        # A probe waits among the held.
        found = unsaved_of(in_flight) if in_flight and not in_flight.is_probe else []
        found += unsaved_items(self._first)
        for key in self._held:
            found += unsaved_items(key.waiting)
        found += unsaved_of(self._ahead) if self._ahead else []
        for chunk in self._queue:
            if not chunk.ticket.is_durable:
                bind = partial(setattr, chunk, "ticket")
                found.append(Unsaved(chunk.records, [(chunk.ticket, len(chunk.records))], bind))
        return found

    # -- what became of it

    def settle(self, batch: WriteBatch, failures: Sequence[Failed], now: float) -> Settled:
        """Take note of a write whose outcome is known for each record."""
        if batch.is_probe:
            return self._settle_probe(batch, failures[0].error if failures else None, now)
        if failures:
            self.give_back()
            settled = self._settle_partly(batch, dict(failures), now)
        else:
            for ticket, count, _ in batch.parts:
                ticket.stored(count)
            self._forget(len(batch.records), batch.bytes)
            settled = Settled(len(batch.records), batch.bytes)
        if settled.stored:
            self._fruitful_writes += 1
        if batch.is_alone and not settled.retried:
            self._held.go_on(batch.records[0].address.order)
        elif not batch.is_alone:
            self._whole_failures = 0
            self._searched = max(0, self._searched - len(batch.records) + settled.not_tried)
        if self._held:
            self._held.release([record.address.order for record in batch.records])
        return settled

    def _settle_partly(self, batch: WriteBatch, errors: dict[int, DeliveryError], now: float) -> Settled:
        stored = stored_bytes = retried = given_up = 0
        left: list[Item] = []
        refused: dict[Order, DeliveryError] = {}
        trouble: tuple[DeliveryError, Item] | None = None
        for place, item in enumerate(batch.items()):
            error = errors.get(place)
            if error is None:
                stored += 1
                stored_bytes += item.size
                item.ticket.stored(1)
                self._forget(1, item.size)
            elif isinstance(error, Permanent):
                given_up += 1
                self._refuse(item, str(error), now)
            elif isinstance(error, NotTried):
                item.may_be_stored |= error.may_be_stored
                left.append(item)
            elif self._has_failed(item, error):
                given_up += 1
            else:
                retried += 1
                trouble = trouble or (error, item)
                refused.setdefault(item.order, error)
                left.append(item)
        self._first.extendleft(reversed(left))
        if refused:
            self._hold(refused, now)
        not_tried = sum(item.order not in refused for item in left)
        return Settled(stored, stored_bytes, retried, not_tried, given_up, trouble)

    def fail(
        self, batch: WriteBatch, error: DeliveryError, now: float, *, was_written: bool = True
    ) -> Settled:
        """Take note of a write that failed as a whole, or that was not made because nothing is connected."""
        if batch.is_probe:
            return self._settle_probe(batch, error, now)
        self.give_back()
        items = batch.items()
        if batch.is_alone or (len(items) == 1 and was_written):
            return self._fail_alone(batch, items[0], error, now, was_written=was_written)
        # While the one at fault is searched for, the others are not to blame.
        counts = not self._searched
        kept = [item for item in items if not self._has_failed(item, error, counts=counts)]
        self._first.extendleft(reversed(kept))
        if not kept:
            self._whole_failures = 0
        elif was_written:
            self._whole_failures += 1
            if self._searched or self._whole_failures >= HALVE_AFTER:
                self._searched = len(kept)
        self._held.release([item.order for item in items])
        return Settled(
            retried=len(kept),
            not_tried=len(kept),
            given_up=len(items) - len(kept),
            trouble=(error, kept[0]) if kept else None,
        )

    def _fail_alone(
        self, batch: WriteBatch, item: Item, error: DeliveryError, now: float, *, was_written: bool
    ) -> Settled:
        """Take note of a write that carried one record, and failed."""
        if not batch.is_alone:
            self._whole_failures = self._searched = 0
        is_loss = was_written and isinstance(error, Disconnected)
        if is_loss:
            if not item.losses:
                item.fruitful_before = self._fruitful_writes
            item.losses += 1
            item.reason = str(error)
        if item.losses >= POISON_AFTER and self._is_witnessed(item):
            self._give_up(item, _poison(item))
        elif not self._has_failed(item, error):
            self._first.appendleft(item)
            self._hold({item.order: error}, now)
            key = self._held.get(item.order)
            key.is_suspect = is_loss or batch.is_alone
            key.probe_next = item.losses >= POISON_AFTER
            return Settled(retried=1, trouble=(error, item))
        self._held.go_on(item.order)
        return Settled(given_up=1)

    def _is_witnessed(self, suspect: Item) -> bool:
        """Whether others were stored, by the same path, since a record first cost the connection."""
        return self.has_one_path and self._fruitful_writes > suspect.fruitful_before

    def _settle_probe(self, batch: WriteBatch, error: DeliveryError | None, now: float) -> Settled:
        """Take note of a probe: if it was stored, the record before it is at fault and must not follow."""
        (probe,) = batch.tried.values()
        key = self._held.get(probe.order)
        if error is not None:
            key.probe_next = False
            key.ready_at = now + self._backoff.wait(key.waiting[0].attempts)
            if not isinstance(error, Permanent):
                return Settled()
            del key.waiting[1]
            self._refuse(probe, str(error), now)
            return Settled(given_up=1)
        suspect = key.waiting.popleft()
        key.waiting.popleft()
        self._give_up(suspect, _poison(suspect))
        probe.ticket.stored(1)
        self._forget(1, probe.size)
        self._fruitful_writes += 1
        self._held.go_on(probe.order)
        return Settled(1, probe.size, given_up=1)

    def _hold(self, orders: dict[Order, DeliveryError], now: float) -> None:
        """Hold keys back: their records that would go first wait, in their order, until it is time."""
        held: dict[Order, list[Item]] = {}
        for item in self._first:
            if item.order in orders:
                held.setdefault(item.order, []).append(item)
        self._first = deque(item for item in self._first if item.order not in orders)
        for order, items in held.items():
            attempts = max(item.attempts for item in items)
            self._held.hold(order, items, now + self._backoff.wait(attempts), str(orders[order]))

    def _has_failed(self, item: Item, error: DeliveryError, *, counts: bool = True) -> bool:
        """Take note of a failed attempt; if that was the last, give the record up and return True."""
        item.attempts += counts
        item.may_be_stored |= error.may_be_stored
        if not self._retry_limit or item.attempts <= self._retry_limit:
            return False
        retries = f"{self._retry_limit} {'retry' if self._retry_limit == 1 else 'retries'}"
        if item.may_be_stored:
            self._give_up(item, f"it is unknown whether it was stored; given up after {retries}: {error}")
        else:
            self._give_up(item, f"not stored after {retries}: {error}")
        return True

    def _refuse(self, item: Item, reason: str, now: float) -> None:
        instead = self._redirect(item, reason) if self._redirect else None
        if instead:
            self.put(*instead, item.size, now)
            self._forget(1, item.size)
        else:
            self._give_up(item, reason)

    def _give_up(self, item: Item, reason: str) -> None:
        item.ticket.failed(item.record, self._backend, reason)
        self._forget(1, item.size)

    def _forget(self, count: int, size: int) -> None:
        self.events -= count
        self.bytes -= size


def _poison(item: Item) -> str:
    return f"the connection is lost whenever it is written, and others are stored: {item.reason}"
