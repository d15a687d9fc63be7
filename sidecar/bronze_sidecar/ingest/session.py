"""Sessions: what the sidecar remembers of a producer's run and stream, so that a reconnect resumes it."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from bronze_client.schema import Outcome

from bronze_sidecar.ingest.intake import Contents, Intake, Ticket

# What is remembered for producers that are gone is bounded by number and by age; what they may not have
# heard of, by batches and by failures.
MOST_SESSIONS = 256
MOST_OUTCOMES = 256
MOST_FAILURES = 10_000
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

    def take(self, intake: Intake, contents: Contents, request: bytes) -> None:
        """Take a new batch in."""
        self.accepted = contents.sequence
        self.events_on_the_way += len(contents.messages)
        self.bytes_on_the_way += contents.size
        intake.take(contents, request, self.finish)

    def finish(self, ticket: Ticket) -> None:
        """Take note that a batch is done."""
        self.events_on_the_way -= ticket.messages
        self.bytes_on_the_way -= ticket.size
        self._finished[ticket.sequence] = ticket.outcome()
        while (outcome := self._finished.pop(self.acknowledged + 1, None)) is not None:
            self.acknowledged += 1
            self._outcomes.append((self.acknowledged, outcome))
            self._failures += len(outcome.failures)
        while len(self._outcomes) > MOST_OUTCOMES or (
            self._failures > MOST_FAILURES and len(self._outcomes) > 1
        ):
            self._failures -= len(self._outcomes.popleft()[1].failures)
        self.changed.set()

    def outcome_since(self, sequence: int) -> Outcome:
        """Add up what became of the batches after one, up to the newest acknowledged."""
        total = Outcome()
        for number, outcome in reversed(self._outcomes):
            if number <= sequence:
                break
            total.published += outcome.published
            total.filtered += outcome.filtered
            total.failures.extend(outcome.failures)
        return total

    @property
    def is_done(self) -> bool:
        return self.acknowledged == self.accepted


class ProducerSessions:
    """All sessions, by producer and stream."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str], ProducerSession] = OrderedDict()

    def resume(self, producer_id: str, stream_id: str) -> ProducerSession | None:
        """Return the session of a producer that comes back."""
        self._forget_old()
        session = self._sessions.get((producer_id, stream_id))
        if session:
            self._sessions.move_to_end((producer_id, stream_id))
        return session

    def add(self, producer_id: str, stream_id: str, session: ProducerSession) -> None:
        """Remember a new session."""
        self._sessions[producer_id, stream_id] = session

    def drop(self, producer_id: str, stream_id: str) -> None:
        """Forget a session whose producer ended it."""
        self._sessions.pop((producer_id, stream_id), None)

    def _forget_old(self) -> None:
        long_ago = time.monotonic() - FORGET_AFTER_SECONDS
        for key, session in list(self._sessions.items()):
            gone = session.take_over is None and session.is_done
            if gone and (session.idle_since < long_ago or len(self._sessions) > MOST_SESSIONS):
                del self._sessions[key]
