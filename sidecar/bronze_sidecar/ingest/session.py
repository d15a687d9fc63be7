"""Sessions: what the sidecar remembers of a producer's run and stream, so that a reconnect resumes it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import takewhile

from bronze_client.schema import Outcome

from bronze_sidecar.ingest.intake import Contents, Intake, Ticket

# What is remembered for producers that are gone is bounded by number and by age; what they may not have
# heard of, by batches and by failures.
MOST_OUTCOMES = 256
MOST_FAILURES = 10_000
MOST_FAILURES_OF_ALL = 100_000
# What a producer does not read holds it up.
MOST_UNTOLD = 4096
MOST_UNTOLD_FAILURES = 100_000
FORGET_AFTER_SECONDS = 600.0


class ProducerSession:
    """One run of a producer on one stream."""

    def __init__(self, acknowledged: int) -> None:
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
        self._finished: dict[int, Outcome] = {}
        self._outcomes: deque[tuple[int, Outcome]] = deque()
        self._failures = 0
        self._taking: asyncio.Task[None] | None = None
        self._told = acknowledged
        """The newest batch that the producer was sent the outcome of."""
        self._told_enough = asyncio.Event()

    async def take(self, intake: Intake, contents: Contents, request: bytes) -> None:
        """Take a new batch in. It goes on when the connection is lost: part of it may be on its way."""
        await self.taken_before()
        self.accepted = contents.sequence
        self.events_on_the_way += len(contents.messages)
        self.bytes_on_the_way += contents.size
        self._taking = asyncio.create_task(self._take(intake, contents, request))
        await asyncio.shield(self._taking)

    async def taken_before(self) -> None:
        """Return when no batch is being taken in, by this connection or one before it."""
        if self._taking is not None and not self._taking.done():
            await asyncio.shield(self._taking)

    async def _take(self, intake: Intake, contents: Contents, request: bytes) -> None:
        try:
            await intake.take(contents, request, self.finish)
        except Exception:
            # Whatever went wrong, the producer sends the batch again.
            self.accepted = contents.sequence - 1
            self.events_on_the_way -= len(contents.messages)
            self.bytes_on_the_way -= contents.size
            raise

    def finish(self, ticket: Ticket) -> None:
        """Take note that a batch is done."""
        self.events_on_the_way -= ticket.messages
        self.bytes_on_the_way -= ticket.size
        self._finished[ticket.sequence] = ticket.outcome()
        while (outcome := self._finished.pop(self.acknowledged + 1, None)) is not None:
            self.acknowledged += 1
            self._outcomes.append((self.acknowledged, outcome))
            self._failures += len(outcome.failures)
        self._forget_old()
        self.changed.set()

    def tell(self, sequence: int) -> None:
        """Take note that the producer was sent what became of the batches up to one."""
        self._told = sequence
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
        return self.acknowledged - self._told > MOST_UNTOLD or self._failures > MOST_UNTOLD_FAILURES

    def _forget_old(self) -> None:
        """Forget the oldest outcomes that were sent, beyond what a reconnect may ask for again."""
        while (
            len(self._outcomes) > 1
            and self._outcomes[0][0] <= self._told
            and (len(self._outcomes) > MOST_OUTCOMES or self._failures > MOST_FAILURES)
        ):
            self._failures -= len(self._outcomes.popleft()[1].failures)

    @property
    def failures(self) -> int:
        """How many failures are remembered."""
        return self._failures

    def forget_outcomes(self) -> None:
        """Forget what became of batches that are acknowledged."""
        self._outcomes.clear()
        self._failures = 0

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
        self._sessions: OrderedDict[tuple[str, str], ProducerSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, producer_id: str, stream_id: str) -> ProducerSession | None:
        """Return the session of a producer that comes back."""
        self._forget_old()
        session = self._sessions.get((producer_id, stream_id))
        if session:
            self._sessions.move_to_end((producer_id, stream_id))
        return session

    def add(self, producer_id: str, stream_id: str, session: ProducerSession) -> bool:
        """Remember a new session; return whether there is room for it."""
        key = producer_id, stream_id
        if key not in self._sessions and len(self._sessions) >= self._most and not self._forget_one():
            return False
        self._sessions[key] = session
        return True

    def drop(self, producer_id: str, stream_id: str) -> None:
        """Forget a session whose producer ended it."""
        self._sessions.pop((producer_id, stream_id), None)

    def _forget_one(self) -> bool:
        """Forget the session that has been idle for longest; return whether there was one."""
        for key, session in self._sessions.items():
            if session.is_gone:
                del self._sessions[key]
                return True
        return False

    def _forget_old(self) -> None:
        long_ago = time.monotonic() - FORGET_AFTER_SECONDS
        for key, session in list(self._sessions.items()):
            if session.is_gone and session.idle_since < long_ago:
                del self._sessions[key]
        # The oldest first, until little enough is remembered.
        excess = sum(session.failures for session in self._sessions.values()) - MOST_FAILURES_OF_ALL
        for session in self._sessions.values():
            if excess <= 0:
                break
            if session.is_gone:
                excess -= session.failures
                session.forget_outcomes()
