"""The gRPC service: streams in, acknowledgements out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import grpc
from bronze_client.schema import (
    Acknowledgement,
    Batch,
    Credits,
    Opened,
    PublishBatchRequest,
    PublishBatchResponse,
    PublishRequest,
    PublishResponse,
)
from bronze_client.schema import StreamContext as StreamContextMessage
from google.protobuf.message import DecodeError

from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.errors import Rejected
from bronze_sidecar.ingest.failures import Failures, StreamFailures
from bronze_sidecar.ingest.intake import Admission, Contents, Intake, Ticket
from bronze_sidecar.ingest.session import ProducerSession, ProducerSessions
from bronze_sidecar.ingest.turns import Entrance, Turn
from bronze_sidecar.mapping.mapper import StreamContext
from bronze_sidecar.telemetry.metrics import Metrics

SERVICE = "bronze.sidecar.v1.SidecarService"
PRODUCER_ID_LIMIT = 128

Context = grpc.aio.ServicerContext[bytes, bytes]


class CallRefused(Exception):  # noqa: N818 - named for what became of the call
    """Ends a call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code


def invalid(details: str) -> CallRefused:
    return CallRefused(grpc.StatusCode.INVALID_ARGUMENT, details)


def taken_over_error() -> CallRefused:
    return CallRefused(grpc.StatusCode.ABORTED, "the producer has resumed the stream on another connection")


class SidecarService:
    """Takes batches from producers and answers when they are done."""

    def __init__(
        self, config: Config, lanes: Sequence[Lane], metrics: Metrics, failures: Failures | None = None
    ) -> None:
        self._lanes = lanes
        self._metrics = metrics
        self._failures = failures or Failures()
        self._max_event_bytes = config.max_event_bytes
        self._max_streams = config.max_streams
        self._max_sessions = config.max_sessions
        self._credits = Credits(
            events=config.max_queue_events,
            bytes=config.max_queue_bytes,
            batch_bytes=config.max_event_bytes,
        )
        self._admission = Admission(lanes, config)
        self._sessions = ProducerSessions(config.max_sessions)
        self.open_streams = 0
        self._draining = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what a gRPC server needs; requests stay bytes, for the hot path parses them itself."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Publish": grpc.stream_stream_rpc_method_handler(self._answering(self.publish)),
                "PublishBatch": grpc.unary_unary_rpc_method_handler(self._answering(self.publish_batch)),
            },
        )

    @property
    def sessions(self) -> list[tuple[tuple[str, str], ProducerSession]]:
        """The runs of producers that are remembered, each by producer and stream."""
        return self._sessions.items()

    @property
    def hot_path(self) -> str:
        """How events are made of what producers send: `compiled` or `python`."""
        return "compiled" if self._admission.is_native else "python"

    @property
    def is_taking(self) -> bool:
        """Whether a batch is on its way into the lanes."""
        return self._admission.turns.is_busy

    def drain(self) -> None:
        """Refuse new batches; streams end when what they sent is done."""
        self._draining.set()

    @staticmethod
    def _answering(
        behaviour: Callable[[bytes, Context], Awaitable[bytes | None]],
    ) -> Callable[[bytes, Context], Awaitable[bytes | None]]:
        async def answer(request: bytes, context: Context) -> bytes | None:
            try:
                return await behaviour(request, context)
            except CallRefused as refusal:
                code, details = refusal.code, str(refusal)
                # Its frames hold what was made of the request; in a circle with them it would stay for long.
                refusal.__traceback__ = refusal.__cause__ = refusal.__context__ = None
            return await context.abort(code, details)

        return answer

    # -- a single batch

    async def publish_batch(self, request: bytes, context: Context) -> bytes:  # noqa: ARG002
        """Publish one batch; answer when it is done."""
        if self._draining.is_set():
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, "the sidecar is stopping")
        done = asyncio.Event()
        look = partial(self._lanes_of_single, request)
        if full := [lane for lane in self._lanes if not lane.has_room(1, len(request))]:
            lanes = look()
            reasons = ", ".join(f"{lane.name} is {lane.state}" for lane in full if lane in lanes)
            if reasons:
                raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"no room for more events: {reasons}")
        async with self._admission.turns.turn(look) as turn:
            ticket = await self._take_single(turn, request, done)
        await done.wait()
        return PublishBatchResponse(outcome=ticket.outcome()).SerializeToString()

    async def _take_single(self, turn: Turn, request: bytes, done: asyncio.Event) -> Ticket:
        message = parse_single(request)
        intake = self._intake(message.context, producer_id="")
        try:
            return await intake.take(turn, contents_of(message.batch), request, lambda _: done.set())
        finally:
            intake.close()

    def _lanes_of(self, request: bytes) -> frozenset[Entrance]:
        return self._admission.lanes_of(contents_of(batch_of(request)))

    def _lanes_of_single(self, request: bytes) -> frozenset[Entrance]:
        return self._admission.lanes_of(contents_of(parse_single(request).batch))

    def _intake(self, message: StreamContextMessage, producer_id: str) -> Intake:
        try:
            context = StreamContext(
                stream_id=message.stream_id,
                source=message.source,
                origin=message.origin,
                request_id=message.request_id,
                session_id=message.session_id,
                meta=dict(message.meta),
            )
        except Rejected as error:
            raise invalid(f"context: {error}") from error
        operators = StreamFailures(self._failures, context, producer_id)
        return Intake(context, self._admission, self._max_event_bytes, self._metrics, operators)

    # -- a stream

    async def publish(self, _: object, context: Context) -> None:
        """Serve one stream until its producer ends it, it is lost, or the sidecar stops."""
        if self._draining.is_set():
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, "the sidecar is stopping")
        if self.open_streams >= self._max_streams:
            raise CallRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self.open_streams} streams are open; --max-streams allows no more",
            )
        self.open_streams += 1
        try:
            await self._publish(context)
        finally:
            self.open_streams -= 1

    async def _publish(self, context: Context) -> None:
        taken_over = asyncio.Event()
        session, intake, known = await self._open(context, taken_over)
        self._metrics.streams.inc()
        reader = asyncio.create_task(self._read(session, intake, context))
        ending = asyncio.Event()
        writer = asyncio.create_task(self._acknowledge(session, context, known, ending))
        ends = [asyncio.create_task(event.wait()) for event in (self._draining, taken_over)]
        try:
            await asyncio.wait({reader, writer, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if taken_over.is_set():
                raise taken_over_error()
            if reader.done():
                reader.result()
            if writer.done():
                writer.result()
            # While draining, reading goes on: a producer whose request nobody takes would hear of the
            # stream's end before it has read the last acknowledgements.
            ending.set()
            session.changed.set()
            await asyncio.wait({writer, ends[1]}, return_when=asyncio.FIRST_COMPLETED)
            if taken_over.is_set():
                raise taken_over_error()
            writer.result()
            # The session stays, for a call that was cut off can look like one whose producer has no more.
            if self._draining.is_set():
                raise CallRefused(grpc.StatusCode.UNAVAILABLE, "the sidecar is stopping")
        finally:
            self._metrics.streams.dec()
            session.leave(taken_over.set)
            tasks: list[asyncio.Task[object]] = [reader, writer, *ends]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            intake.close()

    async def _open(self, context: Context, taken_over: asyncio.Event) -> tuple[ProducerSession, Intake, int]:
        """Read the opening request; answer with where to go on."""
        request = await read(context)
        if request is None:
            raise invalid("the stream ended before it was opened")
        message = parse(request)
        if message.WhichOneof("kind") != "open":
            raise invalid("the first request must open the stream")
        producer_id, known = message.open.producer_id, message.open.acknowledged_sequence
        if not 0 < len(producer_id) <= PRODUCER_ID_LIMIT:
            raise invalid(f"producer_id must have 1 to {PRODUCER_ID_LIMIT} characters")
        intake = self._intake(message.open.context, producer_id)
        key = producer_id, message.open.context.stream_id
        session = self._sessions.resume(*key, known)
        if session is None:
            session = ProducerSession(known, self._sessions.remembered)
            if not self._sessions.add(*key, session):
                raise CallRefused(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{len(self._sessions)} producer runs are remembered; --max-sessions allows no more",
                )
        opened = Opened(
            acknowledged_sequence=session.acknowledged,
            credits=self._credits,
            outcome=session.outcome_since(known),
            takes_end=True,
        )
        session.open(intake)
        # Before it is written: whoever opens the stream again meanwhile must find this connection.
        session.take_over = taken_over.set
        try:
            await context.write(PublishResponse(opened=opened).SerializeToString())
        except BaseException:
            session.leave(taken_over.set)
            raise
        session.tell(opened.acknowledged_sequence)
        return session, intake, opened.acknowledged_sequence

    async def _read(self, session: ProducerSession, intake: Intake, context: Context) -> None:
        """Take batches in until the producer has no more."""
        while True:
            request = await read(context)
            if request is None:
                return
            await session.wait_until_told()
            await session.one_by_one(partial(self._take, session, intake, request))

    async def _take(self, session: ProducerSession, intake: Intake, request: bytes) -> None:
        # First: whatever is checked must still hold when the batch is taken in.
        async with self._admission.turns.turn(partial(self._lanes_of, request)) as turn:
            if not self._draining.is_set():
                await self._take_in_turn(turn, session, intake, request)
            # Otherwise its producer keeps what is not acknowledged.

    async def _take_in_turn(
        self, turn: Turn, session: ProducerSession, intake: Intake, request: bytes
    ) -> None:
        batch = batch_of(request)
        if batch.sequence <= session.accepted:
            # Sent again: it is on its way, or done. Either way an acknowledgement says so.
            session.changed.set()
            return
        if batch.sequence != session.accepted + 1:
            raise invalid(f"batch {session.accepted + 1} must come next, not batch {batch.sequence}")
        contents = contents_of(batch)
        events = session.events_on_the_way + len(contents.messages)
        size = session.bytes_on_the_way + contents.size
        if events > self._credits.events or size > self._credits.bytes:
            raise CallRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{events} events and {size} bytes would be on the way; the credits are"
                f" {self._credits.events} events and {self._credits.bytes} bytes",
            )
        await session.take(turn, intake, contents, request)

    async def _acknowledge(
        self, session: ProducerSession, context: Context, known: int, ending: asyncio.Event
    ) -> None:
        """Write an acknowledgement whenever there is news: one for all that is done by then.

        Once the stream is ending, return when everything is acknowledged. If it is the sidecar that ends, the
        producer is asked to send no more.
        """
        has_asked = False
        while not (ending.is_set() and session.is_done and known == session.acknowledged):
            await session.changed.wait()
            session.changed.clear()
            if self._draining.is_set() and not has_asked:
                await context.write(PublishResponse(credits=Credits()).SerializeToString())
                has_asked = True
            newest = session.acknowledged
            if newest == known and ending.is_set():
                continue
            acknowledgement = Acknowledgement(sequence=newest, outcome=session.outcome_since(known))
            known = newest
            await context.write(PublishResponse(acknowledgement=acknowledgement).SerializeToString())
            session.tell(newest)


async def read(context: Context) -> bytes | None:
    """Return the next request, or None when the producer has no more."""
    request: object = await context.read()
    return request if isinstance(request, bytes) else None


def parse(request: bytes) -> PublishRequest:
    """Parse a request of a stream."""
    try:
        return PublishRequest.FromString(request)
    except DecodeError as error:
        raise invalid("the request is not a PublishRequest") from error


def batch_of(request: bytes) -> Batch:
    """Return the batch in a request of a stream that is open."""
    message = parse(request)
    if message.WhichOneof("kind") != "batch":
        raise invalid("the stream is open already; every further request must be a batch")
    return message.batch


def parse_single(request: bytes) -> PublishBatchRequest:
    """Parse a request that publishes a single batch."""
    try:
        return PublishBatchRequest.FromString(request)
    except DecodeError as error:
        raise invalid("the request is not a PublishBatchRequest") from error


def contents_of(batch: Batch) -> Contents:
    """Return what a batch carries; refuse one that is not a batch."""
    try:
        return Contents(batch)
    except ValueError as error:
        raise invalid(str(error)) from error
