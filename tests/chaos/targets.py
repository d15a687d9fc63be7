"""Buses under attack: how each is written to, read, hurt and healed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from servers import NativeServer

FILLER = "filler"
"""What an id begins with that is not an event's."""

Stored = list[tuple[str, str]]
"""Key and event id of each record, in the order of the bus."""


class NotPossible(Exception):  # noqa: N818 - named for what it says
    """The bus has no such fault; the text says why."""


class Target:
    """A bus with its real servers. What a bus has no means for is left as it is here."""

    rate = 1000
    """Events a second that it takes easily."""
    keeps_order = True

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.dice = dice
        self.victims: Sequence[NativeServer] = ()
        """What was killed or frozen."""

    async def start(self, stack: AsyncExitStack) -> None:
        """Start the servers; the stack stops them."""
        raise NotImplementedError

    def options(self, port: int | None = None) -> list[str]:
        """Return the sidecar's options; `port` is that of a relay in between."""
        raise NotImplementedError

    def read(self) -> AsyncIterator[tuple[str, str]]:
        """Yield key and event id of every record."""
        raise NotImplementedError

    async def stored(self) -> Stored:
        return [each async for each in self.read()]

    @property
    def port(self) -> int:
        """Where a relay leads to."""
        raise NotPossible("its servers name their own addresses")

    @property
    def ways(self) -> Sequence[tuple[int, int]]:
        """Return where a relay leads to, and where it listens for that: a port, or 0 for any."""
        return [(self.port, 0)]

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        raise NotImplementedError

    async def victims_of_freeze(self) -> Sequence[NativeServer]:
        return await self.victims_of_kill()

    async def kill(self) -> None:
        self.victims = await self.victims_of_kill()
        for server in self.victims:
            server.kill()

    async def revive(self) -> None:
        for server in self.victims:
            await asyncio.to_thread(server.start)

    async def freeze(self) -> None:
        self.victims = await self.victims_of_freeze()
        for server in self.victims:
            server.freeze()

    async def thaw(self) -> None:
        for server in self.victims:
            server.thaw()

    async def probe(self) -> None:
        """Write as another client does, until the bus confirms it; raise if it does not at once."""
        raise NotImplementedError

    async def fill(self) -> None:
        """Make the bus refuse everything for lack of room."""
        raise NotPossible("it cannot be full")

    async def make_room(self) -> None:
        raise NotImplementedError

    async def refuse_some(self) -> None:
        """Make the bus refuse some records, and store others of the same write."""
        raise NotPossible("it refuses no part of a write")

    async def refuse_none(self) -> None:
        raise NotImplementedError

    async def delete(self) -> None:
        """Delete the destination, with what it holds; make it anew if the sidecar cannot."""
        raise NotImplementedError

    def poison_options(self) -> list[str]:
        """Return what else makes an event of 1.5 MB one that is refused for good."""
        return []
