"""Sessions: what the sidecar remembers of a producer's run and stream, so that a reconnect resumes it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from itertools import takewhile
from typing import Any

from bronze_client.schema import Outcome

from bronze_sidecar.ingest.failures import Tallies
from bronze_sidecar.ingest.intake import Contents, Intake, Ticket
from bronze_sidecar.ingest.turns import Turn
from bronze_sidecar.mapping.mapper import StreamContext

# What is remembered for producers that are gone is bounded by number and by age; what they may not have
# heard of, by batches and by failures.
MOST_OUTCOMES = 256
MOST_FAILURES = 10_000
MOST_FAILURES_OF_ALL = 50_000
# What a producer does not read holds it up.
MOST_UNTOLD = 4096
MOST_UNTOLD_FAILURES = 1000
FORGET_AFTER_SECONDS = 600.0


class Remembered:
    """How many failures all sessions remember together."""

    def __init__(self) -> None:
        self.failures = 0

    @property
    def is_too_much(self) -> bool:
        return self.failures > MOST_FAILURES_OF_ALL


class ProducerSession:
    """One run of a producer on one stream."""

    def __init__(self, acknowledged: int, remembered: Remembered | None = None) -> None:
        self._remembered = remembered or Remembered()
        self.accepted = acknowledged
        """The newest batch that was taken in."""
        self.acknowledged = acknowledged
        """The newest batch of the unbroken run of batches that are done."""
        self.events_on_the_way = 0
        self.bytes_on_the_way = 0
        self.changed = asyncio.Event()
        self.take_over: Callable[[], None] | None = None
        """Ends the connection that the session has now."""
        self.idle_since = time.monotonic()
        self.context = StreamContext(stream_id="-")
        """What the producer said of its stream when it opened it."""
        self.opened_at = time.time()
        self.messages = 0
        """Messages that were taken in."""
        self.next_position = 0
        """That of the message which comes next."""
        self.tallies = Tallies()
        """What became of its messages that were not published."""
        self.exchange = ""
        """That of the newest event; empty if there was none."""
        self.forgotten = acknowledged
        """The newest batch whose outcome is not remembered any more."""
        self._finished: dict[int, Outcome] = {}
        self._outcomes: deque[tuple[int, Outcome]] = deque()
        self._failures = 0
        self._untold_failures = 0
        self._taking: asyncio.Task[None] | None = None
        self._is_under_way = False
        """Whether part of what is being taken in may be in a lane."""
        self._told = acknowledged
        """The newest batch that the producer was sent the outcome of."""
        self._told_enough = asyncio.Event()

    def open(self, intake: Intake) -> None:
        """Take note of a new connection, and what is said of the stream there."""
        self.context, self.opened_at = intake.context, time.time()
        intake.operators.tallies = self.tallies

    async def one_by_one(self, take: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take a request in after the one before it, on this connection or an earlier one.

        When the connection is lost, it goes on if part of it may be on its way; otherwise that is its end.
        """
        while self._taking is not None and not self._taking.done():
            await asyncio.wait({self._taking})
        taking = self._taking = asyncio.create_task(take())
        # Not kept once it is done: what it raised holds all that was made of the request.
        taking.add_done_callback(self._taken)
        try:
            await asyncio.shield(taking)
        except asyncio.CancelledError:
            if not self._is_under_way:
                taking.cancel()
            raise

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._is_under_way = False
        if self._taking is task:
            self._taking = None

    async def take(self, turn: Turn, intake: Intake, contents: Contents, request: bytes) -> None:
        """Take a new batch in."""
        self._is_under_way = True
        self.accepted = contents.sequence
        self.messages += len(contents.messages)
        self.next_position = contents.first_position + len(contents.messages)
        self.events_on_the_way += len(contents.messages)
        self.bytes_on_the_way += contents.size
        try:
            intake.exchange = intake.exchange or self.exchange
            await intake.take(turn, contents, request, self.finish)
            self.exchange = intake.exchange
        except Exception:
            # Whatever went wrong, the producer sends the batch again.
            self.accepted = contents.sequence - 1
            self.messages -= len(contents.messages)
            self.next_position = contents.first_position
            self.events_on_the_way -= len(contents.messages)
            self.bytes_on_the_way -= contents.size
            raise

    def leave(self, take_over: Callable[[], None]) -> None:
        """Take note that a connection has ended, unless another has taken its place."""
        if self.take_over == take_over:
            self.take_over = None
            self.idle_since = time.monotonic()

    def finish(self, ticket: Ticket) -> None:
        """Take note that a batch is done."""
        self.events_on_the_way -= ticket.messages
        self.bytes_on_the_way -= ticket.size
        self._finished[ticket.sequence] = ticket.outcome()
        while (outcome := self._finished.pop(self.acknowledged + 1, None)) is not None:
            self.acknowledged += 1
            self._outcomes.append((self.acknowledged, outcome))
            self._failures += len(outcome.failures)
            self._untold_failures += len(outcome.failures)
            self._remembered.failures += len(outcome.failures)
        self._forget_old()
        self.changed.set()

    def tell(self, sequence: int) -> None:
        """Take note that the producer was sent what became of the batches up to one."""
        self._told = sequence
        if sequence == self.acknowledged:
            self._untold_failures = 0
        self._forget_old()
        if not self._is_ahead:
            self._told_enough.set()

    async def wait_until_told(self) -> None:
        """Return when few enough batches are done that the producer was not told of."""
        while self._is_ahead:
            self._told_enough.clear()
            await self._told_enough.wait()

    @property
    def _is_ahead(self) -> bool:
        return self.acknowledged - self._told > MOST_UNTOLD or self._untold_failures > MOST_UNTOLD_FAILURES

    def _forget_old(self) -> None:
        """Forget the oldest outcomes that were sent, beyond what a reconnect may ask for again."""
        most_failures = 0 if self._remembered.is_too_much else MOST_FAILURES
        while (
            len(self._outcomes) > 1
            and self._outcomes[0][0] <= self._told
            and (len(self._outcomes) > MOST_OUTCOMES or self._failures > most_failures)
        ):
            self.forgotten, outcome = self._outcomes.popleft()
            self._failures -= len(outcome.failures)
            self._remembered.failures -= len(outcome.failures)

    def forget_outcomes(self) -> None:
        """Forget what became of batches that are acknowledged."""
        self._outcomes.clear()
        self.forgotten = self.acknowledged
        self._remembered.failures -= self._failures
        self._failures = 0

    def retire(self) -> None:
        """Let go of what is remembered; what is still on its way is nobody's any more."""
        self.forget_outcomes()
        self._remembered = Remembered()

    def outcome_since(self, sequence: int) -> Outcome:
        """Add up what became of the batches after one, up to the newest acknowledged."""
        total = Outcome()
        news = takewhile(lambda each: each[0] > sequence, reversed(self._outcomes))
        for _, outcome in reversed([*news]):
            total.published += outcome.published
            total.filtered += outcome.filtered
            total.failures.extend(outcome.failures)
        return total

    @property
    def is_done(self) -> bool:
        return self.acknowledged == self.accepted

    @property
    def is_gone(self) -> bool:
        """Whether it has no connection, and nothing of it is on the way."""
        return self.take_over is None and self.is_done


class ProducerSessions:
    """All sessions, by producer and stream."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.remembered = Remembered()
        self._sessions: OrderedDict[tuple[str, str], ProducerSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def items(self) -> list[tuple[tuple[str, str], ProducerSession]]:
        """Return each session with its producer and stream."""
        return [*self._sessions.items()]

    def resume(self, producer_id: str, stream_id: str, known: int) -> ProducerSession | None:
        """Return the session of a producer that comes back and knows of so many batches.

        None if it is not remembered what became of the batch after these: the producer sends it again.
        """
        self._forget_old()
        session = self._sessions.get((producer_id, stream_id))
        if session is None:
            return None
        if session.take_over:
            session.take_over()
        if not session.forgotten <= known <= session.acknowledged:
            return None
        self._sessions.move_to_end((producer_id, stream_id))
        return session

    def add(self, producer_id: str, stream_id: str, session: ProducerSession) -> bool:
        """Remember a new session; return whether there is room for it."""
        key = producer_id, stream_id
        if key not in self._sessions and len(self._sessions) >= self._most and not self._forget_one():
            return False
        if key in self._sessions:
            self._drop(key)
        self._sessions[key] = session
        return True

    def _drop(self, key: tuple[str, str]) -> None:
        self._sessions.pop(key).retire()

    def _forget_one(self) -> bool:
        """Forget the session that has been idle for longest; return whether there was one."""
        for key, session in self._sessions.items():
            if session.is_gone:
                self._drop(key)
                return True
        return False

    def _forget_old(self) -> None:
        long_ago = time.monotonic() - FORGET_AFTER_SECONDS
        for key, session in list(self._sessions.items()):
            if session.is_gone and session.idle_since < long_ago:
                self._drop(key)
        # The oldest first, until little enough is remembered.
        for session in self._sessions.values():
            if not self.remembered.is_too_much:
                break
            if session.is_gone:
                session.forget_outcomes()
