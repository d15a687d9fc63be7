"""Reads a range of a stream: one subscription, one ephemeral pull consumer, one request per batch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from bronze_buses.errors import Refused, Unreachable
from bronze_buses.nats import NatsConnection, NatsLogin, TakingTransport
from bronze_buses.tls import client_context

from bronze_pipeline.sources.base import BYTES_IN_BATCH, ROWS_IN_BATCH
from bronze_pipeline.sources.nats.stream import NatsOptions
from bronze_pipeline.sources.options import read_secret

ANSWER_SECONDS = 30
# The server forgets a consumer that is not used for this long.
IDLE_NANOSECONDS = 300 * 10**9
NOT_PERMITTED = re.compile(r"(?i)permissions violation")
# Any name will do that the library, which counts from 1, does not use.
SUBSCRIPTION = b"bronze"


@dataclass
class Delivery:
    """What one request brought, in the order of the stream."""

    subjects: list[str] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    left: int = 0
    """How many messages the stream had after the last of these."""
    status: bytes = b""
    """Why the server stopped early, such as `404 No Messages`."""


class DeliveringTransport(TakingTransport):
    """Takes the messages of our subscription out of what the library reads."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._wanted = 0
        self._inbox = b""
        self._delivery = Delivery()
        self._complete = asyncio.Event()

    async def read(self, buffer_size: int) -> bytes:  # noqa: ARG002 - the library asks for too little
        """Return what the library must see."""
        return await super().read(1 << 20)

    def expect(self, count: int, inbox: bytes) -> None:
        """Prepare for the answer to a request; each request has its own inbox."""
        self._wanted = count
        self._inbox = inbox
        self._delivery = Delivery()
        self._complete.clear()

    async def delivery(self) -> Delivery:
        """Wait until everything requested is here, or the server says there is no more."""
        await self._complete.wait()
        return self._delivery

    def take(self, received: bytes) -> bytes:
        """Keep our messages, even if incomplete, and return the rest."""
        received = self._rest + received
        others = []
        position, size = 0, len(received)
        while position < size:
            line_end = received.find(b"\r\n", position)
            if line_end < 0:
                break
            after = line_end + 2
            is_plain = received.startswith(b"MSG ", position)
            if is_plain or received.startswith(b"HMSG ", position):
                line = received[position:line_end].split(b" ")
                after += int(line[-1]) + 2
                if after > size:
                    break
                if line[2] == SUBSCRIPTION:
                    header = 0 if is_plain else int(line[-2])
                    self._accept(
                        line,
                        received[line_end + 2 + header : after - 2],
                        received[line_end + 2 : line_end + 42],
                    )
                    position = after
                    continue
            others.append(received[position:after])
            position = after
        self._rest = received[position:]
        return b"".join(others)

    def _accept(self, line: list[bytes], value: bytes, header: bytes) -> None:
        delivery = self._delivery
        if self._complete.is_set():
            return
        if not line[3].startswith(b"$JS.ACK."):
            # The server also reports when it has finished, which may arrive after the next request.
            if line[1] != self._inbox:
                return
            delivery.status = header.partition(b"\r\n")[0].removeprefix(b"NATS/1.0 ")
            self._complete.set()
            return
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<left>, possibly with domain and
        # account before the stream and a random token at the end.
        reply = line[3].split(b".")
        shift = 0 if len(reply) == 9 else 2
        delivery.subjects.append(line[1].decode())
        delivery.sequences.append(int(reply[5 + shift]))
        delivery.values.append(value)
        if len(delivery.values) == self._wanted or reply[8 + shift] == b"0":
            delivery.left = int(reply[8 + shift])
            self._complete.set()


class JetStreamReader:
    """A connection for requests and for reading a stream."""

    def __init__(
        self, connection: NatsConnection, transport: DeliveringTransport, denial: asyncio.Future[str]
    ) -> None:
        self._connection = connection
        self._client = connection.client
        self._transport = transport
        self._denial = denial
        """What the server does not permit, once it has said so; that never comes as an answer."""

    async def info(self, stream: str) -> dict[str, Any]:
        """Return the stream's state, with its time of creation."""
        return await self._ask(f"$JS.API.STREAM.INFO.{stream}", {})

    async def messages(self, stream: str, start: int, end: int) -> AsyncIterator[Delivery]:
        """Yield what the stream has from one sequence number up to, but not including, another."""
        name, inbox = f"bronze-{secrets.token_hex(8)}", f"_INBOX.{secrets.token_hex(11)}"
        settings = {
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": IDLE_NANOSECONDS,
        }
        request = {"stream_name": stream, "config": settings}
        await self._ask(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", request)
        await self._connection.send(b"SUB %b.* %b\r\n" % (inbox.encode(), SUBSCRIPTION))
        try:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode()
            async for delivery in self._pull(subject, inbox.encode(), start, end):
                yield delivery
        finally:
            # If the server is gone, it forgets the consumer by itself.
            with contextlib.suppress(Unreachable, Refused, OSError, nats.errors.Error):
                await self._connection.send(b"UNSUB %b\r\n" % SUBSCRIPTION)
                await self._ask(f"$JS.API.CONSUMER.DELETE.{stream}.{name}", {})

    async def _pull(self, subject: bytes, inbox: bytes, start: int, end: int) -> AsyncIterator[Delivery]:
        max_bytes, number = BYTES_IN_BATCH, 0
        while start < end:
            count = min(ROWS_IN_BATCH, end - start)
            limit = {"max_bytes": max_bytes} if max_bytes else {}
            body = json.dumps({"batch": count, "no_wait": True, **limit}).encode()
            number += 1
            reply = b"%b.%d" % (inbox, number)
            self._transport.expect(count, reply)
            await self._connection.send(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body))
            async with asyncio.timeout(ANSWER_SECONDS):
                delivery = await self._delivery()
            if delivery.values:
                start = delivery.sequences[-1] + 1
                yield delivery
                if not delivery.left and not delivery.status:
                    return
            elif delivery.status.startswith(b"404"):
                return
            elif delivery.status.startswith(b"409") and max_bytes:
                max_bytes = 0  # one message is larger than that
            else:
                raise Unreachable(f"JetStream does not deliver: {delivery.status.decode(errors='replace')}")

    async def _delivery(self) -> Delivery:
        waiting = asyncio.ensure_future(self._transport.delivery())
        while not waiting.done():
            await self._unless_denied(waiting, timeout=1)
            if self._client.is_closed and not waiting.done():
                waiting.cancel()
                raise Unreachable("the connection was lost while reading")
        return waiting.result()

    async def _unless_denied(self, waiting: asyncio.Future[Any], timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait, unless the server does not permit the request."""
        either: list[asyncio.Future[Any]] = [waiting, self._denial]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._denial.done() and not waiting.done():
            waiting.cancel()
            raise Refused(
                f"the NATS server denies a permission that reading needs ({self._denial.result()}): grant it"
                " to the user."
            )

    async def _ask(self, subject: str, request: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(request).encode() if request else b""
        asking = asyncio.ensure_future(self._client.request(subject, body, timeout=ANSWER_SECONDS))
        await self._unless_denied(asking)
        try:
            answer: dict[str, Any] = json.loads(asking.result().data)
        except nats.errors.NoRespondersError:
            raise Unreachable("JetStream is not enabled on the server or for this account.") from None
        except (nats.errors.Error, TimeoutError) as error:
            what = subject.split(".")[3] if subject.count(".") > 3 else subject
            raise Unreachable(f"no answer to {what}: {str(error) or type(error).__name__}") from None
        if "error" in answer:
            raise Unreachable(f"JetStream says: {answer['error'].get('description')} ({subject})")
        return answer


@asynccontextmanager
async def connect(options: NatsOptions) -> AsyncIterator[JetStreamReader]:
    """Connect and log in; close on leaving, even if the server does not answer."""
    login = NatsLogin(
        servers=options.servers,
        flags="--nats-user and --nats-password-file, --nats-token-file, or --nats-creds-file",
        user=options.user,
        password=read_secret("--nats-password-file", options.password_file),
        token=read_secret("--nats-token-file", options.token_file),
        creds_file=str(options.creds_file) if options.creds_file else None,
        tls=client_context(options, "--nats-tls") if options.is_encrypted else None,
    )
    denial: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def note(error: str) -> None:
        if NOT_PERMITTED.search(error) and not denial.done():
            denial.set_result(error.removeprefix("nats: "))

    transport = DeliveringTransport()
    connection = NatsConnection(transport, on_error=note)
    await connection.open(login, "bronze-pipeline")
    try:
        yield JetStreamReader(connection, transport, denial)
    finally:
        await connection.close()
