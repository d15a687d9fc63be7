"""SQS: the contract for FIFO and standard queues, and what is SQS' own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aws_servers import (
    ACCOUNT,
    BREAK,
    HANG,
    Call,
    FaultProxy,
    Refusal,
    Relay,
    aws_client,
    deliver,
    fault_proxy,
    reach,
)
from botocore.exceptions import BotoCoreError
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.aws import service as aws_session
from bronze_sidecar.sinks.base import Backend
from bronze_sidecar.sinks.sqs import sink as sqs_sink
from configurations import backend_of
from contract.contract import Peer, SinkContract, Stored, event, records, trade, write_all
from google.protobuf.message import DecodeError
from servers import Certificates, Endpoint, tls_proxy

pytestmark = pytest.mark.servers


def queue_url(url: str, name: str) -> str:
    return f"{url}/{ACCOUNT}/{name}"


def create(url: str, *names: str, **settings: str) -> None:
    client = aws_client("sqs", url)
    for name in names:
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        client.create_queue(QueueName=name, Attributes={**fifo, **settings})


def read(url: str, name: str) -> list[dict[str, Any]]:
    """Take all messages out of a queue."""
    client = aws_client("sqs", url)
    found: list[dict[str, Any]] = []
    wanted = {"MessageAttributeNames": ["All"], "AttributeNames": ["All"], "MaxNumberOfMessages": 10}
    while messages := client.receive_message(QueueUrl=queue_url(url, name), **wanted).get("Messages"):
        found += messages
        done = [
            {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
            for index, message in enumerate(messages)
        ]
        client.delete_message_batch(QueueUrl=queue_url(url, name), Entries=done)
    return found


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {name: each["StringValue"] for name, each in message.get("MessageAttributes", {}).items()}


def body(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["Body"], validate=True)


def by_group(found: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the numbers of trades in the order of the queue, by message group."""
    groups: dict[str, list[int]] = defaultdict(list)
    for message in found:
        number = int(NormalizedEvent.FromString(body(message)).trade.price_str)
        groups[message["Attributes"].get("MessageGroupId", "")].append(number)
    return groups


class TestFifo(SinkContract):
    """The contract, with the strict order that is the default."""

    suffix = ".fifo"
    headers = {  # noqa: RUF012 - it is declared as a class attribute
        "payloadCase": "tradeBar",
        "dataType": "trade_bar_1m",
        "env": "prod",
        "where": "Zürich",
    }
    header_flags = (
        "--sqs-static-attributes=env:prod",
        "--sqs-message-attributes=where:{{meta.city}},nothing:{{meta.absent}}",
    )
    oversized_bytes = 786_432  # in base64 that is the whole of 1 MiB, and the attributes come to that

    def addressing(self, prefix: str) -> tuple[str, ...]:
        name = f"{self.queue(prefix)}-{{{{symbol}}}}{self.suffix}"
        return f"--sqs-queue-url={queue_url(self.url, name)}", "--sqs-max-batch-size=500"

    @staticmethod
    def queue(name: str) -> str:
        """Return a queue's name for one of the contract's, which has dots and is long."""
        return f"c-{name.rpartition('.')[2][:16]}"

    def be_impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aws_session, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(aws_session, "CONNECT_SECONDS", 1.0)

    def backend(self, peer: Peer, prefix: str, *more: str, wrong: bool = False) -> Backend:
        with contextlib.suppress(BotoCoreError):  # a test may have stopped the server
            symbols = ("A", "B", "C", "BTC_2DUSDT")
            create(self.url, *(f"{self.queue(prefix)}-{symbol}{self.suffix}" for symbol in symbols))
        return super().backend(peer, prefix, *more, wrong=wrong)

    async def read_all(self, destination: str) -> list[Stored]:
        prefix, _, symbol = destination.rpartition(".")
        name = f"{self.queue(prefix)}-{symbol.replace('-', '_2D')}{self.suffix}"
        found = await asyncio.to_thread(read, self.url, name)
        return [Stored(body(message), attributes(message)) for message in found]

    def peer_at(self, flags: tuple[str, ...], **facts: Any) -> Peer:
        return Peer(flags, self.read_all, **facts)

    @pytest.fixture(autouse=True)
    def _emulator(self, aws_emulator: Endpoint) -> None:
        self.url = aws_emulator.url

    @pytest.fixture
    def peer(self) -> Peer:
        return self.peer_at(reach("sqs", self.url))

    @pytest.fixture
    def own_peer(self, aws_relay: Relay) -> Peer:
        return self.peer_at(reach("sqs", aws_relay.url), server=aws_relay)

    @pytest.fixture
    def small_peer(self, peer: Peer) -> Peer:
        return peer

    @pytest.fixture
    async def password_peer(self) -> AsyncIterator[Peer]:
        async with fault_proxy(self.url) as proxy:
            proxy.checks_signatures = True
            yield self.peer_at(
                reach("sqs", proxy.url),
                wrong_flags=reach("sqs", proxy.url, secret_key="battery-staple"),  # noqa: S106
                secrets=("correct-horse", "battery-staple"),
                options=("--sqs-access-key", "--sqs-secret-key"),
            )

    @pytest.fixture
    async def tls_peer(self, aws_emulator: Endpoint, certificates: Certificates) -> AsyncIterator[Peer]:
        async with tls_proxy(aws_emulator.port, certificates.server_context()) as port:
            flags = reach("sqs", f"https://127.0.0.1:{port}")
            yield self.peer_at(
                (*flags, f"--sqs-tls-ca-file={certificates.ca_file}"),
                wrong_flags=(*flags, f"--sqs-tls-ca-file={certificates.other_ca_file}"),
                options=("--sqs-tls-ca-file",),
            )


class TestStandard(TestFifo):
    """The contract, without order: what a queue holds is put in order before it is compared."""

    suffix = ""

    async def read_all(self, destination: str) -> list[Stored]:
        return sorted(await super().read_all(destination), key=lambda stored: number_of(stored.data))

    async def test_leaves_bytes_as_they_are(self, peer: Peer, prefix: str) -> None:
        awkward = [b"\r\n", b"\0" * 10, bytes(range(256)), b"\xff\xfe", b"+OK\r\n"]
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            batch = [event("A", number, envelope) for number, envelope in enumerate(awkward)]
            assert not await sink.write(records(backend, batch))
        assert sorted(each.data for each in await peer.read_all(f"{prefix}.A")) == sorted(awkward)


def number_of(data: bytes) -> int:
    """Return what the contract's events are numbered by."""
    if data.isdigit() and len(data) < 10:
        return int(data)
    with contextlib.suppress(DecodeError, ValueError):
        return int(NormalizedEvent.FromString(data).trade.price_str)
    return data[0]


# -- with a proxy that fails


@pytest.fixture
async def proxy(aws_emulator: Endpoint) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(aws_emulator.url) as running:
        yield running


@pytest.fixture(params=["", ".fifo"], ids=["standard", "fifo"])
def queue(aws_emulator: Endpoint, request: pytest.FixtureRequest) -> str:
    return new_queue(aws_emulator, request.param)


@pytest.fixture
def fifo(aws_emulator: Endpoint) -> str:
    return new_queue(aws_emulator, ".fifo")


@pytest.fixture
def standard(aws_emulator: Endpoint) -> str:
    return new_queue(aws_emulator, "")


def new_queue(emulator: Endpoint, suffix: str) -> str:
    name = f"q-{random.SystemRandom().getrandbits(64):x}{suffix}"
    create(emulator.url, name)
    return name


def backend_at(url: str, name: str, *more: str) -> Backend:
    made: Backend = backend_of(f"--sqs-queue-url={queue_url(url, name)}", *reach("sqs", url), *more)
    return made


def trades(count: int, keys: int) -> list[Event]:
    return [trade(f"K{number % keys}", number) for number in range(count)]


def in_order(count: int, keys: int) -> dict[str, list[int]]:
    return {f"binance|K{key}|trade": list(range(key, count, keys)) for key in range(keys)}


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(number for group in by_group(found).values() for number in group)


async def test_refused_messages_are_stored_later_without_gap_duplicate_or_change_of_order(
    proxy: FaultProxy, fifo: str
) -> None:
    chance = random.Random(11)  # noqa: S311
    proxy.refuses = lambda _: chance.random() < 0.1
    backend = backend_at(proxy.url, fifo)
    delivery = await deliver(backend, records(backend, trades(1000, 25)))
    assert delivery.failures == []
    assert delivery.retried > 50
    # No call had two messages of one group.
    for call in proxy.calls:
        groups = [entry["MessageGroupId"] for entry in call.entries]
        assert len(groups) == len(set(groups))
    found = await asyncio.to_thread(read, proxy.onward, fifo)
    assert by_group(found) == in_order(1000, 25)
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in found]
    assert sorted(ids) == sorted(f"stream:{number}" for number in range(1000))


async def test_a_standard_queue_gets_everything_once_by_several_calls_at_a_time(
    proxy: FaultProxy, standard: str
) -> None:
    chance = random.Random(11)  # noqa: S311
    proxy.refuses = lambda _: chance.random() < 0.1
    backend = backend_at(proxy.url, standard)
    delivery = await deliver(backend, records(backend, trades(1000, 5)), chunk=1000)
    assert delivery.failures == []
    assert 1 < proxy.most_at_once <= 16
    # Only what failed was sent again.
    assert sum(len(call.entries) for call in proxy.calls) < 1250
    assert all("MessageGroupId" not in entry for call in proxy.calls for entry in call.entries)
    assert numbers(await asyncio.to_thread(read, proxy.onward, standard)) == list(range(1000))


async def test_only_the_refused_message_and_those_behind_it_are_reported(
    proxy: FaultProxy, fifo: str
) -> None:
    proxy.refuses = lambda entry: entry["MessageGroupId"] == "binance|K1|trade"
    backend = backend_at(proxy.url, fifo)
    async with backend.open(Route(backend.rules())) as sink:
        failures = dict(await sink.write(records(backend, trades(9, 3))))
    assert {place: type(error) for place, error in failures.items()} == {
        1: Transient,
        4: NotTried,
        7: NotTried,
    }
    found = await asyncio.to_thread(read, proxy.onward, fifo)
    assert by_group(found) == {"binance|K0|trade": [0, 3, 6], "binance|K2|trade": [2, 5, 8]}


async def test_throttled_calls_are_repeated_and_counted(proxy: FaultProxy, queue: str) -> None:
    answers = iter([Refusal("RequestThrottled", 403), Refusal("InternalFailure", 500)] * 5)
    proxy.judge = lambda call: next(answers, None) if call.entries else None
    backend = backend_at(proxy.url, queue)
    delivery = await deliver(backend, records(backend, trades(100, 10)))
    assert delivery.failures == []
    assert delivery.retried >= 10
    assert numbers(await asyncio.to_thread(read, proxy.onward, queue)) == list(range(100))


async def test_a_message_that_spoils_its_call_is_found_and_fails_alone(proxy: FaultProxy, queue: str) -> None:
    marked = base64.b64encode(trade("K7", 7).envelope).decode()

    def spoiled(call: Call) -> Refusal | None:
        bodies = [entry["MessageBody"] for entry in call.entries]
        return Refusal("InvalidMessageContents") if marked in bodies else None

    proxy.judge = spoiled
    backend = backend_at(proxy.url, queue)
    delivery = await deliver(backend, records(backend, trades(40, 20)))
    assert [event_id for event_id, _ in delivery.failures] == ["stream:7"]
    stored = numbers(await asyncio.to_thread(read, proxy.onward, queue))
    assert stored == [number for number in range(40) if number != 7]


async def test_a_message_whose_entry_is_refused_fails_alone(
    aws_emulator: Endpoint, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In base64 a body never has a character that SQS forbids.
    monkeypatch.setattr(sqs_sink, "b2a_base64", lambda data, **_: data)
    backend = backend_at(aws_emulator.url, queue)
    bodies = [b"AAAA", b"\\u0001", b"BBBB"]
    async with backend.open(Route(backend.rules())) as sink:
        failures = await sink.write(records(backend, [event("A", *each) for each in enumerate(bodies)]))
    assert [(place, type(error)) for place, error in failures] == [(1, Permanent)]
    stored = await asyncio.to_thread(read, aws_emulator.url, queue)
    assert sorted(message["Body"] for message in stored) == ["AAAA", "BBBB"]


async def test_a_message_that_the_queue_finds_too_large_fails_alone(
    aws_emulator: Endpoint, queue: str
) -> None:
    limit = ("--sqs-max-call-bytes=10485760",)
    backend = backend_at(aws_emulator.url, queue, *limit)
    events = [trade("A", 0), event("A", 1, b"x" * 800_000), trade("A", 2), trade("B", 3)]
    errors = await write_all(backend, records(backend, events))
    assert [(place, isinstance(error, Permanent)) for place, error in errors.items()] == [(1, True)]
    assert numbers(await asyncio.to_thread(read, aws_emulator.url, queue)) == [0, 2, 3]


async def test_calls_stay_within_the_limits(proxy: FaultProxy, standard: str) -> None:
    backend = backend_at(proxy.url, standard, "--sqs-static-attributes=env:prod")
    batch = records(backend, [event(f"K{number}", number, b"x" * 150_000) for number in range(20)])
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(batch)
    for call in proxy.calls:
        assert len(call.entries) <= 10
        assert sum(len(entry["MessageBody"]) for entry in call.entries) <= 1_048_576
    assert len(proxy.calls) == 4
    assert len(await asyncio.to_thread(read, proxy.onward, standard)) == 20


async def test_without_strict_order_a_call_takes_ten_messages_of_a_group(
    proxy: FaultProxy, fifo: str
) -> None:
    backend = backend_at(proxy.url, fifo, "--sqs-strict-order=false")
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(100, 2)))
    assert len(proxy.calls) == 10
    assert by_group(await asyncio.to_thread(read, proxy.onward, fifo)) == in_order(100, 2)


async def test_where_strict_order_limits_a_group_more_groups_are_advised(
    aws_emulator: Endpoint, fifo: str
) -> None:
    backend = backend_at(aws_emulator.url, fifo)
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(20, 1)))
        assert "--sqs-message-group-template" in sink.advice
        assert not await sink.write(records(backend, trades(20, 20)))
        assert not sink.advice


async def test_a_fifo_queue_drops_what_comes_twice(aws_emulator: Endpoint, fifo: str) -> None:
    backend = backend_at(aws_emulator.url, fifo)
    async with backend.open(Route(backend.rules())) as sink:
        assert sink.forgets_ids_after == 300.0
        for _ in range(2):
            assert not await sink.write(records(backend, trades(6, 3)))
    assert by_group(await asyncio.to_thread(read, aws_emulator.url, fifo)) == in_order(6, 3)


async def test_the_group_comes_from_its_template(aws_emulator: Endpoint, fifo: str) -> None:
    backend = backend_at(aws_emulator.url, fifo, "--sqs-message-group-template={{exchange}}")
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(6, 3)))
    assert by_group(await asyncio.to_thread(read, aws_emulator.url, fifo)) == {"binance": [0, 1, 2, 3, 4, 5]}


async def test_characters_that_sqs_forbids_are_replaced(aws_emulator: Endpoint, standard: str) -> None:
    backend = backend_at(aws_emulator.url, standard, "--sqs-message-attributes=note:{{meta.note}}")
    assert not (await opened(backend)).forgets_ids_after
    odd = event("A", 1, b"x", meta={"note": 'a\x00b\x1fc\ufffe"\\\t😀'})
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, [odd]))
    (message,) = await asyncio.to_thread(read, aws_emulator.url, standard)
    assert attributes(message)["note"] == 'a\ufffdb\ufffdc\ufffd"\\\t😀'


async def opened(backend: Backend) -> Any:
    async with backend.open(Route(backend.rules())) as sink:
        return sink


@pytest.mark.parametrize(
    "refusal",
    [HANG, BREAK, Refusal("ExpiredToken", 403), Refusal("InvalidClientTokenId", 403)],
)
async def test_a_lost_service_or_credential_asks_for_a_new_session(
    proxy: FaultProxy, standard: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backend_at(proxy.url, standard)
    async with backend.open(Route(backend.rules())) as sink:
        # Opening had as long as a busy machine needs.
        monkeypatch.setattr(aws_session, "ANSWER_SECONDS", 0.5)
        proxy.judge = lambda _: refusal
        with pytest.raises(Disconnected):
            await sink.write(records(backend, trades(3, 3)))
        with pytest.raises(Disconnected):
            await sink.ping()


async def test_a_missing_queue_holds_back_only_its_own_messages(aws_emulator: Endpoint) -> None:
    prefix = f"q-{random.SystemRandom().getrandbits(64):x}"
    create(aws_emulator.url, f"{prefix}-A")
    backend = backend_at(aws_emulator.url, f"{prefix}-{{{{symbol}}}}")
    async with backend.open(Route(backend.rules())) as sink:
        failures = dict(await sink.write(records(backend, [trade("A", 0), trade("B", 1), trade("A", 2)])))
        assert [(place, isinstance(error, Transient)) for place, error in failures.items()] == [(1, True)]
    assert numbers(await asyncio.to_thread(read, aws_emulator.url, f"{prefix}-A")) == [0, 2]


# -- opening


async def opening_error(backend: Backend) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        async with backend.open(Route(backend.rules())):
            pass
    return caught.value


async def test_a_missing_queue_is_refused_with_its_option(aws_emulator: Endpoint, standard: str) -> None:
    error = await opening_error(backend_at(aws_emulator.url, "no-such-queue"))
    assert isinstance(error, Permanent)
    assert str(error).startswith("--sqs-queue-url: ")
    routing = f"--sqs-queue-routing=trade:{queue_url(aws_emulator.url, 'no-such-queue')}"
    routed = backend_at(aws_emulator.url, standard, routing)
    assert str(await opening_error(routed)).startswith("--sqs-queue-routing: ")


async def test_whoever_may_send_need_not_be_allowed_to_look(proxy: FaultProxy, standard: str) -> None:
    proxy.judge = lambda call: None if call.entries else Refusal("AccessDenied", 403)
    backend = backend_at(proxy.url, standard)
    async with backend.open(Route(backend.rules())) as sink:
        await sink.ping()
        assert not await sink.write(records(backend, trades(3, 3)))


async def test_an_unknown_key_names_the_options_and_not_its_value(proxy: FaultProxy) -> None:
    proxy.checks_signatures = True
    flags = reach("sqs", proxy.url, access_key="AKIASTRANGER")
    url = queue_url(proxy.url, "q-{{symbol}}")
    error = await opening_error(backend_of(f"--sqs-queue-url={url}", *flags))
    assert isinstance(error, Permanent)
    assert "--sqs-access-key" in str(error)
    assert "AKIASTRANGER" not in str(error)
