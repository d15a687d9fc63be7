"""Record batches: what one request carries for one partition.

Kafka stores a batch as it was built, so a record costs only as much as appending it to one.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.kafka.numbering import Numbering
from bronze_sidecar.sinks.kafka.options import EVENT_ID_HEADER

# Slightly less than what brokers accept by default (message.max.bytes).
BATCH_BYTES = 1_000_000
MAGIC = 2
# The attribute bits of a record batch.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPRESS = {
    "none": None,
    "gzip": gzip_encode,
    "snappy": snappy_encode,
    "lz4": lz4_encode,
    "zstd": zstd_encode,
}

Header = tuple[str, bytes]
MoreHeaders = Callable[[Event], list[tuple[str, str]]]
"""Returns headers that differ between events of one address."""


class Partition:
    """A partition of a topic, and how far we are in it."""

    __slots__ = ("numbers", "place", "refused_since", "topic")

    def __init__(self, topic: Topic, number: int, numbering: Numbering) -> None:
        self.topic = topic
        self.place = TopicPartition(topic.name, number)
        self.numbers = numbering.of(self.place)
        self.refused_since: float | None = None
        """When it began to refuse batches."""

    def stored(self, count: int) -> None:
        self.numbers.stored(count)
        self.refused_since = None


class Topic:
    """A topic and what precedes each of its values."""

    __slots__ = ("_all", "_numbering", "frame", "name", "partitions")

    def __init__(self, name: str, frame: bytes, numbering: Numbering) -> None:
        self.name = name
        self.frame = frame
        self.partitions: list[Partition] = []
        """Those that exist now."""
        self._all: list[Partition] = []
        self._numbering = numbering

    def have(self, count: int) -> None:
        """Record how many partitions there are."""
        # A partition that existed before continues its numbers: the broker may remember the old ones.
        for number in range(len(self._all), count):
            self._all.append(Partition(self, number, self._numbering))
        self.partitions = self._all[:count]


class RecordBatch(Protocol):
    """A batch that is being built."""

    def fill(
        self,
        records: list[Record],
        start: int,
        frame: bytes,
        id_header: str,
        more_headers: MoreHeaders | None,
    ) -> int:
        """Add records from `start` on while there is room, the first in any case; return where it ended."""

    def build(self, producer_id: int, producer_epoch: int, sequence: int) -> bytes | bytearray:
        """Return the encoded batch, with the numbers that it is to have."""


class LibraryBatch:
    """A batch made by the library."""

    def __init__(self, codec: int, most_bytes: int, timestamp: int) -> None:
        self._timestamp = timestamp
        self._builder = DefaultRecordBatchBuilder(
            magic=MAGIC,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=most_bytes,
        )

    def fill(
        self,
        records: list[Record],
        start: int,
        frame: bytes,
        id_header: str,
        more_headers: MoreHeaders | None,
    ) -> int:
        append, timestamp = self._builder.append, self._timestamp
        for index in range(start, len(records)):
            record = records[index]
            event = record.event
            key, _, first_headers = record.address.prepared
            headers = [*first_headers, (id_header, event.id.encode())]
            if more_headers:
                headers += [(name, value.encode()) for name, value in more_headers(event)]
            value = frame + event.envelope if frame else event.envelope
            if append(index - start, timestamp, key, value, headers) is None:
                return index
        return len(records)

    def build(self, producer_id: int, producer_epoch: int, sequence: int) -> bytearray:
        self._builder.set_producer_state(producer_id, producer_epoch, sequence)
        encoded: bytearray = self._builder.build()
        return encoded


class Parcel:
    """A batch of records for one partition."""

    __slots__ = ("_batch", "_data", "breaks", "is_uncertain", "partition", "places", "records")

    def __init__(
        self, partition: Partition, batch: RecordBatch, records: Sequence[Record], places: Sequence[int]
    ) -> None:
        self.partition = partition
        self.records = records
        self.places = places
        """Where they are in the write. What is repeated may have records that the write does not carry."""
        self.is_uncertain = False
        """Whether it may have been stored without our knowing."""
        self.breaks = 0
        """How often a broker closed the connection instead of answering."""
        self._batch = batch
        self._data: bytes | bytearray | None = None

    def data(self) -> bytes | bytearray:
        """Return the encoded batch; the first call fixes its number."""
        if self._data is None:
            numbers = self.partition.numbers
            sequence = numbers.next if numbers.producer.id >= 0 else -1
            self._data = self._batch.build(*numbers.producer, sequence)
        return self._data


class RecordHead(NamedTuple):
    """What all records of an address have in common."""

    key: bytes
    hash: int
    headers: tuple[Header, ...]


def prepare(address: Address) -> RecordHead:
    key = address.key.encode()
    headers = tuple((name, value.encode()) for name, value in address.headers)
    # As the Java client does, so that all producers agree on the partition of a key.
    address.prepared = RecordHead(key, murmur2(key) & 0x7FFF_FFFF, headers)
    return address.prepared  # type: ignore[no-any-return] # it belongs to the sink


class Packer:
    """Puts records into parcels."""

    def __init__(self, route: Route, compression: str) -> None:
        self._more_headers = route.event_headers if route.has_event_headers else None
        codec = CODECS[compression]
        self._new_batch: Callable[[int, int], RecordBatch] = partial(LibraryBatch, codec)
        if route.is_native:
            self._new_batch = partial(native.compiled.RecordBatch, codec, COMPRESS[compression])

    def pack(
        self, batch: Sequence[Record], places: Iterable[int], topics: Mapping[str, Topic]
    ) -> dict[Partition, deque[Parcel]]:
        """Return the parcels of each partition, in order; raise KeyError if a topic is not known."""
        places_by_partition: dict[Partition, list[int]] = {}
        # Many records share an address, and are told apart by it alone.
        places_by_address: dict[int, list[int]] = {}
        for place in places:
            address = batch[place].address
            its_places = places_by_address.get(id(address))
            if its_places is None:
                prepared = address.prepared or prepare(address)
                partitions = topics[address.destination].partitions
                partition = partitions[prepared.hash % len(partitions)]
                its_places = places_by_partition.setdefault(partition, [])
                places_by_address[id(address)] = its_places
            its_places.append(place)
        return {
            partition: deque(self._fill(partition, [batch[place] for place in its_places], its_places))
            for partition, its_places in places_by_partition.items()
        }

    def halve(self, parcel: Parcel) -> list[Parcel]:
        """Split a parcel in two, for the same partition."""
        middle = len(parcel.places) // 2
        halves = (slice(middle), slice(middle, None))
        return [
            each
            for half in halves
            for each in self._fill(parcel.partition, [*parcel.records[half]], parcel.places[half])
        ]

    def repeat(self, partition: Partition, records: Sequence[Record], places: Sequence[int]) -> Parcel:
        """Put records that may be stored into one parcel again, some of which are in the write."""
        (parcel,) = self._fill(partition, [*records], places, most_bytes=sys.maxsize)
        parcel.is_uncertain = True
        return parcel

    def _fill(
        self,
        partition: Partition,
        records: list[Record],
        places: Sequence[int],
        most_bytes: int = BATCH_BYTES,
    ) -> Iterator[Parcel]:
        timestamp = int(time.time() * 1000)
        start = 0
        while True:
            batch = self._new_batch(most_bytes, timestamp)
            end = batch.fill(records, start, partition.topic.frame, EVENT_ID_HEADER, self._more_headers)
            yield Parcel(partition, batch, records[start:end], places[start:end])
            if end == len(records):
                return
            start, most_bytes = end, BATCH_BYTES
