"""Events that wait to be sent: bounded, cut into batches, each under its position in the stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from bronze_client.options import Options


@dataclass(slots=True)
class PendingBatch:
    """Events under contiguous positions, not sent yet."""

    first_position: int
    is_json: bool | None
    """None if it has events of both kinds: then those that are JSON begin with a blank."""
    events: list[bytes] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class Drops:
    """How many events were dropped, and why the last of them was."""

    total: int = 0
    since_flush: int = 0
    unreported: int = 0
    reason: str = ""

    def add(self, count: int, reason: str) -> None:
        """Count dropped events."""
        self.total += count
        self.since_flush += count
        self.unreported += count
        self.reason = reason

    def report(self) -> tuple[int, str]:
        """Return what nobody was told yet; from now on it is told."""
        count, self.unreported = self.unreported, 0
        return count, self.reason


class Buffer:
    """Takes events at the cost of appending to a list, and gives them away in batches.

    It also counts what was given away until that is released, so its limits hold for both together.

    Producers call `add` and `skip`, and hold the lock if there are several threads. All other methods
    take it themselves and belong to one thread. `wake` is called within `add` when there is something to
    do for that thread: a batch is full, or the first that a gap has ended; the first event of one has come;
    or events were dropped.
    `on_room` is called, with the lock held, when waiting for room may have come to an end.
    """

    def __init__(
        self,
        options: Options,
        *,
        lock: AbstractContextManager[object],
        wake: Callable[[], object],
        on_room: Callable[[], None],
    ) -> None:
        self._batch_events = options.batch_events
        self._batch_bytes = options.batch_bytes
        self._max_events = options.buffer_events
        self._max_bytes = options.buffer_bytes
        self._largest_event = options.buffer_bytes
        self._drops_oldest = options.on_full == "drop_oldest"
        self._lock = lock
        self._wake: Callable[[], object] = wake
        self._on_room = on_room

        self.position = 0
        """Of the next event."""
        self.events = 0
        """Held here or given away and not released."""
        self.bytes = 0
        self.drops = Drops()
        self.refusal = ""
        """Why nothing is accepted any more."""
        self.is_timed = False
        """Whether somebody will call `mark_due` soon."""

        self._skipped = 0
        self._full: deque[PendingBatch] = deque()
        self._open = PendingBatch(0, is_json=False)
        self._is_due = False

    def add(self, event: bytes, is_json: bool) -> bool:
        """Take an event under the next position, or drop it and return False.

        Raise ValueError for one that is too large to be ever sent. The position is used up in any case.
        """
        # A line of JSON travels with its newline.
        size = len(event) + is_json
        if size > self._largest_event:
            self.skip()
            raise ValueError(f"The event has {size} bytes; at most {self._largest_event} can be sent.")
        # The same as `_lacks_room`, without the cost of a call.
        is_full = self.events >= self._max_events or self.bytes + size > self._max_bytes
        if is_full and not self._make_room(size):
            self.skip()
            self._drop(1, self.refusal or "The buffer is full.")
            return False
        batch = self._open
        if batch.is_json is not is_json:
            event = _mix(batch, event, is_json)
        events = batch.events
        events.append(event)
        batch.size += size
        self.position += 1
        self.events += 1
        self.bytes += size
        if len(events) >= self._batch_events or batch.size >= self._batch_bytes:
            self._close_batch()
            self._wake()
        elif not self.is_timed:
            self.is_timed = True
            self._wake()
        return True

    def skip(self) -> None:
        """Use up a position without an event."""
        had_batch = bool(self._full)
        self._close_batch()
        if self._full and not had_batch:
            self._wake()
        self._skipped += 1
        self.position += 1
        self._open.first_position = self.position

    def is_worth_waiting(self, size: int) -> bool:
        """Whether there is no room for so many bytes, but may be later."""
        return self._lacks_room(size) and size <= self._largest_event and not self.refusal

    def take(self, events: int, size: int, *, cut: bool) -> PendingBatch | None:
        """Give away the oldest batch that is full or due, if it is within the limits.

        If it is not within the limits, with `cut`, give away the part of it that is. An event that is larger
        than any limit so far is dropped.
        """
        with self._lock:
            while (batch := self._oldest()) is not None:
                if len(batch.events) <= events and batch.size <= size:
                    self._full.popleft()
                    return batch
                if not cut:
                    return None
                if _size(batch, 1) > self._largest_event:
                    self._give_up(
                        1, self._cut(batch, 1).size, "The event is larger than the sidecar accepts."
                    )
                    continue
                count = _count_within(batch, events, size)
                return self._cut(batch, count) if count else None
            return None

    def put_back(self, batch: PendingBatch) -> None:
        """Take a batch back that was given away; it is the oldest again."""
        with self._lock:
            self._full.appendleft(batch)

    def release(self, events: int, size: int) -> None:
        """Make room: this much of what was given away is done."""
        with self._lock:
            self.events -= events
            self.bytes -= size
            self._on_room()

    def mark_due(self) -> None:
        """Let the batch that is being filled be taken as it is."""
        with self._lock:
            self.is_timed = False
            self._is_due = bool(self._open.events)

    def limit_event(self, size: int) -> None:
        """Refuse larger events from now on, for they can never be sent."""
        with self._lock:
            self._largest_event = min(self._max_bytes, size)

    def refuse(self, reason: str) -> None:
        """Accept nothing from now on; what is here stays."""
        with self._lock:
            self.refusal = self.refusal or reason
            self._max_events = 0
            self._drops_oldest = False
            self._on_room()

    def end(self) -> int:
        """Use up the position of the stream's end; return it."""
        with self._lock:
            self.skip()
            return self.position - 1

    def detach(self) -> None:
        """Wake nobody from now on."""
        with self._lock:
            self._wake = _nobody

    @property
    def accepted(self) -> int:
        """Events that were taken."""
        return self.position - self._skipped

    @property
    def has_batch(self) -> bool:
        """Whether there is something to take."""
        return bool(self._full) or self._is_due

    @property
    def oldest_position(self) -> int:
        """Of the events that are here; of the next event if there are none."""
        with self._lock:
            return self._full[0].first_position if self._full else self._open.first_position

    def _close_batch(self) -> None:
        if self._open.events:
            self._full.append(self._open)
            self._open = PendingBatch(self.position, self._open.is_json)
            self._is_due = False

    def _oldest(self) -> PendingBatch | None:
        if not self._full and self._is_due:
            self._close_batch()
        return self._full[0] if self._full else None

    def _cut(self, batch: PendingBatch, count: int) -> PendingBatch:
        """Take the first events off the oldest batch."""
        part = PendingBatch(batch.first_position, batch.is_json, batch.events[:count], _size(batch, count))
        batch.first_position += count
        batch.size -= part.size
        del batch.events[:count]
        if not batch.events:
            self._full.popleft()
        return part

    def _lacks_room(self, size: int) -> bool:
        return self.events >= self._max_events or self.bytes + size > self._max_bytes

    def _make_room(self, size: int) -> bool:
        if not self._drops_oldest:
            return False
        self._close_batch()
        while self._full and self._lacks_room(size):
            oldest = self._full.popleft()
            self._give_up(len(oldest.events), oldest.size, "The buffer is full.")
        return not self._lacks_room(size)

    def _give_up(self, events: int, size: int, reason: str) -> None:
        self.events -= events
        self.bytes -= size
        self._drop(events, reason)

    def _drop(self, count: int, reason: str) -> None:
        is_first = not self.drops.unreported
        self.drops.add(count, reason)
        if is_first:
            self._wake()


def _nobody() -> None:
    pass


def _mix(batch: PendingBatch, event: bytes, is_json: bool) -> bytes:
    """Let a batch have an event of another kind than its last; return the event as it travels there.

    A blank marks JSON, and counts for the newline of a line that travels among others.
    """
    if not batch.events:
        batch.is_json = is_json
        return event
    if batch.is_json:
        batch.events = [b" " + line for line in batch.events]
    batch.is_json = None
    return b" " + event if is_json else event


def _size(batch: PendingBatch, count: int) -> int:
    """Return the size of the first events."""
    return sum(map(len, batch.events[:count])) + (count if batch.is_json else 0)


def _count_within(batch: PendingBatch, events: int, size: int) -> int:
    """Return how many of the batch's first events are within the limits."""
    count, newline = 0, bool(batch.is_json)
    for event in batch.events[:events]:
        size -= len(event) + newline
        if size < 0:
            break
        count += 1
    return count
