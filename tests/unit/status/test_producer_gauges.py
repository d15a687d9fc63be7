"""Metrics of producers are few, however many producers there are."""

from __future__ import annotations

from bronze_sidecar.ingest.session import ProducerSession
from bronze_sidecar.mapping.mapper import StreamContext
from bronze_sidecar.status.producer_gauges import OTHERS, ProducerGauges
from prometheus_client import CollectorRegistry


def session(source: str, *, waiting: int = 0, refused: int = 0, connected: bool = True) -> ProducerSession:
    made = ProducerSession(0)
    made.context = StreamContext("s", source)
    made.events_on_the_way = waiting
    made.bytes_on_the_way = waiting * 10
    made.take_over = (lambda: None) if connected else None
    for _ in range(refused):
        made.tallies.failed.add("x")
    return made


def registry(*sessions: ProducerSession) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(ProducerGauges(lambda: [((str(place), "s"), each) for place, each in enumerate(sessions)]))
    return found


def value(found: CollectorRegistry, name: str, source: str) -> float | None:
    return found.get_sample_value(f"bronze_producer_{name}", {"source": source})


def test_the_runs_of_a_program_are_added_up() -> None:
    found = registry(
        session("a/1", waiting=3, refused=1),
        session("a/1", waiting=4),
        session("a/1", connected=False, refused=2),
    )
    assert value(found, "streams", "a/1") == 2
    assert value(found, "unacknowledged_messages", "a/1") == 7
    assert value(found, "unacknowledged_bytes", "a/1") == 70
    assert value(found, "refused_messages", "a/1") == 3


def test_of_many_those_that_are_least_busy_are_added_up() -> None:
    found = registry(*(session(f"p/{number}", waiting=number) for number in range(1, 101)))
    sources = {sample.labels["source"] for metric in found.collect() for sample in metric.samples}
    assert sources == {f"p/{number}" for number in range(81, 101)} | {OTHERS}
    assert value(found, "unacknowledged_messages", OTHERS) == sum(range(1, 81))
    assert value(found, "streams", OTHERS) == 80


def test_without_producers_there_is_nothing() -> None:
    assert [sample for metric in registry().collect() for sample in metric.samples] == []
