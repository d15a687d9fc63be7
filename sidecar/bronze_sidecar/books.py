"""Book changes and snapshots: messages with price levels."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from bronze_sidecar.decimals import is_zero
from bronze_sidecar.message import (
    ABSENT,
    INT64,
    NUMBER_STARTS,
    UINT32,
    Exact,
    Flag,
    MarketMessage,
    Number,
    Payload,
    integer,
    number_field,
)
from bronze_sidecar.wire import Heads, delimited, heads, string_field, varint_field

_BOOK_CHANGE = heads(101)
_BOOK_SNAPSHOT = heads(102)
_GROUPED_BOOK_SNAPSHOT = heads(108)

_F1, _F2, _F3, _F4 = (heads(number) for number in range(1, 5))

_ZERO = ord("0")

_USUAL_LENGTH = 80
"""Of a level's digits; with them a change has less than 128 bytes, whatever its time."""


_Side: TypeAlias = tuple[bytes, bytes, bytes]
"""The encoded side and action of a change: action not specified, upsert, delete."""

_BID: _Side = (b"\x08\x01", b"\x08\x01\x10\x01", b"\x08\x01\x10\x02")
_ASK: _Side = (b"\x08\x02", b"\x08\x02\x10\x01", b"\x08\x02\x10\x02")


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

    def level_payloads(self) -> list[bytes]:
        """Encode one payload for each level, bids first; none if there are no levels."""
        if not self.bids and not self.asks:
            return []
        event_ts = self.event_ts()
        payloads = []
        if self.bids:
            payloads += [_level_change(_BID, level or _NO_LEVEL, event_ts) for level in self.bids]
        if self.asks:
            payloads += [_level_change(_ASK, level or _NO_LEVEL, event_ts) for level in self.asks]
        return payloads


def _level_change(side: _Side, level: Level, event_ts: bytes) -> bytes:
    price = b"" + level.price  # takes half the time of bytes()
    amount = b"" + level.amount
    if price[0] in NUMBER_STARTS and amount[0] in NUMBER_STARTS and len(price) + len(amount) < _USUAL_LENGTH:
        _, upsert, delete = side
        start = upsert if amount[0] > _ZERO or not is_zero(amount) else delete
        content = b"".join((start, _F3[len(price)], price, _F4[len(amount)], amount, event_ts))
        return _BOOK_CHANGE[len(content)] + content
    return _unusual_level_change(side, level, event_ts)


def _unusual_level_change(side: _Side, level: Level, event_ts: bytes) -> bytes:
    unspecified, upsert, delete = side
    price = number_field(_F3, level.price)
    amount = number_field(_F4, level.amount)
    start = unspecified
    if price and amount:
        start = delete if is_zero(bytes(level.amount)) else upsert
    return delimited(_BOOK_CHANGE, start + price + amount + event_ts)


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
    if price[0] in NUMBER_STARTS and amount[0] in NUMBER_STARTS and length < _USUAL_LENGTH:
        return b"".join((side[length + 4], _F1[len(price)], price, _F2[len(amount)], amount))
    return delimited(side, number_field(_F1, level.price) + number_field(_F2, level.amount))


class BookSnapshot(GroupedBookSnapshot, tag="book_snapshot"):
    def payload(self, exact: Exact, /) -> Payload:
        if self.grouping == ABSENT:
            return "bookSnapshot", delimited(_BOOK_SNAPSHOT, self.content(exact))
        return super().payload(exact)
