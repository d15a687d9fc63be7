"""What was not published, for operators: log lines, the last ones for the status, and dead letters."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.payloads import ORIGINS
from bronze_sidecar.ingest.dead_letters import DeadLetter, Form, Kind
from bronze_sidecar.ingest.failure_classes import class_of, payload_case_of
from bronze_sidecar.mapping.mapper import StreamContext
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.telemetry.logs import logger
from bronze_sidecar.telemetry.metrics import Metrics

LOG_INTERVAL_SECONDS = 10.0
SHOWN_FAILURES = 10
"""Of each kind."""
CALM_SECONDS = 60.0
"""After which failures are a new trouble."""
_LOG_EVENTS: dict[Kind, str] = {"rejected": "events rejected", "failed": "events given up"}


class Tally:
    """How many failures of one kind there were, and since when they have come."""

    __slots__ = ("count", "destination", "last", "reason", "since")

    def __init__(self) -> None:
        self.count = 0
        self.since = 0.0
        """When the first came of those that followed each other closely."""
        self.last = 0.0
        self.reason = ""
        """Why the last one failed."""
        self.destination = ""
        """Where it would have gone."""

    def add(self, reason: str, destination: str = "") -> None:
        """Count one."""
        now = time.time()
        if now - self.last > CALM_SECONDS:
            self.since = now
        self.count += 1
        self.last, self.reason, self.destination = now, reason, destination


class Tallies:
    """The failures of each kind."""

    __slots__ = ("failed", "rejected")

    def __init__(self) -> None:
        self.rejected = Tally()
        self.failed = Tally()

    def of(self, kind: Kind) -> Tally:
        return self.rejected if kind == "rejected" else self.failed


class Failures:
    """Hears of every failure in the process."""

    def __init__(
        self, put_letter: Callable[[DeadLetter], None] | None = None, metrics: Metrics | None = None
    ) -> None:
        self._put_letter = put_letter
        self._metrics = metrics or Metrics()
        self.watch: Callable[[DeadLetter], None] | None = None
        """Sees each failure, if anybody looks at them."""
        self._last: dict[Kind, deque[dict[str, object]]] = {
            kind: deque(maxlen=SHOWN_FAILURES) for kind in _LOG_EVENTS
        }
        self._tallies: dict[str, Tallies] = {}
        self._quiet: dict[tuple[str, Kind], _Quiet] = {}

    def add(self, letter: DeadLetter, payload_case: str) -> None:
        """Take note of a failure."""
        reason_class = class_of(letter.kind, letter.reason)
        self._metrics.failures.labels(letter.kind, letter.backend, payload_case, reason_class).inc()
        if self._put_letter:
            self._put_letter(letter)
        if self.watch:
            self.watch(letter)
        facts = {
            "kind": letter.kind,
            "backend": letter.backend or None,
            "stream_id": letter.stream_id,
            "position": letter.position,
            "level": letter.level,
            "reason": letter.reason,
        }
        self.tallies(letter.backend).of(letter.kind).add(letter.reason, letter.destination)
        known: dict[str, object] = {name: value for name, value in facts.items() if value is not None}
        shown = {"source": letter.source, "destination": letter.destination}
        self._last[letter.kind].append(
            {
                "time": letter.time.isoformat(timespec="milliseconds"),
                **known,
                **{name: value for name, value in shown.items() if value},
            }
        )
        quiet = self._quiet.get((letter.backend, letter.kind))
        if quiet:
            quiet.count += 1
            quiet.sample = known
        else:
            self._log(letter.kind, 1, known)
            self._be_quiet(letter.backend, letter.kind)

    def lost(self, backend: str, record: Record, reason: str) -> None:
        """Take note of an event that was given up after it was acknowledged; its producer is not told."""
        event = record.event
        stream_id, _, where = event.id.rpartition(":")
        position, level = place(where)
        self.add(
            DeadLetter(
                time=datetime.now(UTC),
                kind="failed",
                reason=reason,
                backend=backend,
                destination=record.address.destination,
                event_id=event.id,
                stream_id=stream_id,
                position=position,
                level=level,
                source=event.source,
                origin=event.origin,
                form="envelope",
                content=event.envelope,
            ),
            event.payload_case,
        )

    def last(self) -> list[dict[str, object]]:
        """Return the last failures of each kind, the newest last."""
        return sorted(chain.from_iterable(self._last.values()), key=lambda each: str(each["time"]))

    def tallies(self, backend: str = "") -> Tallies:
        """Return how many there were at a back end; what was rejected belongs to none."""
        return self._tallies.setdefault(backend, Tallies())

    def close(self) -> None:
        """Log what has not been logged yet."""
        for (_, kind), quiet in self._quiet.items():
            quiet.timer.cancel()
            self._log(kind, quiet.count, quiet.sample)
        self._quiet.clear()

    def _be_quiet(self, backend: str, kind: Kind) -> None:
        """Only count such failures for a while; then log their number, if there were any."""
        loop = asyncio.get_running_loop()
        self._quiet[backend, kind] = _Quiet(
            loop.call_later(LOG_INTERVAL_SECONDS, self._end_quiet, backend, kind)
        )

    def _end_quiet(self, backend: str, kind: Kind) -> None:
        quiet = self._quiet.pop((backend, kind))
        if quiet.count:
            self._log(kind, quiet.count, quiet.sample)
            self._be_quiet(backend, kind)

    @staticmethod
    def _log(kind: Kind, count: int, sample: dict[str, object]) -> None:
        if count:
            facts = {name: value for name, value in sample.items() if name != "kind"}
            logger().error(_LOG_EVENTS[kind], count=count, **facts)


class _Quiet:
    """Failures that were not logged yet."""

    __slots__ = ("count", "sample", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.count = 0
        self.sample: dict[str, object] = {}


class StreamPlace(NamedTuple):
    """Where an event stands in its stream."""

    position: int
    level: int | None
    """Which of the events that one message became; None if it became one."""


def place(text: str) -> StreamPlace:
    """Read `<position>` or `<position>.<level>`, as ids end."""
    position, _, level = text.partition(".")
    return StreamPlace(int(position), int(level) if level else None)


class StreamFailures:
    """Tells of the failures of one stream."""

    def __init__(self, failures: Failures, context: StreamContext, producer_id: str) -> None:
        self._failures = failures
        self._context = context
        self._producer_id = producer_id
        self.tallies = Tallies()

    def place_of(self, event: Event) -> StreamPlace:
        return place(event.id.rpartition(":")[2])

    def failed(self, record: Record, backend: str, reason: str) -> None:
        """Tell of a record that a back end will never store."""
        event = record.event
        self._add(
            "failed",
            reason,
            self.place_of(event),
            event.payload_case,
            form="envelope",
            content=event.envelope,
            backend=backend,
            destination=record.address.destination,
            source=event.source,
            origin=event.origin,
        )

    def rejected(self, where: StreamPlace, reason: str, form: Form, content: bytes) -> None:
        """Tell of a message or event that is refused as it is."""
        context = self._context
        self._add(
            "rejected",
            reason,
            where,
            payload_case_of(reason),
            form=form,
            content=content,
            source=context.source,
            origin=ORIGINS[context.origin],
            request_id=context.request_id,
            session_id=context.session_id,
            meta=context.meta,
        )

    def _add(self, kind: Kind, reason: str, where: StreamPlace, payload_case: str, **facts: object) -> None:
        position, level = where
        self.tallies.of(kind).add(reason)
        event_id = f"{self._context.stream_id}:{position}"
        self._failures.add(
            DeadLetter(
                time=datetime.now(UTC),
                kind=kind,
                reason=reason,
                event_id=event_id if level is None else f"{event_id}.{level}",
                stream_id=self._context.stream_id,
                position=position,
                level=level,
                producer_id=self._producer_id,
                **facts,  # type: ignore[arg-type]
            ),
            payload_case,
        )
