"""The admin port: health, readiness, status and metrics over plain HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from bronze_sidecar.telemetry.metrics import Metrics

REQUEST_LIMIT = 8192
TIMEOUT_SECONDS = 10
MOST_CONNECTIONS = 128

Answer = tuple[HTTPStatus, str, bytes]


class Admin:
    """Answers GET requests; one connection, one answer."""

    def __init__(self, metrics: Metrics, status: Callable[[], dict[str, object]]) -> None:
        self._metrics = metrics
        self._status = status
        self._connections: dict[asyncio.StreamWriter, None] = {}

    async def start(self, address: str) -> asyncio.Server:
        """Listen at host:port."""
        host, _, port = address.rpartition(":")
        return await asyncio.start_server(self._serve, host.strip("[]"), int(port), limit=REQUEST_LIMIT)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > MOST_CONNECTIONS:
            # The one that has waited longest asks for nothing.
            next(iter(self._connections)).transport.abort()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            del self._connections[writer]
            writer.close()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].decode("ascii", "replace")
        if method not in {b"GET", b"HEAD"}:
            status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET is answered\n"
        else:
            status, kind, body = self._answer(path)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body if method == b"GET" else b"")

    def _answer(self, path: str) -> Answer:
        if path == "/healthz":
            return HTTPStatus.OK, "text/plain", b"ok\n"
        if path == "/readyz":
            return self._readiness()
        if path == "/status":
            return HTTPStatus.OK, "application/json", json.dumps(self._status(), indent=2).encode() + b"\n"
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)
        return HTTPStatus.NOT_FOUND, "text/plain", b"there are /healthz, /readyz, /status and /metrics\n"

    def _readiness(self) -> Answer:
        status = self._status()
        reasons = status["not_ready"]
        if not reasons:
            return HTTPStatus.OK, "text/plain", b"ready\n"
        lines = "".join(f"{reason}\n" for reason in reasons)  # type: ignore[attr-defined]
        return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", lines.encode()
