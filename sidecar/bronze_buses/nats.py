"""Connections to NATS: the library connects, logs in, encrypts and answers pings; we read and write in bulk.

The library handles messages one at a time, which costs several times the protocol's own work. So prepared
commands go straight to its transport, and our messages are taken out of what the transport reads before the
library parses it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from bronze_buses.errors import BusError, Refused, Unreachable
from bronze_buses.tls import certificate_fault, tls_error

CONNECT_SECONDS = 5
# What a server says to a user it does not know, or no longer knows.
LOG_IN_REFUSED = re.compile(r"(?i)authorization violation|authentication (?:expired|revoked|error)")


@dataclass(frozen=True)
class NatsLogin:
    """Where to connect, and as whom."""

    servers: Sequence[str]
    """As URLs."""
    flags: str
    """The flags that the login came from, for messages."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    creds_file: str | None = None
    tls: ssl.SSLContext | None = None


class TakingTransport(TcpTransport):
    """The library's transport, minus the bytes that `take` keeps."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # the library's
        self.must_encrypt = False
        """Whether nothing may be sent before TLS has begun."""
        self.has_refused = False
        """Whether something was about to be sent in clear text that must not be."""
        self.is_encrypting = False
        """Whether TLS has begun; a failure to connect after that is a TLS failure."""

    def __bool__(self) -> bool:
        # The library replaces a transport that is not connected yet; this one must stay.
        return True

    def take(self, received: bytes) -> bytes:
        """Keep what is ours, even if incomplete, and return the rest."""
        raise NotImplementedError

    async def read(self, buffer_size: int) -> bytes:
        """Return what the library must see; it calls again at once for more."""
        while True:
            received: bytes = await super().read(buffer_size)
            if not received:
                return received
            for_library = self.take(received)
            if for_library:
                return for_library

    def write(self, payload: bytes) -> None:
        """Write, unless the server did not ask for TLS and we insist on it: the log-in comes first."""
        self._refuse_clear_text()
        super().write(payload)  # type: ignore[no-untyped-call] # the library's

    def writelines(self, payload: list[bytes]) -> None:
        """Do the same for several pieces."""
        self._refuse_clear_text()
        super().writelines(payload)  # type: ignore[no-untyped-call] # the library's

    def _refuse_clear_text(self) -> None:
        if self.must_encrypt and not self.is_encrypting:
            self.has_refused = True
            raise nats.errors.SecureConnWantedError

    async def connect_tls(self, *arguments: Any, **named: Any) -> None:
        """Note that TLS has begun."""
        self.is_encrypting = True
        await super().connect_tls(*arguments, **named)

    def abort(self) -> None:
        """Drop the socket, with anything unsent: a frozen server would hold it forever."""
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.transport.abort()


class NatsConnection:
    """A connection made by the library, with what it reports asynchronously."""

    def __init__(
        self,
        transport: TakingTransport,
        *,
        on_error: Callable[[str], None] | None = None,
        on_loss: Callable[[], None] | None = None,
    ) -> None:
        self.client = Client()
        # The library uses a transport that is already set.
        self.client._transport = transport  # noqa: SLF001
        self.lost = asyncio.Event()
        self.last_error = ""
        self._transport = transport
        self._told: list[Exception] = []
        self._on_error = on_error
        self._on_loss = on_loss

    async def open(self, login: NatsLogin, name: str) -> None:
        """Connect and log in; raise BusError."""
        self._transport.must_encrypt = login.tls is not None
        try:
            async with asyncio.timeout(CONNECT_SECONDS * len(login.servers) + 1):
                await self.client.connect(
                    servers=list(login.servers),
                    name=name,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,
                    ping_interval=10,
                    max_outstanding_pings=2,
                    error_cb=self._note_error,
                    disconnected_cb=self._note_loss,
                    closed_cb=self._note_loss,
                    user=login.user,
                    password=login.password,
                    token=login.token,
                    user_credentials=login.creds_file,
                    tls=login.tls,
                )
        except (OSError, nats.errors.Error, TimeoutError, ValueError, TypeError) as error:
            self._transport.abort()
            raise self._opening_error(error, login) from error

    def _opening_error(self, error: Exception, login: NatsLogin) -> BusError:
        errors = [error, *self._told]
        if any(LOG_IN_REFUSED.search(str(each)) for each in errors):
            return Refused(f"the NATS server refuses the login: check {login.flags}")
        where = " or ".join(login.servers)
        if self._transport.has_refused:
            return Refused(
                f"{where}: the server does not offer TLS, which is asked for; nothing was sent to it"
            )
        fault = next(filter(None, (certificate_fault(each, "--nats-tls") for each in errors)), None)
        if fault is not None:
            return Refused(f"{where}: {fault}")
        # That no server is left says nothing; what became of the last one does.
        cause = self._told[-1] if isinstance(error, nats.errors.NoServersError) and self._told else error
        reason = str(cause) or ("no answer" if isinstance(cause, TimeoutError) else type(cause).__name__)
        # Some TLS errors are also ValueErrors, so they come first.
        if self._transport.is_encrypting or any(map(tls_error, errors)):
            flags = "--nats-tls-ca-file, --nats-tls-cert-file and --nats-tls-key-file"
            return Unreachable(f"cannot connect to {where} with TLS (see {flags}): {reason}")
        if isinstance(error, ValueError | TypeError):
            return Refused("the credentials cannot be used: check --nats-creds-file")
        return Unreachable(f"cannot connect to {where}: {reason}")

    async def _note_error(self, error: Exception) -> None:
        self._told.append(error)
        del self._told[:-10]
        self.last_error = str(error) or type(error).__name__
        if self._on_error:
            self._on_error(self.last_error)

    async def _note_loss(self) -> None:
        self.lost.set()
        if self._on_loss:
            self._on_loss()

    async def send(self, commands: bytes) -> None:
        """Write commands and wait until the socket has taken them."""
        # Anything the library has yet to send, such as a subscription, goes first.
        await self.client._flush_pending(force_flush=True)  # noqa: SLF001
        self._transport.write(commands)
        await self._transport.drain()  # type: ignore[no-untyped-call] # the library's

    async def close(self) -> None:
        """Close without waiting for a server that may be gone."""
        self.lost.set()
        try:
            async with asyncio.timeout(1):
                await self.client.close()
        except (TimeoutError, OSError, nats.errors.Error):
            pass
        finally:
            self._transport.abort()
