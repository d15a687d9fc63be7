"""A bad network: a relay that can delay what it carries, and break connections off."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial

from servers import HOST

DELAY_SECONDS = 0.02
PIECE = 4096


class Link:
    """Carries bytes to ports; while it is bad, in small pieces, late, and not for long."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        """Where the first of them is reached."""
        self.is_bad = False

    async def serve(self, onward: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(HOST, onward)
        except OSError:
            writer.close()
            return
        pair = {writer, inner_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._carry(reader, inner_writer), self._carry(inner_reader, writer))
        except asyncio.CancelledError:
            pass  # the relay ends
        finally:
            self._writers -= pair

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(PIECE if self.is_bad else 1 << 16):
                if self.is_bad:
                    await asyncio.sleep(DELAY_SECONDS)
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass  # either side may break off
        finally:
            writer.close()

    async def be_bad(self, seconds: float) -> None:
        """Be slow for a time; break everything off about every second."""
        loop = asyncio.get_running_loop()
        self.is_bad, until = True, loop.time() + seconds
        while loop.time() < until:
            await asyncio.sleep(self._dice.uniform(0.5, 1.5))
            self.break_off()
        self.is_bad = False

    def break_off(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()


@contextlib.asynccontextmanager
async def link_to(ways: Sequence[tuple[int, int]], dice: random.Random) -> AsyncIterator[Link]:
    """Run a relay in this process, for ports and where to listen for each."""
    link = Link(dice)
    servers = [await asyncio.start_server(partial(link.serve, onward), HOST, port) for onward, port in ways]
    link.port = servers[0].sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        for server in servers:
            server.close()
        link.break_off()
        await asyncio.sleep(0)
