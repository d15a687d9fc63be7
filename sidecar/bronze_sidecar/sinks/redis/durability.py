"""What a server must confirm besides having added the entries: that they are on disk, or on replicas.

It is the server's word: with `appendfsync everysec` some answer WAITAOF when data is written and not synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bronze_buses.redis import error_text
from redis.asyncio.connection import Connection
from redis.exceptions import RedisError, ResponseError

from bronze_sidecar.errors import Disconnected, Permanent, Transient
from bronze_sidecar.sinks.redis.link import ask, converse, pack

WAIT_SECONDS = 4.0
"""How long the server may take to confirm. Two such waits and a write fit into the time for an answer."""


class Unconfirmed(Disconnected):
    """It was stored, but may be lost with the server; the connection is in order."""


class Wait(NamedTuple):
    """A command that answers when what its connection wrote is safe, or when the time is up."""

    words: tuple[bytes, ...]
    wanted: int
    flag: str
    needs: str
    """What the server may lack."""
    confirmed_by: str

    def packed(self, seconds: float) -> bytes:
        return pack(*self.words, b"%d" % (seconds * 1000))

    def fault(self, answer: Any) -> str:
        """Return why the answer confirms nothing; empty if it confirms."""
        if isinstance(answer, Exception):
            return f"{self.flag}: {error_text(answer)}"
        count = answer[0] if isinstance(answer, list) else answer
        if count >= self.wanted:
            return ""
        return f"{self.flag}: {count} of {self.wanted} {self.confirmed_by} confirmed"


class Durability:
    """Sends commands to servers; what they confirm in time counts as stored, and nothing else does."""

    def __init__(self, *, aof: bool, replicas: int) -> None:
        self._waits: list[Wait] = []
        if aof:
            needs = "Redis 7.2 or newer, with `appendonly yes`"
            self._waits.append(
                Wait((b"WAITAOF", b"1", b"0"), 1, "--redis-wait-aof", needs, "append-only files")
            )
        if replicas:
            words = (b"WAIT", b"%d" % replicas)
            needs = "the permission to run WAIT"
            self._waits.append(Wait(words, replicas, "--redis-wait-replicas", needs, "replicas"))
        self._packed = [wait.packed(WAIT_SECONDS) for wait in self._waits]
        self._confirming: set[tuple[str, int]] = set()
        """Servers that confirmed what they were sent last."""

    async def check(self, connection: Connection) -> None:
        """Raise Permanent if the server cannot confirm at all."""
        for wait in self._waits:
            try:
                await ask(connection, wait.packed(0.001))
            except ResponseError as error:
                raise Permanent(f"{wait.flag} needs {wait.needs}: {error_text(error)}") from error
            except RedisError as error:
                raise Transient(error_text(error)) from error

    async def converse(self, connection: Connection, packed: Sequence[bytes]) -> list[Any]:
        """Send commands; return the answer to each, or an exception if it was not confirmed."""
        if not self._waits:
            return await converse(connection, packed)
        # What is not confirmed must be sent again, and is stored again. So a server that did not confirm is
        # asked first whether it has by now; one that is new, whether it has replicas at all.
        server = (connection.host, connection.port)
        if server not in self._confirming:
            heard = await converse(connection, self._packed)
            lost = [
                each for each in heard if isinstance(each, Exception) and not isinstance(each, ResponseError)
            ]
            if lost:
                return lost[:1] * len(packed)
            if fault := self._fault(heard):
                return [Transient(fault)] * len(packed)
        heard = await converse(connection, [*packed, *self._packed])
        answers, waited = heard[: len(packed)], heard[len(packed) :]
        fault = self._fault(waited)
        if not fault:
            self._confirming.add(server)
            return answers
        self._confirming.discard(server)
        return [each if isinstance(each, Exception) else Unconfirmed(fault) for each in answers]

    def _fault(self, answers: Sequence[Any]) -> str:
        faults = (wait.fault(answer) for wait, answer in zip(self._waits, answers, strict=True))
        return next(filter(None, faults), "")
