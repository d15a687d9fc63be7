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
from scripted import Answer, Script, Scripted, record


def fast(**options: Any) -> Config:
    """Return a configuration whose retries do not wait."""
    return Config(retry_backoff_ms=1, retry_backoff_max_ms=2, **options)


class Waiting:
    """A ticket that remembers what it was told."""

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
        open_gate(script)
        await lane.wait_for_room(2, 20)
        assert full
        assert lane.events <= 1


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
