"""A bad network: a relay that can delay what it carries, and break connections off."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from servers import HOST

DELAY_SECONDS = 0.02
PIECE = 4096


class Link:
    """Carries bytes to a port; while it is bad, in small pieces, late, and not for long."""

    def __init__(self, onward: int, dice: random.Random) -> None:
        self._onward = onward
        self._dice = dice
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.is_bad = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(HOST, self._onward)
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
async def link_to(port: int, dice: random.Random) -> AsyncIterator[Link]:
    """Run a relay in this process."""
    link = Link(port, dice)
    server = await asyncio.start_server(link.serve, HOST, 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        link.break_off()
        await asyncio.sleep(0)
