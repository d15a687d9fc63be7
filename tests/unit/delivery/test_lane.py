"""Lanes keep order per key, retry what failed, and bound what waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.backoff import Backoff
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.errors import Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Failed, Limits
from bronze_sidecar.telemetry.metrics import Metrics
from scripted import Answer, Script, Scripted, ScriptedSink, record
from structlog.testing import capture_logs


def fast(**options: Any) -> Config:
    """Return a configuration whose retries do not wait."""
    return Config(retry_backoff_ms=1, retry_backoff_max_ms=2, **options)


class Waiting:
    """A ticket that remembers what it was told."""

    is_durable = False

    def __init__(self, count: int) -> None:
        self.open = count
        self.failures: list[tuple[str, str, str]] = []
        self.done = asyncio.Event()

    def stored(self, count: int) -> None:
        self.open -= count
        assert self.open >= 0, "a record was settled twice"
        if self.open == 0:
            self.done.set()

    def failed(self, failed: Record, backend: str, reason: str) -> None:
        self.failures.append((failed.event.id, backend, reason))
        self.stored(1)


@asynccontextmanager
async def running(script: Script, config: Config | None = None, **backend: object) -> AsyncIterator[Lane]:
    lane = Lane(Scripted(script, **backend), config or fast(), Metrics().lane("scripted"))  # type: ignore[arg-type]
    task = asyncio.create_task(lane.run())
    try:
        yield lane
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(lane: Lane, *records: Record) -> Waiting:
    ticket = Waiting(len(records))
    lane.put(ticket, list(records), sum(len(each.event.envelope) for each in records))
    return ticket


def open_gate(script: Script) -> None:
    assert script.gate is not None
    script.gate.set()


async def in_flight(lane: Lane) -> None:
    while not lane.in_flight():  # noqa: ASYNC110 - the lane gives no other sign
        await asyncio.sleep(0)


def fail(error: Exception, *places: int) -> Answer:
    return lambda _: [Failed(place, error) for place in places]  # type: ignore[arg-type]


def refuse(error: Exception) -> Answer:
    def answer(_: Sequence[Record]) -> Sequence[Failed]:
        raise error

    return answer


async def test_stores_records_in_order_and_settles_their_ticket() -> None:
    script = Script()
    async with running(script) as lane:
        ticket = put(lane, record("1"), record("2"), record("3"))
        await ticket.done.wait()
        assert script.stored == ["1", "2", "3"]
        assert (lane.events, lane.bytes) == (0, 0)


async def test_a_write_that_stored_nothing_is_repeated_whole() -> None:
    script = Script(answers=[refuse(Transient("busy")), refuse(Transient("busy"))])
    async with running(script) as lane:
        await put(lane, record("1"), record("2")).done.wait()
        assert script.writes == [["1", "2"], ["1", "2"], ["1", "2"]]
        assert script.stored == ["1", "2"]


async def test_later_records_of_a_key_wait_behind_a_failed_one_while_other_keys_go_on() -> None:
    script = Script(answers=[fail(Transient("slow down"), 0)], gate=asyncio.Event())
    async with running(script) as lane:
        first = put(lane, record("a1", "a"), record("b1", "b"))
        await in_flight(lane)
        second = put(lane, record("a2", "a"), record("b2", "b"))
        third = put(lane, record("a3", "a"))
        open_gate(script)
        for ticket in (first, second, third):
            await ticket.done.wait()
    assert [i for i in script.stored if i[0] == "a"] == ["a1", "a2", "a3"]
    assert [i for i in script.stored if i[0] == "b"] == ["b1", "b2"]
    assert script.stored.index("b1") < script.stored.index("a1")


async def test_records_not_tried_go_first_next_time_in_their_order() -> None:
    not_tried = [Failed(2, NotTried("after a failure")), Failed(3, NotTried("after a failure"))]
    script = Script(answers=[lambda _: [Failed(1, Permanent("too large")), *not_tried]], gate=asyncio.Event())
    async with running(script) as lane:
        ticket = put(lane, record("1", "a"), record("2", "b"), record("3", "c"), record("4", "b"))
        await in_flight(lane)
        open_gate(script)
        after = put(lane, record("5", "c"))
        await asyncio.gather(ticket.done.wait(), after.done.wait())
        assert script.stored == ["1", "3", "4", "5"]
        assert ticket.failures == [("2", "scripted", "too large")]


async def test_untried_records_of_the_failed_key_wait_behind_it() -> None:
    script = Script(
        answers=[lambda _: [Failed(0, Transient("full")), Failed(1, NotTried("")), Failed(2, NotTried(""))]]
    )
    async with running(script, Config(retry_backoff_ms=30, retry_backoff_max_ms=30)) as lane:
        ticket = put(lane, record("a1", "a"), record("a2", "a"), record("b1", "b"))
        await ticket.done.wait()
        assert [i for i in script.stored if i[0] == "a"] == ["a1", "a2"]
        assert sorted(script.stored) == ["a1", "a2", "b1"]


async def test_a_permanent_failure_is_told_and_does_not_hold_back_its_key() -> None:
    script = Script(answers=[fail(Permanent("no such topic"), 0)])
    async with running(script) as lane:
        ticket = put(lane, record("1"), record("2"))
        await ticket.done.wait()
        assert script.stored == ["2"]
        assert ticket.failures == [("1", "scripted", "no such topic")]


async def test_a_whole_batch_refused_for_good_fails_every_record() -> None:
    script = Script(answers=[refuse(Permanent("not allowed"))])
    async with running(script) as lane:
        ticket = put(lane, record("1"), record("2"))
        await ticket.done.wait()
        assert [failure[0] for failure in ticket.failures] == ["1", "2"]
        assert lane.events == 0


async def test_a_lost_connection_is_opened_anew_and_the_batch_written_again() -> None:
    script = Script(answers=[refuse(Disconnected("reset"))])
    async with running(script) as lane:
        await put(lane, record("1"), record("2")).done.wait()
        assert script.opened == 2
        assert script.stored == ["1", "2"]


async def test_retries_end_at_the_limit_and_the_next_record_of_the_key_gets_its_own() -> None:
    script = Script(answers=[fail(Transient("poison"), 0)] * 3)
    async with running(script, fast(retry_limit=2)) as lane:
        ticket = put(lane, record("a1", "a"), record("b1", "b"))
        await ticket.done.wait()
        later = put(lane, record("a2", "a"))
        await later.done.wait()
    assert ticket.failures == [("a1", "scripted", "not stored after 2 retries: poison")]
    assert script.stored == ["b1", "a2"]


async def test_an_unreachable_back_end_uses_up_limited_retries() -> None:
    script = Script(openings=[Transient("refused")] * 50)
    async with running(script, fast(retry_limit=3)) as lane:
        ticket = put(lane, record("1"), record("2"))
        await ticket.done.wait()
        assert [failure[0] for failure in ticket.failures] == ["1", "2"]
        assert lane.events == 0


async def test_delivery_starts_by_itself_when_the_back_end_comes_up() -> None:
    script = Script(openings=[Transient("connection refused")] * 3)
    async with running(script) as lane:
        ticket = put(lane, record("1"))
        assert lane.state == "connecting"
        await ticket.done.wait()
        assert script.opened == 4
        assert lane.state == "ready"


async def test_a_back_end_that_can_never_be_opened_ends_the_lane() -> None:
    script = Script(openings=[Permanent("wrong password: see --scripted-password")])
    lane = Lane(Scripted(script), Config(), Metrics().lane("scripted"))
    with pytest.raises(Permanent, match="--scripted-password"):
        await lane.run()


async def test_a_refusal_after_it_once_worked_is_retried() -> None:
    script = Script(openings=[None, Permanent("wrong password")], answers=[refuse(Disconnected("gone"))])
    async with running(script) as lane:
        await put(lane, record("1")).done.wait()
        assert script.opened == 3


async def test_a_full_lane_has_no_room_until_records_are_settled() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script, fast(max_queue_events=3)) as lane:
        put(lane, record("1"), record("2"))
        assert lane.has_room(1, 10)
        assert not lane.has_room(2, 20)
        put(lane, record("3"))
        full = not lane.has_room(1, 10)
        came = asyncio.Event()
        lane.on_room = came.set
        open_gate(script)
        await came.wait()
        assert full
        assert lane.has_room(2, 20)


async def test_bytes_bound_a_lane_too() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script, fast(max_queue_bytes=100)) as lane:
        assert lane.has_room(1, 200)  # whatever comes fits into an empty lane
        put(lane, record("1", size=60))
        assert lane.has_room(1, 40)
        assert not lane.has_room(1, 41)


async def test_batches_respect_the_most_records_and_bytes_of_a_write() -> None:
    script = Script(gate=asyncio.Event())
    limits = Limits(records=3, bytes=50)
    async with running(script, limits=limits) as lane:
        ticket = put(lane, *(record(str(number), size=10) for number in range(4)))
        large = put(lane, record("x", size=30), record("y", size=30), record("z", size=80))
        open_gate(script)
        await asyncio.gather(ticket.done.wait(), large.done.wait())
    assert script.writes == [["0", "1", "2"], ["3", "x"], ["y"], ["z"]]


async def test_waits_for_a_fuller_batch_within_its_delay() -> None:
    script = Script()
    async with running(script, max_batch_delay_ms=200) as lane:
        await asyncio.sleep(0)
        first = put(lane, record("1"))
        await asyncio.sleep(0.01)
        second = put(lane, record("2"))
        await asyncio.gather(first.done.wait(), second.done.wait())
        assert script.writes == [["1", "2"]]


async def test_a_free_line_makes_no_record_wait_and_a_write_under_way_gathers_the_next_batch() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script) as lane:
        first = put(lane, record("1"))
        await in_flight(lane)
        others = [put(lane, record("2")), put(lane, record("3"))]
        open_gate(script)
        await first.done.wait()
        others.append(put(lane, record("4")))
        await asyncio.gather(*(ticket.done.wait() for ticket in others))
    assert script.writes == [["1"], ["2", "3"], ["4"]]


async def test_a_line_that_carried_a_full_write_counts_as_busy_a_little_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bronze_sidecar.delivery.lane.MOST_BUSY_SECONDS", 60)
    script = Script(gate=asyncio.Event())
    async with running(script, max_batch_size=4) as lane:
        first = put(lane, record("1"), record("2"), record("3"))
        await in_flight(lane)
        second = put(lane, record("4"))
        await asyncio.sleep(0.2)
        open_gate(script)
        await first.done.wait()
        third = put(lane, record("5"))
        await asyncio.gather(second.done.wait(), third.done.wait())
    assert script.writes == [["1", "2", "3"], ["4", "5"]]


async def test_a_full_batch_is_prepared_while_a_write_is_under_way_and_goes_next() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script, max_batch_size=2) as lane:
        tickets = [put(lane, record("1"))]
        await in_flight(lane)
        # What is not full may grow; there is nothing to prepare yet.
        tickets.append(put(lane, record("2")))
        assert script.prepared == []
        tickets += [put(lane, record("3")), put(lane, record("4"))]
        assert script.prepared == [["2", "3"]]
        assert (lane.events, lane.in_flight(), lane.unsafe_events()) == (4, 1, 4)
        open_gate(script)
        await wait_all(ticket.done.wait for ticket in tickets)
        assert lane.events == 0
    assert script.writes == [["1"], ["2", "3"], ["4"]]
    assert script.handed == [["2", "3"]]


async def test_a_batch_that_waits_already_is_prepared_once_the_write_is_under_way() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script, max_batch_size=2) as lane:
        ticket = put(lane, *(record(str(number)) for number in range(5)))
        while not script.prepared:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert script.prepared == [["2", "3"]]
        open_gate(script)
        await ticket.done.wait()
    assert script.writes == [["0", "1"], ["2", "3"], ["4"]]


async def test_nothing_is_prepared_before_a_write_to_several_servers_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []

    async def write(_: ScriptedSink, batch: Sequence[Record], prepared: object = None) -> Sequence[Failed]:
        del batch, prepared

        async def send() -> None:
            happened.append("sent")
            await asyncio.sleep(0.001)

        await asyncio.gather(send(), send())
        return ()

    def prepare(_: ScriptedSink, batch: Sequence[Record]) -> None:
        happened.append(f"prepared {batch[0].event.id}")

    monkeypatch.setattr(ScriptedSink, "write", write)
    monkeypatch.setattr(ScriptedSink, "prepare", prepare)
    async with running(Script(), max_batch_size=1) as lane:
        await put(lane, *(record(str(number)) for number in range(3))).done.wait()
    assert happened == ["sent", "sent", "prepared 1", "sent", "sent", "prepared 2", "sent", "sent"]


@pytest.mark.parametrize(
    "answer",
    [
        fail(Transient("slow down"), 0),
        fail(NotTried("after another"), 1),
        fail(Permanent("too large"), 0),
        refuse(Transient("busy")),
        refuse(Permanent("not allowed")),
        refuse(Disconnected("reset")),
        refuse(ValueError("a bug")),
    ],
)
async def test_what_was_prepared_is_not_sent_after_any_failure(answer: Answer) -> None:
    script = Script(answers=[answer], gate=asyncio.Event())
    async with running(script, max_batch_size=2) as lane:
        tickets = [put(lane, record("a1", "a"), record("b1", "b"))]
        await in_flight(lane)
        tickets.append(put(lane, record("a2", "a"), record("b2", "b"), record("b3", "b")))
        assert script.prepared == [["a2", "b2"]]
        open_gate(script)
        await wait_all(ticket.done.wait for ticket in tickets)
    assert script.handed == script.prepared[1:]
    for key in "ab":
        mine = [each for each in script.stored if each[0] == key]
        assert mine == sorted(mine)


async def test_what_was_prepared_is_for_that_connection_alone() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script, max_batch_size=2) as lane:
        seen: list[Sequence[Record]] = []

        def see(records: Sequence[Record]) -> None:
            seen.append(records)
            if len(seen) == 1:
                raise ValueError("a bug")

        lane.on_stored = see
        ticket = put(lane, *(record(str(number)) for number in range(6)))
        while not script.prepared:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert script.prepared == [["2", "3"]]
        open_gate(script)
        await ticket.done.wait()
    assert script.opened == 2
    assert script.writes == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert script.handed == []


async def test_what_cannot_be_prepared_fails_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(_: ScriptedSink, batch: Sequence[Record]) -> list[str]:
        raise ValueError(len(batch))

    monkeypatch.setattr(ScriptedSink, "prepare", prepare)
    script = Script(gate=asyncio.Event())
    async with running(script, max_batch_size=1) as lane:
        tickets = [put(lane, record("1")), put(lane, record("2"))]
        await in_flight(lane)
        open_gate(script)
        await wait_all(ticket.done.wait for ticket in tickets)
    assert script.writes == [["1"], ["2"]]


async def test_hurries_when_the_process_stops() -> None:
    script = Script()
    async with running(script, max_batch_delay_ms=60_000) as lane:
        ticket = put(lane, record("1"))
        await asyncio.sleep(0.01)
        assert script.writes == []
        lane.hurry()
        await ticket.done.wait()


async def test_asks_an_idle_back_end_for_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bronze_sidecar.delivery.lane.IDLE_PING_SECONDS", 0.01)
    script = Script()
    async with running(script):
        while not script.pings:  # noqa: ASYNC110 - the lane gives no other sign
            await asyncio.sleep(0.005)


async def test_tells_the_age_of_the_oldest_unconfirmed_record() -> None:
    script = Script(gate=asyncio.Event())
    async with running(script) as lane:
        assert lane.oldest_age() == 0.0
        put(lane, record("1"))
        await asyncio.sleep(0.02)
        assert lane.oldest_age() >= 0.02


def test_backoff_doubles_up_to_its_cap_with_full_jitter() -> None:
    backoff = Backoff(100, 1000)
    for attempts, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (500, 1.0)):
        waits = [backoff.wait(attempts) for _ in range(200)]
        assert 0 <= min(waits) <= max(waits) <= longest
        assert max(waits) > longest / 2


async def test_random_partial_failures_never_change_the_order_within_a_key() -> None:
    """A back end that fails a third of all records, and then all later ones of their keys in that write."""
    chance = random.Random(7)  # noqa: S311

    def unreliable(batch: Sequence[Record]) -> Sequence[Failed]:
        failures: list[Failed] = []
        failed_keys: set[str] = set()
        for place, each in enumerate(batch):
            if each.address.key in failed_keys:
                failures.append(Failed(place, NotTried("behind a failed one")))
            elif chance.random() < 0.33:
                failed_keys.add(each.address.key)
                failures.append(Failed(place, Transient("unlucky")))
        return failures

    script = Script(answers=[unreliable] * 2000)
    async with running(script, max_batch_size=20) as lane:
        tickets = []
        for number in range(300):
            tickets.append(put(lane, *(record(f"{key}{number:03}", key) for key in "abcdefg")))
            await asyncio.sleep(0)
        await wait_all(ticket.done.wait for ticket in tickets)
    assert len(script.stored) == 2100
    for key in "abcdefg":
        mine = [i for i in script.stored if i[0] == key]
        assert mine == [f"{key}{number:03}" for number in range(300)]


async def wait_all(waits: Iterable[Callable[[], Awaitable[object]]]) -> None:
    await asyncio.gather(*(wait() for wait in waits))


# -- attempts and waits belong to the record


async def test_a_record_that_was_refused_once_has_all_its_retries_left() -> None:
    """One refusal for each of ten records of a key; none of them reaches the limit."""
    refused: set[str] = set()

    def refuse_each_once(batch: Sequence[Record]) -> Sequence[Failed]:
        for place, each in enumerate(batch):
            if each.event.id not in refused:
                refused.add(each.event.id)
                return [
                    Failed(place, Transient("slow down")),
                    *(Failed(later, NotTried("")) for later in range(place + 1, len(batch))),
                ]
        return []

    script = Script(answers=[refuse_each_once] * 40)
    async with running(script, fast(retry_limit=2)) as lane:
        ticket = put(lane, *(record(str(number), "a") for number in range(10)))
        await ticket.done.wait()
    assert ticket.failures == []
    assert script.stored == [str(number) for number in range(10)]


async def test_waits_do_not_grow_from_record_to_record() -> None:
    """A tenth is refused, two keys: each wait is that of a first retry."""
    chance = random.Random(3)  # noqa: S311
    waits: list[int] = []

    class Counting(Backoff):
        def wait(self, attempts: int) -> float:
            waits.append(attempts)
            return 0.0

    def throttled(batch: Sequence[Record]) -> Sequence[Failed]:
        failures: list[Failed] = []
        behind: set[str] = set()
        for place, each in enumerate(batch):
            if each.address.key in behind:
                failures.append(Failed(place, NotTried("")))
            elif chance.random() < 0.1:
                behind.add(each.address.key)
                failures.append(Failed(place, Transient("slow down")))
        return failures

    script = Script(answers=[throttled] * 1000)
    lane = Lane(Scripted(script), fast(), Metrics().lane("scripted"))
    lane._backlog._backoff = Counting(1, 1)
    task = asyncio.create_task(lane.run())
    ticket = put(lane, *(record(f"{number}", "ab"[number % 2]) for number in range(400)))
    await ticket.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(script.stored) == 400
    assert max(waits) <= 4
    assert waits.count(1) > 20


async def test_a_key_goes_on_at_once_after_its_first_record_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Whoever waited for a sign of life here, or asked again and again, would be found out.
    monkeypatch.setattr("bronze_sidecar.delivery.lane.IDLE_PING_SECONDS", 1000.0)
    behind = [Failed(1, NotTried("")), Failed(2, NotTried(""))]
    script = Script(answers=[lambda _: [Failed(0, Transient("poison")), *behind]] * 2)
    async with running(script, fast(retry_limit=1)) as lane:
        ticket = put(lane, record("a1", "a"), record("a2", "a"), record("a3", "a"))
        await ticket.done.wait()
    assert ticket.failures == [("a1", "scripted", "not stored after 1 retry: poison")]
    assert script.writes == [["a1", "a2", "a3"], ["a1", "a2", "a3"], ["a2", "a3"]]


async def test_a_lane_that_waits_for_a_retry_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(answers=[fail(Transient("busy"), 0)] * 3)
    takes = 0
    async with running(script, Config(retry_backoff_ms=30, retry_backoff_max_ms=60)) as lane:
        backlog_take = lane._backlog.take

        def counting_take(*arguments: Any) -> Any:
            nonlocal takes
            takes += 1
            return backlog_take(*arguments)

        monkeypatch.setattr(lane._backlog, "take", counting_take)
        await put(lane, record("a1", "a")).done.wait()
    assert takes <= 20


async def test_the_oldest_record_is_the_one_that_waits_longest_wherever_it_waits() -> None:
    script = Script(answers=[fail(Transient("busy"), 0)])
    async with running(script, Config(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)) as lane:
        first = put(lane, record("a1", "a"), record("b1", "b"))
        while first.open > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        second = put(lane, record("b2", "b"))
        await second.done.wait()
        assert lane.oldest_age() >= 0.05
        assert lane.events == 1


# -- what costs the connection, and what nobody foresaw


def breaks_on(poison: str) -> Answer:
    def answer(batch: Sequence[Record]) -> Sequence[Failed]:
        if poison in {each.event.id for each in batch}:
            raise Disconnected("Maximum Payload Violation")
        return []

    return answer


@pytest.mark.parametrize("keys", ["abcd", "a"])
async def test_a_record_that_costs_the_connection_fails_alone(keys: str) -> None:
    script = Script(answers=[breaks_on("37")] * 500)
    async with running(script) as lane:
        ticket = put(lane, *(record(str(number), keys[number % len(keys)]) for number in range(100)))
        await ticket.done.wait()
    ((failed, _, reason),) = ticket.failures
    assert failed == "37"
    assert reason.endswith("Maximum Payload Violation")
    assert sorted(script.stored, key=int) == [str(number) for number in range(100) if number != 37]
    for key in keys:
        mine = [int(each) for each in script.stored if keys[int(each) % len(keys)] == key]
        assert mine == sorted(mine)
    # Halving takes a handful of connections, condemning the record a few more.
    assert script.opened < 40


async def test_waits_between_connections_grow_until_something_is_stored() -> None:
    script = Script(answers=[refuse(Disconnected("reset"))] * 5)
    waits: list[int] = []
    async with running(script) as lane:

        class Counting(Backoff):
            def wait(self, attempts: int) -> float:
                waits.append(attempts)
                return 0.0

        lane._backoff = Counting(1, 1)
        await put(lane, record("1"), record("2")).done.wait()
        assert [wait for wait in waits if wait][:5] == [1, 2, 3, 4, 5]
        script.answers.append(refuse(Disconnected("reset")))
        waits.clear()
        await put(lane, record("3"), record("4")).done.wait()
    assert waits == [1]


async def test_an_exception_that_nobody_foresaw_is_transient_and_named_by_its_class() -> None:
    script = Script(answers=[refuse(ZeroDivisionError("a secret"))])
    async with running(script) as lane:
        ticket = put(lane, record("1"), record("2"))
        while script.opened < 2:
            await asyncio.sleep(0)
            if lane.state.startswith("failed"):
                assert "unforeseen ZeroDivisionError in test_lane.py" in lane.state
                assert "secret" not in lane.state
        await ticket.done.wait()
        assert script.stored == ["1", "2"]
        assert lane.state == "ready"


async def test_an_opening_that_fails_as_nobody_foresaw_is_tried_again() -> None:
    script = Script(openings=[KeyError("host"), KeyError("host")])
    async with running(script) as lane:
        await put(lane, record("1")).done.wait()
        assert script.opened == 3


async def test_what_may_be_stored_is_not_said_to_be_lost() -> None:
    script = Script(answers=[refuse(Disconnected("reset"))] * 3)
    async with running(script, fast(retry_limit=2)) as lane:
        ticket = put(lane, record("1"), record("2"))
        await ticket.done.wait()
    expected = "it is unknown whether it was stored; given up after 2 retries: reset"
    assert ticket.failures == [("1", "scripted", expected), ("2", "scripted", expected)]


# -- readiness


async def test_a_back_end_is_not_ready_while_writes_store_nothing_and_something_waits() -> None:
    script = Script(answers=[fail(Transient("the stream is full"), 0)] * 1000)
    async with running(script, fast()) as lane:
        while lane.state != "ready":  # noqa: ASYNC110
            await asyncio.sleep(0)
        ticket = put(lane, record("1"))
        while lane.state == "ready":  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert lane.state == "failing: the stream is full"
        script.answers.clear()
        await ticket.done.wait()
        assert lane.state == "ready"


async def test_a_back_end_that_refuses_everything_for_good_is_ready() -> None:
    script = Script(answers=[fail(Permanent("too large"), 0)])
    async with running(script) as lane:
        await put(lane, record("1")).done.wait()
        assert lane.state == "ready"


async def test_what_may_be_stored_twice_is_logged_each_time() -> None:
    lost = [refuse(Disconnected("the broker forgot our numbers", repeated=count)) for count in (3, 0, 2)]
    script = Script(answers=lost)
    with capture_logs() as logs:
        async with running(script) as lane:
            await put(lane, record("1"), record("2"), record("3")).done.wait()
    told = [each for each in logs if each["event"] == "events may be stored twice"]
    assert [(each["events"], each["log_level"]) for each in told] == [(3, "warning"), (2, "warning")]
    assert told[0]["reason"] == "the broker forgot our numbers"


@asynccontextmanager
async def away_for_a_moment(
    script: Script, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Any]]:
    """Fail a write, of a back end that remembers ids for no time; give the log afterwards."""
    monkeypatch.setattr(ScriptedSink, "forgets_ids_after", 1e-9)
    script.answers.append(refuse(error))
    with capture_logs() as logs:
        async with running(script) as lane:
            ticket = put(lane, record("1"), record("2", key="b"))
            await ticket.done.wait()
            yield logs


async def test_what_may_be_stored_twice_is_warned_of_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    async with away_for_a_moment(script, Disconnected("reset"), monkeypatch) as logs:
        (warning,) = [each for each in logs if "twice" in each["event"]]
        assert warning["log_level"] == "warning"
        assert warning["events"] == 2
        assert "--dupe-window" in warning["remedy"]


async def test_without_an_outage_nobody_is_warned_of_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    async with away_for_a_moment(Script(), Transient("busy"), monkeypatch) as logs:
        assert not [each for each in logs if "twice" in each["event"]]


async def test_connected_says_how_long_it_was_away_and_how_much_waits() -> None:
    script = Script(openings=[Transient("refused")])
    with capture_logs() as logs:
        async with running(script) as lane:
            await put(lane, record("1", size=30), record("2", size=12)).done.wait()
    (connected,) = [each for each in logs if each["event"] == "connected"]
    assert (connected["waiting"], connected["waiting_bytes"]) == (2, 42)
    assert connected["away_seconds"] >= 0


async def test_what_would_be_faster_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedSink, "advice", "use more keys")
    script = Script()
    with capture_logs() as logs:
        async with running(script) as lane:
            await put(lane, record("1")).done.wait()
            await put(lane, record("2")).done.wait()
    assert [each["advice"] for each in logs if each["log_level"] == "warning"] == ["use more keys"]
