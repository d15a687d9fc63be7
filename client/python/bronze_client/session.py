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

WARNING_SECONDS = 60.0
"""How long nothing may be acknowledged, while somebody waits for room, until that is logged, and again."""

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
        self._warned_at = -math.inf
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
        longest = _finite(self._options.max_wait)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest), self._turn:
                while self.buffer.is_worth_waiting(size):
                    self._room.clear()
                    try:
                        async with asyncio.timeout(WARNING_SECONDS):
                            await self._room.wait()
                    except TimeoutError:
                        self.warn_of_waiting()

    def warn_of_waiting(self) -> None:
        """Log that somebody has waited for room for long; not for each who does."""
        now = self._loop.time()
        if now - self._warned_at > WARNING_SECONDS / 2:
            self._warned_at = now
            log.warning(
                "Publishing to %s waits for room: nothing was acknowledged for %g s. %s",
                self._options.address,
                WARNING_SECONDS,
                self._refusal or self._connection.trouble or "The sidecar is connected.",
            )

    async def flush(self, timeout: float | None) -> None:  # noqa: ASYNC109 - part of what is raised
        """Return when every event so far is acknowledged. Raise PublishError if one was not delivered.

        Once closed it does nothing, for closing has told.
        """
        if not self._is_closed:
            await self._flush(timeout)

    async def _flush(self, timeout: float | None) -> None:  # noqa: ASYNC109
        target = self.buffer.position
        self.buffer.mark_due()
        await self._wait_until_done(target, timeout)
        self._raise_if_undelivered(target)

    async def _wait_until_done(self, target: int, timeout: float | None) -> None:  # noqa: ASYNC109
        """Return when everything before a position is acknowledged, or never will be, or time is over."""
        self._connection.work.set()
        if self._is_pending(target):
            done = self._loop.create_future()
            self._flushes[done] = target
            try:
                async with asyncio.timeout(_finite(timeout)):
                    await done
            except TimeoutError:
                pass
            finally:
                del self._flushes[done]

    async def close(self, timeout: float | None, *, ended: bool) -> None:  # noqa: ASYNC109
        """Flush within the time, then close the stream, whatever became of the flush.

        If all is done and the producer has `ended`, the sidecar is told so first.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.buffer.refuse("The publisher is closed.")
        timeout = self._options.close_timeout if timeout is None else timeout
        deadline = self._loop.time() + timeout
        try:
            try:
                await self._flush(timeout)
            finally:
                if ended and self._can_tell_end():
                    await self._tell_end(max(deadline - self._loop.time(), FINISH_SECONDS))
        finally:
            await self._stop()

    def _can_tell_end(self) -> bool:
        """Whether there is a stream that has had messages, all of which are done."""
        position = self.buffer.position
        is_done = not self._has_ended and self._window.oldest_position >= position
        return is_done and position > 0 and self._connection.takes_end

    async def _tell_end(self, timeout: float) -> None:  # noqa: ASYNC109
        position = self.buffer.end()
        self._window.end(position)
        await self._wait_until_done(position + 1, timeout)
        if self._window.oldest_position <= position:
            log.warning("The sidecar has not acknowledged the stream's end. %s", self._obstacle())

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

    async def _stop(self) -> None:
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
        if self.buffer.has_batch or self._window.is_idle:
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


def _finite(timeout: float | None) -> float | None:
    """Return a time-out as the event loop takes it: it does not know infinity."""
    return None if timeout is None or math.isinf(timeout) else timeout
