"""The NATS sink: publishes through JetStream and waits for its confirmations, or through core NATS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import nats.errors
import nats.js.errors
from bronze_buses.errors import BusError
from bronze_buses.nats import CONNECT_SECONDS, NatsConnection, NatsLogin
from bronze_buses.tls import client_context
from nats.aio.client import Client
from nats.js.api import StreamConfig, StreamInfo

from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.routing.template import Template
from bronze_sidecar.sinks.base import Failed, Limits, delivery_error
from bronze_sidecar.sinks.nats.confirmations import (
    FORBIDDEN,
    Confirmations,
    ConfirmingTransport,
    command,
    header_line,
)
from bronze_sidecar.sinks.nats.options import Nats

ANSWER_SECONDS = 10
WRITE_LIMITS = Limits(records=16_384, bytes=16 << 20)
# nats-server/server/errors.json: answers that the same message will always get.
PERMANENT_CODES = {
    10054: "the message is larger than the stream allows",
    10137: "the message is larger than the stream allows",
}


@asynccontextmanager
async def open_nats(options: Nats, route: Route) -> AsyncIterator[NatsSink]:
    """Connect, check that a stream accepts our subjects, and close at the end."""
    transport = ConfirmingTransport()
    connection = NatsConnection(transport, on_error=transport.note_error, on_loss=transport.note_loss)
    try:
        try:
            await connection.open(_login(options), "bronze-sidecar")
        except BusError as error:
            raise delivery_error(error) from error
        window = await _check_stream(options, connection.client) if options.jetstream else None
        yield NatsSink(connection, transport, route, confirmed=options.jetstream, forgets_ids_after=window)
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


class NatsSink:
    """A connected NATS server."""

    limits = WRITE_LIMITS

    def __init__(
        self,
        connection: NatsConnection,
        transport: ConfirmingTransport,
        route: Route,
        *,
        confirmed: bool,
        forgets_ids_after: float | None,
    ) -> None:
        self.forgets_ids_after = forgets_ids_after
        self._connection = connection
        self._transport = transport
        self._max_payload = connection.client.max_payload
        self._more_headers = route.event_headers if route.has_event_headers else None
        self._confirmed = confirmed
        self._subscribed = False
        self._windows = 0

    async def ping(self) -> None:
        """Check that the server answers."""
        try:
            await self._connection.client.flush(timeout=ANSWER_SECONDS)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            raise Disconnected(f"no answer: {self._connection.last_error or error}") from error

    async def write(self, batch: Sequence[Record]) -> Sequence[Failed]:
        """Publish the whole batch at once and wait for its confirmations."""
        if self._connection.lost.is_set():
            raise Disconnected(f"the connection is lost: {self._connection.last_error}")
        if not self._confirmed:
            commands, failures = self._commands(batch, b"")
            await self._send(commands)
            await self.ping()
            return failures
        if not self._subscribed:
            await self._connection.client.subscribe(f"{self._transport.inbox}.*.*")
            self._subscribed = True
        self._windows += 1
        reply = f"{self._transport.inbox}.{self._windows}.".encode()
        commands, failures = self._commands(batch, reply)
        too_large = {failure.place for failure in failures}
        window = Confirmations(self._windows, batch, set(range(len(batch))) - too_large)
        if window.open:
            self._transport.window = window
            await self._send(commands)
            await self._answers(window)
        return [
            *failures,
            *(Failed(place, _refusal(answer)) for place, answer in sorted(window.refusals.items())),
        ]

    def _commands(self, batch: Sequence[Record], reply: bytes) -> tuple[list[bytes], list[Failed]]:
        commands, failures = [], []
        more = b""
        for place, record in enumerate(batch):
            if self._more_headers:
                headers = self._more_headers(record.event)
                more = b"".join(header_line(name, value) + b"\r\n" for name, value in headers)
            made = command(record, more, b"%b%d " % (reply, place) if reply else b"")
            # The command's first line is not part of the payload, but a record so close to the limit is rare.
            if len(made) > self._max_payload and (size := _payload_size(made)) > self._max_payload:
                reason = f"the record has {size} bytes; the server allows {self._max_payload}"
                failures.append(Failed(place, Permanent(reason)))
            else:
                commands.append(made)
        return commands, failures

    async def _send(self, commands: list[bytes]) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._connection.send(b"".join(commands))
        except (OSError, TimeoutError, RuntimeError) as error:
            raise Disconnected(f"sending failed: {error or type(error).__name__}") from error

    async def _answers(self, window: Confirmations) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await window.finished.wait()
        except TimeoutError:
            said = f"; the server said: {self._connection.last_error}" if self._connection.last_error else ""
            raise Disconnected(
                f"{len(window.open)} messages were not confirmed within {ANSWER_SECONDS} s{said}"
            ) from None
        finally:
            self._transport.window = None
        if window.open:
            raise Disconnected(f"the connection is lost: {self._connection.last_error}")


def _payload_size(made: bytes) -> int:
    return int(made.partition(b"\r\n")[0].rpartition(b" ")[2])


def _refusal(answer: bytes) -> DeliveryError:
    """Classify an answer that is not a confirmation."""
    if answer == FORBIDDEN.encode():
        return Permanent(FORBIDDEN)
    if answer.startswith(b"NATS/1.0 503"):
        return Transient("no JetStream stream accepts the subject, or its leader is unavailable")
    try:
        error = json.loads(answer)["error"]
        code, text = error.get("err_code", 0), error.get("description", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Transient(f"unknown answer: {answer[:100]!r}")
    if code in PERMANENT_CODES:
        return Permanent(f"{PERMANENT_CODES[code]}: {text}")
    return Transient(f"{text} ({code})")


async def _check_stream(options: Nats, client: Client) -> float | None:
    """Check that a stream accepts our subjects, or create it; return its deduplication window."""
    stream = client.jetstream(timeout=CONNECT_SECONDS)
    subjects = sorted({subject_filter(template) for template in _destinations(options)})
    try:
        if options.stream is None:
            for subject in subjects:
                await stream.find_stream_name_by_subject(subject)
            return None
        try:
            info: StreamInfo = await stream.stream_info(options.stream)
        except nats.js.errors.NotFoundError:
            info = await stream.add_stream(StreamConfig(name=options.stream, subjects=subjects))
    except nats.js.errors.NotFoundError as error:
        raise Permanent(
            f"no JetStream stream accepts {' and '.join(subjects)}: create one, or set --nats-stream to have"
            " it created"
        ) from error
    except nats.js.errors.ServiceUnavailableError as error:
        if error.description is None:
            raise Permanent(
                "JetStream is not enabled on the server or for this account: enable it, or set"
                " --nats-jetstream=false"
            ) from error
        raise Transient(f"JetStream is not available: {error.description}") from error
    except nats.js.errors.APIError as error:
        raise Permanent(f"--nats-stream {options.stream}: {error.description} ({error.err_code})") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise Transient(f"JetStream does not answer: {error or type(error).__name__}") from error
    missing = [
        each for each in subjects if not any(covers(taken, each) for taken in info.config.subjects or [])
    ]
    if missing:
        raise Permanent(
            f"--nats-stream {options.stream}: the stream does not accept {' and '.join(missing)}; it accepts"
            f" {' and '.join(info.config.subjects or ['nothing'])}"
        )
    return info.config.duplicate_window


def _destinations(options: Nats) -> list[Template]:
    rules = options.rules()
    return [
        rules.template_of(case) for case in PAYLOAD_CASES if rules.include is None or case in rules.include
    ]


def subject_filter(template: Template) -> str:
    """Return the subjects that a template can render, with a wildcard for each token that has a value."""
    marked = "\0".join(template.literals)
    return ".".join("*" if "\0" in token else token for token in marked.split("."))


def covers(taken: str, subject: str) -> bool:
    """Return whether a stream's subject filter includes every subject of another filter."""
    wide, narrow = taken.split("."), subject.split(".")
    for index, part in enumerate(wide):
        if part == ">":
            return len(narrow) > index
        if index >= len(narrow) or part not in {"*", narrow[index]}:
            return False
    return len(wide) == len(narrow)
