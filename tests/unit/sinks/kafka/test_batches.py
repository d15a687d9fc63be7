"""Kafka without a broker: how records are packed, how batches are numbered."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.kafka.batches import BATCH_BYTES, Packer, Parcel, Partition, Topic
from bronze_sidecar.sinks.kafka.numbering import Numbering, Producer
from bronze_sidecar.sinks.kafka.registry import SCHEMA
from configurations import with_minimum
from google.protobuf.descriptor_pb2 import FileDescriptorProto


@pytest.fixture(autouse=True, params=["compiled", "python"])
def _building(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build batches with and without compiled code."""
    is_native = request.param == "compiled"
    if is_native and not native.IS_INSTALLED:
        pytest.skip("there was no Rust compiler to build it")
    defaults = Route.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "is_native", is_native)


def event(symbol: str, number: int, envelope: bytes = b"x") -> Event:
    return Event(
        envelope=envelope,
        id=f"s:{number}",
        payload_case="trade",
        exchange="binance",
        symbol=symbol,
        data_type="trade",
        source="test",
        origin="replay",
        meta={},
    )


def batch_of(*events: Event) -> tuple[list[Record], Packer]:
    backend = with_minimum("--kafka-topic=t")
    route = Route(backend.rules())
    records = []
    for each in events:
        address = route.address(each)
        assert address is not None
        records.append(Record(address, each))
    return records, Packer(route, "none")


NOBODY = Producer()


def topic(partitions: int, frame: bytes = b"", producer: Producer = NOBODY) -> dict[str, Topic]:
    made = Topic("t", frame, Numbering(producer=producer))
    made.have(partitions)
    return {"t": made}


def unpack(parcel: Parcel) -> tuple[Any, list[Any]]:
    batch = DefaultRecordBatch(bytes(parcel.data()))
    return batch, list(batch)


def test_records_of_a_key_share_a_partition_and_keep_their_order() -> None:
    events = [event("ABCDEFGH"[number % 8], number) for number in range(800)]
    batch, packer = batch_of(*events)
    queues = packer.pack(batch, range(800), topic(3))
    partition_by_key: dict[str, Partition] = {}
    seen: list[int] = []
    for partition, queue in queues.items():
        places = [place for parcel in queue for place in parcel.places]
        assert places == sorted(places)
        seen += places
        for place in places:
            assert partition_by_key.setdefault(batch[place].address.key, partition) is partition
    assert sorted(seen) == list(range(800))
    assert len(queues) == 3


def test_a_parcel_is_no_larger_than_brokers_take() -> None:
    batch, packer = batch_of(*(event("A", number, bytes(100_000)) for number in range(25)))
    ((_, queue),) = packer.pack(batch, range(25), topic(1)).items()
    assert [len(parcel.places) for parcel in queue] == [9, 9, 7]
    assert all(len(parcel.data()) <= BATCH_BYTES for parcel in queue)
    values = [record.value for parcel in queue for record in unpack(parcel)[1]]
    assert values == [bytes(100_000)] * 25


def test_a_record_of_any_size_gets_a_parcel() -> None:
    batch, packer = batch_of(event("A", 0), event("A", 1, bytes(3_000_000)), event("A", 2))
    ((_, queue),) = packer.pack(batch, range(3), topic(1)).items()
    assert [parcel.places for parcel in queue] == [[0], [1], [2]]


def test_halves_have_the_same_records_and_partition() -> None:
    batch, packer = batch_of(*(event("A", number, b"%d" % number) for number in range(7)))
    ((partition, queue),) = packer.pack(batch, range(7), topic(5)).items()
    halves = packer.halve(queue[0])
    assert [half.places for half in halves] == [[0, 1, 2], [3, 4, 5, 6]]
    assert all(half.partition is partition for half in halves)
    assert [record.value for record in unpack(halves[1])[1]] == [b"3", b"4", b"5", b"6"]


def test_a_batch_keeps_the_number_it_was_first_sent_with() -> None:
    batch, packer = batch_of(*(event("A", number) for number in range(3)))
    ((partition, queue),) = packer.pack(batch, range(3), topic(1, producer=Producer(7, 1))).items()
    partition.numbers.next = 2**31 - 2
    header, _ = unpack(queue[0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 2**31 - 2)
    partition.stored(3)
    # As the broker counts: after 2,147,483,647 comes 0.
    assert partition.numbers.next == 1
    header, _ = unpack(queue[0])
    assert header.base_sequence == 2**31 - 2


def test_a_partition_that_was_away_goes_on_with_its_numbers() -> None:
    made = topic(3)["t"]
    made.partitions[2].stored(5)
    made.have(2)
    assert [partition.place.partition for partition in made.partitions] == [0, 1]
    made.have(4)
    assert [partition.numbers.next for partition in made.partitions] == [0, 0, 5, 0]


def test_a_frame_goes_before_every_value() -> None:
    batch, packer = batch_of(event("A", 0, b"first"), event("A", 1, b"second"))
    ((_, queue),) = packer.pack(batch, range(2), topic(1, b"\0\0\0\0\7\0")).items()
    _, records = unpack(queue[0])
    assert [record.value for record in records] == [b"\0\0\0\0\7\0first", b"\0\0\0\0\7\0second"]
    assert records[0].key == b"binance|A|trade"
    assert ("eventId", b"s:0") in records[0].headers


def test_the_schema_is_ours_and_its_first_message_is_the_envelope() -> None:
    file = FileDescriptorProto.FromString(base64.b64decode(SCHEMA["schema"]))
    assert file.name == "lakehouse/bronze/v1/normalized_event.proto"
    assert file.message_type[0].name == NormalizedEvent.DESCRIPTOR.name
    assert list(file.dependency) == ["google/protobuf/timestamp.proto"]
