"""Carries connections to a unix socket that all workers share to a worker's own.

The kernel spreads connections to a port over the processes that listen at it, but not those to a unix socket.
gRPC takes no connection that is open already. So the supervisor accepts, hands each to a worker, and that
passes its bytes on to its gRPC server.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

PIECE = 1 << 18
MOST_AT_ONCE = 16
PAUSE_SECONDS = 0.1
FINISH_SECONDS = 1.0
_A_CONNECTION = b"c"


async def spread(listening: socket.socket, workers: Mapping[int, socket.socket]) -> None:
    """Accept connections, and hand them to the workers in turn; each worker has a socket to be told by."""
    loop = asyncio.get_running_loop()
    for turn in itertools.count():
        try:
            accepted, _ = await loop.sock_accept(listening)
        except OSError:
            # No more files may be open, or the like: the same again at once.
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        # If the worker has just ended, the producer connects again.
        with accepted, suppress(OSError):
            while not workers:  # noqa: ASYNC110 - they are started again
                await asyncio.sleep(PAUSE_SECONDS)
            told = [*workers.values()][turn % len(workers)]
            socket.send_fds(told, [_A_CONNECTION], [accepted.fileno()])


class Relay:
    """Takes connections from the supervisor, and passes on to a path what comes over them."""

    def __init__(self, told: socket.socket, onward: Path, on_end: Callable[[], None]) -> None:
        self._told = told
        self._onward = onward
        self._on_end = on_end
        """Called when the supervisor has ended."""
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to take connections."""
        self._told.setblocking(False)
        asyncio.get_running_loop().add_reader(self._told, self._take)

    async def finish(self) -> None:
        """Pass on what the gRPC server has sent before it ended, such as the last acknowledgements."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=FINISH_SECONDS)

    def _take(self) -> None:
        try:
            said, accepted, _, _ = socket.recv_fds(self._told, MOST_AT_ONCE, MOST_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            said, accepted = b"", []
        for each in accepted:
            task = asyncio.create_task(self._serve(socket.socket(fileno=each)))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        if not said:
            asyncio.get_running_loop().remove_reader(self._told)
            self._on_end()

    async def _serve(self, accepted: socket.socket) -> None:
        async with AsyncExitStack() as stack:
            reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=PIECE)
            stack.push_async_callback(_close, writer)
            try:
                inner_reader, inner_writer = await asyncio.open_unix_connection(self._onward, limit=PIECE)
            except OSError:
                return  # it is stopping
            stack.callback(inner_writer.close)
            # gRPC ends a connection as a whole: when one side has ended, so has the other.
            both = [
                asyncio.create_task(_carry(reader, inner_writer)),
                asyncio.create_task(_carry(inner_reader, writer)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection when everything that was written to it is on its way."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
