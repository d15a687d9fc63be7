"""What the workers say of themselves, added up."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from bronze_sidecar.configuration.config import Config
from bronze_sidecar.ingest.failures import Failures
from bronze_sidecar.ingest.server import SidecarService
from bronze_sidecar.status.snapshot import Snapshot
from bronze_sidecar.status.together import together
from bronze_sidecar.telemetry.metrics import Metrics, resident_bytes

ANSWER_SECONDS = 5.0
LEAST = {"bronze_backend_ready"}
GREATEST = {"bronze_oldest_unacknowledged_seconds", "bronze_build_info"}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Known:
    """What is known of one worker."""

    admin: Path
    facts: dict[str, Any] = field(default_factory=dict)
    """Empty while it does not answer."""
    metrics: list[Metric] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=lambda: ["it does not answer"])
    """What is known of the back ends that it has not reached once; a restart changes nothing of that."""
    was_ready: bool = False
    ends: int = 0
    """How often it has ended."""


class WorkerTotals(Collector):
    """Facts and metrics of all workers, as one process would have them."""

    def __init__(self, config: Config, admins: Sequence[Path]) -> None:
        self._config = config
        self._known = [Known(admin) for admin in admins]
        metrics = Metrics()
        nobody = SidecarService(config, [], metrics)
        self._own = Snapshot(config, [], nobody, Failures(), metrics)
        """Of a process that takes nothing: what there is to add to."""
        self._gone: list[Metric] = []
        """What workers had counted before they ended."""
        self._restarts = 0
        self._looked_at = 0.0
        self._looking = asyncio.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def was_ready(self, number: int) -> bool:
        """Return whether a worker has ever been ready."""
        return self._known[number].was_ready

    def ended(self, number: int) -> None:
        """Take note that a worker has ended, with what it had counted as far as that is known."""
        known = self._known[number]
        counted = [family for family in known.metrics if family.type in {"counter", "histogram"}]
        self._gone = list(_added_up([*self._gone, *counted]))
        known.facts, known.metrics = {}, []
        known.ends += 1
        self._restarts += 1

    async def look(self) -> None:
        """Ask all workers; whoever waits meanwhile is content with the next answers."""
        came = time.monotonic()
        async with self._looking:
            if self._looked_at < came:
                self._looked_at = time.monotonic()
                await asyncio.gather(*map(self._ask, self._known))

    @staticmethod
    async def _ask(known: Known) -> None:
        ends = known.ends
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                facts, metrics, reached = await asyncio.gather(
                    *(_get(known.admin, path) for path in ("/status", "/metrics", "/reached"))
                )
            answers = json.loads(facts), list(text_string_to_metric_families(metrics.decode()))
        except (OSError, TimeoutError, ValueError):
            known.facts = {}
            return
        if known.ends != ends:
            return  # what it had counted is among what is gone
        known.facts, known.metrics = answers
        if known.not_reached:
            known.not_reached = [] if reached == b"reached\n" else reached.decode().splitlines()
        known.was_ready = known.was_ready or not known.facts["not_ready"]

    # -- readiness and facts

    def not_ready(self) -> list[str]:
        """Return why some worker is not ready."""
        return [
            f"worker {number}: {reason}"
            for number, known in enumerate(self._known)
            for reason in (known.facts["not_ready"] if known.facts else ["it does not answer"])
        ]

    def not_reached(self) -> list[str]:
        """Return what is known of the back ends that some worker has not reached once."""
        return [
            f"worker {number}: {reason}"
            for number, known in enumerate(self._known)
            for reason in known.not_reached
        ]

    def facts(self) -> dict[str, Any]:
        """Return everything that there is to see."""
        answering = {number: known.facts for number, known in enumerate(self._known) if known.facts}
        facts = together(self._own.facts(), answering)
        return {**facts, "not_ready": self.not_ready()}

    # -- metrics

    def collect(self) -> Iterator[Metric]:
        """Return the workers' metrics, added up."""
        yield from _added_up([*self._gone, *(family for known in self._known for family in known.metrics)])
        own = {
            "bronze_workers": (
                "Worker processes that answer.",
                sum(bool(each.facts) for each in self._known),
            ),
            "bronze_supervisor_resident_bytes": ("Memory of the process above them.", resident_bytes()),
        }
        for name, (text, value) in own.items():
            gauge = Metric(name, text, "gauge")
            gauge.add_sample(name, {}, value)
            yield gauge
        restarts = Metric("bronze_worker_restarts", "Workers that ended and were started again.", "counter")
        restarts.add_sample("bronze_worker_restarts_total", {}, self._restarts)
        yield restarts


def _added_up(families: Iterable[Metric]) -> Iterator[Metric]:
    """Return families of each name as one, with all series that any of them has."""
    found: dict[str, Metric] = {}
    values: defaultdict[str, dict[tuple[str, Labels], list[float]]] = defaultdict(dict)
    for family in families:
        found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        for sample in family.samples:
            key = sample.name, _labels(sample.labels)
            values[family.name].setdefault(key, []).append(sample.value)
    for name, family in found.items():
        for (sample_name, labels), each in values[name].items():
            family.add_sample(sample_name, dict(labels), _combined(name, each))
        yield family


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _combined(name: str, values: Iterable[float]) -> float:
    if name in LEAST:
        return min(values)
    return max(values) if name in GREATEST else sum(values)


async def _get(admin: Path, path: str) -> bytes:
    """Ask a worker's admin socket; raise OSError if it does not answer, or ends before it has."""
    reader, writer = await asyncio.open_unix_connection(str(admin))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if b"Content-Length: %d" % len(body) not in head.split(b"\r\n"):
        raise ConnectionResetError(f"{admin} ended in the middle of an answer")
    return body
