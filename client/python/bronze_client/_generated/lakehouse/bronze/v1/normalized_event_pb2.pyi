import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_REALTIME: _ClassVar[Origin]
    ORIGIN_REPLAY: _ClassVar[Origin]
    ORIGIN_ARCHIVE: _ClassVar[Origin]

class Side(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIDE_UNSPECIFIED: _ClassVar[Side]
    SIDE_BUY: _ClassVar[Side]
    SIDE_SELL: _ClassVar[Side]

class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACTION_UNSPECIFIED: _ClassVar[Action]
    ACTION_UPSERT: _ClassVar[Action]
    ACTION_DELETE: _ClassVar[Action]

class BarKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BAR_KIND_UNSPECIFIED: _ClassVar[BarKind]
    BAR_KIND_TICK: _ClassVar[BarKind]
    BAR_KIND_TIME: _ClassVar[BarKind]
    BAR_KIND_VOLUME: _ClassVar[BarKind]

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    ERROR_CODE_WS_CONNECT: _ClassVar[ErrorCode]
    ERROR_CODE_WS_SEND: _ClassVar[ErrorCode]
    ERROR_CODE_SOURCE_AUTH: _ClassVar[ErrorCode]
    ERROR_CODE_SOURCE_RATE_LIMIT: _ClassVar[ErrorCode]
ORIGIN_UNSPECIFIED: Origin
ORIGIN_REALTIME: Origin
ORIGIN_REPLAY: Origin
ORIGIN_ARCHIVE: Origin
SIDE_UNSPECIFIED: Side
SIDE_BUY: Side
SIDE_SELL: Side
ACTION_UNSPECIFIED: Action
ACTION_UPSERT: Action
ACTION_DELETE: Action
BAR_KIND_UNSPECIFIED: BarKind
BAR_KIND_TICK: BarKind
BAR_KIND_TIME: BarKind
BAR_KIND_VOLUME: BarKind
ERROR_CODE_UNSPECIFIED: ErrorCode
ERROR_CODE_WS_CONNECT: ErrorCode
ERROR_CODE_WS_SEND: ErrorCode
ERROR_CODE_SOURCE_AUTH: ErrorCode
ERROR_CODE_SOURCE_RATE_LIMIT: ErrorCode

class NormalizedEvent(_message.Message):
    __slots__ = ("source", "exchange", "symbol", "local_ts", "ingest_ts", "origin", "meta", "trade", "book_change", "book_snapshot", "quote", "derivative_ticker", "liquidation", "option_summary", "book_ticker", "grouped_book_snapshot", "trade_bar", "error", "disconnect")
    class MetaEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    LOCAL_TS_FIELD_NUMBER: _ClassVar[int]
    INGEST_TS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    TRADE_FIELD_NUMBER: _ClassVar[int]
    BOOK_CHANGE_FIELD_NUMBER: _ClassVar[int]
    BOOK_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    QUOTE_FIELD_NUMBER: _ClassVar[int]
    DERIVATIVE_TICKER_FIELD_NUMBER: _ClassVar[int]
    LIQUIDATION_FIELD_NUMBER: _ClassVar[int]
    OPTION_SUMMARY_FIELD_NUMBER: _ClassVar[int]
    BOOK_TICKER_FIELD_NUMBER: _ClassVar[int]
    GROUPED_BOOK_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TRADE_BAR_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    source: str
    exchange: str
    symbol: str
    local_ts: _timestamp_pb2.Timestamp
    ingest_ts: _timestamp_pb2.Timestamp
    origin: Origin
    meta: _containers.ScalarMap[str, str]
    trade: Trade
    book_change: BookChange
    book_snapshot: BookSnapshot
    quote: Quote
    derivative_ticker: DerivativeTicker
    liquidation: Liquidation
    option_summary: OptionSummary
    book_ticker: BookTicker
    grouped_book_snapshot: GroupedBookSnapshot
    trade_bar: TradeBar
    error: ControlError
    disconnect: ControlDisconnect
    def __init__(self, source: _Optional[str] = ..., exchange: _Optional[str] = ..., symbol: _Optional[str] = ..., local_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ingest_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., origin: _Optional[_Union[Origin, str]] = ..., meta: _Optional[_Mapping[str, str]] = ..., trade: _Optional[_Union[Trade, _Mapping]] = ..., book_change: _Optional[_Union[BookChange, _Mapping]] = ..., book_snapshot: _Optional[_Union[BookSnapshot, _Mapping]] = ..., quote: _Optional[_Union[Quote, _Mapping]] = ..., derivative_ticker: _Optional[_Union[DerivativeTicker, _Mapping]] = ..., liquidation: _Optional[_Union[Liquidation, _Mapping]] = ..., option_summary: _Optional[_Union[OptionSummary, _Mapping]] = ..., book_ticker: _Optional[_Union[BookTicker, _Mapping]] = ..., grouped_book_snapshot: _Optional[_Union[GroupedBookSnapshot, _Mapping]] = ..., trade_bar: _Optional[_Union[TradeBar, _Mapping]] = ..., error: _Optional[_Union[ControlError, _Mapping]] = ..., disconnect: _Optional[_Union[ControlDisconnect, _Mapping]] = ...) -> None: ...

class Trade(_message.Message):
    __slots__ = ("trade_id", "price_str", "qty_str", "side", "sequence", "event_ts")
    TRADE_ID_FIELD_NUMBER: _ClassVar[int]
    PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    QTY_STR_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    trade_id: str
    price_str: str
    qty_str: str
    side: Side
    sequence: int
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, trade_id: _Optional[str] = ..., price_str: _Optional[str] = ..., qty_str: _Optional[str] = ..., side: _Optional[_Union[Side, str]] = ..., sequence: _Optional[int] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BookChange(_message.Message):
    __slots__ = ("side", "action", "price_str", "qty_str", "level", "sequence", "event_ts")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    QTY_STR_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    side: Side
    action: Action
    price_str: str
    qty_str: str
    level: int
    sequence: int
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, side: _Optional[_Union[Side, str]] = ..., action: _Optional[_Union[Action, str]] = ..., price_str: _Optional[str] = ..., qty_str: _Optional[str] = ..., level: _Optional[int] = ..., sequence: _Optional[int] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BookSnapshot(_message.Message):
    __slots__ = ("depth", "bids", "asks", "event_ts", "grouping", "interval_ms", "remove_crossed_levels", "sequence")
    class Level(_message.Message):
        __slots__ = ("price_str", "qty_str")
        PRICE_STR_FIELD_NUMBER: _ClassVar[int]
        QTY_STR_FIELD_NUMBER: _ClassVar[int]
        price_str: str
        qty_str: str
        def __init__(self, price_str: _Optional[str] = ..., qty_str: _Optional[str] = ...) -> None: ...
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    BIDS_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_CROSSED_LEVELS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    depth: int
    bids: _containers.RepeatedCompositeFieldContainer[BookSnapshot.Level]
    asks: _containers.RepeatedCompositeFieldContainer[BookSnapshot.Level]
    event_ts: _timestamp_pb2.Timestamp
    grouping: int
    interval_ms: int
    remove_crossed_levels: bool
    sequence: int
    def __init__(self, depth: _Optional[int] = ..., bids: _Optional[_Iterable[_Union[BookSnapshot.Level, _Mapping]]] = ..., asks: _Optional[_Iterable[_Union[BookSnapshot.Level, _Mapping]]] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., grouping: _Optional[int] = ..., interval_ms: _Optional[int] = ..., remove_crossed_levels: _Optional[bool] = ..., sequence: _Optional[int] = ...) -> None: ...

class GroupedBookSnapshot(_message.Message):
    __slots__ = ("depth", "bids", "asks", "event_ts", "grouping", "interval_ms", "remove_crossed_levels", "sequence")
    class Level(_message.Message):
        __slots__ = ("price_str", "qty_str")
        PRICE_STR_FIELD_NUMBER: _ClassVar[int]
        QTY_STR_FIELD_NUMBER: _ClassVar[int]
        price_str: str
        qty_str: str
        def __init__(self, price_str: _Optional[str] = ..., qty_str: _Optional[str] = ...) -> None: ...
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    BIDS_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    GROUPING_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_CROSSED_LEVELS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    depth: int
    bids: _containers.RepeatedCompositeFieldContainer[GroupedBookSnapshot.Level]
    asks: _containers.RepeatedCompositeFieldContainer[GroupedBookSnapshot.Level]
    event_ts: _timestamp_pb2.Timestamp
    grouping: int
    interval_ms: int
    remove_crossed_levels: bool
    sequence: int
    def __init__(self, depth: _Optional[int] = ..., bids: _Optional[_Iterable[_Union[GroupedBookSnapshot.Level, _Mapping]]] = ..., asks: _Optional[_Iterable[_Union[GroupedBookSnapshot.Level, _Mapping]]] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., grouping: _Optional[int] = ..., interval_ms: _Optional[int] = ..., remove_crossed_levels: _Optional[bool] = ..., sequence: _Optional[int] = ...) -> None: ...

class TradeBar(_message.Message):
    __slots__ = ("kind", "interval", "interval_ms", "open_str", "high_str", "low_str", "close_str", "volume_str", "trade_count", "event_ts", "end_ts")
    KIND_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_STR_FIELD_NUMBER: _ClassVar[int]
    HIGH_STR_FIELD_NUMBER: _ClassVar[int]
    LOW_STR_FIELD_NUMBER: _ClassVar[int]
    CLOSE_STR_FIELD_NUMBER: _ClassVar[int]
    VOLUME_STR_FIELD_NUMBER: _ClassVar[int]
    TRADE_COUNT_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    END_TS_FIELD_NUMBER: _ClassVar[int]
    kind: BarKind
    interval: int
    interval_ms: int
    open_str: str
    high_str: str
    low_str: str
    close_str: str
    volume_str: str
    trade_count: int
    event_ts: _timestamp_pb2.Timestamp
    end_ts: _timestamp_pb2.Timestamp
    def __init__(self, kind: _Optional[_Union[BarKind, str]] = ..., interval: _Optional[int] = ..., interval_ms: _Optional[int] = ..., open_str: _Optional[str] = ..., high_str: _Optional[str] = ..., low_str: _Optional[str] = ..., close_str: _Optional[str] = ..., volume_str: _Optional[str] = ..., trade_count: _Optional[int] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Quote(_message.Message):
    __slots__ = ("bid_price_str", "bid_qty_str", "ask_price_str", "ask_qty_str", "event_ts")
    BID_PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    BID_QTY_STR_FIELD_NUMBER: _ClassVar[int]
    ASK_PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    ASK_QTY_STR_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    bid_price_str: str
    bid_qty_str: str
    ask_price_str: str
    ask_qty_str: str
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, bid_price_str: _Optional[str] = ..., bid_qty_str: _Optional[str] = ..., ask_price_str: _Optional[str] = ..., ask_qty_str: _Optional[str] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class DerivativeTicker(_message.Message):
    __slots__ = ("mark_price_str", "index_price_str", "funding_rate_str", "event_ts")
    MARK_PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    INDEX_PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    FUNDING_RATE_STR_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    mark_price_str: str
    index_price_str: str
    funding_rate_str: str
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, mark_price_str: _Optional[str] = ..., index_price_str: _Optional[str] = ..., funding_rate_str: _Optional[str] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Liquidation(_message.Message):
    __slots__ = ("side", "price_str", "qty_str", "order_id", "event_ts")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    QTY_STR_FIELD_NUMBER: _ClassVar[int]
    ORDER_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    side: Side
    price_str: str
    qty_str: str
    order_id: str
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, side: _Optional[_Union[Side, str]] = ..., price_str: _Optional[str] = ..., qty_str: _Optional[str] = ..., order_id: _Optional[str] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class OptionSummary(_message.Message):
    __slots__ = ("iv_str", "delta_str", "gamma_str", "theta_str", "vega_str", "oi_str", "event_ts")
    IV_STR_FIELD_NUMBER: _ClassVar[int]
    DELTA_STR_FIELD_NUMBER: _ClassVar[int]
    GAMMA_STR_FIELD_NUMBER: _ClassVar[int]
    THETA_STR_FIELD_NUMBER: _ClassVar[int]
    VEGA_STR_FIELD_NUMBER: _ClassVar[int]
    OI_STR_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    iv_str: str
    delta_str: str
    gamma_str: str
    theta_str: str
    vega_str: str
    oi_str: str
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, iv_str: _Optional[str] = ..., delta_str: _Optional[str] = ..., gamma_str: _Optional[str] = ..., theta_str: _Optional[str] = ..., vega_str: _Optional[str] = ..., oi_str: _Optional[str] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BookTicker(_message.Message):
    __slots__ = ("best_bid_price_str", "best_bid_qty_str", "best_ask_price_str", "best_ask_qty_str", "event_ts")
    BEST_BID_PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    BEST_BID_QTY_STR_FIELD_NUMBER: _ClassVar[int]
    BEST_ASK_PRICE_STR_FIELD_NUMBER: _ClassVar[int]
    BEST_ASK_QTY_STR_FIELD_NUMBER: _ClassVar[int]
    EVENT_TS_FIELD_NUMBER: _ClassVar[int]
    best_bid_price_str: str
    best_bid_qty_str: str
    best_ask_price_str: str
    best_ask_qty_str: str
    event_ts: _timestamp_pb2.Timestamp
    def __init__(self, best_bid_price_str: _Optional[str] = ..., best_bid_qty_str: _Optional[str] = ..., best_ask_price_str: _Optional[str] = ..., best_ask_qty_str: _Optional[str] = ..., event_ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ControlError(_message.Message):
    __slots__ = ("details", "subsequent_errors", "code")
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    SUBSEQUENT_ERRORS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    details: str
    subsequent_errors: int
    code: ErrorCode
    def __init__(self, details: _Optional[str] = ..., subsequent_errors: _Optional[int] = ..., code: _Optional[_Union[ErrorCode, str]] = ...) -> None: ...

class ControlDisconnect(_message.Message):
    __slots__ = ("reason", "close_code")
    REASON_FIELD_NUMBER: _ClassVar[int]
    CLOSE_CODE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    close_code: int
    def __init__(self, reason: _Optional[str] = ..., close_code: _Optional[int] = ...) -> None: ...
