"""Connections to a shared unix socket: handed over, and carried to their end."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path

import pytest
from bronze_sidecar.workers.relay import Relay, spread


async def test_a_socket_that_gives_nothing_does_not_keep_the_processor_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = 0

    async def accept(_: socket.socket) -> None:
        nonlocal tried
        tried += 1
        if tried > 100:
            raise AssertionError("it tries again and again")
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_accept", accept)
    with socket.socket(socket.AF_UNIX) as listening:
        task = asyncio.create_task(spread(listening, {}))
        await asyncio.wait({task}, timeout=0.25)
        assert not task.done()
        task.cancel()
    assert tried <= 3


async def test_what_was_sent_last_arrives_before_the_relay_has_finished(tmp_path: Path) -> None:
    last = b"acknowledged" * 100_000

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(last)
        writer.close()

    ours, theirs = socket.socketpair()
    producer, accepted = socket.socketpair()
    producer.setblocking(False)
    with ours, producer:
        async with await asyncio.start_unix_server(serve, tmp_path / "own"):
            relay = Relay(theirs, tmp_path / "own", lambda: None)
            relay.start()
            with accepted:
                socket.send_fds(ours, [b"c"], [accepted.fileno()])
            reader, writer = await asyncio.open_unix_connection(sock=producer)
            got = await reader.readexactly(1)
            reading = asyncio.create_task(reader.read(-1))
            await relay.finish()
            # The loop of a worker ends now.
            assert not relay._under_way
            assert got + await reading == last
            writer.close()
        asyncio.get_running_loop().remove_reader(theirs)
        theirs.close()
