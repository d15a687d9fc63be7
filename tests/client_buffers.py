"""The clients' buffers, under one interface."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bronze_client.buffer import Buffer
from bronze_client.options import Options
from clients import NodeDriver, camel_options, snake

MUCH = 1_000_000

Taken: TypeAlias = tuple[int, bool | None, list[bytes]]
"""First position, whether it is JSON (None: some of it, and begins with a blank), and the events."""


@dataclass(frozen=True)
class State:
    """What a buffer tells of itself."""

    woken: int
    """How often its owner was woken,"""
    rooms: int
    """and told of room."""
    accepted: int
    events: int
    bytes: int
    oldest_position: int
    dropped: int
    reason: str


class BufferUnderTest(Protocol):
    """A buffer, with events as the bytes that travel."""

    def add(self, *events: bytes, json: bool = False) -> list[bool]:
        """Take events, one by one."""

    def skip(self) -> None:
        """Use up a position."""

    def take_with_size(
        self, events: int = MUCH, size: int = MUCH, *, cut: bool = True
    ) -> tuple[Taken, int] | None:
        """Give away a batch, and say how large it is."""

    def take(self, events: int = MUCH, size: int = MUCH, *, cut: bool = True) -> Taken | None:
        """Give away a batch."""

    def take_all(self) -> list[Taken]:
        """Give away everything."""

    def mark_due(self) -> None:
        """Let a partial batch be taken."""

    def release(self, events: int, size: int) -> None:
        """Make room."""

    def limit_event(self, size: int) -> None:
        """Refuse larger events."""

    def refuse(self, reason: str) -> None:
        """Accept nothing more."""

    def is_worth_waiting(self, size: int) -> bool:
        """Tell whether room may come."""

    def state(self) -> State:
        """Tell what is here."""


class _Taking:
    def take_with_size(
        self, events: int = MUCH, size: int = MUCH, *, cut: bool = True
    ) -> tuple[Taken, int] | None:
        raise NotImplementedError

    def mark_due(self) -> None:
        raise NotImplementedError

    def take(self, events: int = MUCH, size: int = MUCH, *, cut: bool = True) -> Taken | None:
        taken = self.take_with_size(events, size, cut=cut)
        return taken and taken[0]

    def take_all(self) -> list[Taken]:
        self.mark_due()
        return list(iter(self.take, None))


class PythonBuffer(_Taking):
    def __init__(self, **options: Any) -> None:
        self._woken = 0
        self._rooms = 0
        self._buffer = Buffer(
            Options("127.0.0.1:1", **options),
            lock=contextlib.nullcontext(),
            wake=self._on_wake,
            on_room=self._on_room,
        )
        self.skip = self._buffer.skip
        self.release = self._buffer.release
        self.limit_event = self._buffer.limit_event
        self.refuse = self._buffer.refuse
        self.is_worth_waiting = self._buffer.is_worth_waiting
        self.detach = self._buffer.detach

    def _on_wake(self) -> None:
        self._woken += 1

    def _on_room(self) -> None:
        self._rooms += 1

    def mark_due(self) -> None:
        self._buffer.mark_due()

    def add(self, *events: bytes, json: bool = False) -> list[bool]:
        return [self._buffer.add(event, json) for event in events]

    def take_with_size(
        self, events: int = MUCH, size: int = MUCH, *, cut: bool = True
    ) -> tuple[Taken, int] | None:
        batch = self._buffer.take(events, size, cut=cut)
        return None if batch is None else ((batch.first_position, batch.is_json, batch.events), batch.size)

    def state(self) -> State:
        buffer, drops = self._buffer, self._buffer.drops
        return State(
            woken=self._woken,
            rooms=self._rooms,
            accepted=buffer.accepted,
            events=buffer.events,
            bytes=buffer.bytes,
            oldest_position=buffer.oldest_position,
            dropped=drops.total,
            reason=drops.reason,
        )


class NodeBuffer(_Taking):
    def __init__(self, driver: NodeDriver, **options: Any) -> None:
        self._driver = driver
        self._number = driver.number()
        self._ask("buffer", camel_options(options))

    def _ask(self, name: str, *args: Any) -> Any:
        return self._driver.call(name, self._number, *args)

    def call(self, method: str, *args: Any) -> None:
        self._ask("bufferCall", method, *args)

    def add(self, *events: bytes, json: bool = False) -> list[bool]:
        return [self._ask("bufferAdd", event, json) for event in events]

    def add_lines(self, block: str | bytes, count: int) -> bool:
        accepted: bool = self._ask("bufferAddLines", block, count)
        return accepted

    def skip(self) -> None:
        self.call("skip", 1)

    def mark_due(self) -> None:
        self.call("markDue")

    def release(self, events: int, size: int) -> None:
        self.call("release", events, size)

    def limit_event(self, size: int) -> None:
        self.call("limitEvent", size)

    def refuse(self, reason: str) -> None:
        self.call("refuse", reason)

    def is_worth_waiting(self, size: int) -> bool:
        is_worth_it: bool = self._ask("bufferIsWorthWaiting", size)
        return is_worth_it

    def take_with_size(
        self, events: int = MUCH, size: int = MUCH, *, cut: bool = True
    ) -> tuple[Taken, int] | None:
        batch = self._ask("bufferTake", events, size, cut)
        if batch is None:
            return None
        items = [
            b" " * is_marked + base64.b64decode(item)
            for item, is_marked in zip(batch["items"], batch["marked"], strict=True)
        ]
        return (batch["firstPosition"], batch["isJson"], items), batch["size"]

    def state(self) -> State:
        return State(**{snake(name): value for name, value in self._ask("bufferState").items()})
