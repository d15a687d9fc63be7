"""A sidecar that does what a test tells it, also what a real one would not."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeAlias

import grpc
from bronze_client.schema import (
    Acknowledgement,
    Batch,
    Credits,
    Failure,
    FailureKind,
    Opened,
    Outcome,
    PublishRequest,
    PublishResponse,
)

ESTABLISHED = "01"
METHOD = "/bronze.sidecar.v1.SidecarService/Publish"

Script: TypeAlias = Callable[[Iterator[PublishRequest]], Iterable[PublishResponse]]
"""What happens on one connection: takes requests, yields responses, may raise Abort."""


class Abort(Exception):  # noqa: N818 - what a script does
    """Ends the stream with this status."""

    def __init__(self, code: grpc.StatusCode, text: str = "as the test wants it") -> None:
        super().__init__(text)
        self.code = code


class ScriptedSidecar:
    """Plays one script for each connection, the last one again and again."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._pool = ThreadPoolExecutor(16)
        self.received: list[list[bytes]] = []
        """The encoded requests of each connection."""
        self.release = threading.Event()
        """Ends scripts that are frozen."""

    def __enter__(self) -> Self:
        self.start("127.0.0.1:0")
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self.stop()
        self._pool.shutdown()

    def start(self, address: str, credentials: grpc.ServerCredentials | None = None) -> None:
        self._server = grpc.server(self._pool)
        handler: Any = grpc.stream_stream_rpc_method_handler(self._publish)
        self._server.add_generic_rpc_handlers([_OneMethod(handler)])
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        """Cut all connections."""
        self._server.stop(0).wait()

    @property
    def connections(self) -> int:
        """Connections to its port, counted at the end that made them."""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        tables = [Path("/proc/net", name).read_text() for name in ("tcp", "tcp6")]
        rows = [line.split() for table in tables for line in table.splitlines()]
        return sum(row[2].endswith(port) and row[3] == ESTABLISHED for row in rows)

    def requests(self, connection: int) -> list[PublishRequest]:
        return [PublishRequest.FromString(request) for request in self.received[connection]]

    def batches(self) -> list[Batch]:
        """Every batch that came, over all connections."""
        connections = range(len(self.received))
        return [request.batch for number in connections for request in self.requests(number)[1:]]

    def _publish(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        received: list[bytes] = []
        self.received.append(received)
        script = self._scripts[min(len(self.received), len(self._scripts)) - 1]
        if script is frozen:
            next(requests)
            yield opened().SerializeToString()
            self.release.wait()
            return

        def read() -> Iterator[PublishRequest]:
            for request in requests:
                received.append(request)
                yield PublishRequest.FromString(request)

        try:
            for response in script(read()):
                yield response.SerializeToString()
        except Abort as abort:
            context.abort(abort.code, str(abort))
        except grpc.RpcError:
            return  # the client has gone


class _OneMethod(grpc.GenericRpcHandler):
    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def service(self, handler_call_details: Any) -> Any:
        return self._handler if handler_call_details.method == METHOD else None


def opened(
    acknowledged: int = 0,
    *,
    events: int = 1_000_000,
    size: int = 1 << 30,
    batch_bytes: int = 0,
    outcome: Outcome | None = None,
    takes_end: bool = False,
) -> PublishResponse:
    credits_ = Credits(events=events, bytes=size, batch_bytes=batch_bytes)
    return PublishResponse(
        opened=Opened(
            acknowledged_sequence=acknowledged, credits=credits_, outcome=outcome, takes_end=takes_end
        )
    )


def granted(events: int, size: int = 1 << 30) -> PublishResponse:
    return PublishResponse(credits=Credits(events=events, bytes=size))


def acknowledged(sequence: int, outcome: Outcome | None = None) -> PublishResponse:
    return PublishResponse(acknowledgement=Acknowledgement(sequence=sequence, outcome=outcome))


def rejected(position: int, reason: str = "bad") -> Failure:
    return Failure(position=position, kind=FailureKind.FAILURE_KIND_REJECTED, reason=reason)


def count(batch: Batch) -> int:
    return len(batch.envelopes) + len(batch.mixed) + sum(block.count(b"\n") + 1 for block in batch.json)


def obliging(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
    """Acknowledge every batch as published: a script."""
    opening = next(requests).open
    yield opened(opening.acknowledged_sequence)
    for request in requests:
        yield acknowledged(request.batch.sequence, Outcome(published=count(request.batch)))


def frozen(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
    """Open the stream, then neither read nor answer until the sidecar's `release`: a script."""
    raise NotImplementedError


def _is_stuck(task: asyncio.Task[Any]) -> bool:
    """Tell gRPC's task that now and then waits forever for the status of a call whose batch has failed."""
    return getattr(task.get_coro(), "__qualname__", "") == "_AioCall._handle_status_once_received"


def _is_of_an_earlier_loop(context: dict[str, Any]) -> bool:
    """Tell what gRPC, which has one poller for all loops, says when it has news for one that is closed."""
    return "PollerCompletionQueue._handle_events" in context["message"] and "closed" in str(
        context.get("exception")
    )


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test, and see to it that it leaves no task and no unseen error behind."""

    async def watched(*args: Any, **kwargs: Any) -> None:
        unseen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: None if _is_of_an_earlier_loop(context) else unseen.append(context)
        )
        await test(*args, **kwargs)
        # gRPC's own tasks need a moment more; a task of ours that stays lets the test time out.
        await until(lambda: {asyncio.current_task()} == {t for t in asyncio.all_tasks() if not _is_stuck(t)})
        gc.collect()
        await asyncio.sleep(0)
        assert not unseen, unseen

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(watched(*args, **kwargs))

    return run


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that nothing announces; the test's own time-out ends it."""
    while not condition():  # noqa: ASYNC110 - what is waited for happens in another thread
        await asyncio.sleep(0.002)


@contextlib.contextmanager
def quick_reconnects(monkeypatch: Any) -> Iterator[None]:
    """Make pauses between attempts too short to matter."""
    with monkeypatch.context() as patch:
        patch.setattr("bronze_client.connection.FIRST_PAUSE_SECONDS", 0.01)
        patch.setattr("bronze_client.connection.LONGEST_PAUSE_SECONDS", 0.05)
        yield
