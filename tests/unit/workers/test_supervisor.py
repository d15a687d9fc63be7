"""What the supervisor makes of workers that end, or cannot be started."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from bronze_sidecar.configuration.config import load
from bronze_sidecar.workers import supervisor as module
from bronze_sidecar.workers.supervisor import Supervisor
from bronze_sidecar.workers.totals import WorkerTotals
from bronze_sidecar.workers.worker import Post, main

POST = Post(0, "/nowhere", [], has_unix=False)


class Process:
    returncode: int | None = None

    def __init__(self, supervisor: Supervisor, status: int) -> None:
        self._supervisor, self._status = supervisor, status

    async def wait(self) -> int:
        self._supervisor._stop()
        return self._status

    def terminate(self) -> None:
        pass


@pytest.fixture
def totals() -> WorkerTotals:
    return WorkerTotals(load([], {}), [POST.admin])


@pytest.mark.parametrize(
    ("status", "was_ready", "expected"),
    [(-signal.SIGTERM, False, 0), (-signal.SIGTERM, True, -signal.SIGTERM), (3, False, 3), (-9, False, -9)],
)
async def test_a_worker_that_is_stopped_before_it_serves_has_nothing_undelivered(
    totals: WorkerTotals, status: int, was_ready: bool, expected: int
) -> None:
    supervisor = Supervisor(load([], {}), [])
    totals._known[0].was_ready = was_ready

    @contextlib.asynccontextmanager
    async def started(_: Post) -> AsyncIterator[Process]:
        yield Process(supervisor, status)

    supervisor._started = started  # type: ignore[method-assign,assignment]
    assert await supervisor._keep(POST, totals) == expected


async def test_a_worker_that_cannot_be_started_again_is_tried_again(totals: WorkerTotals) -> None:
    supervisor = Supervisor(load([], {}), [])
    totals._known[0].was_ready = True
    tried = 0

    @contextlib.asynccontextmanager
    async def started(_: Post) -> AsyncIterator[Process]:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        yield Process(supervisor, 0)

    supervisor._started = started  # type: ignore[method-assign,assignment]
    assert await supervisor._keep(POST, totals) == 0
    assert tried == 3


async def test_one_that_cannot_be_started_at_all_ends_all(totals: WorkerTotals) -> None:
    supervisor = Supervisor(load([], {}), [])

    @contextlib.asynccontextmanager
    async def started(_: Post) -> AsyncIterator[Process]:
        if not supervisor._stopping.is_set():
            raise PermissionError(13, "Permission denied")
        yield Process(supervisor, 0)

    supervisor._started = started  # type: ignore[method-assign,assignment]
    assert await supervisor._keep(POST, totals) == 1
    assert supervisor._failed == 1


def test_an_address_of_a_name_that_the_machine_does_not_have_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(host: str, port: int, **_: object) -> list[object]:
        # The first is for documentation: no machine has it.
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("192.0.2.1", "127.0.0.1")]

    monkeypatch.setattr(module, "socket", SimpleNamespace(**{**vars(socket), "getaddrinfo": found}))
    with module._ports(["localhost:0"]) as taken:
        assert taken[0].startswith("localhost:")


def test_a_configuration_that_a_worker_cannot_use_is_said_in_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([msgspec.json.encode(POST).decode(), "--config", str(tmp_path / "gone.yaml")]) == 2
    assert "worker 0: 1 problem in the configuration" in capsys.readouterr().err


async def test_a_worker_that_does_not_stop_is_killed(
    totals: WorkerTotals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.05)
    supervisor = Supervisor(load(["--grace-seconds", "0"], {}), [])
    killed = asyncio.Event()

    class Frozen(Process):
        async def wait(self) -> int:
            await killed.wait()
            return -signal.SIGKILL

        def kill(self) -> None:
            killed.set()

    @contextlib.asynccontextmanager
    async def started(_: Post) -> AsyncIterator[Frozen]:
        process = Frozen(supervisor, 0)
        supervisor._processes[0] = process  # type: ignore[assignment]
        yield process

    supervisor._started = started  # type: ignore[method-assign,assignment]
    keeping = asyncio.create_task(supervisor._keep(POST, totals))
    await asyncio.sleep(0)
    supervisor._stop()
    async with asyncio.timeout(5):
        assert await keeping == -signal.SIGKILL
