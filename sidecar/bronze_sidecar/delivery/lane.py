"""A lane carries records to one sink: bounded, batched, retried, in order per key.

What waits, and what follows from a failure, is the backlog's; the connection, writes and pauses are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.backlog import Backlog, Settled
from bronze_sidecar.delivery.backoff import Backoff
from bronze_sidecar.delivery.batch import OutcomeListener, WriteBatch
from bronze_sidecar.delivery.destinations import Destinations
from bronze_sidecar.delivery.held import HeldKey
from bronze_sidecar.delivery.redirect import Redirect
from bronze_sidecar.delivery.spilling import SpillBounds, Spilling
from bronze_sidecar.delivery.spool import SUFFIX
from bronze_sidecar.envelope import native
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Backend, Failed, Sink
from bronze_sidecar.telemetry.logs import logger
from bronze_sidecar.telemetry.metrics import LaneMetrics

WARNING_INTERVAL_SECONDS = 10.0
ADVICE_INTERVAL_SECONDS = 600.0
IDLE_PING_SECONDS = 5.0
MOMENT_SECONDS = 0.0005
"""What is not worth waiting for: timers count milliseconds."""
MOST_BUSY_SECONDS = 0.005
"""For how long a line counts as busy after a write, at most."""


class Lane:
    """Carries records to one back end."""

    def __init__(self, backend: Backend, config: Config, metrics: LaneMetrics) -> None:
        self.backend = backend
        self.name = backend.name
        self.route = Route(backend.rules(), is_native=config.native and native.IS_INSTALLED)
        self.metrics = metrics
        self.connected = asyncio.Event()
        """Set once the back end has been reached for the first time."""
        self.on_lost: Callable[[str, Record, str], None] = lambda *_: None
        """Called for a record that is given up after it was acknowledged from disk."""
        self.order = ""
        """Which order the back end keeps, once it has been reached."""
        # Spilling begins before a single producer has used up its credits, which would stop it.
        share = 2 if backend.when_full == "spill" else 1
        self.max_events = max(1, config.max_queue_events // share)
        """Most records in memory, unless a single slice has more."""
        self._max_bytes = config.max_queue_bytes // share
        self._retry_limit = config.retry_limit
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        dead_letter = self.route.rules.dead_letter
        self._redirect = Redirect(self.name, dead_letter) if dead_letter else None
        self._backlog = Backlog(self.name, config.retry_limit, self._backoff, self._redirect)
        self._in_flight: WriteBatch | None = None
        self._writing: tuple[Sink, int] | None = None
        """Where that goes, and how many records a write may have."""
        self.spilling = self._spilling_to(config) if backend.when_full == "spill" else None
        self._arrived = asyncio.Event()
        self._less = asyncio.Event()
        """Set when there is more room than before."""
        self.on_room: Callable[[], None] = lambda: None
        """Called then."""
        self._hurry = False
        self._busy_until = 0.0
        """Until when the line counts as busy after a write: the fuller that was, the longer."""
        self._absence = "connecting"
        """Why there is no connection; empty while there is one."""
        self._trouble = ""
        """Why the last write stored nothing; empty if it stored something."""
        self._fruitless = 0
        """Attempts in a row, to connect or to write, that stored nothing."""
        self._away_since = time.monotonic()
        self._condition = "away"
        self.since = time.time()
        """Since when the back end has been ready, failing or away."""
        self.last_error: tuple[float, str] | None = None
        """When a write or a connection failed last, and why; records that were given up are not counted."""
        self.destinations = Destinations()
        self.on_stored: Callable[[Sequence[Record]], None] | None = None
        """Sees the records of each write that were stored, if anybody looks at them."""
        self._warned_at = self._warned_of_disk_at = -WARNING_INTERVAL_SECONDS
        self._advised_at = -ADVICE_INTERVAL_SECONDS
        self._log = logger().bind(backend=self.name)
        metrics.watch(self)

    def _spilling_to(self, config: Config) -> Spilling:
        assert config.spool_dir is not None  # noqa: S101 - checked with the configuration
        return Spilling(
            config.spool_dir / f"{self.name}{SUFFIX}",
            SpillBounds(config.spool_max_bytes, self.max_events, self._max_bytes),
            self._backlog,
            self.route,
            on_change=self._on_spill_change,
            on_trouble=self._on_disk_trouble,
            on_failed=self._failed_after_spilling,
        )

    # -- for the ingest side

    @property
    def events(self) -> int:
        """Records that are not settled."""
        return self._backlog.events

    @property
    def bytes(self) -> int:
        """Bytes of their envelopes."""
        return self._backlog.bytes

    def has_room(self, events: int, size: int) -> bool:
        """Tell whether records fit into the bounds; whatever comes fits into an empty lane."""
        return self._fits(events, size) or (self.spilling is not None and self.spilling.has_room(size))

    def _fits(self, events: int, size: int) -> bool:
        """Tell whether records fit into memory, behind everything that is there."""
        waiting = self._backlog
        if self.spilling and not self.spilling.in_memory:
            return False
        return not waiting.events or (
            waiting.events + events <= self.max_events and waiting.bytes + size <= self._max_bytes
        )

    async def wait_until_empty(self) -> None:
        """Return when everything is settled."""
        while self._backlog.events or (self.spilling and self.spilling.events):
            self._less.clear()
            await self._less.wait()

    async def save(self) -> None:
        """Bring what is not delivered to the disk, where the lane has one."""
        if self.spilling:
            self.spilling.save(self._in_flight)
            await self.spilling.flush()

    def unsafe_events(self) -> int:
        """Return how many events are neither delivered nor on disk."""
        unsaved = sum(len(each.records) for each in self._backlog.unsaved(self._in_flight))
        unsaved += self._redirect.unsafe if self._redirect else 0
        return unsaved + (self.spilling.events_on_the_way if self.spilling else 0)

    def put(self, ticket: OutcomeListener, records: list[Record], size: int) -> None:
        """Take records; the ticket hears of each of them once."""
        if self.spilling is None or self._fits(len(records), size):
            self._backlog.put(ticket, records, size, time.monotonic())
            self._arrived.set()
            self._look_ahead()
        else:
            self.spilling.put(ticket, records, size, self._in_flight)

    def _on_spill_change(self) -> None:
        """Something came from the disk, or there is more room on it."""
        self._arrived.set()
        self._has_less()

    def _has_less(self) -> None:
        self._less.set()
        self.on_room()

    def _on_disk_trouble(self, reason: str) -> None:
        """Tell operators that the disk takes nothing, or, without a reason, that it does again."""
        now = time.monotonic()
        if not reason:
            self._warned_of_disk_at = -WARNING_INTERVAL_SECONDS
            self._log.info("the disk queue can be written again")
        elif now - self._warned_of_disk_at >= WARNING_INTERVAL_SECONDS:
            self._warned_of_disk_at = now
            self._log.error("the disk queue cannot be written; producers wait", reason=reason)

    def _failed_after_spilling(self, record: Record, reason: str) -> None:
        self.on_lost(self.name, record, reason)

    def hurry(self) -> None:
        """Stop waiting for fuller batches: the process is stopping."""
        self._hurry = True
        self._arrived.set()

    # -- for the operator

    @property
    def state(self) -> str:
        """`ready` if the last write stored something, or nothing waits; otherwise why not."""
        if self._absence:
            return self._absence
        return f"failing: {self._trouble}" if self._trouble and self._backlog.events else "ready"

    def oldest_age(self) -> float:
        """Return how many seconds the oldest unconfirmed record has waited."""
        oldest = self._backlog.oldest(self._in_flight)
        return time.monotonic() - oldest if oldest is not None else 0.0

    def held(self) -> Sequence[HeldKey]:
        """Return the keys that are held back: a record of each is tried again, others wait behind it."""
        return self._backlog.held

    def _note_condition(self) -> None:
        """Remember since when the back end has been as it is."""
        condition = "away" if self._absence else self.state.partition(":")[0]
        if condition != self._condition:
            self._condition = condition
            self.since = time.time()

    def in_flight(self) -> int:
        """Return how many records are being written."""
        return len(self._in_flight.records) if self._in_flight else 0

    # -- the life of a lane

    async def open_disk(self) -> None:
        """Open the queue on disk, if there is one, before anything comes; raise Permanent if it is no use."""
        if self.spilling:
            await self.spilling.open()

    async def run(self) -> None:
        """Connect and deliver until cancelled; raise Permanent if the back end can never be opened."""
        if self.spilling is None:
            await self._connect_and_deliver()
            return
        tasks = [asyncio.create_task(each) for each in (self.spilling.run(), self._connect_and_deliver())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.spilling.close()

    async def _connect_and_deliver(self) -> None:
        while True:
            try:
                async with self.backend.open(self.route) as sink:
                    self._became_ready(sink)
                    await self._deliver_all(sink)
            except Permanent as error:
                if not self.connected.is_set():
                    raise
                # It worked before, so what it says may pass; nothing is given up meanwhile.
                self._be_away("refused", error)
            except Transient as error:
                self._be_away("unreachable" if self._absence else "lost", error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the other lanes
                self._be_away("failed", unforeseen(error))
            self._fruitless += 1
            await asyncio.sleep(self._backoff.wait(self._fruitless))

    def _became_ready(self, sink: Sink) -> None:
        self.order = sink.order
        self._backlog.has_one_path = sink.has_one_path
        self._absence = ""
        self._note_condition()
        self.connected.set()
        away = time.monotonic() - self._away_since
        self._log.info(
            "connected",
            away_seconds=round(away, 3),
            waiting=self.events,
            waiting_bytes=self.bytes,
            **(
                {"on_disk": self.spilling.events, "on_disk_bytes": self.spilling.bytes}
                if self.spilling
                else {}
            ),
            order=sink.order,
        )
        in_doubt = self._backlog.in_doubt()
        if in_doubt and away > (sink.forgets_ids_after or math.inf):
            self._log.warning(
                "events may be stored twice, under one id: it is unknown whether they were stored, and the"
                " back end was away for longer than it remembers ids",
                events=in_doubt,
                remembers_ids_seconds=sink.forgets_ids_after,
                remedy="readers drop repeated event ids; JetStream remembers them for the duplicate window of"
                " its stream (nats stream edit --dupe-window)",
            )

    def _be_away(self, event: str, error: DeliveryError) -> None:
        """Take note that there is no connection."""
        if not self._absence:
            self._away_since = time.monotonic()
            # What was prepared is of no use to another connection.
            self._backlog.give_back()
        elif self._retry_limit:
            self._count_failed_opening(error)
        self._absence = f"{event}: {error}"
        self._note_condition()
        self.last_error = time.time(), str(error)
        self._warn(event, error)
        if isinstance(error, Disconnected) and error.repeated:
            self._log.warning("events may be stored twice", events=error.repeated, reason=str(error))

    def _count_failed_opening(self, error: DeliveryError) -> None:
        """Where retries are limited, a back end that cannot be reached uses them up like a failed write."""
        now = time.monotonic()
        batch = self._backlog.take(now, self.backend.max_batch_size, self._max_bytes)
        if batch:
            self._account(self._backlog.fail(batch, error, now, was_written=False))

    def _warn(self, event: str, error: DeliveryError, **facts: object) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARNING_INTERVAL_SECONDS:
            self._warned_at = now
            self._log.warning(event, reason=str(error), waiting=self.events, **facts)

    async def _deliver_all(self, sink: Sink) -> None:
        while True:
            most = min(self.backend.max_batch_size, sink.limits.records)
            batch = self._in_flight = await self._next_batch(sink, most)
            self._writing = sink, most
            # Once this write is on its way, also where it goes to several servers, by a task for each.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._look_ahead)
            began = time.monotonic()
            try:
                settled = await self._write(sink, batch)
            finally:
                self._in_flight = self._writing = None
            ended = time.monotonic()
            # What answers a full write, as much again, comes piece by piece; each would cost a write.
            rest = (ended - began) * len(batch.records) / most
            self._busy_until = ended + min(rest, MOST_BUSY_SECONDS)
            if settled.is_fruitless:
                self._fruitless += 1
                await asyncio.sleep(self._backoff.wait(self._fruitless))

    def _look_ahead(self) -> None:
        """Prepare the next write while one is under way, if it is full: the server need not wait for that."""
        if self._writing is None:
            return
        sink, most = self._writing
        batch = self._backlog.take_ahead(most, sink.limits.bytes)
        if batch:
            # What goes wrong goes wrong again when it is written, where it belongs.
            with contextlib.suppress(Exception):
                batch.prepared = sink.prepare(batch.records)

    async def _write(self, sink: Sink, batch: WriteBatch) -> Settled:
        """Write a batch, and take note of what became of it."""
        started = time.monotonic()
        failures: Sequence[Failed]
        try:
            failures = await sink.write(batch.records, batch.prepared)
        except Disconnected as error:
            self._account(self._backlog.fail(batch, error, time.monotonic()))
            raise
        except Permanent as error:
            failures = [Failed(place, error) for place in range(len(batch.records))]
        except Transient as error:
            return self._account(self._backlog.fail(batch, error, time.monotonic()))
        except Exception as error:
            self._account(self._backlog.fail(batch, unforeseen(error), time.monotonic()))
            raise
        now = time.monotonic()
        settled = self._account(self._backlog.settle(batch, failures, now))
        self.metrics.wrote(settled.stored, settled.stored_bytes, now - started)
        if sink.advice and now - self._advised_at >= ADVICE_INTERVAL_SECONDS:
            self._advised_at = now
            self._log.warning("slower than it could be", advice=sink.advice)
        self.destinations.note(batch.records)
        if self.on_stored:
            failed = {failure.place for failure in failures}
            self.on_stored([each for place, each in enumerate(batch.records) if place not in failed])
        return settled

    def _account(self, settled: Settled) -> Settled:
        """Tell operators what became of a write."""
        if settled.retried:
            self.metrics.retried.inc(settled.retried)
        if settled.given_up:
            self.metrics.failed.inc(settled.given_up)
        if settled.trouble:
            error, item = settled.trouble
            self.last_error = time.time(), str(error)
            self._warn("retrying", error, attempt=item.attempts, key=item.order[1])
        if settled.stored:
            if self._fruitless:
                self._fruitless = 0
                self._warned_at = -WARNING_INTERVAL_SECONDS
            self._trouble = ""
        elif settled.trouble:
            self._trouble = str(settled.trouble[0])
        self._note_condition()
        self._has_less()
        if self.spilling:
            self.spilling.look()
        return settled

    # -- forming batches

    async def _next_batch(self, sink: Sink, most: int) -> WriteBatch:
        """Wait for records, and take what one write may carry."""
        while True:
            if not self._hurry:
                await self._linger(most)
            batch = self._backlog.take(time.monotonic(), most, sink.limits.bytes)
            if batch:
                return batch
            await self._wait_for_records(sink)

    async def _wait_for_records(self, sink: Sink) -> None:
        self._arrived.clear()
        ready_at = self._backlog.ready_at()
        if ready_at is not None:
            await self._sleep_until(ready_at)
            return
        await self._sleep_until(time.monotonic() + IDLE_PING_SECONDS)
        if not self._backlog.events:
            # Nothing to write would otherwise hide that the back end is gone.
            await sink.ping()
            self._fruitless = 0

    async def _linger(self, most: int) -> None:
        """Wait while the line counts as busy, or as long as records may wait, unless a batch is full."""
        since = self._backlog.queued_since
        if since is None:
            return
        deadline = max(self._busy_until, since + self.backend.max_batch_delay_ms / 1000)
        last = deadline - MOMENT_SECONDS
        while self._backlog.queued < most and not self._hurry and time.monotonic() < last:
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


def unforeseen(error: Exception) -> Disconnected:
    """Describe an exception that no sink expected by its class and place: its text may hold anything."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return Disconnected(f"unforeseen {type(error).__name__}{place}")
