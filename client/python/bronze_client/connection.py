"""The gRPC stream to the sidecar: opened, resumed for as long as it takes, and closed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from bronze_client import schema as messages
from bronze_client.channel import SharedChannel, certificates, share
from bronze_client.errors import Failure
from bronze_client.options import Options
from bronze_client.schema import (
    FailureKind,
    Open,
    Outcome,
    PublishRequest,
    PublishResponse,
    StreamContext,
)
from bronze_client.window import Window

if TYPE_CHECKING:
    Call: TypeAlias = grpc.aio.StreamStreamCall[bytes, bytes]

OnDone: TypeAlias = Callable[[int, int, list[Failure]], None]
"""Told of events that were published, that were filtered, and that failed."""

METHOD = "/bronze.sidecar.v1.SidecarService/Publish"

OPEN_SECONDS = 10.0
"""How long a sidecar may take to open the stream before the next attempt."""

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0
"""What is lost of the time since the sidecar is back, at most."""

MOST_REFUSALS = 10
"""How often in a row the sidecar may find what is sent too much; then it is so for good."""

FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
"""Answers that another attempt would only get again."""

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED.name

log = logging.getLogger("bronze_client")


class StreamRefused(Exception):  # noqa: N818 - named for what the sidecar did
    """The sidecar will not have this stream, now or later."""


class Lost(Exception):  # noqa: N818 - named for what became of the connection
    """The stream has ended, and may be resumed."""


class SidecarConnection:
    """Sends what the window offers, and hands what became of it to `on_done`.

    `work` is set by the owner whenever there may be something new to send.
    """

    def __init__(self, options: Options, window: Window, on_done: OnDone) -> None:
        # Only to tell at once of files that cannot be read.
        certificates(options)
        self._options = options
        self._window = window
        self._on_done = on_done
        self._is_finishing = False
        self._progressed_at = 0.0
        self.work = asyncio.Event()
        self.is_open = False
        self.times_opened = 0
        self.takes_end = False
        """Whether the sidecar wants to hear of the stream's end."""
        self.trouble = ""
        """Why there is no stream; empty while there is one."""

    async def run(self) -> str:
        """Keep the stream open until `finish`, or until the sidecar refuses it: then return why."""
        attempt = refusals = 0
        while not self._is_finishing:
            began, opened = time.monotonic(), self.times_opened
            try:
                await self._hold_stream()
            except Lost as error:
                self._note_loss(str(error))
                # What was sent is refused, not the stream: that may pass, but not for ever.
                is_refusal = self.times_opened > opened and str(error).startswith(EXHAUSTED)
                refusals = refusals + 1 if is_refusal and self._progressed_at <= began else 0
                if refusals >= MOST_REFUSALS:
                    return str(error)
            except StreamRefused as error:
                return str(error)
            # A sidecar that opens the stream only to end it is not asked ever faster.
            has_lasted = self.times_opened > opened and time.monotonic() - began > LONGEST_PAUSE_SECONDS
            attempt = 0 if has_lasted or self._progressed_at > began else attempt + 1
            if not self._is_finishing:
                await asyncio.sleep(_pause(attempt))
        return ""

    def finish(self) -> None:
        """End the stream in good order; to be called when everything is acknowledged."""
        self._is_finishing = True
        self.work.set()

    async def _hold_stream(self) -> None:
        try:
            # The files are read anew for every stream, so that certificates can be replaced meanwhile.
            channel = share(self._options)
        except OSError as error:
            raise Lost(str(error)) from None
        try:
            await self._converse(channel)
        except grpc.aio.AioRpcError as error:
            text = f"{error.code().name}: {error.details()}"
            raise (StreamRefused(text) if error.code() in FINAL else Lost(text)) from None
        except DecodeError as error:
            raise Lost(f"The sidecar's answer cannot be read: {error}.") from None
        except grpc.aio.BaseError as error:
            raise Lost(f"gRPC failed: {error!r}.") from None
        finally:
            self.is_open = False
            await channel.release()

    async def _converse(self, channel: SharedChannel) -> None:
        call: Call = channel.grpc.stream_stream(METHOD)()
        try:
            await self._open_within_time(channel, call)
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self._send(call))
                await self._receive(call)
                sending.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            # Others go on with the connection.
            call.cancel()

    async def _open_within_time(self, channel: SharedChannel, call: Call) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._open(call)
        except TimeoutError:
            channel.retire()
            raise Lost(f"The sidecar did not answer within {OPEN_SECONDS:g} s.") from None

    async def _open(self, call: Call) -> None:
        request = PublishRequest(open=open_message(self._options, self._window.acknowledged_sequence))
        await _write(call, request.SerializeToString())
        response = await _read(call)
        if response is None or response.WhichOneof("kind") != "opened":
            raise Lost("The sidecar did not open the stream.")
        opened = response.opened
        can_go_on = self._window.open(opened.acknowledged_sequence, opened.credits)
        self._tell(opened.outcome)
        if not can_go_on:
            raise Lost("The sidecar takes smaller batches than before.")
        self.is_open = True
        self.times_opened += 1
        self.takes_end = opened.takes_end
        self.trouble = ""
        log.info("The stream to %s is open.", self._options.address)

    async def _send(self, call: Call) -> None:
        while True:
            self.work.clear()
            while (request := self._window.next()) is not None:
                if not await _write(call, request):
                    return
            if self._is_finishing:
                await call.done_writing()
                return
            await self.work.wait()

    async def _receive(self, call: Call) -> None:
        while (response := await _read(call)) is not None:
            kind = response.WhichOneof("kind")
            if kind == "acknowledgement":
                self._progressed_at = time.monotonic()
                self._window.acknowledge(response.acknowledgement.sequence)
                self._tell(response.acknowledgement.outcome)
            elif kind == "credits":
                self._window.grant(response.credits)
            self.work.set()
        if not self._is_finishing:
            raise Lost("The sidecar ended the stream.")

    def _tell(self, outcome: Outcome) -> None:
        self._on_done(
            outcome.published, outcome.filtered, [_failure(failure) for failure in outcome.failures]
        )

    def _note_loss(self, reason: str) -> None:
        # Logged once for each loss, not for each attempt.
        if not self.trouble:
            log.warning("There is no stream to %s: %s", self._options.address, reason)
        self.trouble = reason


def open_message(options: Options, acknowledged_sequence: int) -> Open:
    """Return the message that opens or resumes the stream."""
    context = StreamContext(
        stream_id=options.stream_id,
        source=options.source,
        origin=f"ORIGIN_{options.origin.upper()}",
        request_id=options.request_id,
        session_id=options.session_id,
        meta=options.meta,
    )
    return Open(producer_id=options.producer_id, context=context, acknowledged_sequence=acknowledged_sequence)


async def _write(call: Call, request: bytes) -> bool:
    """Send a request; return False if the call is over. Reading then tells how it ended."""
    try:
        await call.write(request)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return False
    return True


async def _read(call: Call) -> PublishResponse | None:
    """Return the next response, or None at the end of the stream."""
    response = await call.read()
    return PublishResponse.FromString(response) if isinstance(response, bytes) else None


def _failure(failure: messages.Failure) -> Failure:
    return Failure(
        position=failure.position,
        kind="rejected" if failure.kind == FailureKind.FAILURE_KIND_REJECTED else "failed",
        reason=failure.reason,
        backend=failure.backend,
        level=failure.level if failure.HasField("level") else None,
    )


def _pause(attempt: int) -> float:
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(attempt, 10))
    return random.uniform(0, longest)  # noqa: S311 - spreads attempts, hides nothing
