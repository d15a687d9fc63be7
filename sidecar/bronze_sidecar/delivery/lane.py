"""A lane carries records to one sink: bounded, batched, retried, in order per key."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bronze_sidecar.configuration.config import Config
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Backend, Failed, Sink
from bronze_sidecar.telemetry.logs import logger
from bronze_sidecar.telemetry.metrics import LaneMetrics

WARNING_INTERVAL_SECONDS = 10.0
IDLE_PING_SECONDS = 5.0


class OutcomeListener(Protocol):
    """Whoever waits for records of one batch."""

    def stored(self, count: int) -> None:
        """Take note that so many records are done."""

    def failed(self, record: Record, backend: str, reason: str) -> None:
        """Take note that a record will never be stored."""


@dataclass(slots=True)
class Chunk:
    """Records of one ticket, in order."""

    ticket: OutcomeListener
    records: list[Record]
    bytes: int
    since: float


@dataclass(slots=True)
class WriteBatch:
    """What one write carries: records, and whose they are."""

    records: list[Record] = field(default_factory=list)
    parts: list[tuple[OutcomeListener, int]] = field(default_factory=list)
    bytes: int = 0
    since: float = 0.0
    attempts: int = 0

    def add(self, ticket: OutcomeListener, records: Sequence[Record], size: int, since: float) -> None:
        if not self.records:
            self.since = since
        self.records += records
        self.parts.append((ticket, len(records)))
        self.bytes += size

    def tickets(self) -> list[OutcomeListener]:
        """Return the ticket of each record."""
        return [ticket for ticket, count in self.parts for _ in range(count)]


@dataclass(slots=True)
class Blocked:
    """A key whose first record is being tried again; later ones wait behind it."""

    waiting: deque[tuple[OutcomeListener, Record]]
    attempts: int
    ready_at: float
    since: float


class Backoff:
    """Exponential, with full jitter and a cap."""

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self._first = first_ms / 1000
        self._longest = longest_ms / 1000

    def wait(self, attempts: int) -> float:
        """Return how long to wait after so many failed attempts."""
        return random.uniform(0, min(self._longest, self._first * 2 ** min(attempts - 1, 32)))  # noqa: S311 - no secret


class Lane:
    """Carries records to one back end."""

    def __init__(self, backend: Backend, config: Config, metrics: LaneMetrics) -> None:
        self.backend = backend
        self.name = backend.name
        self.route = Route(backend.rules())
        self.metrics = metrics
        self.state = "connecting"
        """`ready`, or why not."""
        self.connected = asyncio.Event()
        self.events = 0
        self.bytes = 0
        self._max_events = config.max_queue_events
        self._max_bytes = config.max_queue_bytes
        self._delay = backend.max_batch_delay_ms / 1000
        self._retry_limit = config.retry_limit
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._retry_seconds = (config.retry_limit or math.inf) * config.retry_backoff_max_ms / 1000
        self._queue: deque[Chunk] = deque()
        self._queued = 0
        self._blocked: dict[tuple[str, str], Blocked] = {}
        self._in_flight: WriteBatch | None = None
        self._arrived = asyncio.Event()
        self._less = asyncio.Event()
        """Set when there is more room than before."""
        self._hurry = False
        self._warned_at = -WARNING_INTERVAL_SECONDS
        self._log = logger().bind(backend=self.name)
        metrics.watch(self)

    # -- for the ingest side

    def has_room(self, events: int, size: int) -> bool:
        """Tell whether records fit into the bounds; whatever comes fits into an empty lane."""
        return not self.events or (
            self.events + events <= self._max_events and self.bytes + size <= self._max_bytes
        )

    async def wait_for_room(self, events: int, size: int) -> None:
        """Return when records fit; one at a time may wait."""
        while not self.has_room(events, size):
            self._less.clear()
            await self._less.wait()

    def put(self, ticket: OutcomeListener, records: list[Record], size: int) -> None:
        """Take records; the ticket hears of each of them once."""
        self._queue.append(Chunk(ticket, records, size, time.monotonic()))
        self._queued += len(records)
        self.events += len(records)
        self.bytes += size
        self._arrived.set()

    def hurry(self) -> None:
        """Stop waiting for fuller batches: the process is stopping."""
        self._hurry = True
        self._arrived.set()

    def oldest_age(self) -> float:
        """Return how many seconds the oldest unconfirmed record has waited."""
        times = [blocked.since for blocked in self._blocked.values()]
        times += [self._in_flight.since] if self._in_flight else []
        times += [self._queue[0].since] if self._queue else []
        return time.monotonic() - min(times) if times else 0.0

    def in_flight(self) -> int:
        """Return how many records are being written."""
        return len(self._in_flight.records) if self._in_flight else 0

    # -- the life of a lane

    async def run(self) -> None:
        """Connect and deliver until cancelled; raise Permanent if the back end can never be opened."""
        attempts = 0
        while True:
            try:
                async with self.backend.open(self.route) as sink:
                    self._became_ready(sink)
                    attempts = 0
                    await self._deliver_all(sink)
            except Disconnected as error:
                self._not_ready("lost", error)
            except Permanent as error:
                if not self.connected.is_set():
                    raise
                # It worked before, so what it says may pass; nothing is given up meanwhile.
                self._not_ready("refused", error)
            except Transient as error:
                self._not_ready("unreachable", error)
                self._count_failed_opening()
            attempts += 1
            await asyncio.sleep(self._backoff.wait(attempts))

    def _count_failed_opening(self) -> None:
        """Where retries are limited, a back end that cannot be reached uses them up like a failed write."""
        if not self._retry_limit:
            return
        if self._in_flight is None and self._queue:
            batch = WriteBatch()
            self._take_queued(batch, self.backend.max_batch_size, self._max_bytes)
            self._in_flight = batch
        if self._in_flight:
            self._again(self._in_flight)

    def _became_ready(self, sink: Sink) -> None:
        self.state = "ready"
        if not self.connected.is_set() and (sink.forgets_ids_after or math.inf) < self._retry_seconds:
            self._log.warning(
                "the back end forgets ids sooner than retries end: an event retried for longer may be stored"
                " twice, under one id",
                forgets_ids_after_seconds=sink.forgets_ids_after,
            )
        self.connected.set()
        self._warned_at = -WARNING_INTERVAL_SECONDS
        self._log.info("connected")

    def _not_ready(self, event: str, error: DeliveryError) -> None:
        self.state = f"{event}: {error}"
        self._warn(event, error)

    def _warn(self, event: str, error: DeliveryError, **facts: object) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARNING_INTERVAL_SECONDS:
            self._warned_at = now
            self._log.warning(event, reason=str(error), waiting=self.events, **facts)

    async def _deliver_all(self, sink: Sink) -> None:
        while True:
            batch = self._in_flight or await self._next_batch(sink)
            self._in_flight = batch
            await self._write(sink, batch)
            self._in_flight = None

    async def _write(self, sink: Sink, batch: WriteBatch) -> None:
        """Write a batch until it is settled; what cannot be stored yet goes back to wait."""
        while True:
            started = time.monotonic()
            try:
                failures = await sink.write(batch.records)
            except Disconnected:
                self._again(batch)
                raise
            except Permanent as error:
                failures = [Failed(place, error) for place in range(len(batch.records))]
            except Transient as error:
                self._again(batch)
                if not batch.records:
                    return
                self.state = f"failing: {error}"
                self._warn("retrying", error, attempt=batch.attempts)
                await asyncio.sleep(self._backoff.wait(batch.attempts))
                continue
            self.state = "ready"
            self._settle(batch, failures, time.monotonic() - started)
            return

    def _again(self, batch: WriteBatch) -> None:
        """Count a write that stored nothing; give its records up if that was the last."""
        batch.attempts += 1
        self.metrics.retried.inc(len(batch.records))
        if self._retry_limit and batch.attempts > self._retry_limit:
            reason = f"not stored after {self._retry_limit} retries"
            for ticket, record in zip(batch.tickets(), batch.records, strict=True):
                self._give_up(ticket, record, reason)
            self._forget(len(batch.records), batch.bytes)
            batch.records, batch.parts, batch.bytes = [], [], 0
            self._in_flight = None

    def _settle(self, batch: WriteBatch, failures: Sequence[Failed], seconds: float) -> None:
        self.metrics.wrote(len(batch.records) - len(failures), batch.bytes, seconds)
        if failures:
            self._settle_partly(batch, dict(failures))
        else:
            for ticket, count in batch.parts:
                ticket.stored(count)
            self._forget(len(batch.records), batch.bytes)
        if self._blocked:
            self._unblock(batch)

    def _settle_partly(self, batch: WriteBatch, errors: dict[int, DeliveryError]) -> None:
        not_tried = WriteBatch(since=batch.since)
        again: dict[tuple[str, str], list[tuple[OutcomeListener, Record]]] = {}
        reasons: dict[tuple[str, str], DeliveryError] = {}
        for index, (ticket, record) in enumerate(zip(batch.tickets(), batch.records, strict=True)):
            order = record.address.order
            error = errors.get(index)
            size = len(record.event.envelope)
            if error is None or isinstance(error, Permanent):
                self._forget(1, size)
                if error is None:
                    ticket.stored(1)
                else:
                    self._give_up(ticket, record, str(error))
            elif isinstance(error, NotTried) and order not in again and order not in self._blocked:
                not_tried.add(ticket, [record], size, batch.since)
            else:
                again.setdefault(order, []).append((ticket, record))
                reasons.setdefault(order, error)
        for order, records in again.items():
            self._block(order, records, reasons[order], batch.since)
        if not_tried.records:
            self._put_back(not_tried)

    def _block(
        self,
        order: tuple[str, str],
        records: list[tuple[OutcomeListener, Record]],
        error: DeliveryError,
        since: float,
    ) -> None:
        """Hold a key back behind its failed record."""
        blocked = self._blocked.setdefault(order, Blocked(deque(), 0, 0.0, since))
        if not isinstance(error, NotTried):
            blocked.attempts += 1
            self.metrics.retried.inc()
            self._warn("retrying", error, attempt=blocked.attempts, key=order[1])
        blocked.ready_at = time.monotonic() + (
            self._backoff.wait(blocked.attempts) if blocked.attempts else 0.0
        )
        if self._retry_limit and blocked.attempts > self._retry_limit:
            ticket, record = records.pop(0)
            self._forget(1, len(record.event.envelope))
            self._give_up(ticket, record, f"not stored after {self._retry_limit} retries: {error}")
            blocked.attempts, blocked.ready_at = 0, 0.0
        blocked.waiting.extendleft(reversed(records))

    def _unblock(self, batch: WriteBatch) -> None:
        """Free the held-back keys whose records are all settled; let those go on that made progress."""
        held = {record.address.order for record in batch.records} & self._blocked.keys()
        for order in held:
            if not self._blocked[order].waiting:
                del self._blocked[order]

    def _put_back(self, batch: WriteBatch) -> None:
        """Return untried records to the front of the queue."""
        start = 0
        chunks = []
        for ticket, count in batch.parts:
            records = batch.records[start : start + count]
            start += count
            chunks.append(
                Chunk(ticket, records, sum(len(each.event.envelope) for each in records), batch.since)
            )
        self._queue.extendleft(reversed(chunks))
        self._queued += len(batch.records)
        self._arrived.set()

    def _give_up(self, ticket: OutcomeListener, record: Record, reason: str) -> None:
        self.metrics.failed.inc()
        ticket.failed(record, self.name, reason)

    def _forget(self, count: int, size: int) -> None:
        self.events -= count
        self.bytes -= size
        self._less.set()

    # -- forming batches

    async def _next_batch(self, sink: Sink) -> WriteBatch:
        """Wait for records, a little longer for more of them, and take what one write may carry."""
        most = min(self.backend.max_batch_size, sink.limits.records)
        while True:
            await self._wait_for_records(sink, most)
            batch = WriteBatch()
            self._take_ready(batch, most, sink.limits.bytes)
            self._take_queued(batch, most, sink.limits.bytes)
            if batch.records:
                return batch

    async def _wait_for_records(self, sink: Sink, most: int) -> None:
        if not self._queue:
            self._arrived.clear()
            ready_at = min((blocked.ready_at for blocked in self._blocked.values()), default=None)
            await self._sleep_until(ready_at or time.monotonic() + IDLE_PING_SECONDS)
            if not self._queue and ready_at is None:
                # Nothing to write would otherwise hide that the back end is gone.
                await sink.ping()
        if self._delay and not self._hurry and self._queue and self._queued < most:
            await self._linger(most)

    async def _linger(self, most: int) -> None:
        """Wait until a batch is full or its first record has waited long enough."""
        deadline = self._queue[0].since + self._delay
        while self._queued < most and not self._hurry and time.monotonic() < deadline:
            self._arrived.clear()
            await self._sleep_until(deadline)

    async def _sleep_until(self, deadline: float) -> None:
        """Sleep until a time or an arrival, whichever is first."""
        loop = asyncio.get_running_loop()
        # An event and a timer: a tenth of what a time-out around the wait costs.
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), self._arrived.set)
        try:
            await self._arrived.wait()
        finally:
            timer.cancel()

    def _take_ready(self, batch: WriteBatch, most: int, most_bytes: int) -> None:
        """Take the records of held-back keys whose wait is over."""
        if not self._blocked:
            return
        now = time.monotonic()
        for blocked in self._blocked.values():
            if blocked.ready_at > now:
                continue
            while blocked.waiting and len(batch.records) < most:
                ticket, record = blocked.waiting[0]
                size = len(record.event.envelope)
                if batch.records and batch.bytes + size > most_bytes:
                    return
                blocked.waiting.popleft()
                batch.add(ticket, [record], size, blocked.since)

    def _take_queued(self, batch: WriteBatch, most: int, most_bytes: int) -> None:
        while self._queue:
            chunk = self._queue[0]
            if self._blocked and any(record.address.order in self._blocked for record in chunk.records):
                self._queue.popleft()
                self._queued -= len(chunk.records)
                chunk = self._without_blocked(chunk)
                if not chunk.records:
                    continue
                self._queue.appendleft(chunk)
                self._queued += len(chunk.records)
            free = most - len(batch.records)
            if len(chunk.records) <= free and batch.bytes + chunk.bytes <= most_bytes:
                self._queue.popleft()
                self._queued -= len(chunk.records)
                batch.add(chunk.ticket, chunk.records, chunk.bytes, chunk.since)
                continue
            self._take_part(batch, chunk, free, most_bytes)
            return

    def _without_blocked(self, chunk: Chunk) -> Chunk:
        """Move the chunk's records of held-back keys behind the record that holds them."""
        free: list[Record] = []
        size = 0
        for record in chunk.records:
            blocked = self._blocked.get(record.address.order)
            if blocked is None:
                free.append(record)
                size += len(record.event.envelope)
            else:
                blocked.waiting.append((chunk.ticket, record))
        return Chunk(chunk.ticket, free, size, chunk.since)

    def _take_part(self, batch: WriteBatch, chunk: Chunk, free: int, most_bytes: int) -> None:
        """Take the beginning of a chunk; a single record always goes, and the sink judges its size."""
        records = chunk.records[:free]
        sizes = [len(record.event.envelope) for record in records]
        size = sum(sizes)
        while records and batch.bytes + size > most_bytes and (len(records) > 1 or batch.records):
            records.pop()
            size -= sizes.pop()
        if records:
            batch.add(chunk.ticket, records, size, chunk.since)
            chunk.records = chunk.records[len(records) :]
            chunk.bytes -= size
            self._queued -= len(records)
            if not chunk.records:
                self._queue.popleft()
