"""Connections to Redis, one server or a cluster: made by redis-py, written to with ready-made commands."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import hiredis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection, parse_url
from redis.exceptions import (
    AskError,
    AuthenticationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient

if TYPE_CHECKING:
    from bronze_sidecar.sinks.redis import Redis

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""How long a write may take; a server that is silent for longer is taken for gone."""

LOST = frozenset({"LOADING", "MASTERDOWN", "NOAUTH", "READONLY"})
"""Answers of a server that takes no writes at present; another may have its place when one connects anew."""

REFUSED = frozenset({"NOPERM", "WRONGTYPE"})
"""Answers that are the same for whatever else is written to the key."""

# What the server is built with; an operator may lower it to 1 MiB.
DEFAULT_VALUE_LIMIT = 512 * 1024 * 1024
VALUE_TOO_LARGE = "invalid bulk length"


def pack(*words: bytes) -> bytes:
    """Return a command as it is sent."""
    return b"*%d\r\n" % len(words) + b"".join(map(bulk, words))


def bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


class Command(NamedTuple):
    """A command in the form in which it is sent, and a key that says which node it is for."""

    key: bytes
    packed: bytes


PING = Command(b"", pack(b"PING"))


class Link(Protocol):
    """A connected server or cluster."""

    one_node: bool
    """Whether a command may name keys of any slot."""

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands; return the answer to each, or the exception that stands for it."""

    async def ping(self) -> None:
        """Return if the server, or each node, answers; raise Disconnected if not."""


def classify(error: Exception) -> DeliveryError:
    """Say what an answer of the server, or its absence, means for what was sent."""
    if isinstance(error, DeliveryError):
        return error
    if not isinstance(error, ResponseError):
        return Disconnected(_text(error))
    return classify_text(_text(error))


def classify_text(text: str) -> DeliveryError:
    """Say what an error that the server gave means."""
    code = text.partition(" ")[0]
    if "to run the 'eval" in text:
        return Disconnected(text)  # to be opened as for a user who may not run scripts
    if code in REFUSED:
        return Permanent(text)
    return Disconnected(text) if code in LOST else Transient(text)


def _text(error: BaseException) -> str:
    # redis-py keeps the codes that it knows apart from the text.
    code = getattr(error, "status_code", None)
    text = str(error) or type(error).__name__
    return f"{code} {text}" if code and not text.startswith(code) else text


# -- connecting


@contextlib.asynccontextmanager
async def connect(options: Redis) -> AsyncIterator[tuple[Link, Connection]]:
    """Connect; yield the link, and a connection to ask the server about itself."""
    settings = Settings(options)
    connection = settings.connection()
    try:
        facts = await _greet(connection, settings)
        if facts.get(b"mode") == b"cluster":
            async with _connect_to_cluster(settings) as cluster:
                yield cluster, connection
        elif facts.get(b"role") in {b"replica", b"slave"}:
            raise Transient("the server is a replica, which takes no writes")
        else:
            yield Server(connection), connection
    finally:
        await _close(connection)


class Settings:
    """What redis-py is told, from the options or from the URL."""

    def __init__(self, options: Redis) -> None:
        url: Any = parse_url(options.url) if options.url else {}
        self.host = url.get("host", options.host)
        self.port = url.get("port", options.port)
        self.db = int(url.get("db", options.db))
        self.username = url.get("username", options.username)
        self.password = url.get("password", options.password)
        self.credential_options = "--redis-username and --redis-password"
        if "username" in url or "password" in url:
            self.credential_options = "the user and password in --redis-url"
        self.db_option = "--redis-url" if "db" in url else "--redis-db"
        self.encrypted = options.tls or (options.url or "").startswith("rediss:")
        self._class = _encrypting(_tls_context(options)) if self.encrypted else Connection

    def connection(self) -> Connection:
        return self._class(host=self.host, port=self.port, db=self.db, **self._common())

    def cluster(self) -> RedisCluster:
        cluster = RedisCluster(host=self.host, port=self.port, **self._common())
        # The class of connections is not among what the constructor takes.
        cluster.connection_kwargs["connection_class"] = self._class
        for node in cluster.startup_nodes:
            node.connection_class = self._class
        return cluster

    def _common(self) -> dict[str, Any]:
        return {
            "username": self.username,
            "password": self.password,
            "socket_timeout": ANSWER_SECONDS,
            "socket_connect_timeout": CONNECT_SECONDS,
            "protocol": 2,
        }


def _tls_context(options: Redis) -> ssl.SSLContext:
    ca_file, certificate = options.tls_ca_file, options.tls_cert_file
    try:
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except OSError as error:
        raise Permanent(f"--redis-tls-ca-file cannot be used: {error}") from error
    if certificate is not None and options.tls_key_file is not None:
        try:
            context.load_cert_chain(certificate, options.tls_key_file, password="")
        except OSError as error:
            raise Permanent(
                f"--redis-tls-cert-file and --redis-tls-key-file cannot be used: {error}"
            ) from error
    return context


def _encrypting(context: ssl.SSLContext) -> type[Connection]:
    """Return a class of connections with a context of ours: redis-py's always trusts the system's, too."""

    class Encrypting(SSLConnection):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.ssl_context.context = context

    return Encrypting


async def _greet(connection: Connection, settings: Settings) -> dict[bytes, Any]:
    """Connect, and return what the server says of itself; any user may ask for that."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect()  # type: ignore[no-untyped-call]
            try:
                facts = await ask(connection, b"HELLO")
            except ResponseError:
                return {}  # older than clusters with access control lists
    except TimeoutError as error:
        hint = " by TLS, see --redis-tls" if settings.encrypted and not connection.is_connected else ""
        raise Transient(f"{settings.host}:{settings.port} does not answer{hint}") from error
    except (RedisError, OSError) as error:
        raise _cannot_open(error, settings) from error
    return dict(zip(facts[::2], facts[1::2], strict=True))


def _cannot_open(error: Exception, settings: Settings) -> DeliveryError:
    text = _text(error)
    if isinstance(error, AuthenticationError):
        return Permanent(f"the server refuses {settings.credential_options}: {text}")
    if settings.db and isinstance(error, ResponseError):
        return Permanent(f"the server refuses database {settings.db} of {settings.db_option}: {text}")
    cause = _tls_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Permanent(
            f"the server's certificate is not trusted, see --redis-tls-ca-file: {cause.verify_message}"
        )
    if cause is not None:
        return Transient(f"TLS fails, see --redis-tls: {cause}")
    return Transient(text)


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


async def ask(connection: Connection, *words: bytes) -> Any:
    """Send one command; return the answer."""
    await connection.send_packed_command(pack(*words))
    return await connection.read_response()


async def may_run(connection: Connection, *commands: tuple[bytes, ...]) -> bool:
    """Tell whether the user may run commands, and the server knows them, by running them."""
    try:
        for command in commands:
            await ask(connection, *command)
    except NoPermissionError:
        return False
    except ResponseError as error:
        if "unknown command" in str(error):
            return False
        raise
    return True


async def value_limit(connection: Connection) -> int:
    """Return how long a value may be; the default if the server does not say."""
    try:
        answer = await ask(connection, b"CONFIG", b"GET", b"proto-max-bulk-len")
        return int(answer[1])
    except (ResponseError, IndexError, ValueError):
        return DEFAULT_VALUE_LIMIT


async def _converse(connection: Connection, packed: Sequence[bytes]) -> list[Any]:
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
    """Connect if need be; break the connection off if anything goes wrong.

    The library only closes it, and that waits until the server has read what is still to be sent: a frozen
    one would hold the socket and the memory, and store the entries behind later ones when it goes on.
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


async def _close(connection: Connection) -> None:
    writer = connection._writer  # noqa: SLF001 - there is no other way to it
    with contextlib.suppress(RedisError):
        await connection.disconnect()
    if writer is not None:
        writer.transport.abort()


def _expect_answers(answers: Sequence[Any]) -> None:
    for answer in answers:
        # Also "no permission" is an answer.
        error = classify(answer) if isinstance(answer, Exception) else None
        if isinstance(error, Disconnected):
            raise error


class Server:
    """One server, through one connection."""

    one_node = True

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        # redis-py would connect anew by itself, and hide that answers were lost.
        if not self._connection.is_connected:
            return [Disconnected("the connection is closed")] * len(commands)
        return await _converse(self._connection, [command.packed for command in commands])

    async def ping(self) -> None:
        _expect_answers(await self.exchange([PING]))


# -- clusters


@contextlib.asynccontextmanager
async def _connect_to_cluster(settings: Settings) -> AsyncIterator[Cluster]:
    if settings.db:
        raise Permanent(f"a Redis cluster has no database {settings.db}, see {settings.db_option}")
    client = settings.cluster()
    try:
        yield await Cluster.of(client)
    finally:
        with contextlib.suppress(RedisError):
            await client.aclose()


class Cluster:
    """A cluster: commands go to the nodes that hold their keys, to all of them at once."""

    one_node = False

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        self._must_look = False

    @classmethod
    async def of(cls, client: RedisCluster) -> Cluster:
        cluster = cls(client)
        await cluster._look()
        return cluster

    async def _look(self) -> None:
        """Ask the nodes that are known who holds which slots."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._client.aclose()
                await self._client.initialize()
        except TimeoutError as error:
            raise Disconnected("the cluster does not answer") from error
        except (RedisError, RedisClusterException, OSError) as error:
            raise Disconnected(_text(error)) from error
        self._must_look = False

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        if self._must_look:
            try:
                await self._look()
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
        answers = await asyncio.gather(*(self._ask(node, [PING.packed]) for node in nodes))
        _expect_answers([answer for each in answers for answer in each])

    async def _converse(
        self, node: ClusterNode, commands: Sequence[Command], answers: list[Any], places: list[int]
    ) -> None:
        heard = await self._ask(node, [commands[place].packed for place in places])
        for place, answer in zip(places, heard, strict=True):
            moved = isinstance(answer, AskError | TryAgainError)
            answers[place] = await self._follow(commands[place]) if moved else answer

    async def _ask(self, node: ClusterNode, packed: Sequence[bytes]) -> list[Any]:
        connection = node.acquire_connection()
        try:
            await node.disconnect_if_needed(connection)
            return await _converse(connection, packed)
        finally:
            node.release(connection)

    async def _follow(self, command: Command) -> Any:
        """Let redis-py find the node that has the key by now, and remember it."""
        reader = hiredis.Reader()
        reader.feed(command.packed)
        words: Any = reader.gets()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._client.execute_command(words[0].decode(), *words[1:])
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            return error
