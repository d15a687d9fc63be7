"""A proxy before a Kafka broker that loses questions and answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Self

from kafka_servers import KafkaServer
from servers import HOST


class Proxy:
    """Stands between a sink and a broker; swallows a question or an answer, and breaks the connection off."""

    def __init__(self, server: KafkaServer) -> None:
        self.address = f"{HOST}:{server.proxy_port}"
        self._inner = server.ports["PROXIED"]
        self._outer = server.proxy_port
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallow_next_answer = False
        self.swallow_next_question = False
        self.on_swallowed: Callable[[], None] = lambda: None
        self.is_cut = False
        """Whether new connections are broken off at once."""

    def cut_after(self, what: str) -> None:
        """Swallow the next question or answer, and let nobody in any more."""
        self.swallow_next_answer = what == "answer"
        self.swallow_next_question = what == "question"

        def cut() -> None:
            self.is_cut = True

        self.on_swallowed = cut

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, self._outer)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0.05)  # until connections that were broken off are closed

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass_on(reader, writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(HOST, self._inner)
        questions = asyncio.create_task(self._ask(reader, inner_writer))
        try:
            while answer := await inner_reader.read(1 << 16):
                if self.swallow_next_answer:
                    self.swallow_next_answer = False
                    self.on_swallowed()
                    break
                writer.write(answer)
        finally:
            questions.cancel()
            inner_writer.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if self.swallow_next_question:
                    self.swallow_next_question = False
                    self.on_swallowed()
                    writer.transport.abort()
                    return
                writer.write(chunk)
