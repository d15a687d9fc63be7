"""Numbers of records without a broker: what is remembered, and for how long."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.kafka import numbering as kafka_numbering
from bronze_sidecar.sinks.kafka.numbering import Numbering, Producer

PLACE = TopicPartition("t", 0)
ADDRESS = Address("t", "k", ())


def sent(count: int) -> tuple[Numbering, list[Record]]:
    """Return the numbering of a new connection, and what an earlier one sent without an answer."""
    numbering = Numbering(producer=Producer(7, 0))
    records = [Record(ADDRESS, None) for _ in range(count)]  # type: ignore[arg-type] # it is not looked at
    numbering.of(PLACE).unsettled = records
    numbering.look_back()
    return numbering, records


def test_records_are_known_by_identity_alone() -> None:
    numbering, records = sent(2)
    same = Record(ADDRESS, None)  # type: ignore[arg-type]
    assert same == records[0]
    assert numbering.sort([same, *records], range(3)) == ([0], {PLACE: [1, 2]})


def test_what_was_stored_unasked_is_told_once() -> None:
    numbering, records = sent(3)
    numbering.settle(PLACE, records[:1])
    numbering.of(PLACE).stored(3)
    assert numbering.sort(records[1:2], [0]) == ([], {})
    assert numbering.sort(records[1:2], [0]) == ([0], {})
    assert numbering.sort(records[2:], [0]) == ([], {})
    assert not numbering.looks_back
    assert numbering.of(PLACE).next == 3


def test_what_nobody_asks_about_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_numbering, "MOST_REMEMBERED", 2)
    numbering, records = sent(4)
    numbering.settle(PLACE, [])
    assert numbering.sort(records, range(4)) == ([0, 1], {})


def test_a_partition_that_starts_over_needs_a_new_id_and_others_keep_theirs() -> None:
    numbering, _ = sent(4)
    other = TopicPartition("t", 1)
    numbering.of(other).stored(5)
    assert numbering.start_over(PLACE) == 4
    assert numbering.producer is None
    numbering.producer = Producer(8, 0)
    numbering.look_back()
    assert not numbering.looks_back
    assert (numbering.of(PLACE).producer.id, numbering.of(PLACE).next) == (8, 0)
    assert (numbering.of(other).producer.id, numbering.of(other).next) == (7, 5)
