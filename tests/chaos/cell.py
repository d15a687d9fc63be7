"""One cell of the campaign: a producer, a sidecar and a bus, a fault, and what became of the events."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bronze_client import PublishError
from buses import trade
from chaos.faults import Fault
from chaos.slow_link import Link, link_to
from chaos.targets import Stored, Target
from clients import ClientUnderTest, PublisherUnderTest
from sidecar_process import SidecarProcess, sidecar

MEMORY_LIMIT = 256 * 1024 * 1024
POISON_BYTES = 1_500_000
BEFORE_SECONDS = AFTER_SECONDS = 1.5
FLUSH_SECONDS = 120
GOAL_SECONDS = 5
REST_SECONDS = 5
LEAST_IN_MEMORY = 200
BEHIND_SECONDS = 2
PROBE_SECONDS = 3
STREAM = "chaos"


@dataclass
class Findings:
    """What was seen in a cell."""

    sent: int = 0
    lost: int = 0
    reordered: int = 0
    duplicates: int = 0
    unsettled: int = 0
    """Events about which the producer heard nothing in time."""
    unexplained: int = 0
    """Events that the producer was told had failed, besides those that had to."""
    resumed_seconds: float = 0.0
    """From the fault's end until something is acknowledged again."""
    bus_seconds: float = 0.0
    """From the fault's end until the bus confirms to another client, after servers were killed or frozen."""
    recovery_seconds: float = 0.0
    """From the fault's end until what was published before is acknowledged, and nothing is on disk."""
    memory_bytes: int = 0
    log_lines: int = 0
    undelivered: int = 0
    """Events that were still on disk when the cell ended: they count as lost too."""
    examples: str = ""

    def broken(self) -> list[str]:
        """Return the promises that do not hold."""
        counts = ("lost", "reordered", "unsettled", "unexplained", "undelivered")
        broken = [f"{getattr(self, name)} {name}" for name in counts if getattr(self, name)]
        if self.memory_bytes > MEMORY_LIMIT:
            broken.append(f"{self.memory_bytes >> 20} MiB of memory")
        return broken

    @property
    def is_late(self) -> bool:
        """Whether recovery took longer than it should, on a machine that does little else."""
        return not self.recovery_seconds - self.bus_seconds <= GOAL_SECONDS


class Cell:
    """A producer with known ids writes through a sidecar while a fault is made."""

    def __init__(self, target: Target, client: ClientUnderTest, dice: random.Random) -> None:
        self.target = target
        self.link: Link | None = None
        self.before: Stored = []
        """What was on the bus before it was deleted."""
        self.sidecar: SidecarProcess
        self._client = client
        self._dice = dice
        self._publisher: PublisherUnderTest
        self._position = 0
        self._poison: set[int] = set()
        self._goes_on = asyncio.Event()
        self._memory = 0
        self._turn = asyncio.Lock()
        self._probing: asyncio.Task[float] | None = None

    async def run(
        self, fault: Fault, *, is_slow_link: bool, is_poison: bool, has_spool: bool = False
    ) -> Findings:
        findings = Findings()
        async with AsyncExitStack() as stack:
            await self.target.start(stack)
            if is_slow_link:
                self.link = await stack.enter_async_context(link_to(self.target.ways, self._dice))
            options = self.target.options(self.link.port if self.link else None)
            options += ["--memory-limit", str(MEMORY_LIMIT), "--log-format", "json"]
            self._has_spool = has_spool
            if has_spool:
                options += self._spilling(options[0])
            if is_poison:
                options += ["--max-event-bytes", "4194304", *self.target.poison_options()]
            self.sidecar = stack.enter_context(sidecar(*options))
            await asyncio.to_thread(self.sidecar.wait_until_ready)
            await self._produce(fault, findings)
            await self._until_disk_is_empty()
            findings.undelivered = int(self._on_disk())
            self.note_memory()
            findings.memory_bytes = self._memory
            findings.log_lines = len(self.sidecar.log.read_text().splitlines())
            judge(findings, self.before, await self.target.stored(), self._poison, self.target.keeps_order)
        return findings

    def _spilling(self, first_option: str) -> list[str]:
        """Return options for a queue on disk that is used when the bus is two seconds or more behind."""
        backend = first_option.split("-")[2]
        folder = self.target.folder / "spool"
        folder.mkdir()
        # Half of it is memory's, which is what can be read from disk at a time: no write may have more.
        few = ("--max-queue-events", str(max(BEHIND_SECONDS * 2 * self.target.rate, LEAST_IN_MEMORY)))
        return [f"--{backend}-when-full=spill", "--spool-dir", str(folder), *few]

    async def _until_disk_is_empty(self) -> None:
        """Wait for what was acknowledged from disk; what never arrives is found to be lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                while self._on_disk():  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.05)

    def _on_disk(self) -> float:
        return self.sidecar.metric("bronze_spool_events") if self._has_spool else 0

    async def _produce(self, fault: Fault, findings: Findings) -> None:
        settings: dict[str, Any] = {"stream_id": STREAM, "on_full": "wait", "max_wait": 600.0}
        with contextlib.suppress(PublishError):
            async with self._client.connect(
                self.sidecar.address, close_timeout=1.0, **settings
            ) as self._publisher:
                self._goes_on.set()
                producer = asyncio.create_task(self._publish())
                watcher = asyncio.create_task(self._watch())
                try:
                    await asyncio.sleep(BEFORE_SECONDS + self._dice.uniform(0, 0.5))
                    await fault(self)
                    ended, behind = time.monotonic(), self._position
                    acknowledged = (await self._publisher.stats()).acknowledged
                    resumed = asyncio.create_task(self._acknowledged(acknowledged + 1))
                    recovered = asyncio.create_task(self._acknowledged(behind))
                    if self.target.victims:
                        self._probing = asyncio.create_task(self._bus_confirmed())
                    await asyncio.sleep(AFTER_SECONDS)
                    # What it is just publishing must be there before the flush.
                    producer.cancel()
                    await asyncio.gather(producer, return_exceptions=True)
                    with contextlib.suppress(TimeoutError, PublishError):
                        await self._publisher.flush(timeout=FLUSH_SECONDS)
                    # What is acknowledged from disk is not delivered when the flush is done.
                    rest = FLUSH_SECONDS if self._has_spool else REST_SECONDS
                    findings.recovery_seconds = await moment_of(recovered, rest) - ended
                    findings.resumed_seconds = await moment_of(resumed, REST_SECONDS) - ended
                    if self._probing:
                        findings.bus_seconds = await moment_of(self._probing, REST_SECONDS) - ended
                finally:
                    producer.cancel()
                    watcher.cancel()
                    if self._probing:
                        self._probing.cancel()
                    await asyncio.gather(producer, watcher, return_exceptions=True)
                stats = await self._publisher.stats()
                findings.sent = self._position
                findings.unsettled = self._position - stats.acknowledged
                findings.unexplained = stats.failed + stats.rejected + stats.dropped - len(self._poison)

    async def _publish(self) -> None:
        pace = 20
        each = max(1, self.target.rate // pace)
        while True:
            await self._goes_on.wait()
            async with self._turn:
                events = [trade(self._position + number).decode() for number in range(each)]
                publishing = asyncio.ensure_future(self._publisher.publish_wait_all(events))
                # Whoever ends this task must not leave it unknown what was published.
                try:
                    await asyncio.shield(publishing)
                finally:
                    if not publishing.done():
                        await publishing
                    self._position += each
            await asyncio.sleep(1 / pace)

    async def publish_poison(self) -> None:
        async with self._turn:
            event = trade(self._position).decode().replace('"id":"', '"id":"' + "x" * POISON_BYTES)
            await self._publisher.publish_wait(event)
            self._poison.add(self._position)
            self._position += 1

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Publish nothing, and wait until nothing is on its way."""
        self._goes_on.clear()
        async with self._turn:
            await self._publisher.flush(timeout=FLUSH_SECONDS)
            await self._until_disk_is_empty()
            yield
        self._goes_on.set()

    async def _acknowledged(self, count: int) -> float:
        # What the disk has is acknowledged, but not delivered.
        while (await self._publisher.stats()).acknowledged < count or self._on_disk():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return time.monotonic()

    async def _bus_confirmed(self) -> float:
        """Return when the bus confirms what another client writes, each time by a new connection."""
        while True:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.target.probe()
                    return time.monotonic()
            await asyncio.sleep(0.05)

    async def _watch(self) -> None:
        while True:
            self.note_memory()
            await asyncio.sleep(0.2)

    def note_memory(self) -> None:
        """Take note of the most memory that the sidecar has had so far."""
        with contextlib.suppress(OSError, AssertionError):
            lines = Path(f"/proc/{self.sidecar.pid}/status").read_text().splitlines()
            peak = next(line for line in lines if line.startswith("VmHWM"))
            self._memory = max(self._memory, int(peak.split()[1]) * 1024)


async def moment_of(task: asyncio.Task[float], seconds: float) -> float:
    """Return when a task saw what it waits for; infinity if it has not by then."""
    try:
        return await asyncio.wait_for(task, seconds)
    except TimeoutError:
        return math.inf


def judge(findings: Findings, before: Stored, after: Stored, poison: set[int], keeps_order: bool) -> None:
    """Compare what is on the bus with what was sent."""
    newest: dict[str, int] = defaultdict(lambda: -1)
    seen: set[int] = set()
    total = 0
    known = set(before)
    # What was read before a deletion may be read again where it was not deleted.
    for key, event_id in [*before, *(each for each in after if each not in known)]:
        position = int(event_id.partition(":")[2])
        total += 1
        if position in seen:
            continue
        seen.add(position)
        if keeps_order and position < newest[key]:
            findings.reordered += 1
            findings.examples += f" {key}: {position} after {newest[key]};"
        newest[key] = max(newest[key], position)
    missing = sorted(set(range(findings.sent - findings.unsettled)) - seen - poison)
    findings.lost = len(missing)
    findings.duplicates = total - len(seen)
    if missing:
        findings.examples += f" missing {missing[:3]} to {missing[-1]};"
