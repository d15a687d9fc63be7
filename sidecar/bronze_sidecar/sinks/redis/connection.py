"""Connects to Redis, one server, the primary of several, or a cluster, as the options say."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from bronze_buses.errors import Refused
from bronze_buses.redis import encrypting, error_text, opening_error
from bronze_buses.tls import client_context
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import Connection, parse_url
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.sinks.base import delivery_error
from bronze_sidecar.sinks.redis.durability import Durability
from bronze_sidecar.sinks.redis.link import (
    ANSWER_SECONDS,
    Cluster,
    IsReplaced,
    Link,
    SingleServer,
    ask,
    close,
    pack,
)
from bronze_sidecar.sinks.redis.sentinels import find_primary

if TYPE_CHECKING:
    from bronze_sidecar.sinks.redis.options import Redis

CONNECT_SECONDS = 5.0
# The server's defaults; an operator may lower both to 1 MiB.
DEFAULT_VALUE_LIMIT = 512 * 1024 * 1024
DEFAULT_BUFFER_LIMIT = 1024 * 1024 * 1024


@contextlib.asynccontextmanager
async def connect(options: Redis) -> AsyncIterator[tuple[Link, Connection]]:
    """Connect; yield the link, and a connection to ask the server about itself."""
    settings = Settings(options)
    if options.sentinels:
        settings.host, settings.port = await find_primary(options, settings.sentinel)
    durability = Durability(aof=options.wait_aof, replicas=options.wait_replicas)
    connection = settings.connection()
    try:
        facts = await _greet(connection, settings)
        is_cluster, is_replica = (
            facts.get(b"mode") == b"cluster",
            facts.get(b"role") in {b"replica", b"slave"},
        )
        if is_cluster and options.sentinels:
            raise Permanent("--redis-sentinels cannot be used with a Redis cluster: use --redis-host")
        if is_replica and not is_cluster:
            raise Transient("the server is a replica, which accepts no writes")
        if not is_replica:
            await durability.check(connection)
        if is_cluster:
            async with _connect_to_cluster(settings, connection, durability) as cluster:
                yield cluster, connection
        else:
            yield SingleServer(connection, durability, _is_replaced(options, settings)), connection
    finally:
        await close(connection)


def _is_replaced(options: Redis, settings: Settings) -> IsReplaced | None:
    """Return how to find out whether another server is the primary now."""
    if not options.sentinels:
        return None

    async def ask_sentinels() -> bool:
        try:
            return await find_primary(options, settings.sentinel) != (settings.host, settings.port)
        except DeliveryError:
            return False

    return ask_sentinels


class Settings:
    """Settings for redis-py, from the options or from the URL."""

    def __init__(self, options: Redis) -> None:
        try:
            url: Any = parse_url(options.url) if options.url else {}
        except ValueError as error:
            raise Permanent(f"--redis-url cannot be used: {error}") from None
        self.host = url.get("host", options.host)
        self.port = url.get("port", options.port)
        self.db = int(url.get("db", options.db))
        self.username = url.get("username", options.username)
        self.password = url.get("password", options.password)
        self.credential_options = "--redis-username and --redis-password"
        if "username" in url or "password" in url:
            self.credential_options = "the user and password in --redis-url"
        self.db_option = "--redis-url" if "db" in url else "--redis-db"
        self.encrypted = options.is_encrypted
        self._class = encrypting(_tls_context(options)) if self.encrypted else Connection
        self._sentinel_login = {"username": options.sentinel_username, "password": options.sentinel_password}

    def sentinel(self, host: str, port: int) -> Connection:
        return self._class(host=host, port=port, **self._common() | self._sentinel_login)

    def connection(self) -> Connection:
        return self._class(host=self.host, port=self.port, db=self.db, **self._common())

    def cluster(self) -> RedisCluster:
        cluster = RedisCluster(host=self.host, port=self.port, **self._common())
        # The constructor does not take a connection class.
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
    try:
        return client_context(options, "--redis-tls")
    except Refused as error:
        raise Permanent(str(error)) from error


async def _greet(connection: Connection, settings: Settings) -> dict[bytes, Any]:
    """Connect, and return what the server says about itself; any user may ask for that."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await connection.connect()  # type: ignore[no-untyped-call]
            try:
                facts = await ask(connection, pack(b"HELLO"))
            except ResponseError:
                return {}  # older than clusters with access control lists
    except TimeoutError as error:
        hint = " with TLS, see --redis-tls" if settings.encrypted and not connection.is_connected else ""
        raise Transient(f"{settings.host}:{settings.port} does not answer{hint}") from error
    except (RedisError, OSError) as error:
        raise _cannot_open(error, settings) from error
    return dict(zip(facts[::2], facts[1::2], strict=True))


def _cannot_open(error: Exception, settings: Settings) -> DeliveryError:
    if settings.db and isinstance(error, ResponseError) and not isinstance(error, AuthenticationError):
        text = error_text(error)
        return Permanent(f"the server refuses database {settings.db} from {settings.db_option}: {text}")
    where = f"Redis at {settings.host}:{settings.port}"
    return delivery_error(opening_error(error, where, settings.credential_options))


async def may_run(connection: Connection, *commands: tuple[bytes, ...]) -> bool:
    """Return whether the user may run commands and the server knows them, by running them."""
    try:
        for command in commands:
            await ask(connection, pack(*command))
    except NoPermissionError:
        return False
    except RedisError as error:
        if "unknown command" in str(error) or "scripting engine" in str(error):
            return False
        raise Transient(error_text(error)) from error
    return True


async def value_limit(connection: Connection) -> int:
    """Return the maximum length of a value; the default if the server does not say."""
    longest = await _setting(connection, b"proto-max-bulk-len", DEFAULT_VALUE_LIMIT)
    # A value is read into the query buffer, with its line end; the server hangs up when that is full.
    buffer = await _setting(connection, b"client-query-buffer-limit", DEFAULT_BUFFER_LIMIT)
    return min(longest, buffer - 2)


async def _setting(connection: Connection, name: bytes, default: int) -> int:
    try:
        answer = await ask(connection, pack(b"CONFIG", b"GET", name))
        return int(answer[1])
    except (ResponseError, IndexError, ValueError):
        return default
    except RedisError as error:
        raise Transient(error_text(error)) from error


@contextlib.asynccontextmanager
async def _connect_to_cluster(
    settings: Settings, connection: Connection, durability: Durability
) -> AsyncIterator[Cluster]:
    if settings.db:
        raise Permanent(f"a Redis cluster has no database {settings.db}, see {settings.db_option}")
    # redis-py runs both, and reports that there is no cluster if the user may not run them.
    if not await may_run(connection, (b"CLUSTER", b"SLOTS"), (b"COMMAND",)):
        raise Permanent("the user of --redis-username may not run CLUSTER SLOTS and COMMAND")
    client = settings.cluster()
    try:
        cluster = Cluster(client, durability)
        try:
            await cluster.look()
        except Disconnected as error:
            raise Transient(str(error)) from error
        yield cluster
    finally:
        with contextlib.suppress(RedisError):
            await client.aclose()
