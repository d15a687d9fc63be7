"""What workers say, added up: nothing that was counted is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from bronze_sidecar.configuration.config import load
from bronze_sidecar.workers import totals as module
from bronze_sidecar.workers.totals import WorkerTotals
from prometheus_client import generate_latest

COUNTER = "# HELP bronze_failures_total Failures.\n# TYPE bronze_failures_total counter\n"


class Workers:
    """What two workers answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.metrics = {"0": "", "1": ""}
        self.answering = asyncio.Event()
        self.answering.set()
        monkeypatch.setattr(module, "_get", self._get)
        self.totals = WorkerTotals(load([], {}), [Path("0"), Path("1")])

    async def _get(self, admin: Path, path: str) -> bytes:
        metrics = self.metrics[str(admin)]
        await self.answering.wait()
        return {
            "/status": json.dumps({"not_ready": []}).encode(),
            "/metrics": metrics.encode(),
            "/reached": b"reached\n",
        }[path]

    def shown(self) -> list[str]:
        lines = generate_latest(self.totals.registry).decode().splitlines()
        return [line for line in lines if line.startswith("bronze_failures_total")]


async def test_what_only_a_worker_counted_that_ended_is_still_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    workers.metrics = {
        "0": COUNTER + 'bronze_failures_total{kind="a"} 3\nbronze_failures_total{kind="b"} 5\n',
        "1": COUNTER + 'bronze_failures_total{kind="a"} 1\n',
    }
    await workers.totals.look()
    workers.totals.ended(0)
    assert workers.shown() == ['bronze_failures_total{kind="a"} 4.0', 'bronze_failures_total{kind="b"} 5.0']
    workers.totals.ended(1)
    assert workers.shown() == ['bronze_failures_total{kind="a"} 4.0', 'bronze_failures_total{kind="b"} 5.0']


async def test_an_answer_of_a_worker_that_has_ended_is_not_counted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers(monkeypatch)
    workers.metrics["0"] = COUNTER + 'bronze_failures_total{kind="a"} 3\n'
    await workers.totals.look()
    workers.answering.clear()
    looking = asyncio.create_task(workers.totals.look())
    await asyncio.sleep(0.01)
    workers.totals.ended(0)
    workers.answering.set()
    await looking
    assert workers.shown() == ['bronze_failures_total{kind="a"} 3.0']


async def test_metrics_that_cannot_be_read_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(monkeypatch)
    workers.metrics["0"] = "bronze_failures_total{kind="
    await workers.totals.look()
    assert workers.totals.not_ready() == ["worker 0: it does not answer"]


async def test_an_answer_that_breaks_off_is_none(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12\n")
        writer.close()

    path = tmp_path / "admin"
    async with await asyncio.start_unix_server(serve, path):
        with pytest.raises(ConnectionResetError):
            await module._get(path, "/metrics")
