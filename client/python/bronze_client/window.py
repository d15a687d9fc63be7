"""Batches that are numbered: on their way to the sidecar, or to be sent again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from bronze_client.buffer import Buffer, PendingBatch
from bronze_client.schema import Batch, Credits, End, PublishRequest

MOST_EVENTS = 1024
"""The sidecar takes no more in one batch."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A batch as it was first sent, and as it is sent again until it is acknowledged."""

    sequence: int
    first_position: int
    events: int
    size: int
    request: bytes


class Window:
    """Numbers batches, keeps them until they are acknowledged, and stays within the credits."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._unsent: deque[Numbered] = deque()
        """To be sent again: those that were on their way when a connection was lost."""
        self._next_sequence = 1
        self.acknowledged_events = 0

        # Of this connection.
        self._sent: deque[Numbered] = deque()
        self._sent_events = 0
        self._sent_bytes = 0
        self._credits = Credits()
        self._most_bytes = 0
        self._largest_batch = 0

    @property
    def acknowledged_sequence(self) -> int:
        """The newest batch that is known to be done."""
        return self._next_sequence - len(self._sent) - len(self._unsent) - 1

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._sent

    @property
    def oldest_position(self) -> int:
        """Of the first event that is not acknowledged; of the next one if there is none."""
        for kept in (self._sent, self._unsent):
            if kept:
                return kept[0].first_position
        return self._buffer.oldest_position

    def open(self, acknowledged_sequence: int, credits_: Credits) -> bool:
        """Begin a connection: nothing is on its way on it.

        Return False if the sidecar would never take a batch as it was numbered, because it takes less than
        the one before it did. Then all go back to be cut and numbered anew, for another connection.
        """
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._sent_events = self._sent_bytes = 0
        self._most_bytes = 0
        self.acknowledge(acknowledged_sequence)
        if not self._unsent:
            self._next_sequence = max(self._next_sequence, acknowledged_sequence + 1)
        self.grant(credits_)
        if all(self._is_takeable(batch) for batch in self._unsent):
            return True
        # Numbers that were used are not used again: with the next one the sidecar begins a new run.
        while self._unsent:
            self._buffer.put_back(decode_batch(self._unsent.pop()))
        return False

    def _is_takeable(self, batch: Numbered) -> bool:
        """Whether a batch is within what may be on its way; without credits that remains to be seen."""
        most_events, most_bytes = self._credits.events, self._credits.bytes
        return not (most_events and most_bytes) or (
            batch.events <= most_events and batch.size <= min(most_bytes, self._largest_batch)
        )

    def grant(self, credits_: Credits) -> None:
        """Set how much may be on its way, and how large a batch may be."""
        self._credits = credits_
        self._largest_batch = credits_.batch_bytes or self._largest_batch or credits_.bytes
        if credits_.bytes > self._most_bytes:
            self._most_bytes = credits_.bytes
            self._buffer.limit_event(min(credits_.bytes, self._largest_batch))

    def acknowledge(self, sequence: int) -> None:
        """Forget every batch up to this one."""
        events = size = 0
        while self._sent and self._sent[0].sequence <= sequence:
            batch = self._sent.popleft()
            events += batch.events
            size += batch.size
        self._sent_events -= events
        self._sent_bytes -= size
        while self._unsent and self._unsent[0].sequence <= sequence:
            batch = self._unsent.popleft()
            events += batch.events
            size += batch.size
        self.acknowledged_events += events
        self._buffer.release(events, size)

    def next(self) -> bytes | None:
        """Return the next request to send, or None if there is none or it has to wait."""
        if not self._unsent and (new := self._number()) is not None:
            self._unsent.append(new)
        if not self._unsent or not self._may_send(self._unsent[0]):
            return None
        batch = self._unsent.popleft()
        self._sent.append(batch)
        self._sent_events += batch.events
        self._sent_bytes += batch.size
        return batch.request

    def end(self, position: int) -> None:
        """Add the end of the stream, at its position. Everything before it is acknowledged."""
        dropped = position - self.acknowledged_events
        batch = Batch(sequence=self._next_sequence, first_position=position, end=End(dropped=dropped))
        self._next_sequence += 1
        request = PublishRequest(batch=batch).SerializeToString()
        self._unsent.append(Numbered(batch.sequence, position, 0, 0, request))

    def _number(self) -> Numbered | None:
        events = self._credits.events - self._sent_events
        size = self._credits.bytes - self._sent_bytes
        if self.is_idle:
            # Nothing is gained by waiting for more.
            self._buffer.mark_due()
        batch = self._buffer.take(
            min(events, MOST_EVENTS),
            min(size, self._largest_batch),
            # What is larger than a batch may be is cut at once; what only has to wait is not.
            cut=not self._sent or (events >= MOST_EVENTS and size >= self._largest_batch),
        )
        if batch is None:
            return None
        sequence = self._next_sequence
        self._next_sequence += 1
        request = encode_batch(sequence, batch)
        return Numbered(sequence, batch.first_position, len(batch.events), batch.size, request)

    def _may_send(self, batch: Numbered) -> bool:
        if not self._sent:
            # Credits may shrink while the stream is open: alone a batch may go, and the sidecar has the
            # last word.
            return self._credits.events > 0 and self._credits.bytes > 0
        return (
            self._sent_events + batch.events <= self._credits.events
            and self._sent_bytes + batch.size <= self._credits.bytes
        )


def encode_batch(sequence: int, batch: PendingBatch) -> bytes:
    """Encode the request that carries a batch."""
    request = PublishRequest()
    message = request.batch
    message.sequence = sequence
    message.first_position = batch.first_position
    if batch.is_json:
        message.json.append(b"\n".join(batch.events))
    elif batch.is_json is None:
        message.mixed.extend(batch.events)
    else:
        message.envelopes.extend(batch.events)
    return request.SerializeToString()


def decode_batch(batch: Numbered) -> PendingBatch:
    """Return what a request carries, as it was before it was numbered."""
    message = PublishRequest.FromString(batch.request).batch
    if message.mixed:
        return PendingBatch(batch.first_position, None, list(message.mixed), batch.size)
    events = message.json[0].split(b"\n") if message.json else list(message.envelopes)
    return PendingBatch(batch.first_position, bool(message.json), events, batch.size)
