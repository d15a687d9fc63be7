"""The metrics that operators see. Every one is named here, once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from bronze_cli.program import version
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

BATCH_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384)
LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class OnDisk(Protocol):
    """What a lane has on its disk."""

    events: int
    bytes: int
    max_bytes: int


class Watched(Protocol):
    """The lane's figures that are read when metrics are."""

    @property
    def events(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def state(self) -> str: ...

    @property
    def spilling(self) -> OnDisk | None: ...

    def oldest_age(self) -> float:
        """Return the age of the oldest unconfirmed record in seconds."""

    def in_flight(self) -> int:
        """Return how many records are being written."""


class HasBounds(Protocol):
    """The options that bound the process."""

    @property
    def memory_limit(self) -> int: ...
    @property
    def max_queue_events(self) -> int: ...
    @property
    def max_queue_bytes(self) -> int: ...
    @property
    def max_streams(self) -> int: ...


def resident_bytes() -> int:
    """Return how much memory the process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a second time series for each counter, which nobody reads
        self.registry = CollectorRegistry()
        self._gauge("build_info", "Always 1; the label has the version.", "version").labels(version()).set(1)
        self.received = self._counter("events_received", "Events taken from producers.")
        self.received_bytes = self._counter("received_bytes", "Bytes of the requests taken from producers.")
        self.filtered = self._counter("events_filtered", "Events that no back end takes.")
        self.rejected = self._counter("events_rejected", "Events refused as malformed.")
        self.dead_letters = self._counter("dead_letters", "Lines written to the dead-letter file.")
        self.dead_letters_lost = self._counter("dead_letters_lost", "Lines that could not be written to it.")
        self.failures = self._counter(
            "failures",
            "Events rejected, or failed on a back end, by payload case and class of reason.",
            *("what", "backend", "payload_case", "reason"),
        )
        self.streams = self._gauge("streams", "Open producer streams.")
        self.published = self._counter("events_published", "Records confirmed by the back end.", "backend")
        self.published_bytes = self._counter("published_bytes", "Bytes of envelopes confirmed.", "backend")
        self.failed = self._counter("events_failed", "Records given up for good.", "backend")
        self.retried = self._counter("events_retried", "Records that had to be written again.", "backend")
        self.queued = self._gauge("queue_events", "Records that wait for the back end.", "backend")
        self.queued_bytes = self._gauge("queue_bytes", "Bytes that wait for the back end.", "backend")
        self.in_flight = self._gauge("in_flight_events", "Records being written.", "backend")
        self.oldest = self._gauge(
            "oldest_unacknowledged_seconds", "Age of the oldest unconfirmed record.", "backend"
        )
        self.spooled = self._gauge("spool_events", "Records that wait on disk.", "backend")
        self.spooled_bytes = self._gauge("spool_bytes", "Bytes that wait on disk.", "backend")
        self.spool_limit = self._gauge("spool_bytes_limit", "Most bytes that wait on disk.", "backend")
        self.ready = self._gauge("backend_ready", "1 while the back end takes records.", "backend")
        self.batch_size = self._histogram("batch_events", "Records in one write.", BATCH_SIZES)
        self.latency = self._histogram("write_seconds", "Time from write to confirmation.", LATENCIES)

    def show_bounds(self, bounds: HasBounds, backends: Iterable[str]) -> None:
        """Show what the process may hold, beside what it holds."""
        self._gauge("memory_limit_bytes", "Memory that the process may use.").set(bounds.memory_limit)
        self._gauge("resident_bytes", "Memory that the process uses.").set_function(resident_bytes)
        self._gauge("streams_limit", "Most producer streams.").set(bounds.max_streams)
        events = self._gauge("queue_events_limit", "Most records that wait for the back end.", "backend")
        size = self._gauge("queue_bytes_limit", "Most bytes that wait for the back end.", "backend")
        for backend in backends:
            events.labels(backend).set(bounds.max_queue_events)
            size.labels(backend).set(bounds.max_queue_bytes)

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(f"bronze_{name}", doc, labels, registry=self.registry)

    def _gauge(self, name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(f"bronze_{name}", doc, labels, registry=self.registry)

    def _histogram(self, name: str, doc: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"bronze_{name}", doc, ("backend",), registry=self.registry, buckets=buckets)

    def lane(self, backend: str) -> LaneMetrics:
        """Return the metrics of one back end, looked up once."""
        return LaneMetrics(self, backend)


class LaneMetrics:
    """One back end's metrics, updated once for each write."""

    def __init__(self, metrics: Metrics, backend: str) -> None:
        self._metrics = metrics
        self._backend = backend
        self.published = metrics.published.labels(backend)
        self.published_bytes = metrics.published_bytes.labels(backend)
        self.failed = metrics.failed.labels(backend)
        self.retried = metrics.retried.labels(backend)
        self.batch_size = metrics.batch_size.labels(backend)
        self.latency = metrics.latency.labels(backend)

    def wrote(self, records: int, size: int, seconds: float) -> None:
        """Take note of one write."""
        self.published.inc(records)
        self.published_bytes.inc(size)
        self.batch_size.observe(records)
        self.latency.observe(seconds)

    def watch(self, lane: Watched) -> None:
        """Read a lane's figures whenever metrics are read."""
        metrics, backend = self._metrics, self._backend
        metrics.queued.labels(backend).set_function(lambda: lane.events)
        metrics.queued_bytes.labels(backend).set_function(lambda: lane.bytes)
        metrics.in_flight.labels(backend).set_function(lane.in_flight)
        metrics.oldest.labels(backend).set_function(lane.oldest_age)
        if on_disk := lane.spilling:
            metrics.spooled.labels(backend).set_function(lambda: on_disk.events)
            metrics.spooled_bytes.labels(backend).set_function(lambda: on_disk.bytes)
            metrics.spool_limit.labels(backend).set(on_disk.max_bytes)
        metrics.ready.labels(backend).set_function(lambda: lane.state == "ready")


def total(counter: Counter) -> float:
    """Return a counter's value, added up over its labels."""
    return sum(value for _, value in _readings(counter))


def by_backend(counter: Counter) -> dict[str, float]:
    """Return a counter's value for each back end."""
    values: defaultdict[str, float] = defaultdict(float)
    for labels, value in _readings(counter):
        values[labels["backend"]] += value
    return values


def _readings(counter: Counter) -> Iterator[tuple[Mapping[str, str], float]]:
    for metric in counter.collect():
        yield from (
            (sample.labels, sample.value) for sample in metric.samples if sample.name.endswith("_total")
        )
