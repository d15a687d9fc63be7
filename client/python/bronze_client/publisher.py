"""Publishing from code with asyncio."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bronze_client import forks
from bronze_client.encoding import Event, encode
from bronze_client.errors import PublishError
from bronze_client.options import Options, taking
from bronze_client.outcomes import Stats
from bronze_client.session import Session

log = logging.getLogger("bronze_client")


class Publisher:
    """Publishes events to a sidecar, each at least once, for as long as it is open.

    Every call of `publish` or `publish_wait` uses up one position of the stream, whether its event is
    accepted, dropped or refused by an exception: what is missing leaves a gap that can be seen
    downstream, and the same events get the same ids when they are published again.

    All methods belong to the event loop in which the publisher was opened; other threads use
    `connect_sync`. Callbacks are called in that loop too, so they should be quick.
    """

    def __init__(self, options: Options) -> None:
        self._stream_id = options.stream_id or ""
        self._made_in = forks.generation
        self._waits = options.on_full == "wait"
        self._session = Session(options)
        self._buffer = self._session.buffer

    def publish(self, event: Event) -> bool:
        """Take an event and return at once: True if it is accepted, False if it is dropped.

        An event is an envelope, its encoded bytes, or a normalized message as mapping, JSON bytes or JSON
        text; what begins with `{` is JSON. It travels later, while the loop runs: code that publishes
        much without ever awaiting something only fills the buffer.

        Raise TypeError for anything else, ValueError for an event that could never be sent.
        """
        if self._made_in != forks.generation:
            forks.refuse(self._made_in)
        try:
            encoded, is_json = encode(event)
        except (TypeError, ValueError, RecursionError):
            self._buffer.skip()
            raise
        return self._buffer.add(encoded, is_json)

    async def publish_wait(self, event: Event) -> bool:
        """Do as `publish`, but with `on_full="wait"` wait for room for up to `max_wait` first."""
        if not self._waits:
            return self.publish(event)
        forks.refuse(self._made_in)
        try:
            encoded, is_json = encode(event)
        except (TypeError, ValueError, RecursionError):
            self._buffer.skip()
            raise
        if self._buffer.is_worth_waiting(len(encoded) + is_json):
            await self._session.wait_for_room(len(encoded) + is_json)
        return self._buffer.add(encoded, is_json)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - it says what is missing
        """Send everything now; return when every event so far is acknowledged, or after `timeout` seconds.

        Raise PublishError unless every event since the last flush was published, or filtered, by every
        back end: that is, if some are not acknowledged, were dropped, or failed.
        """
        forks.refuse(self._made_in)
        await self._session.flush(timeout)

    async def close(self, timeout: float | None = None, *, ended: bool = True) -> None:  # noqa: ASYNC109
        """Flush within `timeout` seconds, by default `close_timeout`, and close the stream.

        If everything is acknowledged or dropped by then, the stream's end is published too, with the number
        of its positions; with `ended=False` it is not, for a producer that did not get to its end. Raise as
        `flush` does; it is closed anyway. Later events are dropped, and closing again does nothing.
        """
        forks.refuse(self._made_in)
        await self._session.close(timeout, ended=ended)

    @property
    def stream_id(self) -> str:
        """The name of the stream, the first part of every event's id."""
        return self._stream_id

    @property
    def was_opened(self) -> bool:
        """Whether the sidecar has opened the stream, now or before."""
        return self._session.was_opened

    @property
    def stats(self) -> Stats:
        """The counters as they are now."""
        return self._session.stats


class DisabledPublisher(Publisher):
    """Does nothing: without an address publishing is off. It accepts nothing and counts nothing."""

    def __init__(self, options: Options) -> None:
        self._stream_id = options.stream_id or ""

    def publish(self, event: Event) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    async def publish_wait(self, event: Event) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Return at once."""

    async def close(self, timeout: float | None = None, *, ended: bool = True) -> None:  # noqa: ASYNC109
        """Return at once."""

    @property
    def was_opened(self) -> bool:
        """Return False."""
        return False

    @property
    def stats(self) -> Stats:
        """Return zeros."""
        return Stats()


@taking(Options)
@asynccontextmanager
async def connect(options: Options) -> AsyncIterator[Publisher]:
    """Open a stream of events to a sidecar, and close it at the end of the `async with` block.

    The arguments are those of `Options`. It does not wait for the sidecar: events are kept, within the
    buffer's limits, until it is there. Without an address the publisher does nothing, and neither gRPC
    nor Protobuf is imported.

    Leaving the block closes the publisher, and so raises PublishError if events were not delivered; if
    the block raises, that is only logged, and the stream's end is not published.
    """
    publisher = Publisher(options) if options.address else DisabledPublisher(options)
    try:
        yield publisher
    except BaseException:
        try:
            await publisher.close(ended=False)
        except (PublishError, RuntimeError) as error:
            log.warning("%s", error)
        raise
    await publisher.close()
