"""Servers for the tests that need them; see servers.py for where they come from."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest
import servers

Native = TypeVar("Native", bound=servers.NativeServer | servers.RedisCluster)


def pytest_report_header() -> str:
    return "servers: " + ", ".join(kind.description() for kind in (servers.NATS, servers.REDIS))


def missing(reason: servers.Unavailable) -> NoReturn:
    """Skip the test; fail it where real servers are required."""
    if os.environ.get("REQUIRE_REAL_SERVERS") == "1":
        pytest.fail(f"REQUIRE_REAL_SERVERS is set, and {reason}", pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Endpoint]:
    """Return a Redis server that tests share: use keys that no other test uses, and change no settings."""
    yield from _shared(servers.REDIS, tmp_path_factory)


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Endpoint]:
    """Return a NATS server that tests share: use subjects and streams that no other test uses."""
    yield from _shared(servers.NATS, tmp_path_factory)


def _shared(kind: servers.Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Endpoint]:
    directory = tmp_path_factory.mktemp(kind.name)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            endpoint = stack.enter_context(servers.shared_server(kind, directory))
        except servers.Unavailable as reason:
            missing(reason)
        yield endpoint


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> servers.Certificates:
    return servers.make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def start_redis(tmp_path: Path) -> Iterator[Callable[..., servers.RedisServer]]:
    """Return a function that starts a Redis server of the test's own, with more arguments if given."""
    yield from _starter(servers.RedisServer, tmp_path)


@pytest.fixture
def start_redis_cluster(tmp_path: Path) -> Iterator[Callable[..., servers.RedisCluster]]:
    """Return a function that starts a Redis cluster of three of the test's own."""
    yield from _starter(servers.RedisCluster, tmp_path)


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[Callable[..., servers.NatsServer]]:
    """Return a function that starts a NATS server of the test's own, with more arguments if given."""
    yield from _starter(servers.NatsServer, tmp_path)


def _starter(kind: type[Native], tmp_path: Path) -> Iterator[Callable[..., Native]]:
    numbers = itertools.count(1)
    with ExitStack() as stack:

        def start(*arguments: str, **settings: object) -> Native:
            directory = tmp_path / f"{kind.__name__}-{next(numbers)}"
            try:
                server = kind(directory, *arguments, **settings)  # type: ignore[arg-type]
            except servers.Unavailable as reason:
                missing(reason)
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            stack.callback(server.stop)
            return server.start()  # type: ignore[return-value]

        yield start
