"""Numbers of records, by which brokers tell a repeated batch from a new one, also after we reconnect.

A broker takes a batch for a repetition if its producer's id, its partition, and its first and last number are
those of one of the last batches that it stored. Therefore:

- Numbers are bound to records before these are sent. They are given to other records only when a broker has
  said that it did not store them.
- As long as that is unknown, the same records go first to their partition, as one batch under the same
  numbers, however the lane groups what it sends.
- Where a broker does not help us out of the doubt, the partition starts over under another id. Only then may
  records be stored twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiokafka import TopicPartition

from bronze_sidecar.routing.rules import Record

SEQUENCE_MASK = 0x7FFF_FFFF
MOST_REMEMBERED = 16_384
"""Records known to be stored that the lane has not asked about. It never does if it has given them up."""


class Producer(NamedTuple):
    """Identifies batches to the broker, together with their numbers."""

    id: int = -1
    epoch: int = -1


class Numbers:
    """The numbers of one partition's records."""

    __slots__ = ("next", "producer", "unsettled")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.next = 0
        """The number of the next record."""
        self.unsettled: Sequence[Record] = ()
        """Records that were sent under the next numbers, and may be stored."""

    def stored(self, count: int) -> None:
        self.next = (self.next + count) & SEQUENCE_MASK
        self.unsettled = ()


class Numbering:
    """The numbers of everything that a lane writes, kept from one connection to the next."""

    def __init__(self, cluster: str | None = None, producer: Producer | None = None) -> None:
        self.cluster = cluster
        """Which cluster gave the producer's id; another one may give the same id to somebody else."""
        self.producer = producer
        """Whose numbers partitions start with; None if a new id must be asked for."""
        self._numbers: dict[TopicPartition, Numbers] = {}
        self._in_doubt: dict[int, TopicPartition] = {}
        """Where records were sent on an earlier connection that may be stored, by their identity."""
        self._stored: dict[int, Record] = {}
        """Records known to be stored that the lane does not know of yet, by their identity."""

    def of(self, place: TopicPartition) -> Numbers:
        """Return the numbers of a partition."""
        numbers = self._numbers.get(place)
        if numbers is None:
            assert self.producer is not None  # noqa: S101 - it is asked for on connecting
            numbers = self._numbers[place] = Numbers(self.producer)
        return numbers

    def start_over(self, place: TopicPartition) -> int:
        """Forget a partition's numbers, so that the next connection takes a new id.

        Return how many records may be stored under the old numbers.
        """
        self.producer = None
        numbers = self._numbers.pop(place, None)
        return len(numbers.unsettled) if numbers else 0

    def look_back(self) -> None:
        """Find what earlier connections left in doubt."""
        self._in_doubt = {
            id(record): place for place, numbers in self._numbers.items() for record in numbers.unsettled
        }

    @property
    def looks_back(self) -> bool:
        """Whether a write may carry records that were sent before."""
        return bool(self._in_doubt or self._stored)

    def sort(
        self, batch: Sequence[Record], places: Iterable[int]
    ) -> tuple[list[int], dict[TopicPartition, list[int]]]:
        """Return which records to send as new, and which are in doubt; the others are known to be stored."""
        new: list[int] = []
        doubtful: dict[TopicPartition, list[int]] = {}
        for place in places:
            record = id(batch[place])
            if record in self._in_doubt:
                doubtful.setdefault(self._in_doubt[record], []).append(place)
            elif self._stored.pop(record, None) is None:
                new.append(place)
        return new, doubtful

    def doubts(self) -> Iterable[TopicPartition]:
        """Return the partitions in which an earlier connection left a batch in doubt."""
        return dict.fromkeys(self._in_doubt.values())

    def settle(self, place: TopicPartition, told: Iterable[Record]) -> None:
        """Take note that a batch in doubt is stored; the lane is told of some of its records now."""
        known = set(map(id, told))
        for record in self._numbers[place].unsettled:
            self._in_doubt.pop(id(record), None)
            if id(record) not in known:
                self._stored[id(record)] = record
        while len(self._stored) > MOST_REMEMBERED:
            del self._stored[next(iter(self._stored))]
