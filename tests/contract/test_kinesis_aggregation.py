"""Kinesis with aggregation: the contract, and what is different when a record has many events."""

from __future__ import annotations

import random

import pytest
from aws_servers import Call, FaultProxy, Refusal, deliver
from bronze_sidecar.errors import NotTried, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import STRICT_ORDER, Backend
from contract import test_kinesis as plain
from contract.contract import event, records, trade
from contract.test_kinesis import backend_at, by_key, in_order, proxy, read, read_records, stream, trades
from servers import Endpoint

pytestmark = pytest.mark.servers

__all__ = ["proxy", "stream"]

AGGREGATION = "--kinesis-aggregation"


class TestKinesisAggregation(plain.TestKinesis):
    """The contract; what arrives is read by Amazon's library."""

    def addressing(self, prefix: str) -> tuple[str, ...]:
        return *super().addressing(prefix), AGGREGATION


def aggregating(url: str, stream: str, *more: str) -> Backend:
    return backend_at(url, stream, AGGREGATION, *more)


def entries_of(proxy: FaultProxy) -> list[list[str]]:
    """Return the keys of each call's records."""
    return [sorted(plain.keys_of(call)) for call in proxy.calls]


async def test_all_waiting_events_of_a_key_are_one_record(proxy: FaultProxy, stream: str) -> None:
    backend = aggregating(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        assert sink.order == STRICT_ORDER
        assert not await sink.write(records(backend, [*trades(1200, 2), trade("K2", 7)]))
    assert entries_of(proxy) == [["binance|K0|trade", "binance|K1|trade", "binance|K2|trade"]]
    assert by_key(read(proxy.onward, stream)) == in_order(1200, 2) | {"binance|K2|trade": [7]}
    # An event that is alone is a record as ever.
    (alone,) = [
        each for each in read_records(proxy.onward, stream) if each["PartitionKey"] == "binance|K2|trade"
    ]
    assert alone["Data"].startswith(trade("K2", 7).envelope)


async def test_a_refused_record_is_stored_later_as_a_whole_and_order_holds(
    proxy: FaultProxy, stream: str
) -> None:
    chance = random.Random(11)  # noqa: S311
    proxy.refuses = lambda _: chance.random() < 0.2
    backend = aggregating(proxy.url, stream, "--kinesis-max-batch-size=200")
    delivery = await deliver(backend, records(backend, trades(6000, 20)))
    assert delivery.failures == []
    assert delivery.retried > 200
    assert by_key(read(proxy.onward, stream)) == in_order(6000, 20)
    assert all(len(keys) == len(set(keys)) for keys in entries_of(proxy))


async def test_each_event_of_a_refused_record_is_reported_and_no_other(
    proxy: FaultProxy, stream: str
) -> None:
    proxy.refuses = lambda entry: entry["PartitionKey"] == "binance|K1|trade"
    backend = aggregating(proxy.url, stream)
    async with backend.open(Route(backend.rules())) as sink:
        failures = dict(await sink.write(records(backend, trades(9, 3))))
    assert {place: type(error) for place, error in failures.items()} == dict.fromkeys((1, 4, 7), Transient)
    assert by_key(read(proxy.onward, stream)) == {
        "binance|K0|trade": [0, 3, 6],
        "binance|K2|trade": [2, 5, 8],
    }


async def test_a_record_stays_within_its_limit_with_key_and_frame(proxy: FaultProxy, stream: str) -> None:
    backend = aggregating(proxy.url, stream, "--kinesis-max-record-bytes=2048")
    batch = records(backend, [event("K", number, b"x" * (1 + number % 300)) for number in range(600)])
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(batch)
    stored = read_records(proxy.onward, stream)
    assert max(len(each["Data"]) + len(each["PartitionKey"]) for each in stored) <= 2048
    assert len(stored) < 100
    assert [each["Data"] for each in read(proxy.onward, stream)] == [each.event.envelope for each in batch]


async def test_what_the_service_finds_too_large_is_sent_in_smaller_records(
    aws_emulator: Endpoint, stream: str
) -> None:
    limits = ("--kinesis-max-record-bytes=10485760", "--kinesis-max-call-bytes=10485760")
    backend = aggregating(aws_emulator.url, stream, *limits)
    batch = records(backend, [event("K", number, b"%d" % number * 300_000) for number in range(8)])
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(batch)
    assert [each["Data"] for each in read(aws_emulator.url, stream)] == [
        each.event.envelope for each in batch
    ]


async def test_a_refused_call_leaves_out_its_whole_records_and_those_behind_them(
    proxy: FaultProxy, stream: str
) -> None:
    def judge(call: Call) -> Refusal | None:
        return Refusal("InternalFailure", 500) if plain.keys_of(call) == ["binance|K|trade"] else None

    proxy.judge = judge
    backend = aggregating(proxy.url, stream, "--kinesis-max-record-bytes=2048")
    batch = records(backend, [event("K", number, b"x" * 900) for number in range(6)] + [event("L", 6, b"y")])
    async with backend.open(Route(backend.rules())) as sink:
        failures = dict(await sink.write(batch))
    # The first two are in a call with the other key; the next two are refused.
    assert {place: type(error) for place, error in failures.items()} == {
        2: Transient,
        3: Transient,
        4: NotTried,
        5: NotTried,
    }
    assert len(read(proxy.onward, stream)) == 3


@pytest.mark.parametrize(
    ("keys", "options", "is_advised"),
    [
        (1, (), True),
        (20, (), False),
        (1, ("--kinesis-strict-order=false",), False),
        (1, (AGGREGATION,), False),
    ],
)
async def test_where_strict_order_limits_a_key_aggregation_is_named(
    aws_emulator: Endpoint, stream: str, keys: int, options: tuple[str, ...], *, is_advised: bool
) -> None:
    backend = backend_at(aws_emulator.url, stream, *options)
    async with backend.open(Route(backend.rules())) as sink:
        assert not await sink.write(records(backend, trades(20, keys)))
        assert (AGGREGATION in sink.advice) == bool(sink.advice) == is_advised
        assert not await sink.write(records(backend, trades(1, 1)))
        assert not sink.advice
