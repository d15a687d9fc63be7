"""The last ten minutes, as one small sample every few seconds: enough for rates and charts, and bounded."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from bronze_sidecar.ingest.session import ProducerSession

SAMPLE_SECONDS = 5.0
KEPT_SECONDS = 600.0
MOST_SAMPLES = int(KEPT_SECONDS / SAMPLE_SECONDS) + 1
LEAST_SECONDS = 2.0
"""A rate over less time would jump."""


class LaneSample(NamedTuple):
    """One back end's figures at a time."""

    published: float
    waiting: int


class FlowSample(NamedTuple):
    """The process's figures at a time."""

    time: float
    received: float
    resident: int
    lanes: Sequence[LaneSample]


class FlowHistory:
    """Samples of the last ten minutes."""

    def __init__(
        self,
        take: Callable[[], FlowSample],
        sessions: Callable[[], Sequence[tuple[tuple[str, str], ProducerSession]]],
    ) -> None:
        self._take = take
        self._sessions = sessions
        self._samples: deque[FlowSample] = deque(maxlen=MOST_SAMPLES)
        self._charts: dict[str, Any] | None = None
        """Made of the samples that there are."""
        self._marks: WeakKeyDictionary[ProducerSession, list[tuple[float, int]]] = WeakKeyDictionary()
        """What each session had taken in at the last two samples."""

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            self.note()
            await asyncio.sleep(SAMPLE_SECONDS)

    def note(self) -> None:
        """Take one sample."""
        sample = self._take()
        self._samples.append(sample)
        self._charts = None
        for _, session in self._sessions():
            marks = self._marks.setdefault(session, [])
            marks.append((sample.time, session.messages))
            del marks[:-2]

    def before(self, now: float) -> FlowSample | None:
        """Return the newest sample that is old enough to compare with; None if there is none."""
        return next((each for each in reversed(self._samples) if now - each.time >= LEAST_SECONDS), None)

    def messages_per_second(self, session: ProducerSession) -> float:
        """Return how fast a session's messages come."""
        now = time.monotonic()
        old = [mark for mark in self._marks.get(session, ()) if now - mark[0] >= LEAST_SECONDS]
        return per_second(session.messages - old[-1][1], now - old[-1][0]) if old else 0.0

    def charts(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what changed from sample to sample, the oldest first."""
        if self._charts is None:
            self._charts = self._make_charts(names)
        return self._charts

    def _make_charts(self, names: Sequence[str]) -> dict[str, Any]:
        samples = [*self._samples]
        pairs = [*itertools.pairwise(samples)]
        return {
            "sample_seconds": SAMPLE_SECONDS,
            "received_per_second": [
                per_second(new.received - old.received, new.time - old.time) for old, new in pairs
            ],
            "resident_bytes": [each.resident for each in samples],
            "backends": {
                name: {
                    "published_per_second": [
                        per_second(
                            new.lanes[index].published - old.lanes[index].published, new.time - old.time
                        )
                        for old, new in pairs
                    ],
                    "waiting_events": [each.lanes[index].waiting for each in samples],
                }
                for index, name in enumerate(names)
            },
        }


def per_second(difference: float, seconds: float) -> float:
    """Return a rate with one digit behind the point."""
    return round(max(0.0, difference) / seconds, 1) if seconds > 0 else 0.0
