"""The NATS sink: publishes through JetStream and waits for its confirmations, or through core NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import nats.errors
from bronze_buses.errors import BusError
from bronze_buses.nats import NatsConnection, NatsLogin
from bronze_buses.tls import client_context

from bronze_sidecar.envelope import native
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import STRICT_ORDER, Failed, Limits, delivery_error
from bronze_sidecar.sinks.nats.answers import BATCHES_DISABLED, error_code, is_no_stream, refusal
from bronze_sidecar.sinks.nats.batches import APPEND, START, BatchConfirmation, reply_of
from bronze_sidecar.sinks.nats.commands import header_lines, prepare, publish_commands
from bronze_sidecar.sinks.nats.confirmations import (
    FORBIDDEN,
    AnswerWindow,
    Confirmations,
    ConfirmingTransport,
    ForbiddenSubjects,
)
from bronze_sidecar.sinks.nats.options import Nats
from bronze_sidecar.sinks.nats.streams import StreamFacts, check_stream

ANSWER_SECONDS = 10
ASK_AGAIN_SECONDS = 2
"""After which a batch is ended again: its end may have been lost with the stream's leader."""
WRITE_LIMITS = Limits(records=16_384, bytes=16 << 20)
# A server holds at most 10,000 messages that a stream has not taken in yet, and refuses more.
BATCH_LIMITS = Limits(records=8_192, bytes=16 << 20)
SINGLE_ORDER = "a refused message may be stored after later ones of its subject: the stream allows no batches"
CORE_ORDER = "as long as the connection holds: core NATS stores nothing"


@asynccontextmanager
async def open_nats(options: Nats, route: Route) -> AsyncIterator[NatsSink]:
    """Connect, check that a stream accepts our subjects, and close at the end."""
    transport = ConfirmingTransport()
    connection = NatsConnection(transport, on_loss=transport.note_loss)
    try:
        try:
            await connection.open(_login(options), "bronze-sidecar")
        except BusError as error:
            raise delivery_error(error) from error
        facts = await check_stream(options, connection.client) if options.jetstream else StreamFacts()
        yield NatsSink(connection, transport, route, options, facts)
    finally:
        await connection.close()


def _login(options: Nats) -> NatsLogin:
    return NatsLogin(
        servers=[server if "://" in server else f"nats://{server}" for server in options.servers],
        flags="--nats-user and --nats-pass, --nats-token, or --nats-creds-file",
        user=options.user,
        password=options.pass_,
        token=options.token,
        creds_file=str(options.creds_file) if options.creds_file else None,
        tls=client_context(options, "--nats-tls") if options.is_encrypted else None,
    )


class Prepared(NamedTuple):
    """Commands, their records and these records' places in the batch; and the records that are too large."""

    window: int
    """Tells the answers to these commands from others."""
    commands: bytes
    records: Sequence[Record]
    places: Sequence[int]
    oversized: list[Failed]


class NatsSink:
    """A connected NATS server."""

    advice = ""

    def __init__(
        self,
        connection: NatsConnection,
        transport: ConfirmingTransport,
        route: Route,
        options: Nats,
        facts: StreamFacts,
    ) -> None:
        self.forgets_ids_after = facts.duplicate_window
        self.has_one_path = facts.is_one or not options.jetstream
        self._connection = connection
        self._transport = transport
        self._options = options
        self._max_payload = connection.client.max_payload
        self._commands = native.compiled.publish_commands if route.is_native else publish_commands
        self._more_headers = (
            (lambda event: header_lines(route.event_headers(event))) if route.has_event_headers else None
        )
        self._is_subscribed = False
        self._stream_is_gone = False
        self._windows = 0
        self.limits = BATCH_LIMITS if facts.allows_batches else WRITE_LIMITS
        self._replies: Callable[[int], tuple[bytes, bytes]]
        """Returns what the first message of a write, and the others, have for a reply subject."""
        if not options.jetstream:
            self.order, self._publish, self._replies = CORE_ORDER, self._unconfirmed, _no_replies
        elif facts.allows_batches:
            self.order, self._publish, self._replies = STRICT_ORDER, self._in_batch, self._batch_replies
        else:
            self.order, self._publish, self._replies = SINGLE_ORDER, self._one_by_one, self._single_replies

    async def ping(self) -> None:
        """Check that the server answers."""
        try:
            await self._connection.client.flush(timeout=ANSWER_SECONDS)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise Disconnected(f"no answer: {self._connection.last_error or error}") from error

    def prepare(self, batch: Sequence[Record]) -> Prepared:
        self._windows += 1
        return self._prepare(batch, self._windows, *self._replies(self._windows))

    async def write(self, batch: Sequence[Record], prepared: Prepared | None = None) -> Sequence[Failed]:
        """Publish the whole batch at once and wait for what confirms it."""
        if self._connection.lost.is_set():
            raise Disconnected(f"the connection is lost: {self._connection.last_error}")
        if self._stream_is_gone:
            await self._check_stream_again()
        if self._options.jetstream and not self._is_subscribed:
            await self._connection.client.subscribe(f"{self._transport.inbox}.>")
            self._is_subscribed = True
        return await self._publish(prepared or self.prepare(batch))

    async def _check_stream_again(self) -> None:
        """See whether there is a stream again; one that was to be created is created anew."""
        try:
            facts = await check_stream(self._options, self._connection.client)
        except Permanent as error:
            raise Transient(str(error)) from error
        self._stream_is_gone = False
        if facts.allows_batches != (self.order == STRICT_ORDER):
            raise Disconnected("another stream has taken the place of the one that is gone")

    def _prepare(self, batch: Sequence[Record], window: int, first_reply: bytes, reply: bytes) -> Prepared:
        """Make the commands; a `%d` in a reply stands for the message's number."""
        most = self._max_payload
        commands, too_large = self._commands(batch, first_reply, reply, most, prepare, self._more_headers)
        oversized = [
            Failed(place, Permanent(f"the record has {size} bytes; the server allows {most}"))
            for place, size in too_large
        ]
        if not oversized:
            return Prepared(window, commands, batch, range(len(batch)), oversized)
        lost = {failure.place for failure in oversized}
        places = [place for place in range(len(batch)) if place not in lost]
        return Prepared(window, commands, [batch[place] for place in places], places, oversized)

    # -- without JetStream

    async def _unconfirmed(self, prepared: Prepared) -> list[Failed]:
        _, commands, records, places, failures = prepared
        self._transport.window = window = ForbiddenSubjects()
        try:
            await self._send(commands)
            # What the server refuses it says before it answers.
            await self.ping()
        finally:
            self._transport.window = None
        return failures + [
            Failed(place, Permanent(FORBIDDEN))
            for place, record in zip(places, records, strict=True)
            if record.address.destination in window.subjects
        ]

    # -- with a confirmation for each message

    def _single_replies(self, window: int) -> tuple[bytes, bytes]:
        reply = f"{self._transport.inbox}.{window}.%d".encode()
        return reply, reply

    async def _one_by_one(self, prepared: Prepared) -> list[Failed]:
        number, commands, records, places, failures = prepared
        if not commands:
            return failures
        window = Confirmations(number, records)
        await self._exchange(commands, window, ANSWER_SECONDS)
        if not window.finished.is_set():
            raise self._silence(f"{len(window.open)} messages")
        if window.open:
            raise Disconnected(f"the connection is lost: {self._connection.last_error}")
        self._stream_is_gone = any(map(is_no_stream, window.refusals.values()))
        return failures + [
            Failed(places[number - 1], refusal(answer)) for number, answer in sorted(window.refusals.items())
        ]

    # -- with one confirmation for all of them

    def _batch_reply(self, window: int) -> bytes:
        return reply_of(self._transport.inbox, self._transport.batch_prefix, window)

    def _batch_replies(self, window: int) -> tuple[bytes, bytes]:
        reply = self._batch_reply(window)
        return b"%b%%d.%d.$FI" % (reply, START), b"%b%%d.%d.$FI" % (reply, APPEND)

    async def _in_batch(self, prepared: Prepared) -> list[Failed]:
        number, commands, records, places, failures = prepared
        if not commands:
            return failures
        window = BatchConfirmation(number, self._batch_reply(number), records)
        await self._exchange(commands + window.end_command(), window, ASK_AGAIN_SECONDS)
        for _ in range(int(ANSWER_SECONDS / ASK_AGAIN_SECONDS)):
            if window.finished.is_set() and not window.must_end_anew:
                break
            end = window.end_command()
            if not end:
                break
            window.finished.clear()
            await self._exchange(end, window, ASK_AGAIN_SECONDS)
        if window.stored and not window.is_in_log:
            await self._confirm_duplicates(window, records)
        if window.stored == len(records):
            return failures
        if self._connection.lost.is_set():
            raise Disconnected(f"the connection is lost: {self._connection.last_error}")
        if not window.finished.is_set():
            raise self._silence(f"a batch of {len(records)} messages")
        return failures + self._incomplete(window, places)

    async def _confirm_duplicates(self, batch: BatchConfirmation, records: Sequence[Record]) -> None:
        """See whether messages that the server knew are stored, or only on their way to a quorum.

        In a batch it skips either. For a single message it says which it is, and the last one, once stored,
        comes after all the others.
        """
        self._windows += 1
        last = records[(batch.stored or 0) - 1]
        window = Confirmations(self._windows, [last])
        made = self._prepare([last], self._windows, *self._single_replies(self._windows))
        await self._exchange(made.commands, window, ANSWER_SECONDS)
        if window.open:
            raise self._silence("a message sent again")
        if window.refusals:
            batch.stored, batch.refusals = 0, window.refusals

    def _incomplete(self, window: BatchConfirmation, places: Sequence[int]) -> list[Failed]:
        """Say what was not stored: a message was refused or lost, and the server took nothing behind it."""
        refused, answer = window.refused()
        if error_code(answer) == BATCHES_DISABLED:
            raise Disconnected("the stream allows no batches any more")
        self._stream_is_gone = is_no_stream(answer)
        # Without a word on what was stored, everything has to be sent again; the server drops what it has.
        stored = window.stored or 0
        not_tried = NotTried("a message before it was not stored")
        not_tried.may_be_stored = window.stored is None
        # The server has said so of one message for each such subject; the others need not be sent again.
        forbidden = Permanent(FORBIDDEN)
        failures = [
            Failed(place, forbidden if window.is_forbidden(index) else not_tried)
            for index, place in enumerate(places[stored:], stored)
        ]
        error: DeliveryError = refusal(answer) if answer else Transient("the message was lost on its way")
        failures[refused - stored] = Failed(places[refused], error)
        return failures

    # -- sending and waiting

    async def _exchange(self, commands: bytes, window: AnswerWindow, seconds: float) -> None:
        """Send commands, and give the server some time to answer."""
        self._transport.window = window
        try:
            await self._send(commands)
            async with asyncio.timeout(seconds):
                await window.finished.wait()
        except TimeoutError:
            pass
        finally:
            self._transport.window = None

    async def _send(self, commands: bytes) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._connection.send(commands)
        except (OSError, TimeoutError, RuntimeError) as error:
            raise Disconnected(f"sending failed: {error or type(error).__name__}") from error

    def _silence(self, what: str) -> Disconnected:
        last_error = self._connection.last_error
        said = f"; the server said: {last_error}" if last_error else ""
        return Disconnected(f"{what} were not confirmed within {ANSWER_SECONDS} s{said}")


def _no_replies(_: int) -> tuple[bytes, bytes]:
    return b"", b""
