"""Kafka: the contract, and what is Kafka's own."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from bronze_client import connect
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend, Failed
from bronze_sidecar.sinks.kafka import connection as kafka_connection
from configurations import backend_of
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from contract.contract import (
    Peer,
    SinkContract,
    Stored,
    becomes,
    event,
    headed_event,
    price,
    records,
    trade,
)
from kafka_proxy import Proxy
from kafka_servers import (
    PASSWORD,
    USER,
    KafkaCluster,
    KafkaEndpoint,
    KafkaServer,
    Kept,
    admin,
    alter_topic,
    create_topic,
    read_topic,
)
from servers import Certificates
from sidecar_process import sidecar

pytestmark = pytest.mark.servers


def peer_at(brokers: str, *flags: str, **facts: Any) -> Peer:
    """`brokers` is a listener without login or encryption; the flags may lead to another one."""

    async def read_all(topic: str) -> list[Stored]:
        kept = await asyncio.to_thread(read_topic, brokers, topic)
        return [Stored(each.value, {name: value.decode() for name, value in each.headers}) for each in kept]

    return Peer(flags or (f"--kafka-brokers={brokers}",), read_all, **facts)


class TestKafka(SinkContract):
    """The contract, with an idempotent producer."""

    headers = {  # noqa: RUF012 - it is declared as a class attribute
        "payloadCase": "tradeBar",
        "dataType": "trade_bar_1m",
        "env": "prod",
        "eventId": "stream:42",
        "m-request_id": "r-1",
        "m-city": "Zürich",
    }
    header_flags = ("--kafka-static-headers=env:prod", "--kafka-meta-headers-prefix=m-")
    oversized_bytes = 64 * 1024

    def addressing(self, prefix: str) -> tuple[str, ...]:
        return (f"--kafka-topic={prefix}.{{{{symbol}}}}",)

    def be_impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kafka_connection, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(kafka_connection, "CONNECT_SECONDS", 1.0)

    @pytest.fixture
    def peer(self, kafka_server: KafkaEndpoint, request: pytest.FixtureRequest) -> Peer:
        if kafka_server.provider == "mock" and "bytes_as_its_limits" in request.node.name:
            pytest.skip("librdkafka's mock cluster keeps only 5 MiB of a partition")
        return peer_at(kafka_server.brokers)

    @pytest.fixture
    def own_peer(self, own_kafka: KafkaServer) -> Peer:
        return peer_at(own_kafka.brokers, server=own_kafka)

    @pytest.fixture
    def small_peer(self, kafka_broker: KafkaServer, prefix: str) -> Peer:
        for symbol in "AB":
            create_topic(kafka_broker.brokers, f"{prefix}.{symbol}", max_message_bytes="32768")
        return peer_at(kafka_broker.brokers)

    @pytest.fixture
    def password_peer(self, kafka_broker: KafkaServer) -> Peer:
        flags = (f"--kafka-brokers={kafka_broker.listener('SASL')}", "--kafka-sasl-mechanism=plain")
        user = f"--kafka-sasl-username={USER}"
        return peer_at(
            kafka_broker.brokers,
            *(*flags, user, f"--kafka-sasl-password={PASSWORD}"),
            wrong_flags=(*flags, user, "--kafka-sasl-password=battery-staple"),
            secrets=(PASSWORD, "battery-staple"),
            options=("--kafka-sasl-username", "--kafka-sasl-password"),
        )

    @pytest.fixture
    def tls_peer(self, kafka_broker: KafkaServer, certificates: Certificates) -> Peer:
        flags = (f"--kafka-brokers={kafka_broker.listener('TLS')}", "--kafka-ssl")
        return peer_at(
            kafka_broker.brokers,
            *(*flags, f"--kafka-ssl-ca-file={certificates.ca_file}"),
            wrong_flags=(*flags, f"--kafka-ssl-ca-file={certificates.other_ca_file}"),
            options=("--kafka-ssl-ca-file",),
        )


# -- what is stored


def made(*flags: str) -> Backend:
    backend: Backend = backend_of(*flags)
    return backend


async def write(backend: Backend, events: Sequence[Event]) -> Sequence[Failed]:
    async with backend.open(Route(backend.rules())) as sink:
        return await sink.write(records(backend, events))


async def opening_error(backend: Backend) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        async with backend.open(Route(backend.rules())):
            pass
    return caught.value


@pytest.fixture
def topic() -> str:
    return f"test.{uuid.uuid4().hex}"


def at(server: KafkaServer | KafkaCluster, topic: str, *flags: str) -> Backend:
    return made(f"--kafka-brokers={server.brokers}", f"--kafka-topic={topic}", *flags)


async def read(server: KafkaServer | KafkaCluster, topic: str) -> list[Kept]:
    return await asyncio.to_thread(read_topic, server.brokers, topic)


def number(kept: Kept) -> int:
    return price(Stored(kept.value, {}))


async def test_a_record_has_key_headers_and_the_envelope_as_value(
    kafka_broker: KafkaServer, topic: str
) -> None:
    flags = ("--kafka-static-headers=env:prod", "--kafka-meta-headers-prefix=m-")
    assert not await write(at(kafka_broker, topic, *flags), [headed_event()])
    (kept,) = await read(kafka_broker, topic)
    assert kept.key == b"binance|BTC-USDT|tradeBar"
    assert kept.value == b"envelope"
    assert sorted(kept.headers) == [
        ("dataType", b"trade_bar_1m"),
        ("env", b"prod"),
        ("eventId", b"stream:42"),
        ("m-city", "Zürich".encode()),
        ("m-request_id", b"r-1"),
        ("payloadCase", b"tradeBar"),
    ]


async def test_routes_and_keys_by_template(kafka_broker: KafkaServer, topic: str) -> None:
    backend = at(
        kafka_broker,
        topic,
        f"--kafka-topic-routing=trade:{topic}.trades",
        f"--kafka-topic-template={topic}.{{{{exchange}}}}.{{{{symbol}}}}",
        "--kafka-key-template={{symbol}}/{{meta.account}}",
    )
    quote = event("BTC/USDT", 1, b"quote", payload_case="quote", meta={"account": "7"})
    assert not await write(backend, [event("BTC/USDT", 0, b"trade"), quote])
    assert [(kept.key, kept.value) for kept in await read(kafka_broker, f"{topic}.trades")] == [
        (b"BTC%2FUSDT/%%", b"trade")
    ]
    (kept,) = await read(kafka_broker, f"{topic}.binance.BTC_2FUSDT")
    assert (kept.key, kept.value) == (b"BTC%2FUSDT/7", b"quote")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compresses(kafka_broker: KafkaServer, topic: str, codec: str) -> None:
    events = [trade("A", position) for position in range(2000)]
    assert not await write(at(kafka_broker, topic, f"--kafka-compression={codec}"), events)
    assert [number(kept) for kept in await read(kafka_broker, topic)] == list(range(2000))
    logs = (kafka_broker.directory / "data").glob(f"{topic}-*/*.log")
    size = sum(log.stat().st_size for log in logs)
    plain = sum(len(each.envelope) for each in events)
    assert (size > plain) if codec == "none" else (size < plain)


async def test_every_key_goes_to_the_partition_of_the_java_client(
    kafka_broker: KafkaServer, topic: str
) -> None:
    create_topic(kafka_broker.brokers, topic, 7)
    create_topic(kafka_broker.brokers, f"{topic}.other", 7)
    symbols = [f"SYM-{position}" * (position % 5 + 1) for position in range(1000)]
    flags = ("--kafka-key-template={{symbol}}",)
    events = [event(symbol, position, b"x") for position, symbol in enumerate(symbols)]
    assert not await write(at(kafka_broker, topic, *flags), events)
    other = Producer({"bootstrap.servers": kafka_broker.brokers, "partitioner": "murmur2_random"})
    for symbol in symbols:
        other.produce(f"{topic}.other", key=symbol.encode(), value=b"x")
    assert other.flush(10) == 0
    ours = {kept.key: kept.partition for kept in await read(kafka_broker, topic)}
    theirs = {kept.key: kept.partition for kept in await read(kafka_broker, f"{topic}.other")}
    assert len(ours) == 1000
    assert ours == theirs
    assert len(set(ours.values())) == 7


@pytest.mark.parametrize("acks", ["all", "-1", "leader", "1", "none", "0"])
async def test_acks(kafka_broker: KafkaServer, topic: str, acks: str) -> None:
    create_topic(kafka_broker.brokers, topic)
    events = [trade("A", position) for position in range(100)]
    async with (backend := at(kafka_broker, topic, f"--kafka-acks={acks}")).open(
        Route(backend.rules())
    ) as sink:
        assert not await sink.write(records(backend, events))
        # Without acknowledgements only a later answer on the connection shows that they have arrived.
        await sink.ping()
        await becomes(lambda: len(read_topic(kafka_broker.brokers, topic)), 100)


async def test_without_idempotence_batches_have_no_producer(kafka_broker: KafkaServer, topic: str) -> None:
    backend = at(kafka_broker, topic, "--kafka-idempotent=false")
    assert not await write(backend, [trade("A", 1)])
    assert [number(kept) for kept in await read(kafka_broker, topic)] == [1]


async def test_uses_partitions_that_are_added(kafka_broker: KafkaServer, topic: str) -> None:
    create_topic(kafka_broker.brokers, topic, 1)
    backend = at(kafka_broker, topic)
    events = [event(f"S{position}", position, b"x") for position in range(50)]
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, events))
        client = admin(kafka_broker.brokers)
        for done in client.create_partitions([NewPartitions(topic, 3)]).values():
            done.result(60)
        async with asyncio.timeout(60):
            while sink._topics.known[topic].partitions[2:] == []:  # type: ignore[attr-defined]
                await sink._connection.refresh()  # type: ignore[attr-defined]
        assert not await sink.write(records(backend, events))
    assert {kept.partition for kept in await read(kafka_broker, topic)} == {0, 1, 2}


# -- what is refused


async def test_oversized_records_fail_alone_among_many(kafka_broker: KafkaServer, topic: str) -> None:
    create_topic(kafka_broker.brokers, topic, max_message_bytes="20000")
    events = [trade("A", position) for position in range(1000)]
    for position in (0, 333, 334, 999):
        events[position] = event("A", position, b"x" * 30_000)
    backend = at(kafka_broker, topic)
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, events))
        assert [(failure.place, type(failure.error)) for failure in failures] == [
            (place, Permanent) for place in (0, 333, 334, 999)
        ]
        assert str(failures[0].error) == (
            f"topic '{topic}': larger than the topic's max.message.bytes (the event has 30000 bytes)"
        )
        # The numbers of batches are still right.
        assert not await sink.write(records(backend, [trade("A", 1000)]))
    expected = [position for position in range(1001) if position not in {0, 333, 334, 999}]
    assert [number(kept) for kept in await read(kafka_broker, topic)] == expected


async def test_a_wrong_clock_holds_records_back_until_it_is_right(
    kafka_broker: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka_broker.brokers, topic, 1, message_timestamp_before_max_ms="3600000")
    backend = at(kafka_broker, topic)
    batch = records(backend, [trade("A", 0), trade("A", 1)])
    async with backend.open(Route(backend.rules())) as sink:
        with monkeypatch.context() as wrong:
            wrong.setattr(time, "time", lambda: 1_700_000_000.0)
            failures = await sink.write(batch)
        assert [(place, type(error)) for place, error in failures] == [(0, Transient), (1, Transient)]
        assert "check the clock" in str(failures[0].error)
        assert "message.timestamp.before.max.ms" in str(failures[0].error)
        assert not await sink.write(batch)
    assert [number(kept) for kept in await read(kafka_broker, topic)] == [0, 1]


async def test_a_record_may_be_as_large_as_the_topic_allows(kafka_broker: KafkaServer, topic: str) -> None:
    create_topic(kafka_broker.brokers, topic, max_message_bytes="4000000")
    large = b"x" * 3_000_000
    assert not await write(
        at(kafka_broker, topic), [trade("A", 1), event("A", 2, large), event("A", 3, b"y")]
    )
    assert [kept.value for kept in await read(kafka_broker, topic)][1:] == [large, b"y"]


async def test_a_topic_that_is_missing_holds_back_only_its_own_events(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_cluster.brokers, f"{topic}.A")
    backend = at(kafka_cluster, f"{topic}.{{{{symbol}}}}")
    async with backend.open(Route(backend.rules())) as sink:
        events = records(backend, [trade("A", 0), trade("B", 1), trade("A", 2), trade("B", 3)])
        failures = await sink.write(events)
        assert [(failure.place, type(failure.error)) for failure in failures] == [
            (1, Transient),
            (3, Transient),
        ]
        assert f"topic '{topic}.B': the topic or partition does not exist" in str(failures[0].error)
        assert "--kafka-topic" in str(failures[0].error)
        started = time.monotonic()
        (failure,) = await sink.write(events[1:2])
        assert isinstance(failure.error, Transient)
        assert time.monotonic() - started < 1  # patience is for a topic's first time
        create_topic(kafka_cluster.brokers, f"{topic}.B")
        # Brokers hear of a new topic one after the other.
        pending = [events[1], events[3]]
        while pending:
            pending = [pending[failure.place] for failure in await sink.write(pending)]
    assert [number(kept) for kept in await read(kafka_cluster, f"{topic}.A")] == [0, 2]
    assert [number(kept) for kept in await read(kafka_cluster, f"{topic}.B")] == [1, 3]


async def test_a_topic_that_is_deleted_and_made_again_is_written_to(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(kafka_cluster.brokers, topic)
    backend = at(kafka_cluster, topic)
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, [trade("A", 0)]))
        client = admin(kafka_cluster.brokers)
        for done in client.delete_topics([topic]).values():
            done.result(60)
        (failure,) = await sink.write(records(backend, [trade("A", 1)]))
        assert isinstance(failure.error, Transient)
        create_topic(kafka_cluster.brokers, topic)
        async with asyncio.timeout(60):
            while await sink.write(records(backend, [trade("A", 1)])):
                pass
    assert [number(kept) for kept in await read(kafka_cluster, topic)] == [1]


async def test_a_topic_that_the_user_may_not_write_to_is_refused_for_good(
    kafka_broker: KafkaServer, topic: str
) -> None:
    for symbol in "AB":
        create_topic(kafka_broker.brokers, f"{topic}.{symbol}")
    rule = AclBinding(
        *(ResourceType.TOPIC, f"{topic}.B", ResourcePatternType.LITERAL, f"User:{USER}", "*"),
        *(AclOperation.WRITE, AclPermissionType.DENY),
    )
    everyone = AclBinding(
        *(ResourceType.TOPIC, f"{topic}.B", ResourcePatternType.LITERAL, "User:*", "*"),
        *(AclOperation.DESCRIBE, AclPermissionType.ALLOW),
    )
    client = admin(kafka_broker.brokers)
    for done in client.create_acls([rule, everyone]).values():
        done.result(60)
    backend = made(*logged_in(kafka_broker, "plain"), f"--kafka-topic={topic}.{{{{symbol}}}}")
    failures = await write(backend, [trade("A", 0), trade("B", 1), trade("A", 2)])
    assert [(failure.place, type(failure.error)) for failure in failures] == [(1, Permanent)]
    assert f"topic '{topic}.B': the user may not write to the topic" in str(failures[0].error)
    assert [number(kept) for kept in await read(kafka_broker, f"{topic}.A")] == [0, 2]


# -- logging in and encrypting


def logged_in(
    server: KafkaServer, mechanism: str, password: str = PASSWORD, listener: str = "SASL"
) -> tuple[str, ...]:
    return (
        f"--kafka-brokers={server.listener(listener)}",
        f"--kafka-sasl-mechanism={mechanism}",
        f"--kafka-sasl-username={USER}",
        f"--kafka-sasl-password={password}",
    )


MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_logs_in_by(kafka_broker: KafkaServer, topic: str, mechanism: str) -> None:
    backend = made(*logged_in(kafka_broker, mechanism), f"--kafka-topic={topic}")
    assert not await write(backend, [trade("A", 1)])
    assert [number(kept) for kept in await read(kafka_broker, topic)] == [1]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_by(kafka_broker: KafkaServer, topic: str, mechanism: str) -> None:
    flags = logged_in(kafka_broker, mechanism, "battery-staple")
    error = await opening_error(made(*flags, f"--kafka-topic={topic}"))
    assert isinstance(error, Permanent)
    assert "--kafka-sasl-username and --kafka-sasl-password" in str(error)
    assert "battery" not in str(error)


async def test_logs_in_over_tls(kafka_broker: KafkaServer, topic: str, certificates: Certificates) -> None:
    flags = logged_in(kafka_broker, "scram-sha-512", listener="SASLTLS")
    trusting = ("--kafka-ssl", f"--kafka-ssl-ca-file={certificates.ca_file}")
    assert not await write(made(*flags, *trusting, f"--kafka-topic={topic}"), [trade("A", 1)])
    assert [number(kept) for kept in await read(kafka_broker, topic)] == [1]


async def test_shows_its_certificate(
    kafka_broker: KafkaServer, topic: str, certificates: Certificates
) -> None:
    flags = (
        f"--kafka-brokers={kafka_broker.listener('MTLS')}",
        f"--kafka-topic={topic}",
        *("--kafka-ssl", f"--kafka-ssl-ca-file={certificates.ca_file}"),
    )
    files = (
        f"--kafka-ssl-cert-file={certificates.client_cert_file}",
        f"--kafka-ssl-key-file={certificates.client_key_file}",
    )
    assert not await write(made(*flags, *files), [trade("A", 1)])
    assert [number(kept) for kept in await read(kafka_broker, topic)] == [1]
    error = await opening_error(made(*flags))
    assert "--kafka-ssl-cert-file and --kafka-ssl-key-file" in str(error)


async def test_another_kind_of_listener_gives_a_hint(
    kafka_broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_connection, "CONNECT_SECONDS", 1.0)
    for listener in ("SASL", "TLS"):
        brokers = kafka_broker.listener(listener)
        error = await opening_error(made(f"--kafka-brokers={brokers}", "--kafka-topic=t"))
        assert isinstance(error, Transient)
        assert brokers in str(error)
        assert "--kafka-ssl" in str(error)
        assert "--kafka-sasl-mechanism" in str(error)


# -- brokers that fail


async def test_a_refusal_after_a_lost_answer_uses_no_number_twice(
    kafka_broker: KafkaServer, topic: str
) -> None:
    """What was stored without an answer must not pass for what comes next."""
    create_topic(kafka_broker.brokers, topic)
    async with Proxy(kafka_broker) as proxy:
        backend = made(f"--kafka-brokers=127.0.0.1:{kafka_broker.proxy_port}", f"--kafka-topic={topic}")
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", 0)]))
            proxy.on_swallowed = lambda: alter_topic(kafka_broker.brokers, topic, "max.message.bytes", "1000")
            proxy.swallow_next_answer = True
            with pytest.raises(Disconnected):
                await sink.write(records(backend, [event("A", 1, b"x" * 2000)]))
            with pytest.raises(Disconnected):
                await sink.write(records(backend, [trade("A", 2)]))
        (failure,) = await write(backend, [event("A", 1, b"x" * 2000)])
        assert isinstance(failure.error, Permanent)
        assert not await write(backend, [trade("A", 2)])
    stored = await read(kafka_broker, topic)
    assert [kept.value for kept in stored][1] == b"x" * 2000
    assert [number(stored[0]), number(stored[2])] == [0, 2]


async def test_a_batch_that_breaks_the_connection_is_alone_in_doubt(
    narrow_kafka: KafkaServer, topic: str
) -> None:
    create_topic(narrow_kafka.brokers, topic, 1)
    create_topic(narrow_kafka.brokers, f"{topic}.large", 1)
    backend = at(narrow_kafka, topic, f"--kafka-topic-routing=quote:{topic}.large")
    poison = event("A", 1, b"x" * 300_000, payload_case="quote")
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, [trade("A", 0), poison, trade("A", 2)]))
        assert [(place, type(error)) for place, error in failures] == [(1, Permanent)]
        assert "socket.request.max.bytes" in str(failures[0].error)
        with pytest.raises(Disconnected):
            await sink.write(records(backend, [trade("A", 3)]))
    after = event("A", 4, b"small", payload_case="quote")
    assert not await write(backend, [trade("A", 3), after])
    assert [number(kept) for kept in await read(narrow_kafka, topic)] == [0, 2, 3]
    assert [kept.value for kept in await read(narrow_kafka, f"{topic}.large")] == [b"small"]


async def test_what_is_known_of_one_topic_is_told_although_the_connection_was_lost_for_another(
    narrow_kafka: KafkaServer, topic: str
) -> None:
    create_topic(narrow_kafka.brokers, f"{topic}.large", 1)
    backend = at(narrow_kafka, topic, f"--kafka-topic-routing=quote:{topic}.large")
    poison = event("A", 1, b"x" * 300_000, payload_case="quote")
    failures = await write(backend, [trade("A", 0), poison])
    assert [(place, type(error)) for place, error in failures] == [(0, Transient), (1, Permanent)]
    assert "does not exist" in str(failures[0].error)


async def test_many_partitions_may_be_too_much_for_one_request_but_not_for_several(
    narrow_kafka: KafkaServer, topic: str
) -> None:
    create_topic(narrow_kafka.brokers, topic, 8)
    backend = at(narrow_kafka, topic)
    events = [event(f"S{position}", position, b"%d" % position + b"x" * 20_000) for position in range(16)]
    assert not await write(backend, events)
    stored = await read(narrow_kafka, topic)
    assert sorted(int(kept.value.partition(b"x")[0]) for kept in stored) == list(range(16))


async def test_what_was_stored_without_an_answer_is_not_stored_twice(
    kafka_broker: KafkaServer, topic: str
) -> None:
    create_topic(kafka_broker.brokers, topic)
    async with Proxy(kafka_broker) as proxy:
        backend = made(f"--kafka-brokers=127.0.0.1:{kafka_broker.proxy_port}", f"--kafka-topic={topic}")
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", 0)]))
            proxy.swallow_next_answer = True
            assert not await sink.write(records(backend, [trade("A", 1), trade("B", 2)]))
            assert not proxy.swallow_next_answer
            assert not await sink.write(records(backend, [trade("A", 3)]))
    assert [number(kept) for kept in await read(kafka_broker, topic)] == [0, 1, 2, 3]


@pytest.mark.timeout(180)
async def test_killed_leaders_lose_nothing_repeat_nothing_and_keep_order(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    """The real process publishes while the leaders of two partitions are killed, one after the other."""
    create_topic(kafka_cluster.brokers, topic, 6, copies=3)
    count = 60_000
    options = (
        *("--kafka-brokers", kafka_cluster.brokers, "--kafka-topic", topic),
        *("--kafka-key-template", "{{symbol}}"),
    )
    with sidecar(*options) as process:
        async with connect(
            process.address, stream_id="s", on_full="wait", max_wait=120.0, close_timeout=60.0
        ) as publisher:
            killed: KafkaServer | None = None
            for position in range(count):
                await publisher.publish_wait(_trade_line(position))
                if position % 100 == 0:
                    await asyncio.sleep(0.005)
                if position in {20_000, 40_000}:
                    if killed is not None:
                        await asyncio.to_thread(killed.start)
                    killed = kafka_cluster.leader(topic, position // 20_000)
                    killed.kill()
            await publisher.flush(timeout=100)
            assert publisher.stats.dropped == 0
        assert killed is not None
        await asyncio.to_thread(killed.start)
    newest: dict[bytes, int] = {}
    seen: set[int] = set()
    for kept in await read(kafka_cluster, topic):
        stream, _, place = dict(kept.headers)["eventId"].partition(b":")
        if stream != b"s":
            continue  # the end of the stream
        position = int(place)
        assert position not in seen
        seen.add(position)
        assert position > newest.get(kept.key, -1)
        newest[kept.key] = position
    assert seen == set(range(count))


def _trade_line(position: int) -> bytes:
    return (
        b'{"type":"trade","symbol":"S%d","exchange":"bitmex","id":"%d","price":1.5,"amount":1,"side":"buy",'
        b'"timestamp":"2024-01-01T00:00:00.000Z","localTimestamp":"2024-01-01T00:00:00.000000Z"}'
        % (position % 50, position)
    )
