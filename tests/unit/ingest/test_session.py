"""Sessions remember what a returning producer needs, within bounds."""

from __future__ import annotations

import pytest
from bronze_client.schema import Batch, Failure, Outcome
from bronze_sidecar.ingest.failures import Failures, StreamFailures
from bronze_sidecar.ingest.intake import Contents, Ticket
from bronze_sidecar.ingest.session import ProducerSession, ProducerSessions
from bronze_sidecar.mapping.mapper import StreamContext


def finish(session: ProducerSession, sequence: int, *, failures: int = 0) -> None:
    """Let a batch with one event, and so many failures, be done."""
    contents = Contents(Batch(sequence=sequence, json=[b"{}"]))
    session.accepted = max(session.accepted, sequence)
    session.events_on_the_way += 1
    session.bytes_on_the_way += 2
    operators = StreamFailures(Failures(), StreamContext(stream_id="s"), "")
    ticket = Ticket(contents, operators, session.finish)
    ticket.events = 1
    ticket.failures = [Failure(position=number) for number in range(failures)]
    ticket.stored(1)


def test_only_an_unbroken_run_of_batches_is_acknowledged() -> None:
    session = ProducerSession(0)
    session.accepted = 3
    finish(session, 2)
    finish(session, 3)
    assert session.acknowledged == 0
    finish(session, 1)
    assert session.acknowledged == 3
    assert (session.events_on_the_way, session.bytes_on_the_way) == (0, 0)
    assert session.outcome_since(0) == Outcome(published=3)
    assert session.outcome_since(2) == Outcome(published=1)
    assert session.outcome_since(3) == Outcome()


def test_outcomes_are_kept_for_a_bounded_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bronze_sidecar.ingest.session.MOST_OUTCOMES", 10)
    session = ProducerSession(0)
    for sequence in range(1, 101):
        finish(session, sequence)
    assert session.acknowledged == 100
    # What the producer was not told is kept, however much it is.
    assert session.outcome_since(0) == Outcome(published=100)
    session.tell(100)
    assert session.outcome_since(90) == Outcome(published=10)
    assert session.forgotten == 90


def test_failures_are_kept_for_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bronze_sidecar.ingest.session.MOST_FAILURES", 25)
    session = ProducerSession(0)
    for sequence in range(1, 11):
        finish(session, sequence, failures=10)
    session.tell(10)
    assert len(session.outcome_since(0).failures) == 20
    finish(session, 11, failures=40)
    session.tell(11)
    assert len(session.outcome_since(0).failures) == 40


def test_failures_of_several_batches_are_told_in_order() -> None:
    session = ProducerSession(0)
    session.accepted = 3
    for sequence in (2, 1, 3):
        finish(session, sequence, failures=sequence)
    assert [each.position for each in session.outcome_since(0).failures] == [0, 0, 1, 0, 1, 2]


def test_a_session_without_a_producer_is_forgotten_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = ProducerSessions(10)
    kept, waiting, gone = ProducerSession(0), ProducerSession(0), ProducerSession(0)
    kept.take_over = lambda: None
    waiting.accepted = 1
    for name, session in (("kept", kept), ("waiting", waiting), ("gone", gone)):
        sessions.add(name, "s", session)
    assert sessions.resume("gone", "s", 0) is gone
    monkeypatch.setattr("bronze_sidecar.ingest.session.FORGET_AFTER_SECONDS", -1.0)
    assert sessions.resume("gone", "s", 0) is None
    assert sessions.resume("kept", "s", 0) is kept
    assert sessions.resume("waiting", "s", 0) is waiting


def test_the_oldest_of_too_many_sessions_are_forgotten() -> None:
    sessions = ProducerSessions(3)
    for number in range(6):
        assert sessions.add(str(number), "s", ProducerSession(0))
    assert [number for number in range(6) if sessions.resume(str(number), "s", 0)] == [3, 4, 5]


def test_there_is_no_room_for_a_newcomer_while_all_are_in_use() -> None:
    sessions = ProducerSessions(2)
    for name in ("a", "b"):
        session = ProducerSession(0)
        session.take_over = lambda: None
        assert sessions.add(name, "s", session)
    assert not sessions.add("c", "s", ProducerSession(0))
    assert sessions.resume("c", "s", 0) is None
    assert sessions.add("a", "s", ProducerSession(0))  # its own place


def test_failures_of_producers_that_are_gone_are_forgotten_when_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bronze_sidecar.ingest.session.MOST_FAILURES_OF_ALL", 25)
    sessions = ProducerSessions(10)
    for name in ("a", "b", "c"):
        session = ProducerSession(0, sessions.remembered)
        sessions.add(name, "s", session)
        session.accepted = 1
        finish(session, 1, failures=10)
    sessions.resume("new", "s", 0)
    remembered = {name: len(sessions._sessions[name, "s"].outcome_since(0).failures) for name in "abc"}
    assert remembered == {"a": 0, "b": 10, "c": 10}


def test_a_producer_that_knows_less_than_is_remembered_begins_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bronze_sidecar.ingest.session.MOST_OUTCOMES", 10)
    sessions = ProducerSessions(10)
    session = ProducerSession(0, sessions.remembered)
    sessions.add("p", "s", session)
    for sequence in range(1, 101):
        finish(session, sequence, failures=1)
    session.tell(100)
    assert sessions.resume("p", "s", 100) is session
    assert sessions.resume("p", "s", 90) is session
    assert len(session.outcome_since(90).failures) == 10
    # What became of batch 90 is forgotten, so it cannot be acknowledged.
    assert sessions.resume("p", "s", 89) is None
    # A producer that is ahead of what is remembered is another story as well.
    assert sessions.resume("p", "s", 101) is None


def test_a_session_that_is_replaced_counts_no_more() -> None:
    sessions = ProducerSessions(10)
    old = ProducerSession(0, sessions.remembered)
    sessions.add("p", "s", old)
    finish(old, 1, failures=3)
    old.accepted = 2
    assert sessions.remembered.failures == 3
    sessions.add("p", "s", ProducerSession(0, sessions.remembered))
    finish(old, 2, failures=3)
    assert sessions.remembered.failures == 0
