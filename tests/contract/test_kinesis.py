"""Kinesis: the contract, and what is Kinesis' own."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aws_servers import (
    BREAK,
    HANG,
    TOO_LARGE,
    Call,
    FaultProxy,
    Refusal,
    Relay,
    aws_client,
    deliver,
    events_in,
    fault_proxy,
    reach,
)
from botocore.exceptions import BotoCoreError
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.aws import service as aws_session
from bronze_sidecar.sinks.base import Backend
from configurations import backend_of
from contract.contract import (
    Peer,
    SinkContract,
    Stored,
    becomes,
    event,
    open_sockets,
    price,
    records,
    trade,
    write_all,
)
from servers import Certificates, Endpoint, tls_proxy

pytestmark = pytest.mark.servers

THROTTLED = "ProvisionedThroughputExceededException"


def create(url: str, *streams: str, shards: int = 1) -> None:
    client = aws_client("kinesis", url)
    for stream in streams:
        client.create_stream(StreamName=stream, ShardCount=shards)
        client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1})


def read(url: str, stream: str) -> list[dict[str, Any]]:
    """Return all events of a stream, shard by shard."""
    return events_in(read_records(url, stream))


def read_records(url: str, stream: str) -> list[dict[str, Any]]:
    """Return all records of a stream, shard by shard."""
    client = aws_client("kinesis", url)
    found: list[dict[str, Any]] = []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            answer = client.get_records(ShardIterator=iterator, Limit=10_000)
            found += answer["Records"]
            iterator = answer["NextShardIterator"] if answer["Records"] else None
    return found


def by_key(found: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the numbers of trades in the order of the stream, by partition key."""
    keys: dict[str, list[int]] = defaultdict(list)
    for record in found:
        keys[record["PartitionKey"]].append(int(NormalizedEvent.FromString(record["Data"]).trade.price_str))
    return keys


def peer_at(url: str, flags: tuple[str, ...], **facts: Any) -> Peer:
    async def read_all(stream: str) -> list[Stored]:
        found = await asyncio.to_thread(read, url, stream)
        return [Stored(record["Data"], {}) for record in found]

    return Peer(flags, read_all, **facts)


class TestKinesis(SinkContract):
    """The contract, with the strict order that is the default."""

    oversized_bytes = 1_048_576  # and the key comes to that

    def addressing(self, prefix: str) -> tuple[str, ...]:
        return (f"--kinesis-stream={prefix}.{{{{symbol}}}}",)

    def be_impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aws_session, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(aws_session, "CONNECT_SECONDS", 1.0)

    def backend(self, peer: Peer, prefix: str, *more: str, wrong: bool = False) -> Backend:
        with contextlib.suppress(BotoCoreError):  # a test may have stopped the server
            create(self.url, *(f"{prefix}.{symbol}" for symbol in ("A", "B", "C", "BTC-USDT")))
        return super().backend(peer, prefix, *more, wrong=wrong)

    @pytest.fixture(autouse=True)
    def _emulator(self, aws_emulator: Endpoint) -> None:
        self.url = aws_emulator.url

    @pytest.fixture
    def peer(self, aws_emulator: Endpoint) -> Peer:
        return peer_at(aws_emulator.url, reach("kinesis", aws_emulator.url))

    @pytest.fixture
    def own_peer(self, aws_emulator: Endpoint, aws_relay: Relay) -> Peer:
        return peer_at(aws_emulator.url, reach("kinesis", aws_relay.url), server=aws_relay)

    @pytest.fixture
    def small_peer(self, peer: Peer) -> Peer:
        return peer

    @pytest.fixture
    async def password_peer(self, aws_emulator: Endpoint) -> AsyncIterator[Peer]:
        async with fault_proxy(aws_emulator.url) as proxy:
            proxy.checks_signatures = True
            yield peer_at(
                aws_emulator.url,
                reach("kinesis", proxy.url),
                wrong_flags=reach("kinesis", proxy.url, secret_key="battery-staple"),  # noqa: S106
                secrets=("correct-horse", "battery-staple"),
                options=("--kinesis-access-key", "--kinesis-secret-key"),
            )

    @pytest.fixture
    async def tls_peer(self, aws_emulator: Endpoint, certificates: Certificates) -> AsyncIterator[Peer]:
        async with tls_proxy(aws_emulator.port, certificates.server_context()) as port:
            flags = reach("kinesis", f"https://127.0.0.1:{port}")
            yield peer_at(
                aws_emulator.url,
                (*flags, f"--kinesis-tls-ca-file={certificates.ca_file}"),
                wrong_flags=(*flags, f"--kinesis-tls-ca-file={certificates.other_ca_file}"),
                options=("--kinesis-tls-ca-file",),
            )

    async def test_writes_headers(self, peer: Peer, prefix: str) -> None:
        """Kinesis has no headers: static ones become meta, and nothing else of the envelope changes."""
        backend = self.backend(peer, prefix, "--kinesis-static-headers=env:prod,city:Zürich")
        original = trade("A", 1)
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [original]))
        (stored,) = await peer.read_all(f"{prefix}.A")
        decoded = NormalizedEvent.FromString(stored.data)
        assert dict(decoded.meta) == {"event_id": "stream:1", "env": "prod", "city": "Zürich"}
        assert stored.data.startswith(original.envelope)


# -- with a proxy that fails


@pytest.fixture
async def proxy(aws_emulator: Endpoint) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(aws_emulator.url) as running:
        yield running


@pytest.fixture
def stream(aws_emulator: Endpoint, request: pytest.FixtureRequest) -> str:
    name = f"s-{random.SystemRandom().getrandbits(64):x}"
    create(aws_emulator.url, name, shards=2)
    return name


def backend_at(url: str, stream: str, *more: str) -> Backend:
    made: Backend = backend_of(f"--kinesis-stream={stream}", *reach("kinesis", url), *more)
    return made


def keys_of(call: Call) -> list[str]:
    return [entry.get("PartitionKey", "") for entry in call.entries]


def trades(count: int, keys: int) -> list[Any]:
    return [trade(f"K{number % keys}", number) for number in range(count)]


def in_order(count: int, keys: int) -> dict[str, list[int]]:
    return {f"binance|K{key}|trade": list(range(key, count, keys)) for key in range(keys)}


async def test_refused_records_are_stored_later_without_gap_duplicate_or_change_of_order(
    proxy: FaultProxy, stream: str
) -> None:
    chance = random.Random(11)  # noqa: S311
    proxy.refuses = lambda _: chance.random() < 0.1
    backend = backend_at(proxy.url, stream)
    delivery = await deliver(backend, records(backend, trades(3000, 60)))
    assert delivery.failures == []
    assert delivery.retried > 200
    assert by_key(read(proxy.onward, stream)) == in_order(3000, 60)
    # No call had two records of one key.
    for call in proxy.calls:
        keys = [entry["PartitionKey"] for entry in call.entries]
        assert len(keys) == len(set(keys))


async def test_only_the_refused_record_and_those_behind_it_are_reported(
    proxy: FaultProxy, stream: str
) -> None:
    proxy.refuses = lambda entry: entry["PartitionKey"] == "binance|K1|trade"
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        failures = dict(await sink.write(records(backend, trades(9, 3))))
    assert {place: type(error) for place, error in failures.items()} == {
        1: Transient,
        4: NotTried,
        7: NotTried,
    }
    assert "no luck" in str(failures[1])
    assert by_key(read(proxy.onward, stream)) == {
        "binance|K0|trade": [0, 3, 6],
        "binance|K2|trade": [2, 5, 8],
    }


async def test_of_a_write_that_was_refused_each_record_is_reported(proxy: FaultProxy, stream: str) -> None:
    proxy.refuses = lambda _: True
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, trades(5, 3)))
    assert [type(error) for _, error in failures] == [Transient, Transient, Transient, NotTried, NotTried]


async def test_of_a_throttled_call_each_record_is_reported(proxy: FaultProxy, stream: str) -> None:
    proxy.judge = lambda call: Refusal(THROTTLED) if call.entries else None
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, trades(3, 2)))
    assert [type(error) for _, error in failures] == [Transient, Transient, NotTried]


async def test_a_lost_call_leaves_only_its_own_records_in_doubt(proxy: FaultProxy, stream: str) -> None:
    proxy.judge = lambda call: BREAK if "binance|K1|trade" in keys_of(call) else None
    backend = backend_at(proxy.url, stream, "--kinesis-max-call-bytes=1048576")
    events = [event(f"K{number}", number, b"x" * 1_000_000) for number in range(3)]
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, events))
    assert [(place, type(error)) for place, error in failures] == [(1, Disconnected)]
    assert len(read(proxy.onward, stream)) == 2


async def test_a_stream_whose_key_is_disabled_holds_back_only_its_own_records(
    proxy: FaultProxy, stream: str
) -> None:
    proxy.judge = lambda call: (
        Refusal("KMSDisabledException") if call.entries and call.body["StreamName"].endswith("-B") else None
    )
    backend = backend_at(proxy.url, f"{stream}-{{{{symbol}}}}")
    create(proxy.onward, f"{stream}-A", f"{stream}-B")
    events = [trade("BA"[number % 2], number) for number in range(20)]
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, events))
    assert [place for place, _ in failures] == list(range(0, 20, 2))
    assert "KMSDisabledException" in str(failures[0].error)
    assert isinstance(failures[0].error, Transient)
    assert by_key(read(proxy.onward, f"{stream}-A")) == {"binance|A|trade": list(range(1, 20, 2))}


async def test_a_gateway_that_finds_a_call_too_large_gets_smaller_ones(
    proxy: FaultProxy, stream: str
) -> None:
    """Such an answer has no code: the status is all there is."""
    proxy.judge = lambda call: TOO_LARGE if "binance|K1|trade" in keys_of(call) else None
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, trades(3, 3)))
    assert [(place, isinstance(error, Permanent)) for place, error in failures] == [(1, True)]
    assert sorted(by_key(read(proxy.onward, stream))) == ["binance|K0|trade", "binance|K2|trade"]


async def test_throttled_calls_are_repeated_and_counted(proxy: FaultProxy, stream: str) -> None:
    answers = iter([Refusal(THROTTLED), Refusal("InternalFailure", 500), Refusal("ThrottlingException")] * 5)
    proxy.judge = lambda call: next(answers, None) if call.entries else None
    backend = backend_at(proxy.url, stream)
    delivery = await deliver(backend, records(backend, trades(300, 30)))
    assert delivery.failures == []
    assert delivery.retried >= 15
    assert by_key(read(proxy.onward, stream)) == in_order(300, 30)


async def test_a_record_that_spoils_its_call_is_found_and_fails_alone(proxy: FaultProxy, stream: str) -> None:
    def spoiled(call: Call) -> Refusal | None:
        keys = [entry["PartitionKey"] for entry in call.entries]
        return Refusal("ValidationException") if "binance|K7|trade" in keys else None

    proxy.judge = spoiled
    backend = backend_at(proxy.url, stream)
    delivery = await deliver(backend, records(backend, trades(100, 50)))
    assert [event_id for event_id, _ in delivery.failures] == ["stream:7", "stream:57"]
    assert "ValidationException" in delivery.failures[0][1]
    expected = in_order(100, 50)
    del expected["binance|K7|trade"]
    assert by_key(read(proxy.onward, stream)) == expected


async def test_a_record_that_only_the_service_finds_too_large_fails_alone(
    aws_emulator: Endpoint, stream: str
) -> None:
    limits = ("--kinesis-max-record-bytes=10485760", "--kinesis-max-call-bytes=10485760")
    backend = backend_at(aws_emulator.url, stream, *limits)
    events = [trade("A", 0), event("A", 1, b"x" * 1_100_000), trade("A", 2), trade("B", 3)]
    errors = await write_all(backend, records(backend, events))
    assert [(place, isinstance(error, Permanent)) for place, error in errors.items()] == [(1, True)]
    assert by_key(read(aws_emulator.url, stream)) == {"binance|A|trade": [0, 2], "binance|B|trade": [3]}


async def test_calls_stay_within_the_limits_and_go_side_by_side(proxy: FaultProxy, stream: str) -> None:
    proxy.checks_signatures = True
    backend = backend_at(proxy.url, stream)
    batch = records(backend, [event(f"K{number}", number, b"x" * 20_000) for number in range(800)])
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(batch)
    for call in proxy.calls:
        assert len(call.entries) <= 500
        assert (
            sum(len(entry["Data"]) * 3 // 4 + len(entry["PartitionKey"]) for entry in call.entries)
            <= 5_242_880
        )
    assert len(proxy.calls) == 4
    assert 1 < proxy.most_at_once <= 8
    assert len(read(proxy.onward, stream)) == 800


async def test_without_strict_order_a_call_takes_many_records_of_a_key(
    proxy: FaultProxy, stream: str
) -> None:
    backend = backend_at(proxy.url, stream, "--kinesis-strict-order=false")
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(1200, 2)))
    assert len(proxy.calls) == 4
    assert by_key(read(proxy.onward, stream)) == in_order(1200, 2)


async def test_without_strict_order_nothing_is_lost_either(proxy: FaultProxy, stream: str) -> None:
    chance = random.Random(5)  # noqa: S311
    proxy.refuses = lambda _: chance.random() < 0.1
    backend = backend_at(proxy.url, stream, "--kinesis-strict-order=false")
    delivery = await deliver(backend, records(backend, trades(2000, 5)))
    assert delivery.failures == []
    found = by_key(read(proxy.onward, stream))
    assert {key: sorted(numbers) for key, numbers in found.items()} == in_order(2000, 5)


@pytest.mark.parametrize(
    "refusal",
    [
        *(HANG, BREAK, Refusal("ExpiredTokenException"), Refusal("UnrecognizedClientException")),
        Refusal("InvalidSignatureException", 403),
    ],
)
async def test_a_lost_service_or_credential_asks_for_a_new_session(
    proxy: FaultProxy, stream: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        # Opening had as long as a busy machine needs.
        monkeypatch.setattr(aws_session, "ANSWER_SECONDS", 0.5)
        proxy.judge = lambda _: refusal
        with pytest.raises(Disconnected):
            await sink.write(records(backend, trades(3, 3)))
        with pytest.raises(Disconnected):
            await sink.ping()


async def test_lets_go_of_sockets_that_a_frozen_service_holds(
    aws_relay: Relay, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws_session, "ANSWER_SECONDS", 1.0)
    backend = backend_at(aws_relay.url, stream)
    sockets = open_sockets()
    async with backend.open(Route(backend.rules())) as sink:
        aws_relay.freeze()
        with pytest.raises(Disconnected):
            await sink.write(
                records(backend, [event(f"K{key}", key, b"x" * 512 * 1024) for key in range(32)])
            )
    await becomes(open_sockets, sockets)


async def test_a_missing_stream_holds_back_only_its_own_records(aws_emulator: Endpoint, stream: str) -> None:
    backend = backend_at(aws_emulator.url, f"{stream}-{{{{symbol}}}}")
    create(aws_emulator.url, f"{stream}-A")
    events = [trade("A", 0), trade("B", 1), trade("A", 2), trade("B", 3)]
    async with backend.open(Route(backend.rules())) as sink:
        failures = dict(await sink.write(records(backend, events)))
        assert sorted(failures) == [1, 3]
        assert all(isinstance(error, Transient) for error in failures.values())
        create(aws_emulator.url, f"{stream}-B")
        assert not await sink.write(records(backend, [events[1], events[3]]))
    assert by_key(read(aws_emulator.url, f"{stream}-B")) == {"binance|B|trade": [1, 3]}


async def test_two_templates_may_give_one_key(aws_emulator: Endpoint, stream: str) -> None:
    """Order is kept by the key, not by what it was made of."""
    backend = backend_at(aws_emulator.url, stream, "--kinesis-partition-key-template=all")
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(40, 20)))
    assert by_key(read(aws_emulator.url, stream)) == {"all": list(range(40))}


# -- opening


async def opening_error(backend: Backend) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        async with backend.open(Route(backend.rules())):
            pass
    return caught.value


async def test_a_missing_stream_is_refused_with_its_option(aws_emulator: Endpoint, stream: str) -> None:
    error = await opening_error(backend_at(aws_emulator.url, "no-such-stream"))
    assert isinstance(error, Permanent)
    assert str(error).startswith("--kinesis-stream: ")
    routed = backend_at(aws_emulator.url, stream, "--kinesis-stream-routing=trade:no-such-stream")
    assert str(await opening_error(routed)).startswith("--kinesis-stream-routing: ")


async def test_whoever_may_write_need_not_be_allowed_to_look(proxy: FaultProxy, stream: str) -> None:
    proxy.judge = lambda call: None if call.entries else Refusal("AccessDeniedException")
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        await sink.ping()
        assert not await sink.write(records(backend, trades(3, 3)))


async def test_whoever_may_not_write_is_told_and_nothing_is_given_up(proxy: FaultProxy, stream: str) -> None:
    proxy.judge = lambda call: Refusal("AccessDeniedException") if call.entries else None
    backend = backend_at(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, trades(3, 3)))
    assert [(place, isinstance(error, Transient)) for place, error in failures] == [
        (0, True),
        (1, True),
        (2, True),
    ]
    assert "AccessDenied" in str(failures[0].error)


async def test_an_unknown_key_names_the_options_and_not_its_value(proxy: FaultProxy) -> None:
    proxy.checks_signatures = True
    flags = reach("kinesis", proxy.url, access_key="AKIASTRANGER")
    error = await opening_error(backend_of("--kinesis-stream={{symbol}}", *flags))
    assert isinstance(error, Permanent)
    assert "UnrecognizedClientException" in str(error)
    assert "--kinesis-access-key" in str(error)
    assert "AKIASTRANGER" not in str(error)


async def test_no_credentials_at_all_names_the_options(
    aws_emulator: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    error = await opening_error(
        backend_of(
            "--kinesis-stream=s",
            "--kinesis-region=eu-central-1",
            f"--kinesis-endpoint-url={aws_emulator.url}",
        )
    )
    assert isinstance(error, Permanent)
    assert "--kinesis-access-key" in str(error)


async def test_the_default_credential_chain_serves(
    proxy: FaultProxy, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.checks_signatures = True
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "correct-horse")
    flags = ("--kinesis-region=eu-central-1", f"--kinesis-endpoint-url={proxy.url}")
    backend = backend_of(f"--kinesis-stream={stream}", *flags)
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(3, 3)))
    assert price(Stored(read(proxy.onward, stream)[0]["Data"], {})) in {0, 1, 2}
