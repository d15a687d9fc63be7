"""Servers for the tests that need them; see servers.py for where they come from."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, TypeVar

import aws_servers
import browser
import clients
import kafka_servers
import pytest
import redis_groups
import servers
from hypothesis import settings

# A busy machine must not fail an example for its time.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

Native = TypeVar(
    "Native",
    bound=servers.NativeServer
    | servers.RedisCluster
    | servers.NatsCluster
    | redis_groups.RedisSentinels
    | redis_groups.ReplicatedCluster,
)
Broker = TypeVar("Broker", bound=kafka_servers.KafkaServer | kafka_servers.KafkaCluster)


def pytest_report_header() -> str:
    kinds = [kind.description() for kind in (servers.NATS, servers.REDIS)]
    return "servers: " + ", ".join(
        [*kinds, kafka_servers.kafka_description(), aws_servers.description(), browser.description()]
    )


# Of minutes each. They begin, so that no worker has one left when the others are done.
LONGEST = {"test_demo.py", "test_kill.py", "test_submit.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    # Thousands of tests, and what they import, stay: no collection of garbage need look at them again.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def node_driver() -> Iterator[clients.NodeDriver]:
    """Return the Node process that the tests of the Node client share."""
    driver = clients.NodeDriver()
    yield driver
    driver.stop()


@pytest.fixture
def node_client(node_driver: clients.NodeDriver) -> Iterator[clients.NodeClient]:
    client = clients.NodeClient(node_driver)
    with client.watched():
        yield client


@pytest.fixture(params=["python", "node"])
def client(request: pytest.FixtureRequest) -> Iterator[clients.ClientUnderTest]:
    """Return each client in turn: they do the same."""
    if request.param == "node":
        yield request.getfixturevalue("node_client")
    else:
        python = clients.PythonClient()
        with python.watched():
            yield python


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


@pytest.fixture(scope="session")
def aws_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Endpoint]:
    """Return an emulator of AWS that tests share: use streams and queues that no other test uses."""
    with ExitStack() as stack:
        try:
            yield stack.enter_context(aws_servers.shared_emulator(tmp_path_factory.mktemp("aws")))
        except servers.Unavailable as reason:
            missing(reason)


@pytest.fixture
def aws_relay(tmp_path: Path, aws_emulator: servers.Endpoint) -> Iterator[aws_servers.Relay]:
    """Return a proxy of the test's own, to be killed and frozen in place of the emulator."""
    relay = aws_servers.Relay(tmp_path / "relay", host=aws_emulator.host, port=aws_emulator.port)
    try:
        yield relay.start()
    finally:
        relay.stop()


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
def start_redis_sentinels(tmp_path: Path) -> Iterator[Callable[..., redis_groups.RedisSentinels]]:
    """Return a function that starts a primary, two replicas and three sentinels."""
    yield from _starter(redis_groups.RedisSentinels, tmp_path)


@pytest.fixture
def start_replicated_cluster(tmp_path: Path) -> Iterator[Callable[..., redis_groups.ReplicatedCluster]]:
    """Return a function that starts a Redis cluster of three primaries with a replica each."""
    yield from _starter(redis_groups.ReplicatedCluster, tmp_path)


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[Callable[..., servers.NatsServer]]:
    """Return a function that starts a NATS server of the test's own, with more arguments if given."""
    yield from _starter(servers.NatsServer, tmp_path)


@pytest.fixture
def start_nats_cluster(tmp_path: Path) -> Iterator[Callable[..., servers.NatsCluster]]:
    """Return a function that starts three NATS servers that work together."""
    yield from _starter(servers.NatsCluster, tmp_path)


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


# -- Kafka: starting a broker takes seconds, so tests share as much as they can


@pytest.fixture(scope="session")
def kafka_broker(
    tmp_path_factory: pytest.TempPathFactory, certificates: servers.Certificates
) -> Iterator[kafka_servers.KafkaServer]:
    """Return a broker with all kinds of listeners that tests share: use topics that no other test uses."""
    yield from _kafka(kafka_servers.KafkaServer, tmp_path_factory, certificates=certificates)


@pytest.fixture(scope="session")
def kafka_server(request: pytest.FixtureRequest) -> Iterator[kafka_servers.KafkaEndpoint]:
    """Return brokers that tests share, wherever they come from."""
    try:
        provider = kafka_servers.kafka_provider()
    except servers.Unavailable as reason:
        missing(reason)
    if provider == "native":
        broker = request.getfixturevalue("kafka_broker")
        yield kafka_servers.KafkaEndpoint(broker.brokers, provider)
    elif provider == "address":
        yield kafka_servers.KafkaEndpoint(os.environ[kafka_servers.VARIABLE], provider)
    else:
        with (
            kafka_servers.container() if provider == "container" else kafka_servers.mock_cluster() as endpoint
        ):
            yield endpoint


@pytest.fixture(scope="session")
def spare_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_servers.KafkaServer]:
    yield from _kafka(kafka_servers.KafkaServer, tmp_path_factory)


@pytest.fixture(scope="session")
def spare_kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_servers.KafkaCluster]:
    yield from _kafka(kafka_servers.KafkaCluster, tmp_path_factory)


@pytest.fixture(scope="session")
def narrow_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_servers.KafkaServer]:
    """Return a broker that hangs up when it is sent more than 200,000 bytes at once."""
    yield from _kafka(kafka_servers.NarrowKafka, tmp_path_factory)


@pytest.fixture
def own_kafka(spare_kafka: kafka_servers.KafkaServer) -> Iterator[kafka_servers.KafkaServer]:
    """Return a broker to kill, start again and freeze, which has topics of other tests."""
    yield from _in_order(spare_kafka)


@pytest.fixture
def kafka_cluster(spare_kafka_cluster: kafka_servers.KafkaCluster) -> Iterator[kafka_servers.KafkaCluster]:
    """Return three brokers to kill and start again, which make no topics by themselves."""
    yield from _in_order(spare_kafka_cluster)


def _in_order(server: Broker) -> Iterator[Broker]:
    server.ensure_running()
    yield server
    server.thaw_if_running()


def _kafka(
    kind: Callable[..., Broker], factory: pytest.TempPathFactory, **settings: object
) -> Iterator[Broker]:
    directory = factory.mktemp("kafka")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            server = kind(directory / "broker", **settings)
        except servers.Unavailable as reason:
            missing(reason)
        stack.callback(server.stop)
        server.start()
        yield server
