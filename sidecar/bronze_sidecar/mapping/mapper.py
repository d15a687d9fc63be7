"""Normalized JSON messages to encoded Bronze envelopes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import EVENT_ID_HEADS, META, Event, Facts
from bronze_sidecar.envelope.payloads import META_OF_SIDECAR, ORIGINS
from bronze_sidecar.envelope.wire import heads, map_entry, string_field, varint_field
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.book_messages import BookChange
from bronze_sidecar.mapping.limits import LARGEST_META, check_meta, check_name
from bronze_sidecar.mapping.message_base import Exact, Message, NotANumber
from bronze_sidecar.mapping.messages import AnyMessage
from bronze_sidecar.mapping.rejections import explain

_STREAM_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_SOURCE = heads(1)
_EXCHANGE = heads(2)
_SYMBOL = heads(3)
_LOCAL_TS = heads(4)
_ORIGIN = 6

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, NotANumber)

# What all mappers together may remember; a frame takes about this much beside its bytes.
_CACHE_BYTES = 24 << 20
_FRAME_BYTES = 1024
_FEW_LEVELS = 16
_USUAL_LEVEL = 128
"""Bytes of an event beside what the levels of a message share."""


class FrameCache:
    """Bounds what the mappers of a process remember together."""

    def __init__(self, limit: int = _CACHE_BYTES) -> None:
        self._limit = limit
        self.bytes = 0

    def has_room(self, size: int) -> bool:
        return self.bytes + size <= self._limit


class _Alike(NamedTuple):
    """What messages with the same frame have in common, beside symbols and exact texts."""

    data_type: str
    exchange: str
    symbol: str
    name: str
    is_snapshot: bool | None


class _Frame(msgspec.Struct, gc=False):
    """What surrounds the payload and does not differ between messages alike."""

    before_times: bytes
    """The encoded fields 1 to 3."""
    after_times: bytes
    """The encoded fields 6 and 10, but for the event's id."""
    facts: Facts


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What a producer says once about all messages of its stream; raise Rejected if that is not allowed."""

    stream_id: str
    source: str = ""
    origin: int = 0
    """The number of the envelope's Origin."""
    request_id: str = ""
    session_id: str = ""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Entries for the meta of each event."""

    def __post_init__(self) -> None:
        if not _STREAM_ID.fullmatch(self.stream_id):
            reason = "must have 1 to 64 characters, of which each is a letter, a digit, '.', '_' or '-'"
            raise Rejected(reason, field="stream_id")
        if self.origin not in range(len(ORIGINS)):
            raise Rejected(f"must be a number from 0 to {len(ORIGINS) - 1}", field="origin")
        for name in ("source", "request_id", "session_id"):
            check_name(getattr(self, name), name)
        check_meta(self.meta)
        for key in self.meta:
            if not key:
                raise Rejected("must not have an empty key", field="meta")
            if key in META_OF_SIDECAR:
                raise Rejected(f"must not have the key '{key}': the sidecar writes it", field="meta")


class Mapper:
    """Maps the messages of one stream."""

    def __init__(
        self,
        context: StreamContext,
        cache: FrameCache | None = None,
        *,
        most_events: int = sys.maxsize,
        most_bytes: int = sys.maxsize,
        largest: int = sys.maxsize,
        is_native: bool = False,
    ) -> None:
        self._most_events = most_events
        """Of one message at once, with about so many bytes."""
        self._most_bytes = most_bytes
        self._cache = cache or FrameCache()
        self._cached_bytes = 0
        self._source = context.source
        self._origin = ORIGINS[context.origin]
        self._id_prefix = f"{context.stream_id}:"
        self._source_field = string_field(_SOURCE, context.source)
        self._origin_field = varint_field(_ORIGIN, context.origin)
        ids = {"request_id": context.request_id, "session_id": context.session_id}
        self._context_meta = {key: value for key, value in ids.items() if value} | dict(context.meta)
        self._decode = msgspec.json.Decoder(AnyMessage).decode
        self._frames: dict[tuple[object, ...], _Frame] = {}
        self._compiled = None
        if is_native:
            self._compiled = native.compiled.JsonMapper(
                Event,
                id_prefix=self._id_prefix,
                most_events=most_events,
                most_bytes=most_bytes,
                largest=largest,
                level_bytes=_USUAL_LEVEL,
            )

    def close(self) -> None:
        """Give back what is remembered, and remember no more: a batch may still be on its way in."""
        self._forget()
        self._cache = FrameCache(0)

    def _forget(self) -> None:
        self._frames.clear()
        if self._compiled:
            self._compiled.forget()
        self._cache.bytes -= self._cached_bytes
        self._cached_bytes = 0

    def events(self, message: bytes, position: int, ingest_field: bytes) -> list[Event]:
        """Map one message to all of its events; raise Rejected if it cannot be mapped."""
        groups: list[list[Event]] = []
        self.map_usual([message], 0, position, ingest_field, groups, 0, 0)
        if groups:
            return groups[0]
        first, rest = self.first_events(message, position, ingest_field)
        return [*first, *(event for events in rest for event in events)]

    def map_usual(  # noqa: PLR0917 - called for each slice, and for each message that is not usual
        self,
        messages: list[bytes],
        start: int,
        first_position: int,
        ingest_field: bytes,
        groups: list[list[Event]],
        events: int,
        size: int,
    ) -> tuple[int, int, int, bool]:
        """Map messages from `start` on by compiled code, if it is used, up to one that is not usual.

        The events of each are appended to `groups`, a slice that has so many events and bytes already. Return
        the index of the next message, how many there are now, and whether it has no room in the slice.
        """
        if self._compiled is None:
            return start, events, size, False
        return self._compiled.map(
            messages, start, first_position, ingest_field, groups, events, size, self._compiled_frame
        )

    def first_events(
        self, message: bytes, position: int, ingest_field: bytes
    ) -> tuple[list[Event], Iterable[list[Event]]]:
        """Map one message; return its events, or the first of many and what gives the others.

        `position` is the message's place in the stream, `ingest_field` the encoded field `ingest_ts`. Raise
        Rejected if it cannot be mapped; the others have been checked by then.
        """
        try:
            if not message.isascii():
                message.decode()
            return self._events(self._decode(message), f"{self._id_prefix}{position}", ingest_field)
        except _UNREADABLE as error:
            raise explain(message, error) from None

    def _events(
        self, message: Message, event_id: str, ingest_field: bytes
    ) -> tuple[list[Event], Iterable[list[Event]]]:
        exchange = message.exchange
        if not exchange:
            raise message.rejected("exchange", "is missing or empty")
        if type(message) is BookChange and (message.bids or message.asks):
            event_ts = message.event_ts()
            frame = self._frame(message, exchange, {})
            before_id = _before_id(message, frame, ingest_field)
            levels = len(message.bids or ()) + len(message.asks or ())
            if levels <= _FEW_LEVELS:
                return message.level_events(before_id, event_id, event_ts, frame.facts), ()
            at_once = max(1, min(self._most_events, self._most_bytes // (len(before_id) + _USUAL_LEVEL)))
            return message.some_level_events(before_id, event_id, event_ts, frame.facts, at_once)
        exact: Exact = {}
        case, payload = message.payload(exact)
        frame = self._frame(message, exchange, exact)
        before_id = _before_id(message, frame, ingest_field)
        envelope = b"".join((before_id, EVENT_ID_HEADS[len(event_id)], event_id.encode(), payload))
        return [Event(envelope, event_id, case, *frame.facts)], ()

    def _frame(self, message: Message, exchange: str, exact: Exact) -> _Frame:
        symbols = [text for text in message.symbols or () if text is not None]
        alike = _Alike(
            message.data_type(), exchange, message.instrument(), message.name or "", message.is_snapshot
        )
        return self._frame_of(alike, symbols, exact)

    def _frame_of(self, alike: _Alike, symbols: Sequence[str], exact: Exact) -> _Frame:
        """Make what surrounds the payload, or recall it: a stream has few instruments."""
        if symbols:
            return self._make_frame(alike, symbols, exact)
        key = (*alike, *exact.items()) if exact else alike
        frame = self._frames.get(key)
        if frame is None:
            frame = self._make_frame(alike, symbols, exact)
            self._remember(key, frame)
        return frame

    def _compiled_frame(
        self, alike: tuple[str, str, str, str, bool | None], symbols: Sequence[str]
    ) -> tuple[bytes, bytes, Facts, bool] | None:
        """Return a frame's parts, and whether it is remembered; nothing if it may not be."""
        try:
            frame = self._frame_of(_Alike(*alike), symbols, {})
        except Rejected:
            return None
        return frame.before_times, frame.after_times, frame.facts, not symbols and alike in self._frames

    def _remember(self, key: tuple[object, ...], frame: _Frame) -> None:
        size = _FRAME_BYTES + 2 * (len(frame.before_times) + len(frame.after_times))
        if not self._cache.has_room(size):
            # Whoever has most of it gives it back soonest.
            self._forget()
        if self._cache.has_room(size):
            self._frames[key] = frame
            self._cached_bytes += size
            self._cache.bytes += size

    def _make_frame(self, alike: _Alike, symbols: Sequence[str], exact: Exact) -> _Frame:
        data_type, exchange, symbol, name, is_snapshot = alike
        check_name(exchange, "exchange", data_type)
        check_name(symbol, "symbol", data_type)
        check_name(name, "name", data_type)
        if sum(map(len, symbols)) > LARGEST_META:
            reason = f"has more than {LARGEST_META} characters"
            raise Rejected(reason, message_type=data_type, field="symbols")
        meta = {"data_type": data_type}
        if name:
            meta["data_name"] = name
        if is_snapshot is not None:
            meta["is_snapshot"] = "true" if is_snapshot else "false"
        if symbols:
            meta["symbols"] = ",".join(symbols)
        meta |= exact | self._context_meta
        instrument = string_field(_EXCHANGE, exchange) + string_field(_SYMBOL, symbol)
        entries = b"".join(map_entry(META, key, value) for key, value in meta.items())
        return _Frame(
            before_times=self._source_field + instrument,
            after_times=self._origin_field + entries,
            facts=(exchange, symbol, data_type, self._source, self._origin, meta),
        )


def _before_id(message: Message, frame: _Frame, ingest_field: bytes) -> bytes:
    """Encode the envelope up to the event's id."""
    local_ts = message.time_field(_LOCAL_TS, message.local_timestamp, "localTimestamp")
    return b"".join((frame.before_times, local_ts, ingest_field, frame.after_times))
