"""Reads a range of a JetStream stream quickly.

The library connects, logs in, encrypts and answers the server's pings. It handles each message by
itself, so what JetStream delivers to us is taken out of the transport before the library parses it: one
subscription, one ephemeral pull consumer, one request for each batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from bronze_pipeline.sources.base import BYTES_IN_BATCH, ROWS_IN_BATCH, Refused, Unreachable, read_secret
from bronze_pipeline.sources.refusals import certificate_fault

CONNECT_SECONDS = 5
ANSWER_SECONDS = 30
# The server forgets a consumer that was not asked for this long.
IDLE_NANOSECONDS = 300 * 10**9
# What a server says to a user whom it does not know, or no more.
LOG_IN_REFUSED = re.compile(r"(?i)authorization violation|authentication (?:expired|revoked)")
NOT_PERMITTED = re.compile(r"(?i)permissions violation")
# Any name that the library, which counts from 1, does not use.
SUBSCRIPTION = b"bronze"


@dataclass(frozen=True)
class NatsAccess:
    """How to reach and log in to the servers; holds no secret, but where to find them."""

    servers: tuple[str, ...]
    user: str | None = None
    password_file: str | None = None
    token_file: str | None = None
    creds_file: str | None = None
    tls: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None


@dataclass
class Delivery:
    """What one request brought, in the order of the stream."""

    subjects: list[str] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    left: int = 0
    """How many messages the stream had behind the last of these."""
    status: bytes = b""
    """Why the server stopped early, such as `404 No Messages`."""


class TakingTransport(TcpTransport):
    """The library's transport, less the messages of our subscription."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the library's
        self._rest = b""
        self._wanted = 0
        self._inbox = b""
        self._delivery = Delivery()
        self._complete = asyncio.Event()

    def __bool__(self) -> bool:
        # The library replaces a transport that is not connected yet; this one is to stay.
        return True

    async def read(self, buffer_size: int) -> bytes:  # noqa: ARG002 - the library asks for little
        """Return what the library has to see; it is called again at once for more."""
        while True:
            received: bytes = await super().read(1 << 20)
            if not received:
                return received
            for_library = self.take(received)
            if for_library:
                return for_library

    def abort(self) -> None:
        """Close at once; the library leaves a connection open that it could not log in by."""
        if self._bare_io_writer is not None:
            self._bare_io_writer.transport.abort()

    def expect(self, count: int, inbox: bytes) -> None:
        """Prepare for the answer to a request; each request has an inbox of its own."""
        self._wanted = count
        self._inbox = inbox
        self._delivery = Delivery()
        self._complete.clear()

    async def delivery(self) -> Delivery:
        """Wait until all that was asked for is here, or the server says that there is no more."""
        await self._complete.wait()
        return self._delivery

    def take(self, received: bytes) -> bytes:
        """Keep our messages, also in parts, and return the rest."""
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
            # The server also says when it has done all, which may come after the next request.
            if line[1] != self._inbox:
                return
            delivery.status = header.partition(b"\r\n")[0].removeprefix(b"NATS/1.0 ")
            self._complete.set()
            return
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<left>, or with domain and
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
    """A connection of the library for requests, and for reading a stream."""

    def __init__(self, client: Client, transport: TakingTransport, denial: asyncio.Future[str]) -> None:
        self._client = client
        self._transport = transport
        self._denial = denial
        """What the server does not permit, once it has said so; it does not say so in an answer."""

    async def info(self, stream: str) -> dict[str, Any]:
        """Return the stream's state, with its time of creation."""
        return await self._ask(f"$JS.API.STREAM.INFO.{stream}", {})

    async def messages(self, stream: str, start: int, end: int) -> AsyncIterator[Delivery]:
        """Yield what the stream has from one sequence number up to another, which is excluded."""
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
        await self._send(b"SUB %b.* %b\r\n" % (inbox.encode(), SUBSCRIPTION))
        try:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode()
            async for delivery in self._pull(subject, inbox.encode(), start, end):
                yield delivery
        finally:
            # Where the server is gone it forgets the consumer by itself.
            with contextlib.suppress(Unreachable, Refused, OSError, nats.errors.Error):
                await self._send(b"UNSUB %b\r\n" % SUBSCRIPTION)
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
            await self._send(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body))
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
        """Wait, but not for what the server does not permit."""
        either: list[asyncio.Future[Any]] = [waiting, self._denial]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._denial.done() and not waiting.done():
            waiting.cancel()
            raise Refused(
                f"the NATS server does not permit what reading takes ({self._denial.result()}): give the user"
                " these rights."
            )

    async def _send(self, command: bytes) -> None:
        # What the library still has to send goes first.
        await self._client._flush_pending(force_flush=True)  # noqa: SLF001
        self._transport.write(command)  # type: ignore[no-untyped-call] # the library's
        await self._transport.drain()  # type: ignore[no-untyped-call] # the library's

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
async def connect(access: NatsAccess) -> AsyncIterator[JetStreamReader]:
    """Connect and log in; close in the end, also when the server does not answer."""
    password = read_secret("passwordFile", access.password_file)
    token = read_secret("tokenFile", access.token_file)
    client, transport = Client(), TakingTransport()
    # The one place that reaches into the library: it takes a transport that is there.
    client._transport = transport  # noqa: SLF001
    said: list[Exception] = []
    denial: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def note(error: Exception) -> None:
        said.append(error)
        if NOT_PERMITTED.search(str(error)) and not denial.done():
            denial.set_result(str(error).removeprefix("nats: "))

    try:
        async with asyncio.timeout(CONNECT_SECONDS * len(access.servers) + 1):
            await client.connect(
                servers=list(access.servers),
                name="bronze-pipeline",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                error_cb=note,
                user=access.user,
                password=password,
                token=token,
                user_credentials=access.creds_file,
                tls=_tls(access),
            )
    except (OSError, nats.errors.Error, TimeoutError, ValueError, TypeError) as error:
        transport.abort()
        raise _opening_error(access, error, said) from None
    try:
        yield JetStreamReader(client, transport, denial)
    finally:
        try:
            async with asyncio.timeout(1):
                await client.close()
        except (TimeoutError, OSError, nats.errors.Error):
            pass


def _opening_error(access: NatsAccess, error: Exception, said: list[Exception]) -> Refused | Unreachable:
    errors = [error, *said]
    if any(LOG_IN_REFUSED.search(str(each)) for each in errors):
        return Refused(
            "the NATS server refuses the log-in: check --nats-user and --nats-password-file,"
            " --nats-token-file, or --nats-creds-file."
        )
    where = " or ".join(access.servers)
    fault = next(filter(None, (certificate_fault(each, "--nats") for each in errors)), None)
    if fault is not None:
        return Refused(f"{where}: {fault}")
    reason = str(error) or (str(said[-1]) if said else type(error).__name__)
    return Unreachable(f"cannot connect to {where}: {reason}")


def _tls(access: NatsAccess) -> ssl.SSLContext | None:
    if not access.tls and not any(server.startswith("tls://") for server in access.servers):
        return None
    context = ssl.create_default_context(cafile=access.tls_ca_file)
    if access.tls_cert_file:
        context.load_cert_chain(access.tls_cert_file, access.tls_key_file)
    return context
