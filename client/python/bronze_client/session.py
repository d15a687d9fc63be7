"""One open stream of events, from the buffer to the last acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import threading

from bronze_client import forks
from bronze_client.buffer import Buffer
from bronze_client.errors import Failure, PublishError
from bronze_client.options import Options
from bronze_client.outcomes import Outcomes, Stats, call_back
from bronze_client.throttle import Throttle

REPORT_SECONDS = 1.0
"""Drops are reported at most this often."""

FINISH_SECONDS = 1.0
"""How long the sidecar may take to end a stream in good order."""

log = logging.getLogger("bronze_client")


class Session:
    """Belongs to the event loop that it is made in, where its task runs until `close`.

    With `shared`, other threads may add events to the buffer while they hold it, and are notified on it
    when there is room. Without, the loop's own thread adds them, and waits by `wait_for_room`.
    """

    def __init__(self, options: Options, shared: threading.Condition | None = None) -> None:
        forks.keep_grpc_out()
        # Imported here because a client that is switched off must not import gRPC.
        from bronze_client.connection import SidecarConnection  # noqa: PLC0415
        from bronze_client.window import Window  # noqa: PLC0415

        self._options = options
        self._loop = asyncio.get_running_loop()
        self._lock = shared or contextlib.nullcontext()
        self._room = asyncio.Event()
        self._turn = asyncio.Lock()
        self.buffer = Buffer(
            options,
            lock=self._lock,
            wake=functools.partial(self._loop.call_soon_threadsafe, self._look) if shared else self._look,
            on_room=shared.notify_all if shared else self._room.set,
        )
        self._window = Window(self.buffer)
        self._connection = SidecarConnection(options, self._window, self._on_done)
        self._outcomes = Outcomes(options.on_failure)
        self._reports = Throttle(self._loop, REPORT_SECONDS, self._report)
        self._batch_timer: asyncio.TimerHandle | None = None
        self._flushes: dict[asyncio.Future[None], int] = {}
        self._has_ended = False
        self._refusal = ""
        self._is_closed = False
        self._task = self._loop.create_task(self._run(), name="bronze-client")

    @property
    def was_opened(self) -> bool:
        """Whether the sidecar has opened the stream, now or before."""
        return self._connection.times_opened > 0

    @property
    def stats(self) -> Stats:
        """The counters as they are now."""
        buffer, outcomes = self.buffer, self._outcomes
        return Stats(
            accepted=buffer.accepted,
            acknowledged=self._window.acknowledged_events,
            published=outcomes.published,
            filtered=outcomes.filtered,
            rejected=outcomes.rejected,
            failed=outcomes.failed,
            dropped=buffer.drops.total,
            reconnects=max(0, self._connection.times_opened - 1),
            buffered_events=buffer.events,
            buffered_bytes=buffer.bytes,
        )

    async def wait_for_room(self, size: int) -> None:
        """Wait until there is room for so many bytes, in turn with others, or until `max_wait` is over."""
        longest = self._options.max_wait if math.isfinite(self._options.max_wait) else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest), self._turn:
                while self.buffer.is_worth_waiting(size):
                    self._room.clear()
                    await self._room.wait()

    async def flush(self, timeout: float | None) -> None:  # noqa: ASYNC109 - part of what is raised
        """Return when every event so far is acknowledged. Raise PublishError if one was not delivered.

        Once closed it does nothing, for closing has told.
        """
        if not self._is_closed:
            await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> None:  # noqa: ASYNC109
        target = self.buffer.position
        self.buffer.mark_due()
        self._connection.work.set()
        if self._is_pending(target):
            done = self._loop.create_future()
            self._flushes[done] = target
            try:
                async with asyncio.timeout(timeout):
                    await done
            except TimeoutError:
                pass
            finally:
                del self._flushes[done]
        self._raise_if_undelivered(target)

    async def close(self) -> None:
        """Flush within `close_timeout`, then end the stream, whatever became of the flush."""
        if self._is_closed:
            return
        self._is_closed = True
        self.buffer.refuse("The publisher is closed.")
        try:
            await self._flush(self._options.close_timeout)
        finally:
            await self._end()

    async def _run(self) -> None:
        try:
            self._refusal = await self._connection.run()
        except Exception as error:
            log.exception("The client failed.")
            self._refusal = f"The client failed: {error!r}."
        self._has_ended = True
        if self._refusal:
            self.buffer.refuse(self._refusal)
            log.error("Publishing to %s has stopped: %s", self._options.address, self._refusal)
        self._settle()

    async def _end(self) -> None:
        try:
            if not self._is_pending(self.buffer.position) and self._connection.is_open:
                self._connection.finish()
                await asyncio.wait({self._task}, timeout=FINISH_SECONDS)
            self._task.cancel()
            await asyncio.wait({self._task})
        finally:
            self._task.cancel()
            self._has_ended = True
            self.buffer.detach()
            if self._batch_timer is not None:
                self._batch_timer.cancel()
            self._reports.finish()
            self._settle()

    def _look(self) -> None:
        """See what the buffer has: a batch to send or to send soon, drops to report."""
        if self.buffer.has_batch:
            self._connection.work.set()
        if self.buffer.is_timed and self._batch_timer is None:
            self._batch_timer = self._loop.call_later(self._options.batch_delay, self._on_batch_timer)
        if self.buffer.drops.unreported:
            self._reports.ask()
            self._settle()

    def _on_batch_timer(self) -> None:
        self._batch_timer = None
        self.buffer.mark_due()
        self._look()

    def _on_done(self, published: int, filtered: int, failures: list[Failure]) -> None:
        self._outcomes.add(published, filtered, failures)
        if self._outcomes.is_unreported:
            self._reports.ask()
        self._settle()

    def _report(self) -> None:
        self._outcomes.report()
        with self._lock:
            count, reason = self.buffer.drops.report()
        if count and self._options.on_drop is not None:
            call_back(self._options.on_drop, count, reason)
        elif count:
            log.warning("%d events were dropped: %s", count, reason)
        self._settle()

    def _is_pending(self, target: int) -> bool:
        return not self._has_ended and self._window.oldest_position < target

    def _settle(self) -> None:
        """End the flushes that have nothing more to wait for."""
        for done, target in self._flushes.items():
            if not done.done() and not self._is_pending(target):
                done.set_result(None)

    def _raise_if_undelivered(self, target: int) -> None:
        unacknowledged = self.buffer.events if self._window.oldest_position < target else 0
        with self._lock:
            dropped, self.buffer.drops.since_flush = self.buffer.drops.since_flush, 0
            reason = self.buffer.drops.reason if dropped else ""
        failed, failures = self._outcomes.take_failures()
        if not unacknowledged and not dropped and not failed:
            return
        if unacknowledged:
            reason = self._obstacle()
        raise PublishError(
            unacknowledged=unacknowledged, dropped=dropped, failed=failed, failures=failures, reason=reason
        )

    def _obstacle(self) -> str:
        if self._refusal or self._connection.trouble:
            return self._refusal or self._connection.trouble
        if not self._connection.is_open:
            return "The sidecar has not opened the stream yet."
        return "The sidecar has not acknowledged them yet."
