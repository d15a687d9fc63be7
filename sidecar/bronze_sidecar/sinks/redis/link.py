"""Links to Redis, one server or a cluster: packed commands go out, answers come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bronze_buses.redis import error_text
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError, ResponseError

from bronze_sidecar.errors import Disconnected, Transient
from bronze_sidecar.sinks.redis.answers import classify

if TYPE_CHECKING:
    from bronze_sidecar.sinks.redis.durability import Durability

ANSWER_SECONDS = 10.0
"""How long a write may take; a server that is silent for longer counts as gone."""

REDIRECTIONS = 5


def pack(*words: bytes) -> bytes:
    """Return a command as sent to the server."""
    return b"*%d\r\n" % len(words) + b"".join(map(bulk, words))


def bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


class PackedCommand(NamedTuple):
    """A command as sent to the server, and a key that says which node it is for."""

    key: bytes
    packed: bytes


ASKING = pack(b"ASKING")
PING = pack(b"PING")


IsReplaced = Callable[[], Awaitable[bool]]
Converse = Callable[[Connection, Sequence[bytes]], Awaitable[list[Any]]]


class Link(Protocol):
    """A connected server or cluster."""

    one_node: bool
    """Whether a command may name keys of any slot."""

    async def exchange(self, commands: Sequence[PackedCommand]) -> list[Any]:
        """Send the commands; return the answer to each, or an exception in its place."""

    async def ping(self) -> None:
        """Return if the server, or each node, answers; raise Disconnected if not."""


async def ask(connection: Connection, packed: bytes) -> Any:
    """Send one command; return the answer."""
    await connection.send_packed_command(packed)
    return await connection.read_response()


async def close(connection: Connection) -> None:
    """Close at once, also if the server reads nothing any more."""
    writer = connection._writer  # noqa: SLF001 - there is no other way to it
    with contextlib.suppress(RedisError):
        await connection.disconnect()
    if writer is not None:
        writer.transport.abort()


async def converse(connection: Connection, packed: Sequence[bytes]) -> list[Any]:
    """Send all commands at once, then read the answers."""
    answers: list[Any] = []
    try:
        async with asyncio.timeout(ANSWER_SECONDS), _aborting(connection):
            await connection.send_packed_command(packed)
            while len(answers) < len(packed):
                try:
                    answers.append(await connection.read_response())
                except ResponseError as error:
                    answers.append(error)
    except TimeoutError:
        lost: Exception = Disconnected(f"no answer within {ANSWER_SECONDS:.0f} seconds")
    except (RedisError, OSError) as error:
        lost = error
    else:
        return answers
    return answers + [lost] * (len(packed) - len(answers))


@contextlib.asynccontextmanager
async def _aborting(connection: Connection) -> AsyncIterator[None]:
    """Connect if necessary; abort the connection if anything goes wrong.

    The library only closes it, which waits until the server has read everything unsent: a frozen server
    would hold the socket and the memory, and store the entries after later ones once it resumes.
    """
    await connection.connect()  # type: ignore[no-untyped-call]
    writer = connection._writer  # noqa: SLF001 - there is no other way to it
    try:
        yield
    except BaseException:
        await connection.disconnect(nowait=True)
        if writer is not None:
            writer.transport.abort()
        raise


def _expect_answers(answers: Sequence[Any]) -> None:
    for answer in answers:
        # "No permission" is an answer too.
        error = classify(answer) if isinstance(answer, Exception) else None
        if isinstance(error, Disconnected):
            raise error


class SingleServer:
    """One server, through one connection."""

    one_node = True

    def __init__(
        self, connection: Connection, durability: Durability, is_replaced: IsReplaced | None = None
    ) -> None:
        self._connection = connection
        self._durability = durability
        self._is_replaced = is_replaced

    async def exchange(self, commands: Sequence[PackedCommand]) -> list[Any]:
        # redis-py would reconnect by itself and hide that answers were lost.
        if not self._connection.is_connected:
            return [Disconnected("the connection is closed")] * len(commands)
        answers = await self._durability.converse(self._connection, [command.packed for command in commands])
        # A primary that was replaced while it was cut off does not know it: its replicas have left it.
        unconfirmed = any(isinstance(answer, Transient) for answer in answers)
        if unconfirmed and self._is_replaced and await self._is_replaced():
            return [Disconnected("the sentinels name another primary")] * len(commands)
        return answers

    async def ping(self) -> None:
        if not self._connection.is_connected:
            raise Disconnected("the connection is closed")
        _expect_answers(await converse(self._connection, [PING]))


class Cluster:
    """A cluster: commands go to the nodes that hold their keys, to all nodes at once."""

    one_node = False

    def __init__(self, client: RedisCluster, durability: Durability) -> None:
        self._client = client
        self._durability = durability
        self._must_look = False

    async def look(self) -> None:
        """Ask the known nodes who holds which slots."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.aclose()
                await self._client.initialize()
        except TimeoutError as error:
            raise Disconnected("the cluster does not answer") from error
        except (RedisError, RedisClusterException, OSError) as error:
            raise Disconnected(error_text(error)) from error
        self._must_look = False

    async def exchange(self, commands: Sequence[PackedCommand]) -> list[Any]:
        if self._must_look:
            try:
                await self.look()
            except Disconnected as error:
                return [error] * len(commands)
        answers: list[Any] = [None] * len(commands)
        places: dict[ClusterNode, list[int]] = {}
        for place, command in enumerate(commands):
            try:
                node = self._client.get_node_from_key(command.key)  # type: ignore[arg-type]
            except RedisClusterException as error:
                answers[place] = error
            else:
                places.setdefault(node, []).append(place)  # type: ignore[arg-type]
        await asyncio.gather(
            *(self._converse(node, commands, answers, those) for node, those in places.items())
        )
        if any(isinstance(each, Exception) and not isinstance(each, ResponseError) for each in answers):
            self._must_look = True
        return answers

    async def ping(self) -> None:
        nodes = self._client.get_primaries()
        answers = await asyncio.gather(*(self._ask(node, [PING], converse) for node in nodes))
        _expect_answers([answer for each in answers for answer in each])

    async def _converse(
        self, node: ClusterNode, commands: Sequence[PackedCommand], answers: list[Any], places: list[int]
    ) -> None:
        packed = [commands[place].packed for place in places]
        heard = await self._ask(node, packed, self._durability.converse)
        for place, answer in zip(places, heard, strict=True):
            answers[place] = await self._follow(commands[place], answer)

    async def _follow(self, command: PackedCommand, answer: Any) -> Any:
        """Send a command on to the node to which its key has moved, or is moving."""
        # Not through the library: it may send ASKING on one connection and the command on another.
        for _ in range(REDIRECTIONS):
            packed = [command.packed]
            if isinstance(answer, MovedError):
                await self._client.nodes_manager.move_slot(answer)
                node = self._client.get_node_from_key(command.key)  # type: ignore[arg-type]
            elif isinstance(answer, AskError):
                node = self._client.get_node(answer.host, answer.port)
                packed.insert(0, ASKING)
            else:
                break
            if node is None:
                self._must_look = True
                break
            answer = (await self._ask(node, packed, self._durability.converse))[-1]
        return answer

    @staticmethod
    async def _ask(node: ClusterNode, packed: Sequence[bytes], by: Converse) -> list[Any]:
        connection = node.acquire_connection()
        try:
            await node.disconnect_if_needed(connection)
            return await by(connection, packed)
        finally:
            node.release(connection)
