"""The admin port: health, readiness, status, metrics and the status page over plain HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from bronze_cli.values import UNIX
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

REQUEST_LIMIT = 8192
TIMEOUT_SECONDS = 10
MOST_CONNECTIONS = 128
MOST_WATCHERS = 16
WATCH_SECONDS = 1.0
"""Between two looks."""
EVENTS, HEALTH = "/events", "/healthz"
PATHS = "there are /, /events, /healthz, /reached, /readyz, /status and /metrics\n"
# Nothing here is for other pages, nor for later.
GUARDS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Measured(Protocol):
    """What has metrics."""

    @property
    def registry(self) -> CollectorRegistry: ...


class Facts(Protocol):
    """What is known of the process."""

    def not_ready(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""

    def not_reached(self) -> list[str]:
        """Return what is known of the back ends that have not been reached once."""

    def facts(self) -> dict[str, Any]:
        """Return everything that there is to see."""


class Page(Protocol):
    """The facts as HTML."""

    policy: str
    """Its Content-Security-Policy."""

    def page(self) -> bytes:
        """Return the whole page."""

    def sections(self) -> Mapping[str, str]:
        """Return its sections, by name."""


class AdminAnswer(NamedTuple):
    """What a request is answered."""

    status: HTTPStatus
    kind: str
    body: bytes
    headers: Mapping[str, str] = {}


class Admin:
    """Answers GET requests; one connection, one answer. Those who watch the page are told what changes."""

    def __init__(self, metrics: Measured, facts: Facts, page: Page) -> None:
        self._metrics = metrics
        self._facts = facts
        self._page = page
        self._connections: dict[asyncio.StreamWriter, None] = {}
        self.watchers = 0
        """How many watch the page."""

    async def start(self, address: str) -> asyncio.Server:
        """Listen at host:port, or at a unix socket."""
        if address.startswith(UNIX):
            path = address.removeprefix(UNIX)
            return await asyncio.start_unix_server(self._serve, path, limit=REQUEST_LIMIT)
        host, _, port = address.rpartition(":")
        return await asyncio.start_server(self._serve, host.strip("[]"), int(port), limit=REQUEST_LIMIT)

    async def prepare(self, path: str) -> None:
        """Bring up to date what is answered from."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > MOST_CONNECTIONS:
            # The one that has waited longest asks for nothing.
            next(iter(self._connections)).transport.abort()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = _request(head)
                watches = method == b"GET" and path == EVENTS and self.watchers < MOST_WATCHERS
                if not watches:
                    await self.prepare(path)
                    writer.write(self._response(method, path))
                    await writer.drain()
            if watches:
                await self._watch(reader, writer)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            self._connections.pop(writer, None)
            writer.close()

    # -- those who watch

    async def _watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the sections that have changed, until the reader is gone or does not read."""
        # It does ask for something; and it has a bound of its own.
        del self._connections[writer]
        self.watchers += 1
        gone = asyncio.create_task(reader.read(1))
        try:
            # Whatever is written has to be on its way before there is more.
            writer.transport.set_write_buffer_limits(high=0)
            writer.write(_head(HTTPStatus.OK, {"Content-Type": "text/event-stream", **GUARDS}))
            shown: dict[str, str] = {}
            while not gone.done():
                sections = self._page.sections()
                news = {name: html for name, html in sections.items() if shown.get(name) != html}
                shown.update(news)
                writer.write(f"data: {json.dumps(news)}\n\n".encode())
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await writer.drain()
                await asyncio.wait({gone}, timeout=WATCH_SECONDS)
        except TimeoutError:
            writer.transport.abort()
        finally:
            self.watchers -= 1
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    # -- single answers

    def _response(self, method: bytes, path: str) -> bytes:
        if method not in {b"GET", b"HEAD"}:
            answer = AdminAnswer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET is answered\n")
        else:
            answer = self._answer(path)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **answer.headers}
        return _head(answer.status, headers) + (answer.body if method == b"GET" else b"")

    def _answer(self, path: str) -> AdminAnswer:
        if path == HEALTH:
            return AdminAnswer(HTTPStatus.OK, "text/plain", b"ok\n")
        if path == "/readyz":
            return _yes_or("ready", self._facts.not_ready())
        if path == "/reached":
            return _yes_or("reached", self._facts.not_reached())
        if path == "/status":
            body = json.dumps(self._facts.facts(), indent=2).encode() + b"\n"
            return AdminAnswer(HTTPStatus.OK, "application/json", body, GUARDS)
        if path == "/metrics":
            return AdminAnswer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry))
        if path == "/":
            headers = {"Content-Security-Policy": self._page.policy, "X-Frame-Options": "DENY", **GUARDS}
            return AdminAnswer(HTTPStatus.OK, "text/html; charset=utf-8", self._page.page(), headers)
        if path == EVENTS:
            return AdminAnswer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"too many watch already\n")
        return AdminAnswer(HTTPStatus.NOT_FOUND, "text/plain", PATHS.encode())


def _yes_or(word: str, reasons: Sequence[str]) -> AdminAnswer:
    """Answer with a word, or with the reasons why it is not so."""
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return AdminAnswer(status, "text/plain", "".join(f"{line}\n" for line in reasons or [word]).encode())


def _request(head: bytes) -> tuple[bytes, str]:
    method, _, rest = head.partition(b" ")
    return method, rest.partition(b" ")[0].partition(b"?")[0].decode("ascii", "replace")


def _head(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
