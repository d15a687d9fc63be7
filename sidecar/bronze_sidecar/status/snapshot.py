"""One snapshot of facts about the process: what `/status` answers, and all that the page and `top` show."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from bronze_cli.program import version

from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.held import HeldKey
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.envelope.payloads import ORIGINS
from bronze_sidecar.ingest.failures import Failures, Tally
from bronze_sidecar.ingest.server import SidecarService
from bronze_sidecar.ingest.session import ProducerSession
from bronze_sidecar.status.history import FlowHistory, FlowSample, LaneSample, per_second
from bronze_sidecar.status.problems import problems
from bronze_sidecar.status.settings import masked, settings
from bronze_sidecar.status.wording import iso
from bronze_sidecar.telemetry.metrics import Metrics, by_backend, resident_bytes, total

MOST_PRODUCERS = 100
MOST_DESTINATIONS = 5
"""Of each back end."""
MOST_HELD = 3
LONGEST_TEXT = 200


class Snapshot:
    """Gathers the facts. Nothing is worked out before somebody asks, apart from a sample now and then."""

    def __init__(
        self,
        config: Config,
        lanes: Sequence[Lane],
        service: SidecarService,
        failures: Failures,
        metrics: Metrics,
    ) -> None:
        self.stopping = False
        self._config = config
        self._lanes = lanes
        self._service = service
        self._failures = failures
        self._metrics = metrics
        self._started = time.time()
        self._settings = settings(config)
        self.history = FlowHistory(self._sample, lambda: service.sessions)

    def _sample(self) -> FlowSample:
        published = by_backend(self._metrics.published)
        return FlowSample(
            time=time.monotonic(),
            received=total(self._metrics.received),
            resident=resident_bytes(),
            lanes=[LaneSample(published[lane.name], lane.events) for lane in self._lanes],
        )

    def not_ready(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""
        reasons = [f"{lane.name} is {lane.state}" for lane in self._lanes if lane.state != "ready"]
        return [*reasons, *(["the sidecar is stopping"] if self.stopping else [])]

    def not_reached(self) -> list[str]:
        """Return what is known of the back ends that have not been reached once."""
        return [f"{lane.name} is {lane.state}" for lane in self._lanes if not lane.connected.is_set()]

    def facts(self) -> dict[str, Any]:
        """Return everything that there is to see, for JSON."""
        now = time.time()
        sample = self._sample()
        before = self.history.before(sample.time)
        facts: dict[str, Any] = {
            "version": version(),
            "pid": os.getpid(),
            "time": iso(now),
            "started": iso(self._started),
            "uptime_seconds": round(now - self._started),
            "stopping": self.stopping,
            "not_ready": self.not_ready(),
            "hot_path": self._service.hot_path,
            "publishing": "on" if self._lanes else "off: no back end is configured",
            "memory": {"limit_bytes": self._config.memory_limit, "resident_bytes": sample.resident},
            "streams": {"open": self._service.open_streams, "most": self._config.max_streams},
            "sessions": {"remembered": len(self._service.sessions), "most": self._config.max_sessions},
            "received": {
                "messages": int(sample.received),
                "per_second": (
                    per_second(sample.received - before.received, sample.time - before.time)
                    if before
                    else 0.0
                ),
                "bytes": int(total(self._metrics.received_bytes)),
                "filtered_events": int(total(self._metrics.filtered)),
                "rejected": _tally(self._failures.tallies().rejected),
            },
            "dead_letters": {
                "file": str(self._config.dead_letter_file or ""),
                "written": int(total(self._metrics.dead_letters)),
                "lost": int(total(self._metrics.dead_letters_lost)),
            },
            **self._producers(),
            "backends": self._backends(sample, before, now),
            "destinations": [
                {"backend": lane.name, "destination": _short(name), "share": round(share, 4)}
                for lane in self._lanes
                for name, share in lane.destinations.most_used(MOST_DESTINATIONS)
            ],
            "last_failures": [
                {name: _short(value) if isinstance(value, str) else value for name, value in each.items()}
                for each in self._failures.last()
            ],
            "configuration": self._settings,
            "history": self.history.charts([lane.name for lane in self._lanes]),
        }
        return {**facts, "problems": problems(facts)}

    def _producers(self) -> dict[str, Any]:
        """Describe the producers: those connected first, then those that left something on the way.

        What is on the way of one that is connected comes and goes; its row stays where it is.
        """
        sessions = sorted(
            self._service.sessions,
            key=lambda each: (
                each[1].take_over is None,
                each[1].take_over is None and each[1].is_done,
                each[1].context.source,
                each[1].context.stream_id,
            ),
        )
        return {
            "producers": [self._producer(*each) for each in sessions[:MOST_PRODUCERS]],
            "more_producers": max(0, len(sessions) - MOST_PRODUCERS),
        }

    def _producer(self, key: tuple[str, str], session: ProducerSession) -> dict[str, Any]:
        producer_id, stream_id = key
        is_connected = session.take_over is not None
        left = time.time() - (time.monotonic() - session.idle_since)
        return {
            "producer_id": producer_id,
            "source": _short(session.context.source),
            "origin": ORIGINS[session.context.origin],
            "stream_id": stream_id,
            "connected": is_connected,
            "since": iso(session.opened_at if is_connected else left),
            "messages": session.messages,
            "messages_per_second": self.history.messages_per_second(session) if is_connected else 0.0,
            "next_position": session.next_position,
            "unacknowledged_messages": session.events_on_the_way,
            "unacknowledged_bytes": session.bytes_on_the_way,
            "rejected": _tally(session.tallies.rejected),
            "given_up": _tally(session.tallies.failed),
        }

    def _backends(self, sample: FlowSample, before: FlowSample | None, now: float) -> dict[str, Any]:
        retried = by_backend(self._metrics.retried)
        return {
            lane.name: {
                "title": lane.backend.title,
                "state": masked(lane.state),
                "since": iso(lane.since),
                "order": lane.order,
                "published_events": int(sample.lanes[index].published),
                "per_second": (
                    per_second(
                        sample.lanes[index].published - before.lanes[index].published,
                        sample.time - before.time,
                    )
                    if before
                    else 0.0
                ),
                "waiting_events": lane.events,
                "waiting_bytes": lane.bytes,
                "most_events": self._config.max_queue_events,
                "most_bytes": self._config.max_queue_bytes,
                "in_flight_events": lane.in_flight(),
                "oldest_unacknowledged_seconds": round(lane.oldest_age(), 3),
                "retried_events": int(retried[lane.name]),
                "given_up": _tally(self._failures.tallies(lane.name).failed),
                "last_error": self._last_error(lane),
                "held": _held(lane.held(), now),
                **(
                    {
                        "on_disk_events": lane.spilling.events,
                        "on_disk_bytes": lane.spilling.bytes,
                        "most_on_disk_bytes": lane.spilling.max_bytes,
                        "disk": lane.spilling.trouble or "ready",
                    }
                    if lane.spilling
                    else {}
                ),
            }
            for index, lane in enumerate(self._lanes)
        }

    def _last_error(self, lane: Lane) -> dict[str, str] | None:
        given_up = self._failures.tallies(lane.name).failed
        errors = [*filter(None, [lane.last_error]), (given_up.last, given_up.reason)]
        at, reason = max(errors)
        return {"time": iso(at), "reason": _short(masked(reason))} if at else None


def _held(keys: Sequence[HeldKey], now: float) -> dict[str, Any] | None:
    """Describe the keys that are held back, those with most events first."""
    if not keys:
        return None
    first = sorted(keys, key=lambda key: -len(key.waiting))[:MOST_HELD]
    return {
        "keys": len(keys),
        "events": sum(len(key.waiting) for key in keys),
        "first": [
            {
                "destination": _short(key.waiting[0].order[0]),
                "key": _short(key.waiting[0].order[1]),
                "events": len(key.waiting),
                "attempts": key.waiting[0].attempts,
                "since": iso(now - (time.monotonic() - key.waiting[0].since)),
                "reason": _short(masked(key.reason)),
            }
            for key in first
        ],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    if not tally.count:
        return {"events": 0}
    return {
        "events": tally.count,
        "since": iso(tally.since),
        "last": iso(tally.last),
        "reason": _short(masked(tally.reason)),
        "destination": _short(tally.destination),
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
