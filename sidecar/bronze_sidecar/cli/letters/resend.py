"""Publishes dead letters again through a running sidecar, with the ids that they had."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import grpc.aio
from bronze_cli.progress import Progress
from bronze_client.channel import share
from bronze_client.options import Options as Connection
from bronze_client.schema import (
    Batch,
    FailureKind,
    Outcome,
    PublishBatchRequest,
    PublishBatchResponse,
    StreamContext,
)

from bronze_sidecar.cli.letters.selection import Letters
from bronze_sidecar.envelope.payloads import ORIGINS
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.ingest.intake import JSON_STARTS, MOST_MESSAGES

METHOD = "/bronze.sidecar.v1.SidecarService/PublishBatch"
MOST_BYTES = 256 << 10
EXIT_UNDELIVERED = 1
SHOWN_FAILURES = 5
PAUSE_SECONDS = 0.2
STOPPING = (signal.SIGINT, signal.SIGTERM)


def unrepeated(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    """Yield the first letter of each event: every back end and every attempt may have added one."""
    seen: set[str] = set()
    for letter in letters:
        if letter.event_id not in seen:
            seen.add(letter.event_id)
            yield letter


def requests(letters: Iterable[DeadLetter]) -> Iterator[tuple[int, PublishBatchRequest]]:
    """Yield requests that give each event its old id, with the number of their letters, in order.

    The sidecar makes an id of stream, position and level. So a request carries messages with successive
    positions, or levels of one message.
    """
    run: list[DeadLetter] = []
    size = 0
    for letter in letters:
        size += len(letter.content)
        if run and (not _follows(letter, run) or len(run) == MOST_MESSAGES or size > MOST_BYTES):
            yield len(run), _request(run)
            run, size = [], len(letter.content)
        run.append(letter)
    if run:
        yield len(run), _request(run)


def _follows(letter: DeadLetter, run: list[DeadLetter]) -> bool:
    last = run[-1]
    if letter.form != last.form or _context(letter) != _context(last):
        return False
    if letter.level is None or last.level is None:
        return letter.level is last.level and letter.position == last.position + 1
    return letter.position == last.position


def _context(letter: DeadLetter) -> StreamContext:
    if letter.kind == "failed":
        # Its envelope has everything.
        return StreamContext(stream_id=letter.stream_id)
    return StreamContext(
        stream_id=letter.stream_id,
        source=letter.source,
        origin=ORIGINS.index(letter.origin) if letter.origin in ORIGINS else 0,  # type: ignore[arg-type]
        request_id=letter.request_id,
        session_id=letter.session_id,
        meta=letter.meta,
    )


def _request(run: list[DeadLetter]) -> PublishBatchRequest:
    first = run[0]
    batch = Batch(first_position=first.position)
    if first.form == "envelope":
        batch.envelopes.extend(letter.content for letter in run)
        batch.levels.extend(letter.level for letter in run if letter.level is not None)
    else:
        # Not as `json`, where a message with line breaks would be several.
        contents = (letter.content for letter in run)
        batch.mixed.extend(each if each.startswith(JSON_STARTS) else b" " + each for each in contents)
    return PublishBatchRequest(context=_context(first), batch=batch)


class Resend:
    """One run: from the first letter to the last answer."""

    def __init__(
        self, letters: Letters, connection: Connection, connect_timeout: float, timeout: float | None
    ) -> None:
        self._letters = letters
        self._connection = connection
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._progress = Progress(sys.stderr)
        self._began = time.monotonic()
        self._sent = self._acknowledged = self._published = self._filtered = 0
        self._rejected = self._failed = 0
        self._failures: list[str] = []
        self._error = ""
        self._signal: signal.Signals | None = None

    async def run(self) -> int:
        """Send everything; return the exit status."""
        loop = asyncio.get_running_loop()
        sending = loop.create_task(self._send_all())

        def stop(number: signal.Signals) -> None:
            self._signal = number
            sending.cancel()

        for number in STOPPING:
            loop.add_signal_handler(number, stop, number)
        try:
            await asyncio.wait({sending})
            if not sending.cancelled():
                sending.result()
        finally:
            for number in STOPPING:
                loop.remove_signal_handler(number)
        self._progress.end(self._figures())
        for line in self._letters.unreadable[:SHOWN_FAILURES]:
            self._progress.note(f"bronze-sidecar: {line}")
        if self._error:
            self._progress.note(f"bronze-sidecar: {self._error}")
        if self._signal:
            return 128 + self._signal
        lost = self._error or self._rejected or self._failed or self._letters.unreadable
        return EXIT_UNDELIVERED if lost or self._sent != self._acknowledged else 0

    def summary(self) -> dict[str, Any]:
        """Return what became of the letters."""
        facts: dict[str, Any] = {
            "sent": self._sent,
            "acknowledged": self._acknowledged,
            "published": self._published,
            "filtered": self._filtered,
            "rejected": self._rejected,
            "failed": self._failed,
            "unacknowledged": self._sent - self._acknowledged,
            "passed_over": self._letters.passed_over,
            "unreadable": len(self._letters.unreadable),
            "seconds": round(time.monotonic() - self._began, 3),
            "failures": self._failures,
        }
        return facts | ({"error": self._error} if self._error else {})

    def _figures(self) -> str:
        lost = self._rejected + self._failed
        return f"{self._sent:,} letters, {self._acknowledged:,} acknowledged, {lost:,} refused again"

    async def _send_all(self) -> None:
        channel = share(self._connection)
        try:
            if not await self._is_reached(channel.grpc):
                return
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.grpc.unary_unary(METHOD)
            for count, request in requests(unrepeated(self._letters)):
                self._sent += count
                if not await self._send(call, count, request):
                    return
                self._progress.show(self._figures())
        finally:
            await channel.release()

    async def _is_reached(self, channel: grpc.aio.Channel) -> bool:
        try:
            await asyncio.wait_for(channel.channel_ready(), self._connect_timeout)
        except TimeoutError:
            self._error = (
                f"gave up: no sidecar has answered at {self._connection.address} for"
                f" {self._connect_timeout:g} seconds."
            )
        return not self._error

    async def _send(
        self,
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes],
        count: int,
        request: PublishBatchRequest,
    ) -> bool:
        """Send a request until it is answered for good; return whether to go on."""
        content = request.SerializeToString()
        since = time.monotonic()
        while True:
            try:
                answer = await call(content, timeout=self._timeout)
            except grpc.aio.AioRpcError as error:
                code, details = error.code(), error.details() or ""
            else:
                self._acknowledged += count
                self._count(request, PublishBatchResponse.FromString(answer).outcome)
                return True
            if not _may_pass(code, details):
                # The request as it is; others may be taken.
                self._acknowledged += count
                self._rejected += count
                self._note(f"{request.context.stream_id}:{request.batch.first_position} refused: {details}")
                return True
            limit = self._connect_timeout if code == grpc.StatusCode.UNAVAILABLE else self._timeout
            if limit and time.monotonic() - since >= limit:
                self._error = f"gave up: nothing was acknowledged for {limit:g} seconds. {details}"
                return False
            self._progress.show(f"waiting for the sidecar at {self._connection.address}: {details}")
            await asyncio.sleep(PAUSE_SECONDS)

    def _count(self, request: PublishBatchRequest, outcome: Outcome) -> None:
        self._published += outcome.published
        self._filtered += outcome.filtered
        for each in outcome.failures:
            is_rejected = each.kind == FailureKind.FAILURE_KIND_REJECTED
            self._rejected += is_rejected
            self._failed += not is_rejected
            level = f".{each.level}" if each.HasField("level") else ""
            how = "rejected" if is_rejected else f"failed by {each.backend}"
            self._note(f"{request.context.stream_id}:{each.position}{level} {how}: {each.reason}")

    def _note(self, text: str) -> None:
        if len(self._failures) < SHOWN_FAILURES:
            self._failures.append(text)


def _may_pass(code: grpc.StatusCode, details: str) -> bool:
    """Whether the same request may be taken later."""
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        # The same code means a request that is too large.
        return details.startswith("no room")
    return code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
