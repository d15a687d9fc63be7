"""The admin port answers plain HTTP, whatever comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from bronze_sidecar.telemetry import admin as module
from bronze_sidecar.telemetry.admin import Admin
from bronze_sidecar.telemetry.metrics import Metrics


class Shown:
    """Facts and a page whose sections a test changes."""

    policy = "default-src 'none'"

    def __init__(self, *reasons: str) -> None:
        self.reasons = list(reasons)
        self.html = {"one": "1", "two": "2"}
        self.looks = 0

    def not_ready(self) -> list[str]:
        return self.reasons

    def not_reached(self) -> list[str]:
        return self.reasons[:1]

    def facts(self) -> dict[str, Any]:
        return {"not_ready": self.reasons}

    def page(self) -> bytes:
        return b"<!doctype html>"

    def sections(self) -> Mapping[str, str]:
        self.looks += 1
        return dict(self.html)


@asynccontextmanager
async def serving(*reasons: str, shown: Shown | None = None) -> AsyncIterator[int]:
    shown = shown or Shown(*reasons)
    server = await Admin(Metrics(), shown, shown).start("127.0.0.1:0")
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


async def test_what_was_never_reached_is_told_apart_from_what_is_not_ready() -> None:
    async with serving() as port:
        assert await get(port, "/reached") == ("HTTP/1.1 200 OK", b"reached\n")
    async with serving("nats is unreachable: refused", "redis is lost: reset") as port:
        assert await get(port, "/reached") == (
            "HTTP/1.1 503 Service Unavailable",
            b"nats is unreachable: refused\n",
        )


async def test_status_is_json_and_metrics_are_prometheus_text() -> None:
    async with serving("x") as port:
        assert json.loads((await get(port, "/status?pretty"))[1]) == {"not_ready": ["x"]}
        metrics = (await get(port, "/metrics"))[1]
        assert b"# TYPE bronze_events_received_total counter" in metrics
        assert b'bronze_build_info{version="0.1.0"} 1.0' in metrics


async def test_other_paths_and_methods_are_told_what_there_is() -> None:
    async with serving() as port:
        status, body = await get(port, "/other")
        assert status == "HTTP/1.1 404 Not Found"
        assert b"/metrics" in body
        assert (await ask(port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 405 Method Not Allowed"
        assert await ask(port, b"HEAD /healthz HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize("garbage", [b"\xff" * 100 + b"\r\n\r\n", b"\r\n\r\n", b"GET " + b"x" * 20_000])
async def test_garbage_does_not_disturb_the_next_request(garbage: bytes) -> None:
    async with serving() as port:
        await ask(port, garbage)
        assert (await get(port, "/healthz"))[0] == "HTTP/1.1 200 OK"


# -- the page, and those who watch it


@asynccontextmanager
async def watching(port: int) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    try:
        yield reader
    finally:
        writer.close()


async def news(reader: asyncio.StreamReader) -> Any:
    """Return the next message that has anything in it."""
    while True:
        line = await reader.readuntil(b"\n\n")
        if found := json.loads(line.rpartition(b"data: ")[2]):
            return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_SECONDS", 0.01)


async def test_the_page_may_do_only_what_its_policy_says() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
    lines = head.split("\r\n")
    assert lines[0] == "HTTP/1.1 200 OK"
    assert body == "<!doctype html>"
    assert {
        "Content-Type: text/html; charset=utf-8",
        "Content-Security-Policy: default-src 'none'",
        "X-Frame-Options: DENY",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    } <= set(lines)


@pytest.mark.usefixtures("quick")
async def test_a_watcher_is_told_everything_and_then_what_has_changed() -> None:
    shown = Shown()
    async with serving(shown=shown) as port, watching(port) as reader:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Type: text/event-stream" in head
        assert await news(reader) == {"one": "1", "two": "2"}
        shown.html["two"] = "3"
        assert await news(reader) == {"two": "3"}


@pytest.mark.usefixtures("quick")
async def test_nothing_is_rendered_while_nobody_watches() -> None:
    shown = Shown()
    async with serving(shown=shown) as port:
        async with watching(port) as reader:
            await news(reader)
        async with asyncio.timeout(60):
            while True:
                looks = shown.looks
                await asyncio.sleep(0.2)
                if shown.looks == looks:
                    break


@pytest.mark.usefixtures("quick")
async def test_so_many_may_watch_and_others_are_told_that_it_is_too_many() -> None:
    async with serving() as port:
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(watching(port)) for _ in range(module.MOST_WATCHERS)]
            for reader in readers:
                await news(reader)
            assert (await get(port, "/events"))[0] == "HTTP/1.1 503 Service Unavailable"
            assert (await get(port, "/healthz"))[0] == "HTTP/1.1 200 OK"
        async with asyncio.timeout(60):
            while True:
                async with watching(port) as reader:
                    if b"200 OK" in await reader.readuntil(b"\r\n"):
                        break
                await asyncio.sleep(0.05)


@pytest.mark.usefixtures("quick")
async def test_a_watcher_does_not_count_among_those_who_ask_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    shown = Shown()
    async with serving(shown=shown) as port, watching(port) as reader:
        await news(reader)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await idle[0][0].read() == b""
        shown.html["one"] = "still here"
        assert await news(reader) == {"one": "still here"}
        for _, writer in idle:
            writer.close()


@pytest.mark.usefixtures("quick")
async def test_a_watcher_that_does_not_read_is_dropped_and_fills_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 0.5)
    shown = Shown()
    shown.html = {"one": "x" * 20_000_000}
    admin = Admin(Metrics(), shown, shown)
    server = await admin.start("127.0.0.1:0")
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /events HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(60):
        while not shown.looks or admin.watchers:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(30_000_000)
    # Dropped before there was anything to tell a second time.
    assert shown.looks == 1
    writer.close()
    server.close()
