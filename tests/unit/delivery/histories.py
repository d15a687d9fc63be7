"""Histories of a backlog: what may happen to it, and what must hold whatever happens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bronze_sidecar.delivery.backlog import Backlog
from bronze_sidecar.delivery.backoff import Backoff
from bronze_sidecar.delivery.batch import WriteBatch
from bronze_sidecar.delivery.redirect import Redirect
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.routing.template import trusted
from bronze_sidecar.sinks.base import Failed
from bronze_sidecar.sinks.nats.options import SUBJECT
from scripted import record

KEYS = "abc"
DEAD = "dead"
MOST, MOST_BYTES = 6, 60


@dataclass
class Known:
    """What a history knows of one record."""

    key: str
    number: int
    since: float
    attempts: int = 0
    may_be_stored: bool = False
    is_saved: bool = False
    is_letter: bool = False
    """Whether it was refused for good, and is on its way to the dead-letter destination."""
    fate: str = ""


@dataclass
class Listener:
    """Hears what becomes of records, and objects to hearing it twice."""

    history: History
    open: int
    is_durable: bool = False

    def stored(self, count: int) -> None:
        self.open -= count
        assert self.open >= 0, "more records were settled than there are"

    def failed(self, failed: Record, backend: str, reason: str) -> None:
        assert backend == "scripted"
        known = self.history.known[failed.event.id]
        assert not known.fate, "a record was settled twice"
        known.fate = reason
        self.open -= 1


@dataclass
class History:
    """A backlog with a sink that does what it is told, and a clock that goes when it is told.

    Every method is one step. `check` says what must hold after each of them.
    """

    retry_limit: int = 0
    has_one_path: bool = True
    has_dead_letters: bool = False
    looks_ahead: bool = True
    now: float = 1000.0
    known: dict[str, Known] = field(default_factory=dict)
    stored: list[str] = field(default_factory=list)
    """Ids in the order in which the sink stored them for the first time."""
    letters: list[str] = field(default_factory=list)
    """Ids at the dead-letter destination."""

    def __post_init__(self) -> None:
        redirect = Redirect("scripted", trusted(DEAD, SUBJECT)) if self.has_dead_letters else None
        self.backlog = Backlog("scripted", self.retry_limit, Backoff(100, 1000), redirect)
        self.backlog.has_one_path = self.has_one_path
        self.listeners: list[Listener] = []
        self._ahead: WriteBatch | None = None
        """What the next write must be."""
        self._numbers: Counter[str] = Counter()

    # -- steps

    def put(self, keys: str) -> None:
        """Let a producer's batch come in, one record for each key named."""
        records = []
        for key in keys:
            number = self._numbers[key]
            self._numbers[key] += 1
            name = f"{key}{number}"
            self.known[name] = Known(key, number, self.now)
            records.append(record(name, key))
        listener = Listener(self, len(records))
        self.listeners.append(listener)
        self.backlog.put(listener, records, 10 * len(records), self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def write(self, fates: str, *, poison: str = "", saves: bool = False, comes: str = "") -> None:
        """Write what may be written now, and let it end as told.

        A fate is told for each place: `s`tored, `t`ransient, `p`ermanent, `n`ot tried. Of a key, nothing is
        stored behind a record that may be stored later. Or for the whole write: `T`ransient, `P`ermanent,
        `D`isconnected before, or `E` after everything was stored. The poison costs the connection whatever
        else is told. Meanwhile more may come, one record for each key named, the next write is taken ahead if
        it can be, and everything may be saved.
        """
        batch = self._take()
        if batch is None:
            return
        if comes:
            self.put(comes)
        if self.looks_ahead:
            self._take_ahead(batch)
        if saves:
            self.save(batch)
        names = [each.event.id for each in batch.records]
        if poison in names:
            # What stands before it may be stored, or not.
            self._store(names[: names.index(poison)] if fates[0] in "sE" else [])
            self._fail(batch, names, Disconnected("reset by peer"))
        elif fates[0] == "E":
            self._store(names)
            self._fail(batch, names, Disconnected("reset by peer"))
        elif fates[0] == "D":
            self._fail(batch, names, Disconnected("reset by peer"))
        elif fates[0] == "T":
            self._fail(batch, names, Transient("busy"))
        else:
            self._settle(batch, names, fates)

    def save(self, in_flight: WriteBatch | None = None) -> None:
        """Bring everything to disk: all that was not there is found, in order, and each record once."""
        found = self.backlog.unsaved(in_flight)
        names = [each.event.id for unsaved in found for each in unsaved.records]
        # A dead letter is not kept on disk: what it stands for is there already, or not acknowledged.
        waiting = {
            name for name, each in self.known.items() if not (each.fate or each.is_saved or each.is_letter)
        }
        assert sorted(names) == sorted(waiting)
        for key in KEYS:
            numbers = [self.known[name].number for name in names if name[0] == key]
            assert numbers == sorted(numbers), "records of a key were saved in another order"
        for unsaved in found:
            listener = Listener(self, len(unsaved.records), is_durable=True)
            self.listeners.append(listener)
            unsaved.bind(listener)
            for ticket, count in unsaved.tickets:
                ticket.stored(count)
        for name in names:
            self.known[name].is_saved = True

    def fail_to_connect(self) -> None:
        batch = self._take()
        if batch:
            self._fail(batch, [each.event.id for each in batch.records], Transient("refused"), written=False)

    # -- how it ends

    def finish(self, poison: str = "") -> None:
        """Let everything go well from now on; what waits must be settled in a bounded number of writes."""
        for number in range(400 + 10 * len(self.known)):
            if not self.backlog.events:
                break
            if number % 40 == 39 and not self.known.get(poison, Known("", 0, 0, fate="none")).fate:
                # A poisonous record is known by others that can be stored.
                self.put(KEYS)
            ready_at = self.backlog.ready_at()
            assert ready_at is not None, "records wait, and nothing says when they may be written"
            self.now = max(self.now, ready_at)
            self.write("s" * MOST, poison=poison)
            self.check()
        assert self.backlog.events == self.backlog.bytes == 0
        assert self.backlog.ready_at() is None
        assert self.backlog.take(self.now + 1e9, MOST, MOST_BYTES) is None
        assert all(listener.open == 0 for listener in self.listeners)
        assert all(each.fate for each in self.known.values())

    def check(self) -> None:
        """See that everything holds that must hold at any time."""
        waiting = [each for each in self.known.values() if not each.fate]
        assert self.backlog.events == len(waiting)
        assert self.backlog.bytes == 10 * len(waiting)
        assert self.backlog.oldest(None) == min((each.since for each in waiting), default=None)
        assert sum(listener.open for listener in self.listeners) == len(waiting)
        for key in KEYS:
            numbers = [self.known[name].number for name in self.stored if name[0] == key]
            assert numbers == sorted(numbers), "records of a key were stored in another order"

    # -- the sink

    def _take(self) -> WriteBatch | None:
        batch = self.backlog.take(self.now, MOST, MOST_BYTES)
        if batch is None:
            # Whoever waits until then must not find nothing again.
            ready_at = self.backlog.ready_at()
            assert ready_at is None or ready_at > self.now, "nothing to write, and nothing to wait for"
            return None
        assert 0 < len(batch.records) <= MOST
        assert batch.bytes == 10 * len(batch.records) <= MOST_BYTES
        assert batch is self._ahead or self._ahead is None, "something else went before what was taken ahead"
        self._ahead = None
        return batch

    def _take_ahead(self, in_flight: WriteBatch) -> None:
        """Take what the next write carries if this one stores everything; it waits like the others."""
        oldest, queued = self.backlog.oldest(in_flight), self.backlog.queued
        self._ahead = self.backlog.take_ahead(MOST, MOST_BYTES)
        assert self.backlog.oldest(in_flight) == oldest
        assert self.backlog.take_ahead(MOST, MOST_BYTES) is None or self._ahead is None
        if self._ahead:
            assert len(self._ahead.records) == MOST, "what is not full could still grow"
            assert self.backlog.queued == queued - MOST
            assert self.backlog.ready_at() == 0.0

    def _store(self, names: list[str]) -> None:
        for name in names:
            stored = self.letters if self.known[name].is_letter else self.stored
            if name not in stored:
                stored.append(name)

    def _settle(self, batch: WriteBatch, names: list[str], fates: str) -> None:
        failures: list[Failed] = []
        behind: set[str] = set()
        for place, name in enumerate(names):
            known, fate = self.known[name], fates[place % len(fates)]
            error: DeliveryError | None = None
            if fate == "p":
                error = Permanent("too large")
            elif fate == "n" or known.key in behind:
                error = NotTried("after a failure")
                behind.add(known.key)
            elif fate == "t":
                error = Transient("slow down")
                behind.add(known.key)
                known.attempts += 1
            else:
                self._store([name])
                # Of a dead letter the listener hears, for it is a failure.
                known.fate = "" if known.is_letter else "stored"
            if error:
                failures.append(Failed(place, error))
        # Nothing that went wrong is known yet; the listeners will say.
        for name in [names[failure.place] for failure in failures]:
            self.known[name].fate = ""
        letters = {name for name in names if self.known[name].is_letter}
        self._ahead = None if failures else self._ahead
        self.backlog.settle(batch, failures, self.now)
        for name in letters - {names[failure.place] for failure in failures}:
            assert self.known[name].fate == f"kept at '{DEAD}': too large"
        for failure in failures:
            self._expect(names[failure.place], failure.error)

    def _fail(
        self, batch: WriteBatch, names: list[str], error: DeliveryError, *, written: bool = True
    ) -> None:
        before = {name: self.known[name].attempts for name in names}
        self._ahead = None
        self.backlog.fail(batch, error, self.now, was_written=written)
        for name in names:
            known = self.known[name]
            known.attempts = before[name] + 1
            known.may_be_stored |= isinstance(error, Disconnected)
            self._expect(name, error)

    def _settle_or_break(self, batch: WriteBatch) -> None:
        """Let a0 cost the connection, a1 be refused for good, and everything else be stored."""
        names = [each.event.id for each in batch.records]
        if "a0" in names:
            self._fail(batch, names, Disconnected("reset by peer"))
        else:
            is_refused = [name == "a1" and not self.known[name].is_letter for name in names]
            self._settle(batch, names, "".join("p" if refused else "s" for refused in is_refused))

    def _expect(self, name: str, error: DeliveryError) -> None:
        """See that a record was given up only for a reason, and for the right one."""
        known = self.known[name]
        if known.is_letter:
            # Whatever becomes of a dead letter, the first reason counts.
            assert known.fate in ({"too large"} if isinstance(error, Permanent) else {"", "too large"})
        elif isinstance(error, Permanent) and self.has_dead_letters:
            assert not known.fate, "its dead letter is not stored yet"
            known.is_letter, known.since = True, self.now
            known.attempts, known.may_be_stored = 0, False
        elif isinstance(error, Permanent):
            assert known.fate == "too large"
        elif isinstance(error, NotTried):
            assert not known.fate
        elif known.fate.startswith(("not stored after", "it is unknown")):
            assert self.retry_limit, "a record was given up although retries have no limit"
            assert known.attempts > self.retry_limit, "a record was given up before its own last retry"
            assert known.fate.startswith("it is unknown") == known.may_be_stored
        elif known.fate:
            assert known.fate.startswith("the connection is lost whenever it is written")
