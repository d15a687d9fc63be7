"""Normalized JSON messages to encoded Bronze envelopes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from bronze_sidecar.envelope.event import EVENT_ID_HEADS, META, Event, Facts
from bronze_sidecar.envelope.payloads import META_OF_SIDECAR, ORIGINS
from bronze_sidecar.envelope.wire import heads, map_entry, string_field, varint_field
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.book_messages import BookChange
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

_MOST_FRAMES = 4096
_LONGEST_FRAME = 4096


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
            _check_text(getattr(self, name), name)
        for key, value in self.meta.items():
            _check_text(key, "meta")
            _check_text(value, "meta")
            if not key:
                raise Rejected("must not have an empty key", field="meta")
            if key in META_OF_SIDECAR:
                raise Rejected(f"must not have the key '{key}': the sidecar writes it", field="meta")


def _check_text(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected("must be text that UTF-8 can encode", field=name) from None


class Mapper:
    """Maps the messages of one stream."""

    def __init__(self, context: StreamContext) -> None:
        self._source = context.source
        self._origin = ORIGINS[context.origin]
        self._id_prefix = f"{context.stream_id}:"
        self._source_field = string_field(_SOURCE, context.source)
        self._origin_field = varint_field(_ORIGIN, context.origin)
        ids = {"request_id": context.request_id, "session_id": context.session_id}
        self._context_meta = {key: value for key, value in ids.items() if value} | dict(context.meta)
        self._decode = msgspec.json.Decoder(AnyMessage).decode
        self._frames: dict[tuple[object, ...], _Frame] = {}

    def events(self, message: bytes, position: int, ingest_field: bytes) -> list[Event]:
        """Map one message to its events; raise Rejected if it cannot be mapped.

        `position` is the message's place in the stream, `ingest_field` the encoded field `ingest_ts`.
        """
        try:
            if not message.isascii():
                message.decode()
            return self._events(self._decode(message), f"{self._id_prefix}{position}", ingest_field)
        except _UNREADABLE as error:
            raise explain(message, error) from None

    def _events(self, message: Message, event_id: str, ingest_field: bytes) -> list[Event]:
        exchange = message.exchange
        if not exchange:
            raise message.rejected("exchange", "is missing or empty")
        if type(message) is BookChange and (message.bids or message.asks):
            event_ts = message.event_ts()
            frame = self._frame(message, exchange, {})
            before_id = _before_id(message, frame, ingest_field)
            return message.level_events(before_id, event_id, event_ts, frame.facts)
        exact: Exact = {}
        case, payload = message.payload(exact)
        frame = self._frame(message, exchange, exact)
        before_id = _before_id(message, frame, ingest_field)
        envelope = b"".join((before_id, EVENT_ID_HEADS[len(event_id)], event_id.encode(), payload))
        return [Event(envelope, event_id, case, *frame.facts)]

    def _frame(self, message: Message, exchange: str, exact: Exact) -> _Frame:
        """Make what surrounds the payload, or recall it: a stream has few instruments."""
        if message.symbols:
            return self._make_frame(message, exchange, exact)
        key: tuple[object, ...] = type(message), exchange, message.symbol, message.name, message.is_snapshot
        if exact:
            key += tuple(exact.items())
        frame = self._frames.get(key)
        if frame is None:
            frame = self._make_frame(message, exchange, exact)
            if len(frame.before_times) + len(frame.after_times) <= _LONGEST_FRAME:
                if len(self._frames) >= _MOST_FRAMES:
                    self._frames.clear()
                self._frames[key] = frame
        return frame

    def _make_frame(self, message: Message, exchange: str, exact: Exact) -> _Frame:
        symbol = message.instrument()
        symbols = [text for text in message.symbols or () if text is not None]
        meta = {"data_type": message.data_type()}
        if message.name:
            meta["data_name"] = message.name
        if message.is_snapshot is not None:
            meta["is_snapshot"] = "true" if message.is_snapshot else "false"
        if symbols:
            meta["symbols"] = ",".join(symbols)
        meta |= exact | self._context_meta
        instrument = string_field(_EXCHANGE, exchange) + string_field(_SYMBOL, symbol)
        entries = b"".join(map_entry(META, key, value) for key, value in meta.items())
        return _Frame(
            before_times=self._source_field + instrument,
            after_times=self._origin_field + entries,
            facts=(exchange, symbol, meta["data_type"], self._source, self._origin, meta),
        )


def _before_id(message: Message, frame: _Frame, ingest_field: bytes) -> bytes:
    """Encode the envelope up to the event's id."""
    local_ts = message.time_field(_LOCAL_TS, message.local_timestamp, "localTimestamp")
    return b"".join((frame.before_times, local_ts, ingest_field, frame.after_times))
