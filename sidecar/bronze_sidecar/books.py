"""Book changes and snapshots: messages with price levels."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from bronze_sidecar.decimals import is_zero
from bronze_sidecar.message import (
    ABSENT,
    INT64,
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

_BUY, _SELL = (varint_field(1, side) for side in (1, 2))
_UPSERT, _DELETE = (varint_field(2, action) for action in (1, 2))


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
        event_ts = self.event_ts()
        return [
            _level_change(side, level or _NO_LEVEL, event_ts)
            for side, levels in ((_BUY, self.bids), (_SELL, self.asks))
            for level in levels or ()
        ]


def _level_change(side: bytes, level: Level, event_ts: bytes) -> bytes:
    price = number_field(_F3, level.price)
    amount = number_field(_F4, level.amount)
    if not price or not amount:
        action = b""
    elif is_zero(amount[-len(level.amount) :]):
        action = _DELETE
    else:
        action = _UPSERT
    return delimited(_BOOK_CHANGE, b"".join((side, action, price, amount, event_ts)))


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
        fields += [_snapshot_level(level or _NO_LEVEL, _F2) for level in self.bids or ()]
        fields += [_snapshot_level(level or _NO_LEVEL, _F3) for level in self.asks or ()]
        fields += (
            self.event_ts(),
            varint_field(11, grouping),
            varint_field(12, interval),
            varint_field(13, self.remove_crossed_levels is not False),
            varint_field(14, sequence),
        )
        return b"".join(fields)


def _snapshot_level(level: Level, side: Heads) -> bytes:
    return delimited(side, number_field(_F1, level.price) + number_field(_F2, level.amount))


class BookSnapshot(GroupedBookSnapshot, tag="book_snapshot"):
    def payload(self, exact: Exact, /) -> Payload:
        if self.grouping == ABSENT:
            return "bookSnapshot", delimited(_BOOK_SNAPSHOT, self.content(exact))
        return super().payload(exact)
