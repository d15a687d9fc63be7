"""Kafka for tests: a broker at an address that one gives, in a container, or as a native process.

`TEST_KAFKA_BROKERS` names brokers that run already; otherwise `TEST_SERVERS` decides, as in servers.py.
Where there is none of these, librdkafka's mock cluster serves the tests that need no more than a topic.
A native broker is Apache Kafka from the jars that tools/install-kafka.sh puts into .cache/kafka.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import containers
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from servers import HOST, START_SECONDS, Certificates, NativeServer, Unavailable, free_port

FOLDER = Path(__file__).parent.parent / ".cache" / "kafka"
IMAGE = "apache/kafka:4.1.1"
VARIABLE = "TEST_KAFKA_BROKERS"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

USER, PASSWORD = "app", "correct-horse"
SCOPE = "bronze"
"""What a token must be good for."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECURE_LISTENERS = {
    "SASL": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MTLS": "SSL",
    "SASLTLS": "SASL_SSL",
    "OAUTH": "SASL_PLAINTEXT",
    "PROXIED": "PLAINTEXT",
}

# Quick to notice a loss and to recover from it, without mistaking a loaded machine for one.
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def kafka_classpath() -> str:
    jars = sorted(str(jar) for jar in (FOLDER / "libs").glob("*.jar"))
    if not jars:
        raise Unavailable("there is no Kafka in .cache/kafka: run tools/install-kafka.sh")
    return ":".join(jars)


def java_program() -> str:
    program = shutil.which("java")
    if program is None:
        raise Unavailable("there is no java on this machine")
    return program


class KafkaServer(NativeServer):
    """A broker of a test's own, which is its own controller; arguments are settings, as `name=value`.

    With certificates it also listens with TLS, asking clients for certificates or not, with SASL, and, as if
    it is to be proxied, behind what a test runs at `proxy_port`.
    """

    scheme = "kafka"

    def __init__(
        self,
        directory: Path,
        *settings: str,
        certificates: Certificates | None = None,
        voters: dict[int, int] | None = None,
        node: int = 1,
        is_proxied: bool = False,
    ) -> None:
        super().__init__(directory)
        self._java = java_program()
        self._classpath = kafka_classpath()
        self.node = node
        self._voters = voters or {node: free_port()}
        self._certificates = certificates
        listeners = SECURE_LISTENERS if certificates else ["PROXIED"] if is_proxied else []
        self.ports = {name: free_port() for name in listeners}
        self.proxy_port = free_port()
        self._settings = settings

    @property
    def brokers(self) -> str:
        return f"{HOST}:{self.port}"

    def listener(self, name: str) -> str:
        return f"{HOST}:{self.ports[name]}"

    def command(self) -> Sequence[str]:
        fast = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={FOLDER}/classes.jsa")
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        memory = ("-Xms64m", "-Xmx512m")
        java = [self._java, *fast, *memory, logging, "-cp", self._classpath]
        return [*java, "kafka.Kafka", str(self.directory / "server.properties")]

    def _launch(self) -> None:
        data = self.directory / "data"
        if not data.exists():
            # What `kafka-storage format` would write; starting Java for that takes as long as the broker.
            data.mkdir(parents=True)
            facts = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={self.node}\n"
            (data / "meta.properties").write_text(facts)
        settings = {**SETTINGS, **self._own_settings(data), **self._secure_settings()}
        settings |= dict(setting.split("=", 1) for setting in self._settings)
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "server.properties").write_text(text)
        super()._launch()

    def _own_settings(self, data: Path) -> dict[str, str]:
        ports = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        advertised = listeners.replace(f":{self.ports.get('PROXIED')}", f":{self.proxy_port}")
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **SECURE_LISTENERS}
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            "controller.quorum.voters": ",".join(f"{n}@{HOST}:{port}" for n, port in self._voters.items()),
            "listeners": f"{listeners},CONTROLLER://{HOST}:{self._voters[self.node]}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            "log.dirs": str(data),
        }

    def _secure_settings(self) -> dict[str, str]:
        files = self._certificates
        if files is None:
            return {}
        key_and_chain = self.directory / "key-and-chain.pem"
        key_and_chain.write_bytes(_pkcs8(files.server_key_file) + files.server_cert_file.read_bytes())
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_and_chain),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.ca_file),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        }
        modules = "org.apache.kafka.common.security"
        # Kafka's own validator of tokens without a signature.
        settings |= {
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.connections.max.reauth.ms": "3600000",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": (
                f"{modules}.oauthbearer.OAuthBearerLoginModule required"
                f' unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="{SCOPE}";'
            ),
        }
        for listener in ("sasl", "sasltls"):
            plain = f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            settings[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
            for mechanism in MECHANISMS[1:]:
                name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                settings[name] = f"{modules}.scram.ScramLoginModule required;"
        return settings

    def start(self) -> Self:
        starts_first = not self.log.exists()
        super().start()
        if starts_first and self._certificates:
            add_scram_user(self.brokers)
        return self

    def launch(self) -> None:
        """Start, and do not wait."""
        self._launch()

    def wait(self) -> None:
        """Return when the broker serves."""
        if not self._wait_for_answer():
            raise RuntimeError(f"the broker did not start:\n{self.log.read_text()}")

    def answers(self) -> bool:
        return known_brokers(HOST, self.port) > len(self._voters) // 2

    def ensure_running(self) -> None:
        """Start it if a test has ended it, or has started it in a thread that has ended since."""
        if self._process is not None and not self._wait_for_answer():
            self.stop()
        if self._process is None:
            self.start()

    def thaw_if_running(self) -> None:
        if self._process is not None:
            self.thaw()

    def stop(self) -> None:
        # An orderly end takes a broker several seconds, and no test looks at it.
        if self._process is not None:
            self.kill()


def _pkcs8(key_file: Path) -> bytes:
    """Kafka reads no other form of a private key."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - comes with trustme

    key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class NarrowKafka(KafkaServer):
    """A broker that hangs up when it is sent over 200,000 bytes at once, and makes no topics by itself."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "socket.request.max.bytes=200000", "auto.create.topics.enable=false")


class KafkaCluster:
    """Three brokers that hold three copies of each partition; topics are not made by themselves."""

    def __init__(self, directory: Path, *settings: str, is_proxied: bool = False) -> None:
        voters = {node: free_port() for node in (1, 2, 3)}
        copies = ("default.replication.factor=3", "min.insync.replicas=2", "auto.create.topics.enable=false")
        self.nodes = [
            KafkaServer(
                directory / str(node),
                *(*copies, *settings),
                voters=voters,
                node=node,
                is_proxied=is_proxied,
            )
            for node in voters
        ]

    @property
    def brokers(self) -> str:
        return ",".join(node.brokers for node in self.nodes)

    def start(self) -> Self:
        # Not one after the other: a broker serves when most of them have found each other.
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait()
        return self

    def ensure_running(self) -> None:
        for node in self.nodes:
            node.ensure_running()

    def thaw_if_running(self) -> None:
        for node in self.nodes:
            node.thaw_if_running()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def leader(self, topic: str, partition: int) -> KafkaServer:
        """Return the broker that leads a partition."""
        facts = admin(self.brokers).list_topics(topic, timeout=60).topics[topic].partitions[partition]
        return next(node for node in self.nodes if node.node == facts.leader)


def known_brokers(host: str, port: int) -> int:
    """Ask for metadata without a library; return how many brokers serve, as far as this one knows."""
    question = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i?", 0, False)
    with socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(struct.pack(">i", len(question)) + question)
        answer = connection.recv(4096)
    if len(answer) < 16:
        return 0
    count: int = struct.unpack_from(">i", answer, 12)[0]
    return count


# -- clients by another library than the sidecar's


def admin(brokers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers, "log_level": 0})


def add_scram_user(brokers: str) -> None:
    kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    changes = [
        UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
        for kind in kinds
    ]
    client = admin(brokers)
    for change in changes:
        for done in client.alter_user_scram_credentials([change]).values():
            done.result(60)


def create_topic(brokers: str, name: str, partitions: int = 1, *, copies: int = -1, **settings: str) -> None:
    """Create a topic, and wait until its partitions have leaders."""
    client = admin(brokers)
    config = {setting.replace("_", "."): value for setting, value in settings.items()}
    topic = NewTopic(name, partitions, copies, config=config)
    for done in client.create_topics([topic]).values():
        done.result(60)
    deadline = time.monotonic() + 60
    while True:
        known = client.list_topics(name, timeout=60).topics[name].partitions
        if len(known) == partitions and all(each.leader >= 0 for each in known.values()):
            return
        assert time.monotonic() < deadline, f"{name} has no leaders"
        time.sleep(0.02)


def delete_topic(brokers: str, name: str) -> None:
    """Delete a topic, and wait until the brokers know of it no more."""
    client = admin(brokers)
    for done in client.delete_topics([name]).values():
        done.result(60)
    while name in client.list_topics(timeout=60).topics:
        time.sleep(0.02)


def alter_topic(brokers: str, name: str, setting: str, value: str) -> None:
    """Change one of a topic's settings."""
    change = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])
    client = admin(brokers)
    for done in client.incremental_alter_configs([resource]).values():
        done.result(60)


@dataclass(frozen=True)
class Kept:
    """A record as a plain consumer read it."""

    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def read_topic(brokers: str, topic: str, **more: Any) -> list[Kept]:
    """Return what a topic holds, partition by partition, in order."""
    settings = {
        "bootstrap.servers": brokers,
        "group.id": "reader",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
        "log_level": 0,
        **more,
    }
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        places = [TopicPartition(topic, number, 0) for number in sorted(known)]
        ends = {place.partition: _end(consumer, place) for place in places}
        kept: dict[int, list[Kept]] = {number: [] for number in ends}
        read_to = dict.fromkeys(ends, 0)
        consumer.assign([place for place in places if ends[place.partition]])
        deadline = time.monotonic() + 60
        while any(read_to[number] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"{topic}: read up to {read_to} of {ends}"
            for message in consumer.consume(5000, timeout=0.2):
                assert message.error() is None, message.error()
                record = _kept(message)
                read_to[record.partition] = (message.offset() or 0) + 1
                kept[record.partition].append(record)
        return [each for number in sorted(kept) for each in kept[number]]
    finally:
        consumer.close()


def _kept(message: Any) -> Kept:
    return Kept(message.partition(), message.key(), message.value(), message.headers() or [])


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """Return how far a partition goes; a leader that was just chosen may not know of it yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            end: int = consumer.get_watermark_offsets(place, timeout=60)[1]
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return end


# -- which provider serves what tests share


@dataclass(frozen=True)
class KafkaEndpoint:
    """Brokers that tests share."""

    brokers: str
    provider: str


def kafka_provider() -> str:
    """Return `address`, `container`, `native` or `mock`."""
    if os.environ.get(VARIABLE):
        return "address"
    if containers.serves(IMAGE):
        return "container"
    try:
        java_program()
        kafka_classpath()
    except Unavailable:
        if os.environ.get("REQUIRE_REAL_SERVERS") == "1":
            raise
        return "mock"
    return "native"


def kafka_description() -> str:
    """Return where the shared brokers come from, in a few words."""
    try:
        provider = kafka_provider()
    except (Unavailable, RuntimeError) as error:
        return f"kafka: none ({error})"
    if provider == "native":
        jar = next(iter((FOLDER / "libs").glob("kafka-server-[0-9]*.jar")), None)
        name = jar.stem.replace("kafka-server-", "Apache Kafka ") if jar else "broker"
        return f"kafka: native {name}{containers.remark(IMAGE)}"
    if provider == "mock":
        return "kafka: librdkafka's mock cluster, NOT a real broker"
    return f"kafka: by {VARIABLE}" if provider == "address" else f"kafka: container {IMAGE}"


@contextlib.contextmanager
def mock_cluster() -> Iterator[KafkaEndpoint]:
    """Run librdkafka's mock of a broker."""
    client = AdminClient({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    brokers = client.list_topics(timeout=60).brokers.values()
    yield KafkaEndpoint(",".join(f"{each.host}:{each.port}" for each in brokers), "mock")
    del client  # it is the cluster


@contextlib.contextmanager
def container() -> Iterator[KafkaEndpoint]:
    """Run a broker in a container, which must know the port by which it is reached."""
    port = free_port()
    running = (
        containers.container(IMAGE)
        .with_bind_ports(port, port)
        .with_env("KAFKA_NODE_ID", "1")
        .with_env("KAFKA_PROCESS_ROLES", "broker,controller")
        .with_env("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9093")
        .with_env("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER")
        .with_env("KAFKA_LISTENERS", f"PLAINTEXT://:{port},CONTROLLER://:9093")
        .with_env("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1")
        .with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")
        .with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
        .with_env("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0")
        .with_env("KAFKA_NUM_PARTITIONS", "4")
    )
    # Before it runs: a broker must be told by what address clients reach it.
    host = running.get_docker_client().host()
    running = running.with_env("KAFKA_ADVERTISED_LISTENERS", f"PLAINTEXT://{host}:{port}")
    with running:
        containers.wait_until(lambda: known_brokers(host, port), IMAGE, 3 * START_SECONDS)
        yield KafkaEndpoint(f"{host}:{port}", "container")
