"""Sends the lines of an input to a sidecar, waits for acknowledgements, and reports progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
from bronze_cli.options import Raw, option
from bronze_cli.problems import Fault, shorten
from bronze_cli.progress import Progress
from bronze_cli.values import Choice, File, ListenAddress, Number, Scalar, Switch, Text
from bronze_client import Failure, Publisher, PublishError, Stats, connect
from bronze_client.options import Origin

from bronze_sidecar.cli.lines import Broken, Lines, read_ahead

EXIT_UNDELIVERED = 1
STOPPING = (signal.SIGINT, signal.SIGTERM)
SHOWN_FAILURES = 5
# If none of this many lines is a JSON object, the file is something else.
FIRST_LINES = 20
MOST_GAPS = 10_000
# Enough to keep a sidecar busy, little enough to finish soon after Ctrl-C.
BUFFER_EVENTS = 20_000
STALL_SECONDS = 1.0
LOOK_SECONDS = 0.1
PACE_SECONDS = 0.01
MOMENT_SECONDS = 2.0
"""How long an interrupted transfer waits for messages in flight."""


class Entry(Scalar):
    """A key and a value; may be repeated. The value may contain anything."""

    metavar = "KEY:VALUE"

    def parse(self, raw: Raw) -> dict[str, str] | list[Fault]:
        entries: dict[str, str] = {}
        faults: list[Fault] = []
        for text in [raw] if isinstance(raw, str) else raw:
            key, colon, value = text.partition(":")
            if not colon:
                faults.append(Fault(f"'{shorten(text)}' has no ':'.", f"Write {self.metavar}."))
            elif key in entries:
                faults.append(Fault(f"'{shorten(key)}' is given twice."))
            entries[key] = value
        return faults or entries

    def combined(self, earlier: Raw, later: Raw) -> Raw | None:
        return [*([earlier] if isinstance(earlier, str) else earlier), str(later)]

    def show(self, value: Mapping[str, str]) -> str:
        return ", ".join(f"{key}:{text}" for key, text in value.items())


@dataclass(frozen=True)
class SendOptions:
    """What the command takes."""

    to: str = option(ListenAddress(unix=True), "The sidecar: host:port or unix:///path.", required=True)
    source: str = option(Text(), "Producing program, as name/version.", default="bronze-sidecar-send")
    origin: str = option(Choice(*get_args(Origin)), "How the producer got the messages.", default="replay")
    stream_id: str | None = option(
        Text(),
        "Stream id, the first part of every event's id; a new unique one if not given. With the same one, the"
        " same file gives the same event ids each time.",
    )
    request_id: str = option(Text(), "Request that the messages answer.", default="")
    session_id: str = option(Text(), "Client session that made the request.", default="")
    meta: Mapping[str, str] | None = option(
        Entry(), "Entry to add to the meta of every event; may be given several times."
    )
    rate: float | None = option(Number(0.01, 1e9), "Maximum messages per second; unlimited if not given.")
    connect_timeout: float = option(
        Number(0.1, 1e9), "Give up if no sidecar answers within this many seconds.", default=30.0
    )
    timeout: float | None = option(
        Number(0.1, 1e9), "Give up if nothing is acknowledged for this many seconds; never if not given."
    )
    tls: bool = option(Switch(), "Encrypt the connection.", default=False)
    tls_ca_file: Path | None = option(File(), "CA certificates to trust instead of the system's.")
    tls_cert_file: Path | None = option(File(), "Client certificate, for mutual TLS.")
    tls_key_file: Path | None = option(File(), "Private key of the client certificate.")


class Transfer:
    """One run: from the first line to the last acknowledgement."""

    def __init__(self, lines: Lines, options: SendOptions) -> None:
        self._lines = lines
        self._options = options
        self._progress = Progress(sys.stderr)
        self._began = time.monotonic()
        self._seconds = 0.0
        self._stream_id = ""
        self._stats = Stats()
        self._position = -1
        self._numbers = LineNumbers()
        self._refused = 0
        """Messages that the client refused."""
        self._failures: list[str] = []
        self._error = ""
        self._signal: signal.Signals | None = None

    async def run(self) -> int:
        """Send everything; return the exit status."""
        with self._warnings_shown():
            try:
                async with self._connect() as publisher:
                    self._stream_id = publisher.stream_id
                    try:
                        await self._supervise(publisher)
                        # If it is not closed yet, it was broken off.
                        await publisher.close(ended=False)
                    finally:
                        self._stats = publisher.stats
            except PublishError as error:
                self._error = self._error or error.reason
        self._seconds = time.monotonic() - self._began
        self._progress.end(self._figures(), self._share())
        if self._error:
            self._progress.note(f"bronze-sidecar: {self._error}")
        if self._signal:
            return 128 + self._signal
        return 0 if self._is_delivered() else EXIT_UNDELIVERED

    def summary(self) -> dict[str, Any]:
        """Return what became of the messages."""
        stats = self._stats
        facts: dict[str, Any] = {
            "stream_id": self._stream_id,
            "sent": stats.accepted,
            "acknowledged": stats.acknowledged,
            "published": stats.published,
            "filtered": stats.filtered,
            "rejected": stats.rejected + self._refused,
            "failed": stats.failed,
            "dropped": stats.dropped,
            "unacknowledged": stats.accepted - stats.acknowledged,
            "seconds": round(self._seconds, 3),
            "failures": self._failures,
        }
        return facts | ({"error": self._error} if self._error else {})

    def _is_delivered(self) -> bool:
        stats = self._stats
        lost = stats.rejected + stats.failed + stats.dropped + self._refused
        return not self._error and not lost and stats.acknowledged == stats.accepted

    def _connect(self) -> contextlib.AbstractAsyncContextManager[Publisher]:
        options = self._options
        return connect(
            options.to,
            source=options.source,
            origin=cast("Origin", options.origin),
            stream_id=options.stream_id,
            request_id=options.request_id,
            session_id=options.session_id,
            meta=self._options.meta,
            buffer_events=BUFFER_EVENTS,
            on_full="wait",
            max_wait=math.inf,
            on_failure=self._on_failure,
            close_timeout=0.0,
            tls=options.tls,
            tls_ca_file=options.tls_ca_file,
            tls_cert_file=options.tls_cert_file,
            tls_key_file=options.tls_key_file,
        )

    @contextlib.contextmanager
    def _warnings_shown(self) -> Iterator[None]:
        """Send the client's warnings to standard error, unless the progress line already shows them."""
        log, handler = logging.getLogger("bronze_client"), _Notes(self._progress)
        log.addHandler(handler)
        log.propagate = False
        try:
            yield
        finally:
            log.removeHandler(handler)
            log.propagate = True

    # -- sending

    async def _supervise(self, publisher: Publisher) -> None:
        """Send everything, unless a signal comes or there is no progress for too long."""
        loop = asyncio.get_running_loop()
        sending = loop.create_task(self._send_all(publisher))
        watching = loop.create_task(self._watch(publisher, sending))

        def stop(number: signal.Signals, work: asyncio.Task[Any]) -> None:
            self._signal = number
            work.cancel()

        try:
            for number in STOPPING:
                loop.add_signal_handler(number, stop, number, sending)
            await asyncio.wait({sending})
            if self._signal:
                flushing = loop.create_task(_flush(publisher, MOMENT_SECONDS))
                # A second signal ends this too.
                for number in STOPPING:
                    loop.add_signal_handler(number, stop, number, flushing)
                await asyncio.wait({flushing})
            elif not sending.cancelled():
                sending.result()
        finally:
            for number in STOPPING:
                loop.remove_signal_handler(number)
            watching.cancel()
            await asyncio.wait({watching})

    async def _send_all(self, publisher: Publisher) -> None:
        pace = Pace(self._options.rate) if self._options.rate else None
        try:
            async with contextlib.aclosing(self._messages()) as messages:
                async for number, line in messages:
                    if not await self._publish(publisher, number, line):
                        # It waits for room as long as it takes, so this refusal is final.
                        return
                    if pace:
                        await pace.wait()
        except Broken as error:
            self._error = str(error)
        if not self._error and self._position < 0:
            self._progress.note(f"bronze-sidecar: {self._lines.name} contains no messages.")
        await _flush(publisher)
        if not self._error:
            await publisher.close(self._options.timeout or math.inf)

    async def _messages(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield the lines that are not empty, with their numbers, once one of the first is a JSON object."""
        held: list[tuple[int, bytes]] | None = []
        number = 0
        async with contextlib.aclosing(read_ahead(self._lines)) as blocks:
            async for lines in blocks:
                for number, line in enumerate(lines, number + 1):  # noqa: B020 - it continues where it was
                    if not line or line.isspace():
                        continue
                    if held is None:
                        yield number, line
                        continue
                    held.append((number, line))
                    if _is_object(line):
                        for message in held:
                            yield message
                        held = None
                    elif len(held) == FIRST_LINES:
                        raise self._not_json(held)
        if held:
            raise self._not_json(held)

    def _not_json(self, held: list[tuple[int, bytes]]) -> Broken:
        return Broken(
            f"{self._lines.name}: this is not newline-delimited JSON: no JSON object in line {held[0][0]}"
            + (f", nor in the next {len(held) - 1}." if len(held) > 1 else ".")
        )

    async def _publish(self, publisher: Publisher, number: int, line: bytes) -> bool:
        self._position += 1
        if self._numbers.add(self._position, number) > MOST_GAPS:
            self._numbers.forget(publisher.stats.acknowledged)
        try:
            # Anything else counts as JSON with a space in front, and is refused as such.
            return await publisher.publish_wait(line if line.startswith(b"{") else b" " + line)
        except ValueError as error:
            self._refused += 1
            self._note_failure(self._position, f"position {self._position} rejected: {error}")
            return True

    def _on_failure(self, failure: Failure) -> None:
        self._note_failure(failure.position, str(failure))

    def _note_failure(self, position: int, text: str) -> None:
        if len(self._failures) < SHOWN_FAILURES:
            self._failures.append(f"line {self._numbers.of(position)}, {text}")

    # -- watching

    async def _watch(self, publisher: Publisher, sending: asyncio.Task[None]) -> None:
        """Show progress; give up when there is none for too long."""
        acknowledged, since = 0, time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._stats = publisher.stats
            now = time.monotonic()
            if self._stats.acknowledged > acknowledged or not self._stats.buffered_events:
                acknowledged, since = self._stats.acknowledged, now
            obstacle = await _flush(publisher, 0) if now - since > STALL_SECONDS else ""
            if obstacle:
                self._progress.show(f"waiting for the sidecar at {self._options.to}: {obstacle}")
            else:
                self._progress.show(self._figures(), self._share())
            if not publisher.was_opened and now - self._began > self._options.connect_timeout:
                self._error = (
                    f"gave up: no sidecar has answered at {self._options.to} for"
                    f" {self._options.connect_timeout:g} seconds. {await _flush(publisher, 0)}"
                )
                sending.cancel()
                return
            if self._options.timeout and now - since > self._options.timeout:
                self._error = (
                    f"gave up: nothing was acknowledged for {self._options.timeout:g} seconds. {obstacle}"
                )
                sending.cancel()
                return

    def _share(self) -> float | None:
        """Return how much of the file was read, if its size is known."""
        return min(1.0, self._lines.bytes_read / self._lines.size) if self._lines.size else None

    def _figures(self) -> str:
        stats = self._stats
        seconds = time.monotonic() - self._began
        rejected = stats.rejected + stats.failed + self._refused
        return (
            f"{stats.accepted:,} messages, {stats.acknowledged / seconds:,.0f}/s,"
            f" {stats.acknowledged:,} acknowledged, {rejected:,} rejected"
        )


class LineNumbers:
    """Maps messages to line numbers: empty lines are not messages."""

    def __init__(self) -> None:
        self._positions = [0]
        self._empty = [1]
        """How far line numbers are ahead of positions, from each of these positions on."""

    def add(self, position: int, number: int) -> int:
        """Record a message's line; return how much is remembered."""
        if number - position != self._empty[-1]:
            self._positions.append(position)
            self._empty.append(number - position)
        return len(self._positions)

    def forget(self, settled: int) -> None:
        """Forget the first messages, which nobody will ask about again."""
        first = max(0, bisect_right(self._positions, settled) - 1)
        del self._positions[:first], self._empty[:first]

    def of(self, position: int) -> int:
        """Return the number of a message's line."""
        return position + self._empty[max(0, bisect_right(self._positions, position) - 1)]


class Pace:
    """Spreads messages evenly over time."""

    def __init__(self, per_second: float) -> None:
        self._seconds = 1 / per_second
        self._due = time.monotonic()

    async def wait(self) -> None:
        """Wait until the next message is due, unless that is very soon."""
        self._due += self._seconds
        ahead = self._due - time.monotonic()
        if ahead > PACE_SECONDS:
            await asyncio.sleep(ahead)
        elif ahead < -1.0:
            # The rate still holds after the sidecar paused.
            self._due = time.monotonic()


async def _flush(publisher: Publisher, timeout: float | None = None) -> str:  # noqa: ASYNC109
    """Wait until everything is acknowledged; return what prevents the rest."""
    try:
        await publisher.flush(timeout)
    except PublishError as error:
        return error.reason
    return ""


def _is_object(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


class _Notes(logging.Handler):
    """Writes log records around the progress line."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.CRITICAL if progress.is_shown else logging.WARNING)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.note(f"bronze-sidecar: {record.getMessage()}")
