"""The normalized messages, one class per type, and the payload that each becomes.

Fields have the numbers that the schema gives them: `_F1` is field 1 of the payload in question.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from bronze_sidecar.envelope.payloads import FIELD_NUMBERS
from bronze_sidecar.envelope.wire import delimited, heads, string_field, varint_field
from bronze_sidecar.mapping.book_messages import BookChange, BookSnapshot, GroupedBookSnapshot
from bronze_sidecar.mapping.message_base import (
    ABSENT,
    EVENT_TS,
    UINT32,
    UINT64,
    Exact,
    MarketMessage,
    Message,
    Number,
    Payload,
    Text,
    choices,
    integer,
    number_field,
)

_TRADE = heads(FIELD_NUMBERS["trade"])
_QUOTE = heads(FIELD_NUMBERS["quote"])
_DERIVATIVE_TICKER = heads(FIELD_NUMBERS["derivativeTicker"])
_LIQUIDATION = heads(FIELD_NUMBERS["liquidation"])
_OPTION_SUMMARY = heads(FIELD_NUMBERS["optionSummary"])
_BOOK_TICKER = heads(FIELD_NUMBERS["bookTicker"])
_TRADE_BAR = heads(FIELD_NUMBERS["tradeBar"])
_ERROR = heads(FIELD_NUMBERS["error"])
_DISCONNECT = heads(FIELD_NUMBERS["disconnect"])

_F1, _F2, _F3, _F4, _F5, _F6, _F7, _F8 = (heads(number) for number in range(1, 9))
_END_TS = heads(11)

_TRADE_SIDES = choices(4, buy=1, sell=2, unknown=0)
_LIQUIDATION_SIDES = choices(1, buy=1, sell=2, unknown=0)
_BAR_KINDS = choices(1, tick=1, time=2, volume=3)
_ERROR_CODES = choices(3, ws_connect=1, ws_send=2, source_auth=3, source_rate_limit=4)


class Trade(MarketMessage, tag="trade"):
    id: Text = None
    price: Number = ABSENT
    amount: Number = ABSENT
    side: Text = None

    def payload(self, _: Exact, /) -> Payload:
        content = b"".join(
            (
                string_field(_F1, self.id or ""),
                number_field(_F2, self.price),
                number_field(_F3, self.amount),
                self.choice_field(_TRADE_SIDES, self.side, "side"),
                self.event_ts(),
            )
        )
        return "trade", delimited(_TRADE, content)


class BestPrices(MarketMessage):
    """The best bid and ask; quotes and book tickers have them in the same fields."""

    bid_price: Number = ABSENT
    bid_amount: Number = ABSENT
    ask_price: Number = ABSENT
    ask_amount: Number = ABSENT

    def content(self) -> bytes:
        return b"".join(
            (
                number_field(_F1, self.bid_price),
                number_field(_F2, self.bid_amount),
                number_field(_F3, self.ask_price),
                number_field(_F4, self.ask_amount),
                self.event_ts(),
            )
        )


class Quote(BestPrices, tag="quote"):
    def payload(self, _: Exact, /) -> Payload:
        return "quote", delimited(_QUOTE, self.content())


class BookTicker(BestPrices, tag="book_ticker"):
    def payload(self, _: Exact, /) -> Payload:
        return "bookTicker", delimited(_BOOK_TICKER, self.content())


class DerivativeTicker(MarketMessage, tag="derivative_ticker"):
    mark_price: Number = ABSENT
    index_price: Number = ABSENT
    funding_rate: Number = ABSENT

    def payload(self, _: Exact, /) -> Payload:
        content = b"".join(
            (
                number_field(_F1, self.mark_price),
                number_field(_F2, self.index_price),
                number_field(_F3, self.funding_rate),
                self.event_ts(),
            )
        )
        return "derivativeTicker", delimited(_DERIVATIVE_TICKER, content)


class Liquidation(MarketMessage, tag="liquidation"):
    side: Text = None
    price: Number = ABSENT
    amount: Number = ABSENT
    id: Text = None

    def payload(self, _: Exact, /) -> Payload:
        content = b"".join(
            (
                self.choice_field(_LIQUIDATION_SIDES, self.side, "side"),
                number_field(_F2, self.price),
                number_field(_F3, self.amount),
                string_field(_F4, self.id or ""),
                self.event_ts(),
            )
        )
        return "liquidation", delimited(_LIQUIDATION, content)


class OptionSummary(MarketMessage, tag="option_summary"):
    mark_iv: Number = msgspec.field(default=ABSENT, name="markIV")
    best_bid_iv: Number = msgspec.field(default=ABSENT, name="bestBidIV")
    best_ask_iv: Number = msgspec.field(default=ABSENT, name="bestAskIV")
    delta: Number = ABSENT
    gamma: Number = ABSENT
    theta: Number = ABSENT
    vega: Number = ABSENT
    open_interest: Number = ABSENT

    def payload(self, _: Exact, /) -> Payload:
        # All three are encoded, so that each is checked.
        mark, bid, ask = (number_field(_F1, iv) for iv in (self.mark_iv, self.best_bid_iv, self.best_ask_iv))
        content = b"".join(
            (
                mark or bid or ask,
                number_field(_F2, self.delta),
                number_field(_F3, self.gamma),
                number_field(_F4, self.theta),
                number_field(_F5, self.vega),
                number_field(_F6, self.open_interest),
                self.event_ts(),
            )
        )
        return "optionSummary", delimited(_OPTION_SUMMARY, content)


class TradeBar(MarketMessage, tag="trade_bar"):
    kind: Text = None
    interval: Number = ABSENT
    open: Number = ABSENT
    high: Number = ABSENT
    low: Number = ABSENT
    close: Number = ABSENT
    volume: Number = ABSENT
    trades: Number = ABSENT
    open_timestamp: Text = None
    close_timestamp: Text = None

    def payload(self, exact: Exact, /) -> Payload:
        interval = integer(self.interval, UINT64, "interval", exact)
        interval_ms = integer(self.interval, UINT32, "interval", exact) if self.kind == "time" else 0
        content = b"".join(
            (
                self.choice_field(_BAR_KINDS, self.kind, "kind"),
                varint_field(2, interval),
                varint_field(3, interval_ms),
                number_field(_F4, self.open),
                number_field(_F5, self.high),
                number_field(_F6, self.low),
                number_field(_F7, self.close),
                number_field(_F8, self.volume),
                varint_field(9, integer(self.trades, UINT64, "trades", exact)),
                self.time_field(EVENT_TS, self.open_timestamp, "openTimestamp"),
                self.end_ts(),
            )
        )
        return "tradeBar", delimited(_TRADE_BAR, content)

    def end_ts(self) -> bytes:
        if self.close_timestamp is None:
            return self.time_field(_END_TS, self.timestamp, "timestamp")
        return self.time_field(_END_TS, self.close_timestamp, "closeTimestamp")


class Error(Message, tag="error"):
    details: Text = None
    sub_sequent_errors_count: Number = ABSENT
    subsequent_errors: Number = ABSENT
    code: Text = None

    def payload(self, exact: Exact, /) -> Payload:
        if self.details is None:
            raise self.rejected("details", "is missing")
        content = b"".join(
            (
                string_field(_F1, self.details),
                varint_field(2, self.count(exact)),
                self.choice_field(_ERROR_CODES, self.code, "code"),
            )
        )
        return "error", delimited(_ERROR, content)

    def count(self, exact: Exact) -> int:
        if self.sub_sequent_errors_count == ABSENT:
            return integer(self.subsequent_errors, UINT32, "subsequentErrors", exact)
        # Not used, but checked.
        number_field(_F2, self.subsequent_errors)
        return integer(self.sub_sequent_errors_count, UINT32, "subSequentErrorsCount", exact)


class Disconnect(Message, tag="disconnect"):
    def payload(self, _: Exact, /) -> Payload:
        return "disconnect", delimited(_DISCONNECT, string_field(_F1, "stream_disconnected"))

    def instrument(self) -> str:
        return next((symbol for symbol in self.symbols or () if symbol is not None), "")


AnyMessage: TypeAlias = (
    Trade
    | BookChange
    | BookSnapshot
    | GroupedBookSnapshot
    | Quote
    | BookTicker
    | DerivativeTicker
    | Liquidation
    | OptionSummary
    | TradeBar
    | Error
    | Disconnect
)
