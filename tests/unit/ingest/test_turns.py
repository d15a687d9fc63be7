"""Turns and waiting for room: histories of lanes that fill up, empty and die, and what always holds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from bronze_sidecar.delivery.batch import OutcomeListener
from bronze_sidecar.ingest.turns import Entrance, Part, Turn, Turns
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from scripted import Script, Scripted, record

BOUND = 10
MOST_WAITING = 8


class SmallLane:
    """A lane that holds few records, and delivers as many as it is told, if it is not dead."""

    max_events = BOUND

    def __init__(self, history: History, include: frozenset[str] | None) -> None:
        self.route = Route(Scripted(Script(), include=include).rules())
        self.on_room: Callable[[], None] = lambda: None
        self.records: list[Record] = []
        self.arrived: list[tuple[str, int]] = []
        """The stream and the number of each slice that came."""
        self.is_dead = False
        self._history = history

    def has_room(self, events: int, size: int) -> bool:
        assert size == 10 * events
        return not self.records or len(self.records) + events <= BOUND

    def put(self, ticket: OutcomeListener, records: list[Record], size: int) -> None:
        assert self.has_room(len(records), size), "more than the bound"
        assert isinstance(ticket, Slice)
        overtaken = [
            part.ticket
            for each in self._history.turns.waiting
            for part in each.parts
            if part.lane is self and self._history.numbers[each] < ticket.batch.number
        ]
        assert not overtaken, "an earlier batch waits for room here"
        self.records += records
        self.arrived.append((ticket.batch.stream, ticket.number))

    def deliver(self, count: int) -> None:
        if not self.is_dead:
            del self.records[:count]
            self.on_room()


@dataclass
class Sent:
    """A batch: how many records each of its slices has for each lane, by the lane's number."""

    stream: str
    slices: list[dict[int, int]]
    number: int = -1
    is_through: bool = False
    is_closed: bool = False

    @property
    def lanes(self) -> set[int]:
        return {lane for each in self.slices for lane in each}


@dataclass
class Slice:
    """Stands for a ticket, and knows what it came with."""

    batch: Sent
    number: int
    is_durable: bool = False

    def stored(self, count: int) -> None: ...

    def failed(self, record: Record, backend: str, reason: str) -> None: ...


@dataclass
class History:
    """Some streams that send batches into some lanes. Every method is one step; `check` holds after each."""

    filtered: tuple[bool, ...]
    """For each lane, whether it takes only some payload cases."""
    turns: Turns = field(init=False)
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes = [
            SmallLane(self, frozenset({"trade"}) if is_filtered else None) for is_filtered in self.filtered
        ]
        self.turns = Turns(self.lanes, MOST_WAITING)
        self.tasks: dict[str, list[asyncio.Task[None]]] = {}
        """Of each stream that was not closed."""
        self._all: list[asyncio.Task[None]] = []
        self._mapped: dict[str, int] = {}
        self.numbers: dict[Turn, int] = {}
        """In the order in which they came."""

    # -- steps

    def send(self, batch: Sent) -> None:
        """Let a stream send a batch, which is taken in after the one before it."""
        self.sent.append(batch)
        tasks = self.tasks.setdefault(batch.stream, [])
        tasks.append(asyncio.create_task(self._take(batch, tasks[-1] if tasks else None)))
        self._all.append(tasks[-1])

    def close(self, stream: str) -> None:
        """Close the stream's call: what it waits for is over, and so is what comes after it."""
        for task in self.tasks.pop(stream):
            task.cancel()
        for batch in self.sent:
            batch.is_closed |= batch.stream == stream

    async def settle(self) -> None:
        """Let everything go on that can."""
        for _ in range(1000):
            before = self._state()
            for _ in range(10):
                await asyncio.sleep(0)
            if self._state() == before and self.turns.holder is None:
                return

    # -- what must hold

    def check(self) -> None:
        turns = self.turns
        assert turns.holder is None, "a batch keeps the turn while it waits"
        assert len(turns.waiting) <= MOST_WAITING
        assert len(turns.waiting) < 2 ** len(self.lanes)
        awaited: set[Entrance] = set()
        for turn in sorted(turns.waiting, key=self.numbers.__getitem__):
            assert turn.parts, "a batch waits for nothing"
            for part in turn.parts:
                lane = part.lane
                assert lane in awaited or not lane.has_room(len(part.records), part.size), "there is room"
            awaited |= {part.lane for part in turn.parts}
        mapped = {self.numbers[turn] for turn in turns.waiting}
        if len(turns.waiting) == MOST_WAITING:
            return
        for batch in self.sent:
            if batch.number >= 0 and batch.number not in mapped and not batch.is_through:
                before = {
                    part.lane
                    for turn in turns.waiting
                    if self.numbers[turn] < batch.number
                    for part in turn.parts
                }
                held_up = {self.lanes[lane] for lane in batch.lanes} & before
                assert held_up, "nobody before waits for what this batch needs"

    def check_order(self) -> None:
        for lane in self.lanes:
            for stream in {batch.stream for batch in self.sent}:
                numbers = [number for name, number in lane.arrived if name == stream]
                assert numbers == sorted(numbers), "slices of a stream changed places"

    async def finish(self) -> None:
        """Let all lanes deliver; everything that was not closed gets through."""
        for lane in self.lanes:
            lane.is_dead = False
        for _ in range(10 + 4 * len(self.sent)):
            for lane in self.lanes:
                lane.deliver(BOUND)
            await self.settle()
            self.check()
        assert all(task.done() for task in self._all)
        assert all(batch.is_through or batch.is_closed for batch in self.sent)
        assert not self.turns.is_busy

    def _state(self) -> tuple[object, ...]:
        done = [task.done() for task in self._all]
        return done, [len(lane.arrived) for lane in self.lanes], [batch.number for batch in self.sent]

    async def _take(self, batch: Sent, before: asyncio.Task[None] | None) -> None:
        if before:
            # If it was closed, so is this one.
            await asyncio.shield(before)
        turn = self.turns.turn(lambda: frozenset(self.lanes[lane] for lane in batch.lanes))
        batch.number = self.numbers[turn] = len(self.numbers)
        try:
            async with turn:
                for slice_ in batch.slices:
                    number = self._mapped[batch.stream] = self._mapped.get(batch.stream, 0) + 1
                    ticket = Slice(batch, number)
                    await turn.put(
                        [
                            Part(self.lanes[lane], ticket, [record("r")] * count, 10 * count)
                            for lane, count in slice_.items()
                        ]
                    )
                    await asyncio.sleep(0)
        finally:
            batch.is_through = True


def run(history: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(history())


def a_batch(dice: random.Random, stream: str, filtered: tuple[bool, ...]) -> Sent:
    """Make a batch; lanes that are not filtered take something of every slice."""
    chosen = [lane for lane, is_filtered in enumerate(filtered) if not is_filtered or dice.random() < 0.5]
    slices = []
    for _ in range(dice.choice((1, 1, 2, 4))):
        some = {
            lane: dice.choice((1, 2, 5, BOUND, BOUND + 2))
            for lane in chosen
            if not filtered[lane] or dice.random() < 0.7
        }
        slices.append(some)
    return Sent(stream, slices)


@pytest.mark.parametrize("filtered", [(False,), (True, True), (True, False), (True, True, True)])
@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_nobody_waits_without_a_reason(seed: int, filtered: tuple[bool, ...]) -> None:
    dice = random.Random(f"{seed} {filtered}")  # noqa: S311 - it must be the same again

    async def history() -> None:
        for _ in range(60):
            happened = History(filtered)
            streams = [f"s{number}" for number in range(dice.choice((2, 5, 12)))]
            for _ in range(40):
                step = dice.random()
                if step < 0.5:
                    happened.send(a_batch(dice, dice.choice(streams), filtered))
                elif step < 0.9:
                    dice.choice(happened.lanes).deliver(dice.choice((1, 3, BOUND)))
                elif step < 0.95:
                    lane = dice.choice(happened.lanes)
                    lane.is_dead = not lane.is_dead
                elif happened.tasks:
                    happened.close(dice.choice([*happened.tasks]))
                if dice.random() < 0.7:
                    await happened.settle()
                    happened.check()
            happened.check_order()
            await happened.finish()
            happened.check_order()

    run(history)


@pytest.mark.parametrize("filtered", [(True, False), (True, True), (True, True, True)])
def test_a_dead_lane_slows_nothing_that_it_does_not_take(filtered: tuple[bool, ...]) -> None:
    dice = random.Random(f"dead {filtered}")  # noqa: S311 - it must be the same again

    async def history() -> None:
        for _ in range(60):
            happened = History(filtered)
            happened.lanes[0].is_dead = True
            for number in range(30):
                happened.send(a_batch(dice, f"s{number}", filtered))
                if dice.random() < 0.3:
                    await happened.settle()
            for _ in range(200):
                await happened.settle()
                happened.check()
                for lane in happened.lanes:
                    lane.deliver(BOUND)
            for batch in happened.sent:
                assert batch.is_through or 0 in batch.lanes
            assert not all(batch.is_through for batch in happened.sent)
            await happened.finish()

    run(history)


def test_one_that_needs_two_busy_lanes_is_not_overtaken_for_ever() -> None:
    async def history() -> None:
        happened = History((True, True))
        for number in range(6):
            happened.send(Sent(f"a{number}", [{0: BOUND}]))
            happened.send(Sent(f"b{number}", [{1: BOUND}]))
        await happened.settle()
        both = Sent("both", [{0: BOUND, 1: BOUND}])
        happened.send(both)
        later = [Sent(f"c{number}", [{number % 2: BOUND}]) for number in range(20)]
        for batch in later:
            happened.send(batch)
        while not both.is_through:
            # Never both at the same time.
            for lane in happened.lanes:
                lane.deliver(BOUND)
                await happened.settle()
                happened.check()
        assert sum(batch.is_through for batch in later) <= 2
        await happened.finish()

    run(history)


def test_a_call_that_is_closed_gives_its_place_away() -> None:
    async def history() -> None:
        happened = History((True, True))
        happened.send(Sent("a", [{0: BOUND}, {0: 1, 1: BOUND}]))
        happened.send(Sent("b", [{0: 1}]))
        happened.send(Sent("c", [{0: 2}]))
        await happened.settle()
        assert [len(lane.records) for lane in happened.lanes] == [BOUND, BOUND]
        # The first waits with a slice, the others with nothing.
        assert [happened.numbers[turn] for turn in happened.turns.waiting] == [0]
        happened.close("b")
        happened.close("a")
        await happened.settle()
        happened.lanes[0].deliver(BOUND)
        await happened.settle()
        assert happened.lanes[0].arrived == [("a", 1), ("c", 1)]
        assert not happened.turns.is_busy

    run(history)
