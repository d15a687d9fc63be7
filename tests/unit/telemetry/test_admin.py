"""The admin port answers plain HTTP, whatever comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from bronze_sidecar.telemetry.admin import Admin
from bronze_sidecar.telemetry.metrics import Metrics


@asynccontextmanager
async def serving(*reasons: str) -> AsyncIterator[int]:
    server = await Admin(Metrics(), lambda: {"not_ready": list(reasons)}).start("127.0.0.1:0")
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def ask(port: int, request: bytes) -> tuple[str, bytes]:
    """Return the status line and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0].decode(), body


async def get(port: int, path: str) -> tuple[str, bytes]:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_a_living_process_is_healthy_whatever_its_back_ends_do() -> None:
    async with serving("nats is unreachable") as port:
        assert await get(port, "/healthz") == ("HTTP/1.1 200 OK", b"ok\n")


async def test_readiness_gives_its_reasons() -> None:
    async with serving() as port:
        assert await get(port, "/readyz") == ("HTTP/1.1 200 OK", b"ready\n")
    async with serving("nats is unreachable: refused", "redis is lost: reset") as port:
        status, body = await get(port, "/readyz")
        assert status == "HTTP/1.1 503 Service Unavailable"
        assert body == b"nats is unreachable: refused\nredis is lost: reset\n"


async def test_status_is_json_and_metrics_are_prometheus_text() -> None:
    async with serving("x") as port:
        assert json.loads((await get(port, "/status?pretty"))[1]) == {"not_ready": ["x"]}
        metrics = (await get(port, "/metrics"))[1]
        assert b"# TYPE bronze_events_received_total counter" in metrics
        assert b'bronze_build_info{version="0.1.0"} 1.0' in metrics


async def test_other_paths_and_methods_are_told_what_there_is() -> None:
    async with serving() as port:
        status, body = await get(port, "/")
        assert status == "HTTP/1.1 404 Not Found"
        assert b"/metrics" in body
        assert (await ask(port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 405 Method Not Allowed"
        assert await ask(port, b"HEAD /healthz HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize("garbage", [b"\xff" * 100 + b"\r\n\r\n", b"\r\n\r\n", b"GET " + b"x" * 20_000])
async def test_garbage_does_not_disturb_the_next_request(garbage: bytes) -> None:
    async with serving() as port:
        await ask(port, garbage)
        assert (await get(port, "/healthz"))[0] == "HTTP/1.1 200 OK"
