"""From a producer's batch to records in the lanes: the hot path, so work is per batch where it can be.

A batch is admitted by what it becomes: when it is its stream's turn, in slices, each of which waits for room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from bronze_client._generated.bronze.sidecar.internal.v1.typed_pb2 import TypedRequest
from bronze_client.schema import Batch, Failure, FailureKind, NormalizedEvent, Outcome
from google.protobuf.message import DecodeError

from bronze_sidecar.configuration.bounds import MOST_BATCHES_WAITING
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import EVENT_ID_HEADS, META, Event, Groups
from bronze_sidecar.envelope.payloads import ORIGINS, PAYLOAD_CASES, snake_case
from bronze_sidecar.envelope.wire import heads, map_entry, string_field, timestamp_field, varint_field
from bronze_sidecar.errors import Rejected
from bronze_sidecar.ingest.dead_letters import Form
from bronze_sidecar.ingest.failures import StreamFailures, StreamPlace, place
from bronze_sidecar.ingest.turns import Entrance, Part, Turn, Turns
from bronze_sidecar.mapping.kinds import payload_case
from bronze_sidecar.mapping.limits import LONGEST_NAME
from bronze_sidecar.mapping.mapper import FrameCache, Mapper, StreamContext
from bronze_sidecar.mapping.stream_end import END_CASE, end_event
from bronze_sidecar.routing.rules import TRACE_HEADERS, Record
from bronze_sidecar.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from bronze_sidecar_native import Scanner

CASE_BY_FIELD = {snake_case(case): case for case in PAYLOAD_CASES}
INGEST_TS = 5
MOST_MESSAGES = 1024
"""In one batch."""
FARTHEST_POSITION = 1 << 62
LONGEST_REASON = 200
# A batch is taken in slices, so that others have their turn every few milliseconds.
SLICE_EVENTS = 1024
SLICE_BYTES = 1 << 20
USUAL_EVENT_BYTES = 512
SMALL_BATCH_EVENTS = 512
Mapped: TypeAlias = tuple[list[Event], Iterable[list[Event]]]
"""What a message became: its first events, and the others."""
MapMessage: TypeAlias = Callable[[bytes, int, bytes], Mapped]
# In a mixed batch; no encoded envelope begins with them.
JSON_STARTS = (b"{", b" ")
FAULTS = NOT_AN_ENVELOPE, NO_PAYLOAD, NO_EXCHANGE, LONG_NAMES = (
    "the bytes are not a NormalizedEvent",
    "the envelope has no payload that this version knows",
    "the envelope has no exchange",
    f"exchange and symbol have more than {LONGEST_NAME} characters",
)
_NO_META: dict[str, str] = {}
_SOURCE, _ORIGIN = heads(1), 6


class Contents:
    """What a batch carries: envelopes, JSON messages, or both mixed, with their number and size; or the end.

    Raise ValueError, with a reason, for one that is not a batch.
    """

    __slots__ = (
        "are_envelopes",
        "are_mixed",
        "dropped",
        "first_position",
        "levels",
        "messages",
        "sequence",
        "size",
    )

    def __init__(self, batch: Batch) -> None:
        envelopes, json, mixed = batch.envelopes, batch.json, batch.mixed
        blocks = envelopes or json or mixed
        is_end = batch.HasField("end")
        if not blocks and not is_end:
            raise ValueError("the batch is empty")
        if (envelopes and json) or (mixed and blocks is not mixed) or (blocks and is_end):
            raise ValueError("a batch carries one of envelopes, json, mixed and end, not several")
        self.sequence = batch.sequence
        self.first_position = batch.first_position
        self.dropped = batch.end.dropped if is_end else None
        """How many messages of the stream were dropped, if the batch is its end."""
        if is_end and batch.end.dropped > batch.first_position:
            raise ValueError("the stream dropped more messages than it had")
        self.are_envelopes = blocks is envelopes
        self.are_mixed = blocks is mixed
        # Counted before anything is made of it.
        count = len(blocks)
        if blocks is json and count <= MOST_MESSAGES:
            # A newline at the end of a block adds no message.
            count += sum(block.count(b"\n", 0, len(block) - 1) for block in blocks)
        if count > MOST_MESSAGES:
            raise ValueError(f"the batch has more than {MOST_MESSAGES} messages")
        if self.first_position + count > FARTHEST_POSITION:
            raise ValueError(f"positions end at {FARTHEST_POSITION}")
        self.levels: Sequence[int] = batch.levels
        if self.levels and (not self.are_envelopes or len(self.levels) != count):
            raise ValueError("a batch with levels has one for each of its envelopes")
        self.size = sum(map(len, blocks))
        self.messages: Sequence[bytes] = blocks
        if blocks is json:
            self.messages = [line for block in blocks for line in block.removesuffix(b"\n").split(b"\n")]

    def payload_cases(self) -> set[str]:
        """Return the payload cases that the batch's events have, and perhaps those of what is rejected."""
        if self.dropped is not None:
            return {END_CASE}
        cases = {
            payload_case(message) if self._is_json(message) else _case_of(_decoded(message))
            for message in self.messages
        }
        return {case for case in cases if case is not None}

    def _is_json(self, message: bytes) -> bool:
        return not self.are_envelopes and (not self.are_mixed or message.startswith(JSON_STARTS))


class Ticket:
    """A producer's batch on its way: counts what is still open, and says when nothing is."""

    __slots__ = (
        "_are_envelopes",
        "_are_mixed",
        "_done",
        "_operators",
        "_untold",
        "events",
        "failures",
        "filtered",
        "is_end",
        "messages",
        "open",
        "sequence",
        "size",
    )

    is_durable = False

    def __init__(self, contents: Contents, operators: StreamFailures, done: Callable[[Ticket], None]) -> None:
        self.sequence = contents.sequence
        self.is_end = contents.dropped is not None
        self.messages = len(contents.messages)
        self.size = contents.size
        self._are_envelopes = contents.are_envelopes
        self._are_mixed = contents.are_mixed
        self.events = 0
        """Events that the batch became."""
        self.filtered = 0
        self.open = 1
        """Records not settled yet, and one while the batch is being taken in."""
        self.failures: list[Failure] = []
        self._operators = operators
        """Who is told of failures beside the producer."""
        self._untold: list[tuple[StreamPlace, str, Form, bytes]] = []
        """What was rejected since they were last told."""
        self._done = done

    def stored(self, count: int) -> None:
        """Take note that so many records are done."""
        self.open -= count
        if not self.open:
            self._done(self)

    def failed(self, record: Record, backend: str, reason: str) -> None:
        """Take note that a record will never be stored."""
        position, level = self._operators.place_of(record.event)
        reason = reason[:LONGEST_REASON]
        self.failures.append(
            Failure(
                position=position,
                kind=FailureKind.FAILURE_KIND_FAILED,
                reason=reason,
                backend=backend,
                level=level,
            )
        )
        self._operators.failed(record, backend, reason)
        self.stored(1)

    def position_of(self, event: Event) -> int:
        """Return the position of an event's message."""
        return self._operators.place_of(event).position

    def rejected(self, position: int | str, reason: str, message: bytes) -> None:
        """Take note of a message that became no event; a level's position is `<position>.<level>`."""
        is_envelope = self._are_envelopes or (self._are_mixed and not message.startswith(JSON_STARTS))
        self._reject(place(str(position)), reason, "envelope" if is_envelope else "json", message)

    def rejected_event(self, event: Event, reason: str) -> None:
        """Take note of an event that gets to no lane."""
        self._reject(self._operators.place_of(event), reason, "envelope", event.envelope)

    def _reject(self, where: StreamPlace, reason: str, form: Form, content: bytes) -> None:
        reason = reason[:LONGEST_REASON]
        self.failures.append(
            Failure(position=where.position, kind=FailureKind.FAILURE_KIND_REJECTED, reason=reason)
        )
        self._untold.append((where, reason, form, content))

    def tell_operators(self) -> None:
        """Tell of what was rejected, in the order of the stream: not all faults are found in that order."""
        for rejection in sorted(self._untold, key=_place_in_stream) if self._untold else ():
            self._operators.rejected(*rejection)
        self._untold.clear()

    def outcome(self) -> Outcome:
        """Return what became of the events. The stream's end is none of the producer's."""
        if self.is_end:
            return Outcome(failures=self.failures)
        # An event that two back ends refuse is two failures, but one event.
        failed = {
            (each.position, each.level)
            for each in self.failures
            if each.kind == FailureKind.FAILURE_KIND_FAILED
        }
        published = self.events - self.filtered - len(failed)
        return Outcome(published=published, filtered=self.filtered, failures=self.failures)


class Admission:
    """What all streams share: turns, and what their mappers remember."""

    def __init__(self, lanes: Sequence[Entrance], config: Config) -> None:
        self.lanes = lanes
        # A slice never has more than a lane may hold; its bytes are estimated.
        self.slice_events = min(SLICE_EVENTS, config.max_queue_events, *(lane.max_events for lane in lanes))
        self.slice_bytes = min(SLICE_BYTES, config.max_queue_bytes // 4)
        self.turns = Turns(lanes, MOST_BATCHES_WAITING)
        """Who may parse and map now; a batch that waits for its turn is nothing but its request."""
        self.frames = FrameCache()
        self.is_native = config.native and native.IS_INSTALLED
        """Whether compiled code makes the events."""
        self.watch: Callable[[Sequence[Event]], None] | None = None
        """Sees the events that were taken in, if anybody looks at them."""

    def lanes_of(self, contents: Contents) -> frozenset[Entrance]:
        """Return the lanes that may take something of a batch, without mapping it."""
        cases = contents.payload_cases()
        return frozenset(lane for lane in self.lanes if any(map(lane.route.takes, cases)))


class Intake:
    """Takes the batches of one stream into the lanes."""

    def __init__(
        self,
        context: StreamContext,
        admission: Admission,
        max_event_bytes: int,
        metrics: Metrics,
        operators: StreamFailures,
    ) -> None:
        self.context = context
        """What the producer says of its stream."""
        self.operators = operators
        self._admission = admission
        # Every event carries the context.
        shared = sum(len(key) + len(value) for key, value in context.meta.items()) + USUAL_EVENT_BYTES
        self._slice_events = max(1, min(admission.slice_events, admission.slice_bytes // shared))
        self._small_batch = min(SMALL_BATCH_EVENTS, self._slice_events)
        self._mapper = Mapper(
            context,
            admission.frames,
            most_events=self._slice_events,
            most_bytes=admission.slice_bytes,
            largest=max_event_bytes,
            is_native=admission.is_native,
        )
        self._lanes = admission.lanes
        self._max_event_bytes = max_event_bytes
        self._metrics = metrics
        self._id_prefix = f"{context.stream_id}:"
        own = {"request_id": context.request_id, "session_id": context.session_id, **context.meta}
        self._context_meta = {key: value for key, value in own.items() if value or key in context.meta}
        self._is_traced = not context.meta.keys().isdisjoint(TRACE_HEADERS)
        self._needs_meta = self._is_traced or any(lane.route.needs_meta for lane in self._lanes)
        self._source_field = string_field(_SOURCE, context.source)
        self._origin_field = varint_field(_ORIGIN, context.origin)
        self._scanner = self._make_scanner() if admission.is_native else None
        self.exchange = ""
        """That of the newest event; empty if there was none."""

    def _make_scanner(self) -> Scanner[Event]:
        return native.compiled.Scanner(
            Event,
            id_prefix=self._id_prefix,
            source=(self.context.source, self._source_field),
            origin=(self.context.origin, self._origin_field),
            context_meta=[(*entry, map_entry(META, *entry)) for entry in self._context_meta.items()],
            needs_meta=self._needs_meta,
            longest_name=LONGEST_NAME,
            origins=ORIGINS,
        )

    def close(self) -> None:
        """Give back what is remembered of the stream."""
        self._mapper.close()

    async def take(
        self, turn: Turn, contents: Contents, request: bytes, done: Callable[[Ticket], None]
    ) -> Ticket:
        """Put a batch's events into the lanes, as there is room; `done` hears when all of them are settled.

        `request` is what the batch came in; it must be its turn. The batch is taken in slices, and the event
        loop goes on between them, so that neither memory nor the time for which others wait depends on what
        it becomes.
        """
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        ingest_field = timestamp_field(INGEST_TS, seconds, nanoseconds)
        ticket = Ticket(contents, self.operators, done)
        self._metrics.received.inc(ticket.messages)
        self._metrics.received_bytes.inc(len(request))
        for groups in self._slices(contents, request, ingest_field, ticket):
            events = await self._admit(turn, groups, ticket)
            if self._admission.watch:
                self._admission.watch(events)
            if ticket.events > self._small_batch or ticket.messages > self._small_batch:
                await asyncio.sleep(0)
        if ticket.failures:
            ticket.failures.sort(key=lambda failure: failure.position)
            rejected = sum(each.kind == FailureKind.FAILURE_KIND_REJECTED for each in ticket.failures)
            self._metrics.rejected.inc(rejected)
        ticket.stored(1)
        return ticket

    async def _admit(self, turn: Turn, groups: Groups, ticket: Ticket) -> list[Event]:
        """Put the events of a slice into the lanes, into each as there is room; return them."""
        sizes = [len(event.envelope) for group in groups for event in group]
        if sizes and max(sizes) > self._max_event_bytes:
            groups, sizes = self._without_large(groups, ticket)
        ticket.tell_operators()
        events = list(chain.from_iterable(groups))
        ticket.events += len(events)
        if events:
            self.exchange = events[-1].exchange
        untaken = events
        parts: list[Part] = []
        for lane in self._lanes:
            addresses = lane.route.addresses(groups, are_traced=self._is_traced)
            addressed = zip(addresses, events, strict=True)
            records = [Record(address, event) for address, event in addressed if address is not None]
            if len(records) == len(events):
                untaken = []
                size = sum(sizes)
            else:
                untaken = [event for event in untaken if not lane.route.takes(event.payload_case)]
                size = sum(len(record.event.envelope) for record in records)
            if records:
                parts.append(Part(lane, ticket, records, size))
                ticket.open += len(records)
        ticket.filtered += len(untaken)
        if untaken and not ticket.is_end:
            self._metrics.filtered.inc(len(untaken))
        await turn.put(parts)
        return events

    def _without_large(self, groups: Groups, ticket: Ticket) -> tuple[Groups, list[int]]:
        """Reject the events that are too large; return the others, with their sizes."""
        kept = []
        for group in groups:
            for event in group:
                if (size := len(event.envelope)) > self._max_event_bytes:
                    ticket.rejected_event(event, self._too_large(size))
            kept.append([event for event in group if len(event.envelope) <= self._max_event_bytes])
        return list(filter(None, kept)), [len(event.envelope) for group in kept for event in group]

    def _too_large(self, size: int) -> str:
        return f"the event has {size} bytes; --max-event-bytes allows {self._max_event_bytes}"

    def _slices(
        self, contents: Contents, request: bytes, ingest_field: bytes, ticket: Ticket
    ) -> Iterable[Groups]:
        """Make events of a batch, as they are asked for."""
        if contents.dropped is not None:
            end = end_event(self.context, self.exchange, contents.first_position, contents.dropped)
            return [[[end]]]
        if contents.are_envelopes:
            return self._from_envelopes(contents, request, ingest_field, ticket)
        if contents.are_mixed:
            return self._from_mixed(contents, ingest_field, ticket)
        return self._from_messages(contents, self._mapper.first_events, ingest_field, ticket)

    def _from_messages(
        self,
        contents: Contents,
        map_message: MapMessage,
        ingest_field: bytes,
        ticket: Ticket,
    ) -> Iterator[Groups]:
        groups: list[list[Event]] = []
        count = size = 0
        most_events, most_bytes, largest = (
            self._slice_events,
            self._admission.slice_bytes,
            self._max_event_bytes,
        )
        messages, first, at = list(contents.messages), contents.first_position, 0
        while True:
            at, count, size, is_full = self._mapper.map_usual(
                messages, at, first, ingest_field, groups, count, size
            )
            if is_full:
                yield groups
                groups, count, size = [], 0, 0
                continue
            if at == len(messages):
                break
            position, line = first + at, messages[at]
            at += 1
            length = len(line)
            size += length
            if length > largest:
                ticket.rejected(position, self._too_large(length), line)
                continue
            try:
                events, others = map_message(line, position, ingest_field)
            except Rejected as error:
                ticket.rejected(position, str(error), line)
                # To refuse a message takes time as well.
                count += 1 + length // USUAL_EVENT_BYTES
                if count > most_events:
                    yield groups
                    groups, count, size = [], 0, 0
                continue
            count += len(events)
            if (count > most_events or size > most_bytes) and groups:
                yield groups
                groups, count, size = [], len(events), length
            groups.append(events)
            if others:
                for more in others:
                    yield groups
                    groups, count = [more], len(more)
        yield groups

    def _from_mixed(self, contents: Contents, ingest_field: bytes, ticket: Ticket) -> Iterator[Groups]:
        """Make events of the envelopes first; each is given out where it stands among the JSON."""
        numbered = list(enumerate(contents.messages, contents.first_position))
        envelopes = {position: each for position, each in numbered if not each.startswith(JSON_STARTS)}
        typed = [_decoded(envelope) for envelope in envelopes.values()]
        faults: dict[int | str, str] = {}

        def reject(position: int | str, reason: str, _: bytes) -> None:
            faults[position] = reason

        made = self._events(envelopes.values(), typed, envelopes, ingest_field, reject)
        events = {ticket.position_of(event): event for event in made}
        map_json = self._mapper.first_events

        def map_message(message: bytes, position: int, ingest_field: bytes) -> Mapped:
            if position in faults:
                raise Rejected(faults[position])
            event = events.get(position)
            return map_json(message, position, ingest_field) if event is None else ([event], ())

        return self._from_messages(contents, map_message, ingest_field, ticket)

    def _from_envelopes(
        self, contents: Contents, request: bytes, ingest_field: bytes, ticket: Ticket
    ) -> Iterator[Groups]:
        typed: Sequence[NormalizedEvent | None] = [] if self._scanner else _typed(request)
        messages, first, levels, step = (
            contents.messages,
            contents.first_position,
            contents.levels,
            self._slice_events,
        )
        positions: Sequence[int | str] = range(first, first + len(messages))
        if levels:
            positions = [f"{first}.{level}" for level in levels]
        for start in range(0, len(messages), step):
            some, places = messages[start : start + step], positions[start : start + step]
            if self._scanner:
                where = first if levels else first + start
                events, faults = self._scanner.scan(some, where, levels[start : start + step], ingest_field)
                for index, fault in faults:
                    ticket.rejected(places[index], FAULTS[fault], some[index])
            else:
                decoded = typed[start : start + step] or [_decoded(envelope) for envelope in some]
                events = self._events(some, decoded, places, ingest_field, ticket.rejected)
            yield list(zip(events))

    def _events(
        self,
        envelopes: Collection[bytes],
        typed: Collection[NormalizedEvent | None],
        positions: Collection[int | str],
        ingest_field: bytes,
        reject: Callable[[int | str, str, bytes], None],
    ) -> list[Event]:
        events: list[Event] = []
        prefix, heads = self._id_prefix, EVENT_ID_HEADS
        own_source, own_origin, own_meta = self.context.source, self.context.origin, self._context_meta
        needs_meta, longest = self._needs_meta, LONGEST_NAME
        for envelope, event, position in zip(envelopes, typed, positions, strict=True):
            case = _case_of(event)
            if event is None or case is None or not (exchange := event.exchange):
                reject(position, _fault(event), envelope)
                continue
            symbol = event.symbol
            if len(exchange) + len(symbol) > longest:
                reject(position, LONG_NAMES, envelope)
                continue
            event_id = f"{prefix}{position}"
            id_bytes = event_id.encode()
            # What an envelope lacks is appended: a field that comes later counts.
            lacking = b"" if event.HasField("ingest_ts") else ingest_field
            if not (source := event.source):
                source = own_source
                lacking += self._source_field
            origin: int = event.origin
            if not origin:
                origin = own_origin
                lacking += self._origin_field
            if own_meta:
                lacking += self._lacking_meta(event)
            events.append(
                Event(
                    b"".join((envelope, heads[len(id_bytes)], id_bytes, lacking)),
                    event_id,
                    case,
                    exchange,
                    symbol,
                    event.meta.get("data_type", ""),
                    source,
                    ORIGINS[origin] if 0 <= origin < len(ORIGINS) else ORIGINS[0],
                    self._meta_of(event) if needs_meta else _NO_META,
                )
            )
        return events

    def _lacking_meta(self, event: NormalizedEvent) -> bytes:
        """Return the context's meta entries that an envelope does not have itself."""
        lacking = (entry for entry in self._context_meta.items() if entry[0] not in event.meta)
        return b"".join(map_entry(META, key, value) for key, value in lacking)

    def _meta_of(self, event: NormalizedEvent) -> dict[str, str]:
        # A copy: the map itself would keep the whole parsed request in memory. (And a comprehension: the
        # map's own `items` costs three times as much.)
        entries = event.meta
        meta = {key: entries[key] for key in entries}
        meta.pop("event_id", None)
        return {**self._context_meta, **meta} if self._context_meta else meta


def _place_in_stream(rejection: tuple[StreamPlace, str, Form, bytes]) -> tuple[int, int]:
    position, level = rejection[0]
    return position, level or 0


def _case_of(event: NormalizedEvent | None) -> str | None:
    return CASE_BY_FIELD.get(event.WhichOneof("payload") or "") if event is not None else None


def _fault(event: NormalizedEvent | None) -> str:
    """Say why an envelope is refused."""
    if event is None:
        return NOT_AN_ENVELOPE
    return NO_PAYLOAD if event.WhichOneof("payload") is None else NO_EXCHANGE


def _typed(request: bytes) -> Sequence[NormalizedEvent]:
    try:
        return TypedRequest.FromString(request).batch.envelopes
    except DecodeError:
        # One of them is not an envelope: each is looked at alone, to refuse only that one.
        return []


def _decoded(envelope: bytes) -> NormalizedEvent | None:
    try:
        return NormalizedEvent.FromString(envelope)
    except DecodeError:
        return None
