"""The clients, under one interface, so that one description of what they must do serves for all of them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import math
import re
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import bronze_client
import pytest
from bronze_client import Failure, Publisher, PublishError, Stats
from bronze_client.encoding import encode
from bronze_client.options import Options

ROOT = Path(__file__).resolve().parent.parent
DRIVER = ROOT / "tests/node/client/driver.mjs"
BUILT = ROOT / "client/node/dist/esm/index.js"


class Told:
    """A listener: it notes what it is told, and then fails if it is asked to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.told: list[Any] = []

    def __call__(self, *args: Any) -> None:
        self.told.append(args[0] if len(args) == 1 else args)
        if self.fails:
            raise RuntimeError("as the test wants it")


@dataclass(frozen=True)
class Inside:
    """What a client does not tell its users."""

    is_open: bool
    trouble: str
    sent: int
    """Batches on their way,"""
    sent_events: int
    """and events in them."""


class PublisherUnderTest(Protocol):
    """An open publisher."""

    stream_id: str

    async def publish(self, event: Any) -> bool:
        """Publish without waiting."""

    async def publish_all(self, events: Sequence[Any]) -> list[bool]:
        """Publish one after the other without letting anything else run in between."""

    async def publish_wait(self, event: Any) -> bool:
        """Publish, waiting for room."""

    async def publish_wait_all(self, events: Sequence[Any]) -> list[bool]:
        """Publish one after the other, waiting for room each time."""

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the clients have it
        """Wait for acknowledgements."""

    async def close(self, timeout: float | None = None, *, ended: bool = True) -> None:  # noqa: ASYNC109
        """Close it before its block ends."""

    async def stats(self) -> Stats:
        """Return the counters."""

    async def inside(self) -> Inside:
        """Look inside."""


class ClientUnderTest(Protocol):
    """One client. Options, errors and times are written as in Python; see `spelled`."""

    name: str

    def connect(self, address: str | None, **options: Any) -> AbstractAsyncContextManager[PublisherUnderTest]:
        """Open a publisher, and close it at the end of the block; `on_drop` and `on_failure` are Told."""

    def check_options(self, address: str | None, **options: Any) -> Any:
        """Return options as they were understood; each has its name as attribute."""

    def encode(self, event: Any) -> tuple[bytes, bool]:
        """Return what travels of an event, and whether it is JSON."""

    def stream_id_for(self, request: Any) -> str:
        """Name a replay."""

    def timing(self, **seconds: float) -> AbstractContextManager[None]:
        """Change how long things take: open, first_pause, longest_pause, report, warning, finish."""

    def spelled(self, text: str) -> str:
        """Return a message as this client writes it."""

    def logged(self) -> list[str]:
        """Return what was logged since the last call."""


async def until_stats(publisher: PublisherUnderTest, condition: Callable[[Stats], object]) -> None:
    """Wait for counters; the test's own time-out ends it."""
    while not condition(await publisher.stats()):  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0.002)


async def until_inside(publisher: PublisherUnderTest, condition: Callable[[Inside], object]) -> None:
    """Wait for something inside a publisher."""
    while not condition(await publisher.inside()):  # noqa: ASYNC110
        await asyncio.sleep(0.002)


class PythonClient:
    name = "python"

    def __init__(self) -> None:
        self._records: list[str] = []

    @contextlib.asynccontextmanager
    async def connect(self, address: str | None, **options: Any) -> AsyncIterator[PublisherUnderTest]:
        async with bronze_client.connect(address, **options) as publisher:
            yield PythonPublisher(publisher)

    def check_options(self, address: str | None, **options: Any) -> Any:
        return Options(address, **options)

    def encode(self, event: Any) -> tuple[bytes, bool]:
        return encode(event)

    def stream_id_for(self, request: Any) -> str:
        return bronze_client.stream_id_for(request)

    @contextlib.contextmanager
    def timing(self, **seconds: float) -> Iterator[None]:
        modules = dict.fromkeys(("report", "warning", "finish"), "session")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in seconds.items():
                module = modules.get(name, "connection")
                patch.setattr(f"bronze_client.{module}.{name.upper()}_SECONDS", value)
            yield

    def spelled(self, text: str) -> str:
        return text

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Collect what is logged."""
        handler = logging.Handler()
        handler.emit = lambda record: self._records.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("bronze_client").addHandler(handler)
        yield
        logging.getLogger("bronze_client").removeHandler(handler)

    def logged(self) -> list[str]:
        taken, self._records[:] = list(self._records), []
        return taken


class PythonPublisher:
    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.stream_id = publisher.stream_id

    async def publish(self, event: Any) -> bool:
        return self._publisher.publish(event)

    async def publish_all(self, events: Sequence[Any]) -> list[bool]:
        return [self._publisher.publish(event) for event in events]

    async def publish_wait(self, event: Any) -> bool:
        return await self._publisher.publish_wait(event)

    async def publish_wait_all(self, events: Sequence[Any]) -> list[bool]:
        return [await self._publisher.publish_wait(event) for event in events]

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._publisher.flush(timeout)

    async def close(self, timeout: float | None = None, *, ended: bool = True) -> None:  # noqa: ASYNC109
        await self._publisher.close(timeout, ended=ended)

    async def stats(self) -> Stats:
        return self._publisher.stats

    async def inside(self) -> Inside:
        connection, window = self._publisher._session._connection, self._publisher._session._window
        return Inside(connection.is_open, connection.trouble, len(window._sent), window._sent_events)


class NodeDriver:
    """A Node process that does what it is told, for all tests; see driver.mjs."""

    def __init__(self) -> None:
        assert BUILT.exists(), "the Node client is not built; `make test` and `make test-fast` do that"
        self._process = subprocess.Popen(["node", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._numbers = itertools.count(1)
        self._answers: dict[int, Future[Any]] = {}
        self.listeners: dict[tuple[int, str], Told] = {}
        self._reader = threading.Thread(target=self._read, name="node-driver", daemon=True)
        self._reader.start()
        self.call("resources")  # its first answer opens stdout
        self.idle_resources = self.call("resources")

    def number(self) -> int:
        return next(self._numbers)

    def start(self, name: str, *args: Any) -> Future[Any]:
        number = self.number()
        answer = self._answers[number] = Future()
        assert self._process.stdin is not None
        line = json.dumps({"id": number, "name": name, "args": _to_json(args)})
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return answer

    def call(self, name: str, *args: Any) -> Any:
        return self.start(name, *args).result(timeout=60)

    async def ask(self, name: str, *args: Any) -> Any:
        return await asyncio.wrap_future(self.start(name, *args))

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        status = self._process.wait(30)
        self._reader.join()
        self._process.stdout.close()
        assert status == 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "told" in message:
                listener = self.listeners[message["told"], message["event"]]
                with contextlib.suppress(RuntimeError):
                    listener(*map(_from_json, message["args"]))
            elif "error" in message:
                self._answers.pop(message["id"]).set_exception(_error(message["error"]))
            else:
                self._answers.pop(message["id"]).set_result(message["result"])


class NodeClient:
    name = "node"

    def __init__(self, driver: NodeDriver) -> None:
        self.driver = driver

    @contextlib.asynccontextmanager
    async def connect(self, address: str | None, **options: Any) -> AsyncIterator[NodePublisher]:
        number = self.driver.number()
        listeners = {}
        for event in ("connect", "disconnect", "drop", "failure"):
            if listener := options.pop(f"on_{event}", None):
                self.driver.listeners[number, event] = listener
                listeners[event] = listener.fails
        stream_id = await self.driver.ask("connect", number, address, camel_options(options), listeners)
        publisher = NodePublisher(self.driver, number, stream_id)
        try:
            yield publisher
        except BaseException:
            with contextlib.suppress(PublishError):
                await publisher.close()
            raise
        await publisher.close()

    def check_options(self, address: str | None, **options: Any) -> Any:
        settings = self.driver.call("settle", address, camel_options(options))
        return type("Settings", (), {snake(name): value for name, value in settings.items()})

    def encode(self, event: Any) -> tuple[bytes, bool]:
        data, is_json = self.driver.call("encode", event)
        return base64.b64decode(data), is_json

    def stream_id_for(self, request: Any) -> str:
        name: str = self.driver.call("streamIdFor", request)
        return name

    @contextlib.contextmanager
    def timing(self, **seconds: float) -> Iterator[None]:
        values = {camel(name): value * 1000 for name, value in seconds.items()}
        before = self.driver.call("timing", values)
        try:
            yield
        finally:
            self.driver.call("timing", before)

    def spelled(self, text: str) -> str:
        names = rf"\b(?:{'|'.join([*Options.__dataclass_fields__, 'drop_newest', 'drop_oldest'])})\b"
        return re.sub(names, lambda match: camel_option(match[0]), text)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """See to it that nothing is left behind: no connection, no timer, no unseen error."""
        yield
        # gRPC gives up a handshake that gets no answer after 20 seconds.
        deadline = time.monotonic() + 60
        while (resources := self.driver.call("resources")) != self.driver.idle_resources:
            assert time.monotonic() < deadline, f"left behind: {resources}"
            time.sleep(0.002)
        assert self.driver.call("takeUnseen") == []
        self.driver.call("takeWarnings")

    def logged(self) -> list[str]:
        warnings: list[str] = self.driver.call("takeWarnings")
        return warnings


class NodePublisher:
    def __init__(self, driver: NodeDriver, number: int, stream_id: str) -> None:
        self._driver = driver
        self._number = number
        self.stream_id = stream_id

    async def publish(self, event: Any) -> bool:
        return (await self.publish_all([event]))[0]

    async def publish_all(self, events: Sequence[Any]) -> list[bool]:
        accepted: list[bool] = await self._ask("publish", list(events))
        return accepted

    async def publish_wait(self, event: Any) -> bool:
        return (await self.publish_wait_all([event]))[0]

    async def publish_wait_all(self, events: Sequence[Any]) -> list[bool]:
        accepted: list[bool] = await self._ask("publishWait", list(events))
        return accepted

    async def publish_lines(self, block: str | bytes, count: int) -> bool:
        accepted: bool = await self._ask("publishLines", block, count)
        return accepted

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._ask("flush", *([] if timeout is None else [timeout * 1000]))

    async def skip(self, count: int) -> None:
        await self._ask("skip", count)

    async def write_all(self, events: Sequence[Any]) -> None:
        await self._ask("write", list(events))

    async def pipe(self, events: Sequence[Any], high_water_mark: int) -> int:
        """Pipe events into the publisher; return how many were read before the first was acknowledged."""
        asked_for: int = await self._ask("pipe", list(events), high_water_mark)
        return asked_for

    async def close(self, timeout: float | None = None, *, ended: bool = True) -> None:  # noqa: ASYNC109
        await self._ask("close", None if timeout is None else timeout * 1000, ended)

    async def stats(self) -> Stats:
        return Stats(**{snake(name): value for name, value in (await self._ask("stats")).items()})

    async def inside(self) -> Inside:
        return Inside(**{snake(name): value for name, value in (await self._ask("inside")).items()})

    async def _ask(self, name: str, *args: Any) -> Any:
        return await self._driver.ask(name, self._number, *args)


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), name)


TIMES = {"batch_delay", "max_wait", "close_timeout"}


def camel_option(name: str) -> str:
    return camel(name) + ("Ms" if name in TIMES else "")


def camel_options(options: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value * 1000 if name in TIMES else value for name, value in options.items()}
    if "on_full" in values:
        values["on_full"] = camel(values["on_full"])
    return {
        camel_option(name): str(value) if isinstance(value, Path) else value for name, value in values.items()
    }


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if math.isnan(value) else "Infinity"}
    if isinstance(value, Mapping):
        return {key: _to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(entry) for entry in value]
    return value


def _from_json(value: Any) -> Any:
    return Failure(**value) if isinstance(value, dict) else value


def _error(error: dict[str, Any]) -> Exception:
    """Return the error as Python has it."""
    if error["name"] == "PublishError":
        attributes = {name: error[name] for name in ("unacknowledged", "dropped", "failed", "reason")}
        known = PublishError(**attributes, failures=[Failure(**failure) for failure in error["failures"]])
        same = str(known) == error["message"]
        return known if same else AssertionError(f"{known} is told as {error['message']}")
    if error.get("code") == "ENOENT":
        return FileNotFoundError(error["message"])
    kinds: dict[str, type[Exception]] = {"TypeError": TypeError, "RangeError": ValueError}
    return kinds.get(error["name"], AssertionError)(error["message"])
