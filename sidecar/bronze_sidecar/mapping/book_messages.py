"""Book changes and snapshots: messages with price levels."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec

from bronze_sidecar.envelope.event import EVENT_ID_HEADS, Event, Facts
from bronze_sidecar.envelope.payloads import FIELD_NUMBERS
from bronze_sidecar.envelope.wire import Heads, delimited, heads, string_field, varint_field
from bronze_sidecar.mapping.decimals import is_zero
from bronze_sidecar.mapping.message_base import (
    ABSENT,
    INT64,
    NUMBER_STARTS,
    UINT32,
    Exact,
    Flag,
    MarketMessage,
    NotANumber,
    Number,
    Payload,
    integer,
    number_field,
)

_BOOK_CHANGE = heads(FIELD_NUMBERS["bookChange"])
_BOOK_SNAPSHOT = heads(FIELD_NUMBERS["bookSnapshot"])
_GROUPED_BOOK_SNAPSHOT = heads(FIELD_NUMBERS["groupedBookSnapshot"])

_F1, _F2, _F3, _F4 = (heads(number) for number in range(1, 5))

_ZERO = ord("0")
_NUMBERS_AND_NULL = NUMBER_STARTS | {ord("n")}

_USUAL_SIZE = 80
"""Of a level's digits; with them a change has less than 128 bytes, whatever its time."""

_AROUND_DIGITS = 8
"""Bytes of a usual change beside its digits and its time: side, action, and two heads."""


_UPSERT = varint_field(2, 1)
_DELETE = varint_field(2, 2)


class _Side(NamedTuple):
    """How a change begins on one side of the book."""

    field: bytes
    upsert: Heads
    """Up to the price, by its length."""
    delete: Heads


def _side(number: int) -> _Side:
    field = varint_field(1, number)
    return _Side(
        field, tuple(field + _UPSERT + head for head in _F3), tuple(field + _DELETE + head for head in _F3)
    )


_BID = _side(1)
_ASK = _side(2)


def _level_ending(number: int) -> tuple[str, bytes]:
    """Return how a level's id ends, as text and encoded."""
    text = f".{number}"
    return text, text.encode()


_PREPARED_LEVEL_ENDINGS = 1000
_LEVEL_ENDINGS = [_level_ending(number) for number in range(_PREPARED_LEVEL_ENDINGS)]

_FIRST_OF_THEIR_LENGTH = frozenset({0} | {10**digits for digits in range(1, 10)})
"""Levels from which on ids are longer by one."""


class Level(msgspec.Struct, gc=False):
    """One price level; in a snapshot, an empty one stands where the book ends."""

    price: Number = ABSENT
    amount: Number = ABSENT


Levels: TypeAlias = list[Level | None] | None

_NO_LEVEL = Level()


class BookChange(MarketMessage, tag="book_change"):
    bids: Levels = None
    asks: Levels = None

    def payload(self, _: Exact, /) -> Payload:
        """Encode the change without levels."""
        content = string_field(_F3, "0") + string_field(_F4, "0") + self.event_ts()
        return "bookChange", delimited(_BOOK_CHANGE, content)

    def some_level_events(
        self, before_id: bytes, event_id: str, event_ts: bytes, facts: Facts, at_once: int
    ) -> tuple[list[Event], Iterable[list[Event]]]:
        """Return the events of the first levels, and what gives those of the others, `at_once` at a time."""
        count = len(self.bids or ()) + len(self.asks or ())
        if count <= at_once:
            return self.level_events(before_id, event_id, event_ts, facts), ()
        # What is wrong with any level must show before the first event is on its way.
        levels = [level for level in chain(self.bids or (), self.asks or ()) if level is not None]
        starts = {(b"" + level.price)[0] for level in levels} | {(b"" + level.amount)[0] for level in levels}
        if not starts <= _NUMBERS_AND_NULL:
            raise NotANumber
        parts = (
            self.level_events(before_id, event_id, event_ts, facts, start, start + at_once)
            for start in range(0, count, at_once)
        )
        return next(parts), parts

    def level_events(  # noqa: PLR0917 - called for each message
        self,
        before_id: bytes,
        event_id: str,
        event_ts: bytes,
        facts: Facts,
        first: int = 0,
        end: int | None = None,
    ) -> list[Event]:
        """Return an event for each level, or for some of them, bids first.

        `before_id` is the envelope up to the event's id.
        """
        bids, asks = self.bids, self.asks
        if end is not None:
            bids, asks = bids or [], asks or []
            asks = asks[max(0, first - len(bids)) : max(0, end - len(bids))]
            bids = bids[first:end]
        exchange, symbol, data_type, source, origin, meta = facts
        around = _AROUND_DIGITS + len(event_ts)
        encoded_id = event_id.encode()
        before_level = b""
        events: list[Event] = []
        number = first - 1
        # A message may have thousands of levels: no function is called for a usual one.
        for side, levels in ((_BID, bids), (_ASK, asks)):
            if not levels:
                continue
            _, upsert, delete = side
            for level in levels:
                number += 1
                if number in _FIRST_OF_THEIR_LENGTH or number == first:
                    length = len(event_id) + 1 + len(str(number))
                    before_level = before_id + EVENT_ID_HEADS[length] + encoded_id
                text, ending = (
                    _LEVEL_ENDINGS[number] if number < _PREPARED_LEVEL_ENDINGS else _level_ending(number)
                )
                price = b"" + (level or _NO_LEVEL).price  # takes half the time of bytes()
                amount = b"" + (level or _NO_LEVEL).amount
                price_size, amount_size = len(price), len(amount)
                size = price_size + amount_size
                if (
                    size < _USUAL_SIZE
                    and price[0] in NUMBER_STARTS
                    and (first_digit := amount[0]) in NUMBER_STARTS
                ):
                    start = upsert if first_digit > _ZERO or not is_zero(amount) else delete
                    envelope = b"".join(
                        (
                            before_level,
                            ending,
                            _BOOK_CHANGE[around + size],
                            start[price_size],
                            price,
                            _F4[amount_size],
                            amount,
                            event_ts,
                        )
                    )
                else:
                    envelope = before_level + ending + _unusual_change(side, level or _NO_LEVEL, event_ts)
                events.append(
                    Event(
                        envelope,
                        event_id + text,
                        "bookChange",
                        exchange,
                        symbol,
                        data_type,
                        source,
                        origin,
                        meta,
                    )
                )
        return events


def _unusual_change(side: _Side, level: Level, event_ts: bytes) -> bytes:
    price = number_field(_F3, level.price)
    amount = number_field(_F4, level.amount)
    action = b""
    if price and amount:
        action = _DELETE if is_zero(bytes(level.amount)) else _UPSERT
    return delimited(_BOOK_CHANGE, side.field + action + price + amount + event_ts)


class GroupedBookSnapshot(MarketMessage, tag="grouped_book_snapshot"):
    depth: Number = ABSENT
    interval: Number = ABSENT
    grouping: Number = ABSENT
    remove_crossed_levels: Flag = None
    sequence: Number = ABSENT
    bids: Levels = None
    asks: Levels = None

    def payload(self, exact: Exact, /) -> Payload:
        return "groupedBookSnapshot", delimited(_GROUPED_BOOK_SNAPSHOT, self.content(exact))

    def content(self, exact: Exact) -> bytes:
        depth = integer(self.depth, UINT32, "depth", exact)
        interval = integer(self.interval, UINT32, "interval", exact)
        grouping = integer(self.grouping, UINT32, "grouping", exact)
        sequence = integer(self.sequence, INT64, "sequence", exact)
        fields = [varint_field(1, depth)]
        fields += [_snapshot_level(_F2, level or _NO_LEVEL) for level in self.bids or ()]
        fields += [_snapshot_level(_F3, level or _NO_LEVEL) for level in self.asks or ()]
        fields += (
            self.event_ts(),
            varint_field(11, grouping),
            varint_field(12, interval),
            varint_field(13, self.remove_crossed_levels is not False),
            varint_field(14, sequence),
        )
        return b"".join(fields)


def _snapshot_level(side: Heads, level: Level) -> bytes:
    price = b"" + level.price
    amount = b"" + level.amount
    length = len(price) + len(amount)
    if price[0] in NUMBER_STARTS and amount[0] in NUMBER_STARTS and length < _USUAL_SIZE:
        return b"".join((side[length + 4], _F1[len(price)], price, _F2[len(amount)], amount))
    return delimited(side, number_field(_F1, level.price) + number_field(_F2, level.amount))


class BookSnapshot(GroupedBookSnapshot, tag="book_snapshot"):
    def payload(self, exact: Exact, /) -> Payload:
        if self.grouping == ABSENT:
            return "bookSnapshot", delimited(_BOOK_SNAPSHOT, self.content(exact))
        return super().payload(exact)
