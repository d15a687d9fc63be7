"""Publishing from code without asyncio, from any number of threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bronze_client import background, forks, session
from bronze_client.encoding import Event, encode
from bronze_client.errors import PublishError
from bronze_client.options import Options, taking
from bronze_client.outcomes import Stats
from bronze_client.session import Session

log = logging.getLogger("bronze_client")


class SyncPublisher:
    """The twin of Publisher for threads: the same promises, the same arguments, no event loop needed.

    One background thread does the sending for all of them; callbacks are called in it. Positions are
    given in the order in which calls get hold of the buffer.

    A publisher does not survive `fork`: the child has no such thread, and gRPC must not be used on both
    sides of a fork. In the child its methods raise RuntimeError. Connect in the child, or start children by
    `spawn` or before connecting.
    """

    def __init__(self, options: Options) -> None:
        self._stream_id = options.stream_id or ""
        self._made_in = forks.generation
        self._waits = options.on_full == "wait"
        self._max_wait = options.max_wait
        self._shared = threading.Condition(threading.Lock())
        self._closing = threading.Lock()
        self._is_closed = False
        self._loop = background.loop()
        self._session = asyncio.run_coroutine_threadsafe(_open(options, self._shared), self._loop).result()
        self._buffer = self._session.buffer

    def publish(self, event: Event) -> bool:
        """Take an event; False if it is dropped. With `on_full="wait"` wait for room for up to `max_wait`.

        An event is an envelope, its encoded bytes, or a normalized message as mapping, JSON bytes or JSON
        text; what begins with `{` is JSON.

        Raise TypeError for anything else, ValueError for an event that could never be sent.
        """
        if self._made_in != forks.generation:
            forks.refuse(self._made_in)
        try:
            encoded, is_json = encode(event)
        except (TypeError, ValueError, RecursionError):
            with self._shared:
                self._buffer.skip()
            raise
        with self._shared:
            if self._waits:
                self._wait_for_room(len(encoded) + is_json)
            return self._buffer.add(encoded, is_json)

    def _wait_for_room(self, size: int) -> None:
        deadline = time.monotonic() + self._max_wait
        while self._buffer.is_worth_waiting(size) and (left := deadline - time.monotonic()) > 0:
            longest = session.WARNING_SECONDS
            if not self._shared.wait(min(left, longest)) and left > longest:
                # In the other thread, for a log may take time, or want to publish.
                self._loop.call_soon_threadsafe(self._session.warn_of_waiting)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now; return when every event so far is acknowledged, or after `timeout` seconds.

        Raise PublishError unless every event since the last flush was published, or filtered, by every
        back end: that is, if some are not acknowledged, were dropped, or failed.
        """
        forks.refuse(self._made_in)
        with self._closing:
            if self._is_closed:
                return
            flushing = asyncio.run_coroutine_threadsafe(self._session.flush(timeout), self._loop)
        flushing.result()

    def close(self, timeout: float | None = None, *, ended: bool = True) -> None:
        """Flush within `timeout` seconds, by default `close_timeout`, and close the stream.

        If everything is acknowledged or dropped by then, the stream's end is published too, with the number
        of its positions; with `ended=False` it is not, for a producer that did not get to its end. Raise as
        `flush` does; it is closed anyway. Later events are dropped, and closing again does nothing.
        """
        forks.refuse(self._made_in)
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            closing = asyncio.run_coroutine_threadsafe(self._session.close(timeout, ended=ended), self._loop)
        closing.result()

    @property
    def stream_id(self) -> str:
        """The name of the stream, the first part of every event's id."""
        return self._stream_id

    @property
    def stats(self) -> Stats:
        """The counters as they are now."""
        return self._session.stats


class DisabledSyncPublisher(SyncPublisher):
    """Does nothing: without an address publishing is off. It accepts nothing and counts nothing."""

    def __init__(self, options: Options) -> None:
        self._stream_id = options.stream_id or ""

    def publish(self, event: Event) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def flush(self, timeout: float | None = None) -> None:
        """Return at once."""

    def close(self, timeout: float | None = None, *, ended: bool = True) -> None:
        """Return at once."""

    @property
    def stats(self) -> Stats:
        """Return zeros."""
        return Stats()


@taking(Options)
@contextmanager
def connect_sync(options: Options) -> Iterator[SyncPublisher]:
    """Open a stream of events to a sidecar, and close it at the end of the `with` block.

    The arguments are those of `Options`. It does not wait for the sidecar: events are kept, within the
    buffer's limits, until it is there. Without an address the publisher does nothing, no thread is
    started, and neither gRPC nor Protobuf is imported.

    Leaving the block closes the publisher, and so raises PublishError if events were not delivered; if
    the block raises, that is only logged, and the stream's end is not published.
    """
    publisher = SyncPublisher(options) if options.address else DisabledSyncPublisher(options)
    try:
        yield publisher
    except BaseException:
        try:
            publisher.close(ended=False)
        except (PublishError, RuntimeError) as error:
            log.warning("%s", error)
        raise
    publisher.close()


async def _open(options: Options, shared: threading.Condition) -> Session:
    """Make a session in the loop that it will live in."""
    return Session(options, shared)
