"""Calls another router, as often as possible or at a steady rate, and measures."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from bronze_sidecar.routing.rules import Record
from machine import cpu_seconds, percentiles
from routers import Router
from servers import NativeServer

WARM_SECONDS = 0.5


class Turns:
    """Deals out what is to be sent, with the time when it is due, to whoever is free."""

    def __init__(self, bodies: Sequence[bytes], interval: float) -> None:
        self._bodies = itertools.cycle(bodies)
        self._interval = interval
        self._due = time.monotonic()
        self._lock = threading.Lock()
        self._is_over = False

    def __iter__(self) -> Iterator[tuple[float, bytes]]:
        while not self._is_over:
            with self._lock:
                self._due += self._interval
                due, body = self._due, next(self._bodies)
            if self._interval:
                time.sleep(max(0.0, due - time.monotonic()))
            yield due, body

    def end(self) -> None:
        self._is_over = True


def measured(
    router: Router,
    server: NativeServer,
    calls: Sequence[Sequence[Record]],
    *,
    lines: int,
    seconds: float,
    rate: float = 0.0,
) -> dict[str, float]:
    """Send calls of one size over so many lines; a rate of events a second gives latencies."""
    size = len(calls[0])
    turns = Turns([router.prepared(call) for call in calls], size / rate if rate else 0.0)
    done: list[tuple[float, float]] = []
    """When each call was confirmed, and when it had been due."""

    def work() -> None:
        with router.line() as send:
            for due, body in turns:
                send(body)
                done.append((time.monotonic(), due))

    with ThreadPoolExecutor(lines) as threads:
        working = [threads.submit(work) for _ in range(lines)]
        try:
            time.sleep(WARM_SECONDS)
            began, count, cpu, server_cpu = _now(done, router, server)
            time.sleep(seconds)
            ended, last, cpu_then, server_cpu_then = _now(done, router, server)
        finally:
            turns.end()
        for each in working:
            each.result()
    passed, events = ended - began, (last - count) * size
    if not events:
        raise RuntimeError(f"{router.title} confirmed nothing within {seconds:g} s")
    cpu = cpu_then - cpu
    findings = {"rate": events / passed, "cpu": cpu / events * 1e6, "busy": cpu / passed}
    findings["confirmed"] = len(done) * size
    findings["server_busy"] = (server_cpu_then - server_cpu) / passed
    if rate:
        findings |= percentiles([end - due for end, due in done[count:last]])
    return findings


def _now(
    done: list[tuple[float, float]], router: Router, server: NativeServer
) -> tuple[float, int, float, float]:
    return time.monotonic(), len(done), cpu_seconds(router.pid), cpu_seconds(server.pid)
