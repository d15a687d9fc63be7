"""Plans a write as calls that keep order per key, although a call may store only some of its records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from bronze_sidecar.errors import DeliveryError, NotTried, Permanent
from bronze_sidecar.sinks.aws.service import InvalidCall, Unavailable
from bronze_sidecar.sinks.base import Failed
from bronze_sidecar.sinks.outcome import failures

IN_TURN = 10
"""Calls one after another for a single order that are worth a word to the operator."""


class CallLimits(NamedTuple):
    """The most that one call may carry."""

    records: int
    bytes: int
    run: int = 1
    """Records of one order."""
    joined: int = 0
    """Bytes of records of one order that are sent as one, which is stored or refused as a whole, and counts
    as one; 0 if none are."""


class OrderedQueue:
    """Records that share one order, by their places in the batch."""

    __slots__ = ("busy", "held", "next", "places")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.next = 0
        """How many of them are or were in calls."""
        self.busy = 0
        """How many of them are in calls now."""
        self.held = False
        """Whether one of them failed."""


class Call:
    """Records for one destination that are sent together; `queues` and `places` run in parallel."""

    __slots__ = ("destination", "places", "queues")

    def __init__(self, destination: str, queues: list[OrderedQueue], places: list[int]) -> None:
        self.destination = destination
        self.queues = queues
        self.places = places


Send = Callable[[Call], Awaitable[Mapping[int, DeliveryError]]]
"""Makes a call; returns the errors of records that were not stored, by their index in the call."""


class CallPlan:
    """What remains to be sent of a batch.

    A call takes the first record of each order, or the first few if the limits allow it, and an order is in
    only one call at a time. After a record that was not stored, nothing more of its order is sent.
    """

    def __init__(
        self,
        orders: Sequence[tuple[str, Hashable]],
        sizes: Sequence[int],
        errors: dict[int, DeliveryError],
        limits: CallLimits,
    ) -> None:
        """Plan a batch: destination and key of each record, its size, and the errors already known."""
        self.errors = errors
        self._count = len(orders)
        self._sizes = sizes
        self._limits = limits
        self._halves: list[Call] = []
        self._stopped = False
        queues: dict[tuple[str, Hashable], OrderedQueue] = {}
        self._idle: dict[str, deque[OrderedQueue]] = {}
        for place, order in enumerate(orders):
            if errors and place in errors:
                continue
            queue = queues.get(order)
            if queue is None:
                queue = queues[order] = OrderedQueue()
                self._idle.setdefault(order[0], deque()).append(queue)
            queue.places.append(place)
        self._queues = queues.values()

    @property
    def longest(self) -> int:
        """How many records of one order there are, at most."""
        return max((len(queue.places) for queue in self._queues), default=0)

    # -- what to send

    def next_call(self) -> Call | None:
        """Return a call that may be made now, regardless of the calls in flight."""
        if self._stopped:
            return None
        if self._halves:
            return self._halves.pop()
        for destination, idle in self._idle.items():
            if idle:
                return self._fill(destination, idle)
        return None

    def _fill(self, destination: str, idle: deque[OrderedQueue]) -> Call:
        most, room = self._limits.records, self._limits.bytes
        call = Call(destination, [], [])
        while idle and most:
            queue = idle[0]
            places, size = self._take(queue, most, room, is_first=not call.places)
            if not places:
                break
            call.queues += [queue] * len(places)
            call.places += places
            most -= 1 if self._limits.joined else len(places)
            room -= size
            queue.next += len(places)
            queue.busy = len(places)
            idle.popleft()
        return call

    def _take(self, queue: OrderedQueue, most: int, room: int, *, is_first: bool) -> tuple[list[int], int]:
        """Return what a call takes of a queue, and its size; the first record of a call always fits."""
        end, joined = queue.next + min(self._limits.run, most), self._limits.joined
        places: list[int] = []
        taken = 0
        for place in queue.places[queue.next : None if joined else end]:
            size = taken + self._sizes[place]
            if (size > room and (places or not is_first)) or (joined and places and size > joined):
                break
            places.append(place)
            taken = size
        return places, taken

    # -- what became of it

    def settle(self, call: Call, errors: Mapping[int, DeliveryError]) -> None:
        """Record an answer; orders whose records were stored may continue."""
        parted: dict[OrderedQueue, list[int]] = {}
        for index, error in errors.items():
            queue = call.queues[index]
            if isinstance(error, Permanent) and self._limits.joined and queue.busy > 1:
                parted.setdefault(queue, []).append(call.places[index])
                continue
            self.errors[call.places[index]] = error
            if not isinstance(error, Permanent):
                queue.held = True
        for queue, places in parted.items():
            self._halve(Call(call.destination, [queue] * len(places), places))
        idle = self._idle[call.destination]
        for queue in call.queues:
            if queue in parted:
                continue
            queue.busy -= 1
            if not queue.busy and not queue.held and queue.next < len(queue.places):
                idle.append(queue)

    def fail(self, call: Call, error: DeliveryError) -> None:
        """Record that a whole call failed."""
        if isinstance(error, InvalidCall) and len(call.places) > 1:
            self._halve(call)
            return
        self.settle(call, dict.fromkeys(range(len(call.places)), error))
        if isinstance(error, Unavailable):
            # The same holds for everything else that goes there.
            for queue in self._idle[call.destination]:
                self.errors.update(dict.fromkeys(queue.places[queue.next :], error))
            self._idle[call.destination].clear()
        elif not isinstance(error, InvalidCall):
            self._stopped = True

    def _halve(self, call: Call) -> None:
        """Search for the record at fault: the answer to a call does not name it."""
        middle = len(call.places) // 2
        if self._limits.joined:
            # What is sent as one stays together; only if it is alone is it at fault.
            starts = [at for at in range(1, len(call.places)) if call.queues[at] is not call.queues[at - 1]]
            if not starts:
                self._shorten(call, middle)
                return
            middle = starts[len(starts) // 2]
        for part in (slice(middle, None), slice(middle)):  # taken from the end
            self._halves.append(Call(call.destination, call.queues[part], call.places[part]))

    def _shorten(self, call: Call, count: int) -> None:
        """Send the first records of a single order again; the others follow when these are settled."""
        queue = call.queues[0]
        queue.next -= len(call.places) - count
        queue.busy = count
        self._halves.append(Call(call.destination, call.queues[:count], call.places[:count]))

    def outcome(self) -> Sequence[Failed]:
        """Return what was not stored; raise Disconnected if no call was answered."""
        errors = self.errors
        left = [place for queue in self._queues for place in queue.places[queue.next :]]
        left += [place for call in self._halves for place in call.places]
        for place in left:
            errors.setdefault(place, NotTried("an earlier record, or another call, failed"))
        return failures(errors, self._count)


async def carry_out(plan: CallPlan, send: Send, most_calls: int) -> Sequence[Failed]:
    """Make the calls of a plan, at most `most_calls` at a time; return what was not stored."""
    under_way = 0

    def start(tasks: asyncio.TaskGroup) -> None:
        nonlocal under_way
        while under_way < most_calls and (call := plan.next_call()):
            under_way += 1
            tasks.create_task(make(tasks, call))

    async def make(tasks: asyncio.TaskGroup, call: Call) -> None:
        nonlocal under_way
        try:
            plan.settle(call, await send(call))
        except DeliveryError as error:
            plan.fail(call, error)
        under_way -= 1
        start(tasks)

    async with asyncio.TaskGroup() as tasks:
        start(tasks)
    return plan.outcome()
