"""Members of libraries that are not part of their documented interfaces, and that we use all the same.

An upgrade that changes one of them fails here, by name. The versions are bounded in pyproject.toml.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import pytest
from aiokafka import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from redis.asyncio.cluster import ClusterNode, NodesManager, RedisCluster
from redis.asyncio.connection import Connection, SSLConnection
from redis.connection import SSLConnection as SyncSSLConnection

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [ROOT / "sidecar", ROOT / "pipeline"]
# `SplitResult._replace` and `frame._jdf` are documented by Python and Spark.
DOCUMENTED = {"_replace", "_asdict", "_jvm", "_jdf"}
USED = {
    "_transport",  # nats: the client keeps a transport that is there
    "_flush_pending",  # nats: what the library still has to send goes first
    "_io_writer",  # nats: to abort the transport
    "_bare_io_writer",
    "_conns",  # aiokafka: the client's connections
    "_writer",  # aiokafka and redis: the stream of a connection
}
BOUNDED = {"nats-py[nkeys]", "redis", "aiokafka"}


def test_the_list_of_private_members_is_complete() -> None:
    found = set()
    for root in SOURCES:
        for path in root.rglob("*.py"):
            for line in path.read_text().splitlines():
                if "noqa: SLF001" in line or "_io_writer" in line:
                    found |= set(re.findall(r"(?<!\bself)\.(_[a-z]\w*)", line))
    assert found - DOCUMENTED <= USED


def test_nats_takes_a_transport_that_is_there() -> None:
    source = inspect.getsource(Client._connect_to_server)
    assert "if not self._transport" in source
    assert "force_flush" in inspect.signature(Client._flush_pending).parameters


def test_the_transport_of_nats_can_be_taken_over() -> None:
    transport = TcpTransport()
    assert (transport._io_writer, transport._bare_io_writer) == (None, None)
    for name in ("connect", "connect_tls", "read", "write", "drain"):
        assert callable(getattr(transport, name)), name
    assert list(inspect.signature(TcpTransport.read).parameters) == ["self", "buffer_size"]


def test_connections_of_redis_have_a_writer_and_a_context_of_ours() -> None:
    assert Connection(host="h")._writer is None
    assert hasattr(SSLConnection(host="h").ssl_context, "context")
    parameters = inspect.signature(SyncSSLConnection._wrap_socket_with_ssl).parameters
    assert list(parameters) == ["self", "sock"]
    assert "_wrap_socket_with_ssl" in inspect.getsource(SyncSSLConnection._connect)


def test_clusters_of_redis_have_what_we_reach_for() -> None:
    cluster = RedisCluster(host="h", port=1)
    assert cluster.connection_kwargs is not None
    assert all(hasattr(node, "connection_class") for node in cluster.startup_nodes)
    for name in ("acquire_connection", "release", "disconnect_if_needed"):
        assert callable(getattr(ClusterNode, name)), name
    assert callable(NodesManager.move_slot)


def test_the_client_of_kafka_has_connections() -> None:
    assert "self._conns = {}" in inspect.getsource(AIOKafkaClient.__init__)
    assert "_writer" in inspect.getsource(AIOKafkaConnection)
    for name in ("ready", "send", "set_topics", "force_metadata_update", "bootstrap"):
        assert callable(getattr(AIOKafkaClient, name)), name
    assert "request_timeout_ms" in inspect.signature(AIOKafkaConnection).parameters
    assert callable(AIOKafkaConnection.authenticator_oauth)
    for name in ("append", "build", "set_producer_state"):
        assert callable(getattr(DefaultRecordBatchBuilder, name)), name


@pytest.mark.parametrize("extra", ["server", "spark"])
def test_versions_of_these_libraries_are_bounded(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["optional-dependencies"][extra]:
        name = re.split(r"[<>=]", requirement)[0]
        if name in BOUNDED:
            assert "<" in requirement, requirement
