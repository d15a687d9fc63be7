"""Turns: batches are mapped one at a time, and one that waits for room in a lane holds up no other lane.

Batches stand in a line, in the order in which they came. Whoever has the turn maps a slice and puts it into
its lanes. Where there is no room, it gives the turn away, but keeps its place: what comes later and goes to
that lane waits behind it, not mapped yet; what goes to other lanes only does not wait.

So little is mapped and waits: behind a batch that waits for room in a lane, no other has its turn that goes
there as well. With one lane only one can wait so, with two lanes three, whoever sends how much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from bronze_sidecar.delivery.batch import OutcomeListener
from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record


class Entrance(Protocol):
    """The side of a lane that takes records in."""

    route: Route
    max_events: int
    on_room: Callable[[], None]
    """Called when there may be more room than before."""

    def has_room(self, events: int, size: int) -> bool: ...

    def put(self, ticket: OutcomeListener, records: list[Record], size: int) -> None: ...


class Part(NamedTuple):
    """What goes to one lane of a slice."""

    lane: Entrance
    ticket: OutcomeListener
    records: list[Record]
    size: int


class Turns:
    """The line of all batches that are not in the lanes yet."""

    def __init__(self, lanes: Sequence[Entrance], most_waiting: int) -> None:
        self.most_waiting = most_waiting
        """How many batches may wait for room with what was mapped of them; then no other has a turn."""
        self.lanes = lanes
        self.lanes_of_all = frozenset(lane for lane in lanes if all(map(lane.route.takes, PAYLOAD_CASES)))
        """Where every event goes."""
        self.holder: Turn | None = None
        """Who has the turn."""
        self.waiting: list[Turn] = []
        """Those that wait for room, or had to and wait for the turn to go on."""
        self._line: dict[Turn, None] = {}
        """All that have come and are not through yet, in the order in which they came."""
        self._is_woken = False
        for lane in lanes:
            lane.on_room = self._on_room

    def turn(self, look: Callable[[], frozenset[Entrance]]) -> Turn:
        """Return a batch's turn, to be entered; `look` finds the lanes that take something of the batch."""
        return Turn(self, look)

    @property
    def is_busy(self) -> bool:
        """Whether a batch is on its way into the lanes."""
        return self.holder is not None or bool(self.waiting)

    # -- for a turn

    def join(self, turn: Turn) -> bool:
        """Stand in line; return whether it is the turn of whoever came."""
        self._line[turn] = None
        if self.holder is None and not self.waiting:
            self.holder = turn
        return self.holder is turn

    def leave(self, turn: Turn) -> None:
        """Leave the line, with the turn or without."""
        del self._line[turn]
        self.give_away(turn)

    def give_away(self, turn: Turn) -> None:
        """Let others have the turn, if it was this one's."""
        if self.holder is turn:
            self.holder = None
        self._serve()

    # -- who goes on

    def _on_room(self) -> None:
        # Not at once: the lane is not done with what made the room.
        if self.waiting and not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_woken = False
        self._serve()

    def _serve(self) -> None:
        """Put what there is room for now, and give the turn to the first that can go on."""
        if not self.waiting:
            # The usual case: nobody waits for anything but the turn.
            if self.holder is None and self._line:
                self._give_turn(next(iter(self._line)))
            return
        is_crowded = len(self.waiting) >= self.most_waiting
        awaited: set[Entrance] = set()
        for turn in self._line:
            if turn is self.holder:
                continue
            if turn.parts:
                turn.parts = put(turn.parts, awaited)
                can_go_on = not turn.parts
            else:
                can_go_on = turn in self.waiting or not (is_crowded or turn.lanes & awaited)
            if can_go_on and self.holder is None:
                self._give_turn(turn)

    def _give_turn(self, turn: Turn) -> None:
        self.holder = turn
        # One whose call is closed has not left the line yet; it will give the turn away.
        if not turn.came.cancelled():
            turn.came.set_result(None)


class Turn:
    """A batch's place in the line. Inside of its context it has the turn, unless it waits in `put`."""

    __slots__ = ("_look", "_turns", "came", "lanes", "parts")

    def __init__(self, turns: Turns, look: Callable[[], frozenset[Entrance]]) -> None:
        self.lanes = turns.lanes_of_all
        """Where the batch goes, as far as that is known."""
        self.parts: list[Part] = []
        """What waits for room."""
        self.came: asyncio.Future[None]
        self._turns = turns
        self._look = look

    async def __aenter__(self) -> Self:
        turns = self._turns
        try:
            if not turns.join(self):
                await self._wait()
            if turns.waiting:
                self.lanes = self._look()
                await self._wait()
        except BaseException:
            turns.leave(self)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._turns.leave(self)

    async def put(self, parts: list[Part]) -> None:
        """Put a slice into its lanes, each part as there is room; return when the turn is here again."""
        waiting = self._turns.waiting
        # If others wait, it is the line that knows who is before whom.
        self.parts = parts if waiting else put(parts, set())
        if not self.parts:
            return
        waiting.append(self)
        try:
            await self._wait()
        finally:
            waiting.remove(self)

    async def _wait(self) -> None:
        """Give the turn away; return when it is back, at once if nothing stands in its way."""
        self.came = asyncio.get_running_loop().create_future()
        self._turns.give_away(self)
        await self.came


def put(parts: Sequence[Part], awaited: set[Entrance]) -> list[Part]:
    """Put what there is room for into lanes that are not awaited; return the rest, for lanes that are."""
    rest = []
    for part in parts:
        lane, ticket, records, size = part
        if lane in awaited or not lane.has_room(len(records), size):
            awaited.add(lane)
            rest.append(part)
        else:
            lane.put(ticket, records, size)
    return rest
