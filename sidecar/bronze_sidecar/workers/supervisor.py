"""Starts workers, starts them again when they crash, stops them in order, and answers for all of them.

A connection belongs to the worker that accepted it, so a stream's events stay in one process, in their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from bronze_cli.values import UNIX, UNIX_PATH_LIMIT

from bronze_sidecar.app import EXIT_FAILED, EXIT_UNDELIVERED
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.sockets import unix_sockets
from bronze_sidecar.status.page import StatusPage
from bronze_sidecar.telemetry.admin import HEALTH, Admin
from bronze_sidecar.telemetry.logs import logger
from bronze_sidecar.workers.relay import spread
from bronze_sidecar.workers.totals import WorkerTotals
from bronze_sidecar.workers.worker import Post

WRONG_CONFIGURATION = 2
LOOK_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 5.0
STUCK_SECONDS = 60.0
"""How much longer than the grace period a worker may take to stop, to save what it has and to close."""
BACKLOG = 512
LONGEST_NAME = len("/worker-99")


class SummedAdmin(Admin):
    """Answers with what all workers say."""

    def __init__(self, totals: WorkerTotals) -> None:
        super().__init__(totals, totals, StatusPage(totals.facts))
        self._totals = totals

    async def prepare(self, path: str) -> None:
        if path != HEALTH:
            await self._totals.look()


class Supervisor:
    """The process that was started; its workers take the events."""

    def __init__(self, config: Config, arguments: Sequence[str]) -> None:
        self._config = config
        self._arguments = arguments
        self._log = logger()
        self._stopping = asyncio.Event()
        self._told: dict[int, socket.socket] = {}
        """How each worker that runs is told of connections."""
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._failed: int | None = None
        """The status of a worker that can never serve."""

    async def run(self) -> int:
        """Watch over the workers until told to stop; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        tasks: list[asyncio.Task[None]] = []
        try:
            with (
                _ports(self._config.listen) as ports,
                _listening(self._config) as shared,
                _folder(self._config.listen) as folder,
            ):
                posts = [Post(number, folder, ports, bool(shared)) for number in range(self._config.workers)]
                totals = WorkerTotals(self._config, [post.admin for post in posts])
                admin = await SummedAdmin(totals).start(self._config.admin_listen)
                tasks = [asyncio.create_task(_look(totals))]
                tasks += [asyncio.create_task(spread(each, self._told)) for each in shared]
                statuses = await asyncio.gather(*(self._keep(post, totals) for post in posts))
                admin.close()
        except OSError as error:
            self._log.error("cannot listen", reason=str(error))
            return EXIT_FAILED
        finally:
            for task in tasks:
                task.cancel()
        if self._failed is not None:
            return self._failed
        return max(status if status >= 0 else EXIT_UNDELIVERED for status in statuses)

    def _on_signal(self, number: signal.Signals) -> None:
        self._log.info("stopping the workers", signal=number.name)
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._processes.values():
            if process.returncode is None:
                process.terminate()
        asyncio.get_running_loop().call_later(self._config.grace_seconds + STUCK_SECONDS, self._kill)

    def _kill(self) -> None:
        """End the workers that have not stopped: one is frozen, for example."""
        for number, process in self._processes.items():
            if process.returncode is None:
                self._log.error("a worker does not stop, and is killed", worker=number)
                process.kill()

    async def _keep(self, post: Post, totals: WorkerTotals) -> int:
        """Run a worker, again and again until the supervisor stops; return its last status."""
        pause = 0.0
        while True:
            began = time.monotonic()
            try:
                async with self._started(post) as process:
                    if self._stopping.is_set():
                        process.terminate()
                    status = await process.wait()
            except OSError as error:
                # No memory or no process to be had, which passes; the others go on.
                self._log.error("cannot start a worker", worker=post.number, reason=str(error))
                status = EXIT_FAILED
            if self._stopping.is_set():
                # It ends only those that have not begun to serve, and so have taken nothing.
                was_early = status == -signal.SIGTERM and not totals.was_ready(post.number)
                return 0 if was_early else status
            if status in {EXIT_FAILED, WRONG_CONFIGURATION} and not totals.was_ready(post.number):
                # What it said of the reason is in the log.
                self._failed = status
                self._stop()
                return status
            totals.ended(post.number)
            pause = 0.0 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else pause * 2 or 0.1
            pause = min(pause, LONGEST_PAUSE_SECONDS)
            self._log.error(
                "a worker ended, and is started again; its streams connect anew",
                worker=post.number,
                status=status,
                pause_seconds=pause,
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return 0

    @contextlib.asynccontextmanager
    async def _started(self, post: Post) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a worker's process; connections are handed to it as long as it runs."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                told = msgspec.structs.replace(post, told_by=theirs.fileno())
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "bronze_sidecar.workers.worker"),
                    *(msgspec.json.encode(told).decode(), *self._arguments),
                    pass_fds=[theirs.fileno()],
                    # A terminal's Ctrl-C comes to the supervisor alone, which passes it on.
                    start_new_session=True,
                )
            ours.setblocking(False)
            self._told[post.number], self._processes[post.number] = ours, process
            try:
                yield process
            finally:
                del self._told[post.number]


async def _look(totals: WorkerTotals) -> None:
    """Look at the workers now and then, so that what a worker counted before a crash is known."""
    while True:
        await totals.look()
        await asyncio.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def _ports(addresses: Sequence[str]) -> Iterator[list[str]]:
    """Take the ports, so that they are ours also while no worker listens; return the addresses."""
    with contextlib.ExitStack() as stack:
        taken = []
        for address in addresses:
            if address.startswith(UNIX):
                continue
            host, _, port = address.rpartition(":")
            number = int(port)
            found = socket.getaddrinfo(
                host.strip("[]"), number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, kind, protocol, _, place in [each for each in found if _is_here(each)] or found:
                # Another sidecar may share ports as well: then this one must not.
                with socket.socket(family, kind, protocol) as alone:
                    alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    _bind(alone, address, (place[0], number))
                held = stack.enter_context(socket.socket(family, kind, protocol))
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                _bind(held, address, (place[0], number))
                number = held.getsockname()[1]
            taken.append(f"{host}:{number}")
        yield taken


def _is_here(found: tuple[int, int, int, str, tuple[Any, ...]]) -> bool:
    """Whether the machine has an address: `localhost` may stand for one of IPv6 where that is off."""
    family, kind, protocol, _, place = found
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind((place[0], 0))
    except OSError as error:
        return error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return True


def _bind(held: socket.socket, address: str, place: tuple[str | int, int]) -> None:
    if held.family == socket.AF_INET6:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        held.bind(place)
    except OSError as error:
        raise OSError(f"{address}: {error.strerror}") from error


@contextlib.contextmanager
def _folder(addresses: Sequence[str]) -> Iterator[str]:
    """Make a folder for the workers' own sockets: beside ours if there is one, where there is surely room."""
    beside = (Path(f"{each.removeprefix(UNIX)}.workers") for each in addresses if each.startswith(UNIX))
    folder = next(beside, None)
    if folder is None or len(os.fsencode(folder)) + LONGEST_NAME > UNIX_PATH_LIMIT:
        folder = Path(tempfile.mkdtemp(prefix="bronze-workers-"))
    # A process that was killed may have left it.
    _remove(folder)
    folder.mkdir()
    folder.chmod(0o700)
    try:
        yield str(folder)
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder with nothing but sockets in it."""
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            if each.is_socket():
                each.unlink()
        folder.rmdir()


@contextlib.contextmanager
def _listening(config: Config) -> Iterator[list[socket.socket]]:
    """Listen at the unix sockets among the addresses."""
    with contextlib.ExitStack() as stack:
        show = stack.enter_context(unix_sockets(config.listen, config.socket_mode))
        sockets = []
        for address in config.listen:
            if address.startswith(UNIX):
                listening = stack.enter_context(socket.socket(socket.AF_UNIX))
                listening.setblocking(False)
                listening.bind(address.removeprefix(UNIX))
                listening.listen(BACKLOG)
                sockets.append(listening)
        show()
        yield sockets
