"""The schemas are what other systems rely on: names, numbers, types and the bytes that come of them."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, TypeAlias

import pytest
from bronze_client import schema
from bronze_client._generated.bronze.sidecar.v1 import sidecar_pb2
from bronze_client._generated.lakehouse.bronze.v1 import normalized_event_pb2
from golden.encode import EVENTS, LEN, VARINT, encode, varint
from google.protobuf import descriptor_pb2
from google.protobuf.json_format import MessageToDict

if TYPE_CHECKING:
    import types

    from golden.encode import Fields

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
BUF = pathlib.Path(sys.executable).parent / "buf"
BRONZE = "lakehouse/bronze/v1/normalized_event.proto"
SIDECAR = "bronze/sidecar/v1/sidecar.proto"

# The twelve payload cases and the field of the envelope's `payload` that each one is.
CASES = {
    "trade": "trade",
    "bookChange": "book_change",
    "bookSnapshot": "book_snapshot",
    "groupedBookSnapshot": "grouped_book_snapshot",
    "quote": "quote",
    "derivativeTicker": "derivative_ticker",
    "liquidation": "liquidation",
    "optionSummary": "option_summary",
    "bookTicker": "book_ticker",
    "tradeBar": "trade_bar",
    "error": "error",
    "disconnect": "disconnect",
}

# What the golden files mean. As in Protobuf's JSON, 64-bit numbers and times are text.
EXPECTED = {
    "trade": {
        "source": "tardis-machine/17.0.1",
        "exchange": "binance",
        "symbol": "币安人生USDT",
        "local_ts": "2020-01-01T00:00:00.123456Z",
        "ingest_ts": "2020-01-01T00:00:01.000000001Z",
        "origin": "ORIGIN_REALTIME",
        "meta": {"data_type": "trade", "event_id": "live-7f3a:0"},
        "trade": {
            "trade_id": "T-4242",
            "price_str": "5e-8",
            "qty_str": "1000000.000000000000000001",
            "side": "SIDE_SELL",
            "sequence": "-9223372036854775808",
            "event_ts": "1969-12-31T23:59:59.999999Z",
        },
    },
    "bookChange": {
        "source": "recorder/2.3",
        "exchange": "deribit",
        "symbol": "BTC-26NOV26-100000-C",
        "local_ts": "2020-09-13T12:26:40.007Z",
        "ingest_ts": "2020-09-13T12:26:41.000008Z",
        "origin": "ORIGIN_REPLAY",
        "meta": {"data_type": "book_change", "event_id": "c0ffee:12.3", "is_snapshot": "false"},
        "book_change": {
            "side": "SIDE_BUY",
            "action": "ACTION_DELETE",
            "price_str": "7541.5",
            "qty_str": "0",
            "level": -2147483648,
            "sequence": "9223372036854775807",
            "event_ts": "2020-09-13T12:26:39.000000006Z",
        },
    },
    "bookSnapshot": {
        "source": "tardis-machine/16.0.0",
        "exchange": "bitmex",
        "symbol": "XBTUSD",
        "local_ts": "2023-11-14T22:13:20.250Z",
        "ingest_ts": "2023-11-14T22:13:22.500Z",
        "origin": "ORIGIN_ARCHIVE",
        "meta": {"data_name": "book_snapshot_3_100ms", "data_type": "book_snapshot"},
        "book_snapshot": {
            "depth": 3,
            "bids": [
                {"price_str": "36000.5", "qty_str": "10"},
                {"price_str": "36000.0", "qty_str": "20.25"},
                {"price_str": "35999.5", "qty_str": "30"},
            ],
            "asks": [
                {"price_str": "36001", "qty_str": "0.1"},
                {"price_str": "36001.5", "qty_str": "0.2"},
            ],
            "event_ts": "2023-11-14T22:13:21.125Z",
            "grouping": 4294967295,
            "interval_ms": 100,
            "remove_crossed_levels": True,
            "sequence": "-42",
        },
    },
    "groupedBookSnapshot": {
        "source": "tardis-machine/16.1.0",
        "exchange": "kraken",
        "symbol": "XBT/€",
        "local_ts": "2017-07-14T02:40:00.000011Z",
        "ingest_ts": "2017-07-14T02:40:03.000022Z",
        "origin": "ORIGIN_REPLAY",
        "meta": {"data_type": "grouped_book_snapshot", "grouping": "12.5"},
        "grouped_book_snapshot": {
            "depth": 4294967295,
            "bids": [
                {"price_str": "2300", "qty_str": "1.5"},
                {"price_str": "2288", "qty_str": "2.5"},
            ],
            "asks": [
                {"price_str": "2312", "qty_str": "3.5"},
                {"price_str": "2324", "qty_str": "4.5"},
                {"price_str": "2336", "qty_str": "5.5"},
            ],
            "event_ts": "2017-07-14T02:40:01.000033Z",
            "grouping": 12,
            "interval_ms": 60000,
            "remove_crossed_levels": True,
            "sequence": "77",
        },
    },
    "quote": {
        "source": "quoter/0.9",
        "exchange": "coinbase",
        "symbol": "BTC-USD",
        "local_ts": "2021-01-01T00:00:00.001Z",
        "ingest_ts": "2021-01-01T00:00:01.002Z",
        "origin": "ORIGIN_REALTIME",
        "meta": {"data_type": "quote", "route": "primary"},
        "quote": {
            "bid_price_str": "28990.01",
            "bid_qty_str": "0.75",
            "ask_price_str": "28990.02",
            "ask_qty_str": "1.25",
            "event_ts": "2020-12-31T23:59:59.003Z",
        },
    },
    "derivativeTicker": {
        "source": "tardis-machine/15.2",
        "exchange": "bybit",
        "symbol": "ETHUSD",
        "local_ts": "2022-01-01T00:00:00.000000010Z",
        "ingest_ts": "2022-01-01T00:00:01.000000020Z",
        "origin": "ORIGIN_REPLAY",
        "meta": {"data_type": "derivative_ticker", "request_id": "r-1", "session_id": "s-2"},
        "derivative_ticker": {
            "mark_price_str": "3676.23",
            "index_price_str": "3676.99",
            "funding_rate_str": "-0.000125",
            "event_ts": "2021-12-31T23:59:59.000000030Z",
        },
    },
    "liquidation": {
        "source": "tardis-machine/15.3",
        "exchange": "binance-futures",
        "symbol": "1000SHIB*",
        "local_ts": "2023-01-01T00:00:00.000100Z",
        "ingest_ts": "2023-01-01T00:00:01.000200Z",
        "origin": "ORIGIN_ARCHIVE",
        "meta": {"data_type": "liquidation", "transport": "http"},
        "liquidation": {
            "side": "SIDE_SELL",
            "price_str": "0.008071",
            "qty_str": "123456",
            "order_id": "order-99",
            "event_ts": "2022-12-31T23:59:59.000300Z",
        },
    },
    "optionSummary": {
        "source": "tardis-machine/15.4",
        "exchange": "okex-options",
        "symbol": "BTC-USD-241227-100000-P",
        "local_ts": "2024-01-01T00:00:00.000004Z",
        "ingest_ts": "2024-01-01T00:00:01.000005Z",
        "origin": "ORIGIN_REALTIME",
        "meta": {"app_version": "2024.1", "data_type": "option_summary"},
        "option_summary": {
            "iv_str": "0.6531",
            "delta_str": "-0.41",
            "gamma_str": "1.5E-5",
            "theta_str": "-12.75",
            "vega_str": "88.125",
            "oi_str": "310.5",
            "event_ts": "2023-12-31T23:59:59.000006Z",
        },
    },
    "bookTicker": {
        "source": "tardis-machine/15.5",
        "exchange": "gate-io",
        "symbol": "DOGE_USDT",
        "local_ts": "2025-01-01T00:00:00.040Z",
        "ingest_ts": "2025-01-01T00:00:01.050Z",
        "origin": "ORIGIN_REPLAY",
        "meta": {"data_type": "book_ticker", "note": "prix à vérifier"},
        "book_ticker": {
            "best_bid_price_str": "0.31541",
            "best_bid_qty_str": "5500",
            "best_ask_price_str": "0.31542",
            "best_ask_qty_str": "6600",
            "event_ts": "2024-12-31T23:59:59.060Z",
        },
    },
    "tradeBar": {
        "source": "tardis-machine/15.6",
        "exchange": "ftx",
        "symbol": "SOL/USD",
        "local_ts": "2038-01-19T03:14:08.000000070Z",
        "ingest_ts": "9999-12-31T23:59:59.999999999Z",
        "origin": "ORIGIN_ARCHIVE",
        "meta": {
            "data_name": "trade_bar_4294967s",
            "data_type": "trade_bar",
            "symbols": "SOL/USD,BTC/USD",
        },
        "trade_bar": {
            "kind": "BAR_KIND_VOLUME",
            "interval": "18446744073709551615",
            "interval_ms": 4294967295,
            "open_str": "101.5",
            "high_str": "109.25",
            "low_str": "99.125",
            "close_str": "104",
            "volume_str": "98765.4321",
            "trade_count": "9223372036854775808",
            "event_ts": "0001-01-01T00:00:00.000000080Z",
            "end_ts": "1969-12-31T00:00:00.000000090Z",
        },
    },
    "error": {
        "source": "tardis-machine/15.7",
        "exchange": "huobi",
        "symbol": "btcusdt",
        "local_ts": "2009-02-13T23:31:30.000012Z",
        "ingest_ts": "2009-02-13T23:31:31.000013Z",
        "origin": "ORIGIN_REALTIME",
        "meta": {"data_type": "error", "event_id": "live-7f3a:18446744073709551615"},
        "error": {
            "details": "429 Too Many Requests\n“slow down”",
            "subsequent_errors": 4294967295,
            "code": "ERROR_CODE_SOURCE_RATE_LIMIT",
        },
    },
    "disconnect": {
        "source": "tardis-machine/15.8",
        "exchange": "upbit",
        "symbol": "KRW-BTC",
        "local_ts": "2001-09-09T01:46:40.000000014Z",
        "ingest_ts": "2001-09-09T01:46:41.000000015Z",
        "origin": "ORIGIN_REPLAY",
        "meta": {"data_type": "disconnect", "symbols": "KRW-BTC,KRW-ETH"},
        "disconnect": {"reason": "stream_disconnected", "close_code": 1006},
    },
}

# Number, kind and, if it belongs to one, the oneof of each field.
Description: TypeAlias = tuple[int, str, str | None]

BRONZE_MESSAGES: dict[str, dict[str, Description]] = {
    "NormalizedEvent": {
        "source": (1, "string", None),
        "exchange": (2, "string", None),
        "symbol": (3, "string", None),
        "local_ts": (4, "message google.protobuf.Timestamp", None),
        "ingest_ts": (5, "message google.protobuf.Timestamp", None),
        "origin": (6, "enum lakehouse.bronze.v1.Origin", None),
        "meta": (10, "map<string, string>", None),
        "trade": (100, "message lakehouse.bronze.v1.Trade", "payload"),
        "book_change": (101, "message lakehouse.bronze.v1.BookChange", "payload"),
        "book_snapshot": (102, "message lakehouse.bronze.v1.BookSnapshot", "payload"),
        "quote": (103, "message lakehouse.bronze.v1.Quote", "payload"),
        "derivative_ticker": (104, "message lakehouse.bronze.v1.DerivativeTicker", "payload"),
        "liquidation": (105, "message lakehouse.bronze.v1.Liquidation", "payload"),
        "option_summary": (106, "message lakehouse.bronze.v1.OptionSummary", "payload"),
        "book_ticker": (107, "message lakehouse.bronze.v1.BookTicker", "payload"),
        "grouped_book_snapshot": (108, "message lakehouse.bronze.v1.GroupedBookSnapshot", "payload"),
        "trade_bar": (109, "message lakehouse.bronze.v1.TradeBar", "payload"),
        "error": (150, "message lakehouse.bronze.v1.ControlError", "payload"),
        "disconnect": (151, "message lakehouse.bronze.v1.ControlDisconnect", "payload"),
    },
    "Trade": {
        "trade_id": (1, "string", None),
        "price_str": (2, "string", None),
        "qty_str": (3, "string", None),
        "side": (4, "enum lakehouse.bronze.v1.Side", None),
        "sequence": (5, "int64", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "BookChange": {
        "side": (1, "enum lakehouse.bronze.v1.Side", None),
        "action": (2, "enum lakehouse.bronze.v1.Action", None),
        "price_str": (3, "string", None),
        "qty_str": (4, "string", None),
        "level": (5, "int32", None),
        "sequence": (6, "int64", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "BookSnapshot": {
        "depth": (1, "uint32", None),
        "bids": (2, "repeated message lakehouse.bronze.v1.BookSnapshot.Level", None),
        "asks": (3, "repeated message lakehouse.bronze.v1.BookSnapshot.Level", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
        "grouping": (11, "uint32", None),
        "interval_ms": (12, "uint32", None),
        "remove_crossed_levels": (13, "bool", None),
        "sequence": (14, "int64", None),
    },
    "BookSnapshot.Level": {
        "price_str": (1, "string", None),
        "qty_str": (2, "string", None),
    },
    "GroupedBookSnapshot": {
        "depth": (1, "uint32", None),
        "bids": (2, "repeated message lakehouse.bronze.v1.GroupedBookSnapshot.Level", None),
        "asks": (3, "repeated message lakehouse.bronze.v1.GroupedBookSnapshot.Level", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
        "grouping": (11, "uint32", None),
        "interval_ms": (12, "uint32", None),
        "remove_crossed_levels": (13, "bool", None),
        "sequence": (14, "int64", None),
    },
    "GroupedBookSnapshot.Level": {
        "price_str": (1, "string", None),
        "qty_str": (2, "string", None),
    },
    "TradeBar": {
        "kind": (1, "enum lakehouse.bronze.v1.BarKind", None),
        "interval": (2, "uint64", None),
        "interval_ms": (3, "uint32", None),
        "open_str": (4, "string", None),
        "high_str": (5, "string", None),
        "low_str": (6, "string", None),
        "close_str": (7, "string", None),
        "volume_str": (8, "string", None),
        "trade_count": (9, "uint64", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
        "end_ts": (11, "message google.protobuf.Timestamp", None),
    },
    "Quote": {
        "bid_price_str": (1, "string", None),
        "bid_qty_str": (2, "string", None),
        "ask_price_str": (3, "string", None),
        "ask_qty_str": (4, "string", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "DerivativeTicker": {
        "mark_price_str": (1, "string", None),
        "index_price_str": (2, "string", None),
        "funding_rate_str": (3, "string", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "Liquidation": {
        "side": (1, "enum lakehouse.bronze.v1.Side", None),
        "price_str": (2, "string", None),
        "qty_str": (3, "string", None),
        "order_id": (4, "string", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "OptionSummary": {
        "iv_str": (1, "string", None),
        "delta_str": (2, "string", None),
        "gamma_str": (3, "string", None),
        "theta_str": (4, "string", None),
        "vega_str": (5, "string", None),
        "oi_str": (6, "string", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "BookTicker": {
        "best_bid_price_str": (1, "string", None),
        "best_bid_qty_str": (2, "string", None),
        "best_ask_price_str": (3, "string", None),
        "best_ask_qty_str": (4, "string", None),
        "event_ts": (10, "message google.protobuf.Timestamp", None),
    },
    "ControlError": {
        "details": (1, "string", None),
        "subsequent_errors": (2, "uint32", None),
        "code": (3, "enum lakehouse.bronze.v1.ErrorCode", None),
    },
    "ControlDisconnect": {
        "reason": (1, "string", None),
        "close_code": (2, "uint32", None),
    },
}
BRONZE_ENUMS = {
    "Origin": {"ORIGIN_UNSPECIFIED": 0, "ORIGIN_REALTIME": 1, "ORIGIN_REPLAY": 2, "ORIGIN_ARCHIVE": 3},
    "Side": {"SIDE_UNSPECIFIED": 0, "SIDE_BUY": 1, "SIDE_SELL": 2},
    "Action": {"ACTION_UNSPECIFIED": 0, "ACTION_UPSERT": 1, "ACTION_DELETE": 2},
    "BarKind": {"BAR_KIND_UNSPECIFIED": 0, "BAR_KIND_TICK": 1, "BAR_KIND_TIME": 2, "BAR_KIND_VOLUME": 3},
    "ErrorCode": {
        "ERROR_CODE_UNSPECIFIED": 0,
        "ERROR_CODE_WS_CONNECT": 1,
        "ERROR_CODE_WS_SEND": 2,
        "ERROR_CODE_SOURCE_AUTH": 3,
        "ERROR_CODE_SOURCE_RATE_LIMIT": 4,
    },
}
SIDECAR_MESSAGES: dict[str, dict[str, Description]] = {
    "PublishRequest": {
        "open": (1, "message bronze.sidecar.v1.Open", "kind"),
        "batch": (2, "message bronze.sidecar.v1.Batch", "kind"),
    },
    "Open": {
        "producer_id": (1, "string", None),
        "context": (2, "message bronze.sidecar.v1.StreamContext", None),
        "acknowledged_sequence": (3, "uint64", None),
    },
    "StreamContext": {
        "stream_id": (1, "string", None),
        "source": (2, "string", None),
        "origin": (3, "enum lakehouse.bronze.v1.Origin", None),
        "request_id": (4, "string", None),
        "session_id": (5, "string", None),
        "meta": (6, "map<string, string>", None),
    },
    "Batch": {
        "sequence": (1, "uint64", None),
        "first_position": (2, "uint64", None),
        "envelopes": (3, "repeated bytes", None),
        "json": (4, "repeated bytes", None),
        "mixed": (5, "repeated bytes", None),
        "end": (6, "message bronze.sidecar.v1.End", None),
        "levels": (7, "repeated uint32", None),
    },
    "End": {
        "dropped": (1, "uint64", None),
    },
    "PublishResponse": {
        "opened": (1, "message bronze.sidecar.v1.Opened", "kind"),
        "acknowledgement": (2, "message bronze.sidecar.v1.Acknowledgement", "kind"),
        "credits": (3, "message bronze.sidecar.v1.Credits", "kind"),
    },
    "Opened": {
        "acknowledged_sequence": (1, "uint64", None),
        "credits": (2, "message bronze.sidecar.v1.Credits", None),
        "outcome": (3, "message bronze.sidecar.v1.Outcome", None),
        "takes_end": (4, "bool", None),
    },
    "Credits": {
        "events": (1, "uint64", None),
        "bytes": (2, "uint64", None),
        "batch_bytes": (3, "uint64", None),
    },
    "Acknowledgement": {
        "sequence": (1, "uint64", None),
        "outcome": (2, "message bronze.sidecar.v1.Outcome", None),
    },
    "Outcome": {
        "published": (1, "uint64", None),
        "filtered": (2, "uint64", None),
        "failures": (3, "repeated message bronze.sidecar.v1.Failure", None),
    },
    "Failure": {
        "position": (1, "uint64", None),
        "kind": (2, "enum bronze.sidecar.v1.FailureKind", None),
        "reason": (3, "string", None),
        "backend": (4, "string", None),
        "level": (5, "optional uint32", None),
    },
    "PublishBatchRequest": {
        "context": (1, "message bronze.sidecar.v1.StreamContext", None),
        "batch": (2, "message bronze.sidecar.v1.Batch", None),
    },
    "PublishBatchResponse": {
        "outcome": (1, "message bronze.sidecar.v1.Outcome", None),
    },
    "TapRequest": {
        "exchanges": (1, "repeated string", None),
        "symbols": (2, "repeated string", None),
        "payload_cases": (3, "repeated string", None),
        "backends": (4, "repeated string", None),
        "failures_only": (5, "bool", None),
    },
    "TapResponse": {
        "events": (1, "repeated message bronze.sidecar.v1.TappedEvent", None),
        "skipped": (2, "uint64", None),
    },
    "TappedEvent": {
        "event_id": (1, "string", None),
        "envelope": (2, "bytes", "content"),
        "json": (3, "bytes", "content"),
        "backend": (4, "string", None),
        "destination": (5, "string", None),
        "key": (6, "string", None),
        "headers": (7, "repeated message bronze.sidecar.v1.TappedHeader", None),
        "failure": (8, "enum bronze.sidecar.v1.FailureKind", None),
        "reason": (9, "string", None),
    },
    "TappedHeader": {
        "name": (1, "string", None),
        "value": (2, "string", None),
    },
}
SIDECAR_ENUMS = {
    "FailureKind": {"FAILURE_KIND_UNSPECIFIED": 0, "FAILURE_KIND_REJECTED": 1, "FAILURE_KIND_FAILED": 2},
}
# Each procedure's request and response, and whether each of them is a stream.
SIDECAR_PROCEDURES = {
    "SidecarService.Publish": (
        ".bronze.sidecar.v1.PublishRequest",
        True,
        ".bronze.sidecar.v1.PublishResponse",
        True,
    ),
    "SidecarService.PublishBatch": (
        ".bronze.sidecar.v1.PublishBatchRequest",
        False,
        ".bronze.sidecar.v1.PublishBatchResponse",
        False,
    ),
    "SidecarService.Tap": (
        ".bronze.sidecar.v1.TapRequest",
        False,
        ".bronze.sidecar.v1.TapResponse",
        True,
    ),
}


# The golden files


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (150, "9601"),
        (300, "ac02"),
        (4294967295, "ffffffff0f"),
        (18446744073709551615, "ffffffffffffffffff01"),
        (-1, "ffffffffffffffffff01"),
        (-2147483648, "80808080f8ffffffff01"),
        (-9223372036854775808, "80808080808080808001"),
    ],
)
def test_the_independent_encoder_writes_varints_as_protobuf_defines_them(number, encoded):
    assert varint(number).hex() == encoded


def test_the_independent_encoder_writes_fields_as_protobuf_defines_them():
    # 08 96 01: field 1, 150. 12 07 "testing": field 2, text. 1a 03: field 3, a message with field 1, 150.
    # a2 06: field 100, two bytes of tag.
    fields: Fields = [(1, VARINT, 150), (2, LEN, "testing"), (3, LEN, [(1, VARINT, 150)]), (100, LEN, "")]
    assert encode(fields).hex() == "089601" + "120774657374696e67" + "1a03089601" + "a20600"


@pytest.mark.parametrize("field", [(1, LEN, 150), (1, VARINT, "text"), (1, VARINT, [(1, VARINT, 1)])])
def test_the_independent_encoder_refuses_a_value_of_another_wire_type(field):
    with pytest.raises(ValueError, match="wire type"):
        encode([field])


def test_there_is_one_golden_file_for_each_payload_case():
    assert {path.name for path in GOLDEN.glob("*.binpb")} == {f"{case}.binpb" for case in CASES}
    assert set(EVENTS) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_golden_file_holds_what_the_independent_encoder_writes(case):
    assert golden(case) == encode(EVENTS[case])


@pytest.mark.parametrize(("case", "field"), CASES.items())
def test_a_golden_file_decodes_to_the_expected_event(case, field):
    event = schema.NormalizedEvent.FromString(golden(case))
    assert MessageToDict(event, preserving_proto_field_name=True) == EXPECTED[case]
    assert event.WhichOneof("payload") == field


@pytest.mark.parametrize("case", CASES)
def test_a_golden_event_encodes_to_the_same_bytes(case):
    event = schema.NormalizedEvent.FromString(golden(case))
    assert event.SerializeToString(deterministic=True) == golden(case)


@pytest.mark.parametrize(("case", "field"), CASES.items())
def test_a_golden_event_sets_every_field(case, field):
    event = schema.NormalizedEvent.FromString(golden(case))
    envelope = set(BRONZE_MESSAGES["NormalizedEvent"]) - set(CASES.values()) | {field}
    assert {descriptor.name for descriptor, _ in event.ListFields()} == envelope
    payload = getattr(event, field)
    assert {descriptor.name for descriptor, _ in payload.ListFields()} == set(
        BRONZE_MESSAGES[type(payload).DESCRIPTOR.name]
    )


def test_times_before_1970_have_negative_seconds_and_positive_nanoseconds():
    event_ts = schema.NormalizedEvent.FromString(golden("trade")).trade.event_ts
    assert (event_ts.seconds, event_ts.nanos) == (-1, 999_999_000)


# The descriptors


@pytest.mark.parametrize(
    ("module", "messages"),
    [(normalized_event_pb2, BRONZE_MESSAGES), (sidecar_pb2, SIDECAR_MESSAGES)],
    ids=["bronze", "sidecar"],
)
def test_the_messages_have_exactly_the_agreed_fields(module, messages):
    assert messages_of(file_of(module)) == messages


@pytest.mark.parametrize(
    ("module", "enums"),
    [(normalized_event_pb2, BRONZE_ENUMS), (sidecar_pb2, SIDECAR_ENUMS)],
    ids=["bronze", "sidecar"],
)
def test_the_enums_have_exactly_the_agreed_values(module, enums):
    file = file_of(module)
    assert {enum.name: {value.name: value.number for value in enum.value} for enum in file.enum_type} == enums
    assert [message.name for message in file.message_type if message.enum_type] == []


@pytest.mark.parametrize(
    ("module", "procedures"),
    [(normalized_event_pb2, {}), (sidecar_pb2, SIDECAR_PROCEDURES)],
    ids=["bronze", "sidecar"],
)
def test_the_services_have_exactly_the_agreed_procedures(module, procedures):
    assert {
        f"{service.name}.{method.name}": (
            method.input_type,
            method.client_streaming,
            method.output_type,
            method.server_streaming,
        )
        for service in file_of(module).service
        for method in service.method
    } == procedures


@pytest.mark.parametrize(
    ("module", "path", "package"),
    [(normalized_event_pb2, BRONZE, "lakehouse.bronze.v1"), (sidecar_pb2, SIDECAR, "bronze.sidecar.v1")],
    ids=["bronze", "sidecar"],
)
def test_the_files_are_proto3_of_the_agreed_package(module, path, package):
    file = file_of(module)
    assert (file.name, file.package, file.syntax) == (path, package, "proto3")
    assert list(file.extension) == []


def test_the_schema_module_offers_every_message_and_enum_and_nothing_else():
    names = {*BRONZE_MESSAGES, *BRONZE_ENUMS, *SIDECAR_MESSAGES, *SIDECAR_ENUMS}
    assert set(schema.__all__) == names - {"BookSnapshot.Level", "GroupedBookSnapshot.Level"}


# Later schemas


@pytest.mark.parametrize(
    ("changed", "case"),
    [
        pytest.param([*EVENTS["trade"], (199, LEN, "new")], "trade", id="text in the envelope"),
        pytest.param([*EVENTS["trade"], (199, VARINT, -7)], "trade", id="number in the envelope"),
        pytest.param([*EVENTS["trade"], (199, LEN, [(1, LEN, "x")])], "trade", id="message in the envelope"),
        pytest.param(
            [*EVENTS["quote"][:-1], (103, LEN, [(1, LEN, "7"), (99, VARINT, 5)])], "quote", id="payload"
        ),
        pytest.param([*EVENTS["trade"][:-1], (110, LEN, [(1, LEN, "x")])], None, id="payload case"),
        pytest.param([(6, VARINT, 17)], None, id="enum value"),
        pytest.param(
            [(102, LEN, [(2, LEN, [(1, LEN, "1"), (2, LEN, "2"), (3, LEN, "3")])])],
            "book_snapshot",
            id="level",
        ),
    ],
)
def test_what_a_later_schema_adds_survives_decoding_and_encoding(changed, case):
    later = encode(changed)
    event = schema.NormalizedEvent.FromString(later)
    assert event.WhichOneof("payload") == case
    assert event.SerializeToString(deterministic=True) == later


def test_what_a_later_schema_adds_survives_a_change_of_a_known_field():
    event = schema.NormalizedEvent.FromString(encode([(2, LEN, "binance"), (199, LEN, "new")]))
    event.exchange = "kraken"
    assert event.SerializeToString(deterministic=True) == encode([(2, LEN, "kraken"), (199, LEN, "new")])


# The guards against incompatible changes


def test_the_schemas_are_compatible_with_the_released_ones_and_pass_the_linter(tmp_path):
    copy = copy_of_the_schemas(tmp_path)
    assert buf(copy, "breaking", "--against", "released.binpb") == (0, "")
    assert buf(copy, "lint") == (0, "")


def test_an_added_field_and_an_added_enum_value_are_compatible(tmp_path):
    copy = copy_of_the_schemas(tmp_path)
    replace(copy / BRONZE, "int64 sequence = 5;", "int64 sequence = 5;\n  string venue = 6;")
    replace(copy / BRONZE, "SIDE_SELL = 2;", "SIDE_SELL = 2;\n  SIDE_BOTH = 3;")
    assert buf(copy, "breaking", "--against", "released.binpb") == (0, "")
    assert buf(copy, "lint") == (0, "")


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        pytest.param(
            BRONZE,
            "int64 sequence = 5;",
            "int64 sequence = 6;",
            'Previously present field "5" with name "sequence" on message "Trade" was deleted.',
            id="field renumbered",
        ),
        pytest.param(
            BRONZE,
            "string trade_id = 1;",
            "string id = 1;",
            'Field "1" on message "Trade" changed name from "trade_id" to "id".',
            id="field renamed",
        ),
        pytest.param(
            BRONZE,
            "uint32 close_code = 2;",
            "uint64 close_code = 2;",
            'Field "2" with name "close_code" on message "ControlDisconnect" changed type',
            id="field retyped",
        ),
        pytest.param(
            BRONZE,
            "Trade trade = 100;",
            "",
            'Previously present field "100" with name "trade" on message "NormalizedEvent" was deleted.',
            id="field deleted",
        ),
        pytest.param(
            BRONZE,
            "ACTION_DELETE = 2;",
            "",
            'Previously present enum value "2" on enum "Action" was deleted.',
            id="enum value deleted",
        ),
        pytest.param(
            SIDECAR,
            "repeated bytes json = 4;",
            "bytes json = 4;",
            'Field "4" with name "json" on message "Batch" changed cardinality',
            id="field no longer repeated",
        ),
        pytest.param(
            SIDECAR,
            "rpc PublishBatch(PublishBatchRequest) returns (PublishBatchResponse);",
            "",
            'Previously present RPC "PublishBatch" on service "SidecarService" was deleted.',
            id="procedure deleted",
        ),
    ],
)
def test_an_incompatible_change_is_found(tmp_path, path, old, new, message):
    copy = copy_of_the_schemas(tmp_path)
    replace(copy / path, old, new)
    code, output = buf(copy, "breaking", "--against", "released.binpb")
    assert code != 0
    assert f"{path}:" in output
    assert message in output


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        pytest.param(BRONZE, "string trade_id = 1;", "string tradeId = 1;", '"tradeId"', id="field name"),
        pytest.param(BRONZE, "SIDE_SELL = 2;", "SELL = 2;", '"SELL"', id="enum value name"),
        pytest.param(SIDECAR, "service SidecarService", "service Sidecar", '"Sidecar"', id="service name"),
    ],
)
def test_a_name_against_the_rules_is_found(tmp_path, path, old, new, message):
    copy = copy_of_the_schemas(tmp_path)
    replace(copy / path, old, new)
    code, output = buf(copy, "lint")
    assert code != 0
    assert f"{path}:" in output
    assert message in output


# Comments


def test_everything_in_the_schemas_has_a_comment(tmp_path):
    copy = copy_of_the_schemas(tmp_path)
    assert without_comment(copy, BRONZE) == []
    assert without_comment(copy, SIDECAR) == []


@pytest.mark.parametrize(
    ("path", "comment", "name"),
    [
        (BRONZE, "// One event with everything that routing needs around its payload.\n", "NormalizedEvent"),
        (BRONZE, "// The exchange's id.\n", "NormalizedEvent.exchange"),
        (BRONZE, "// What happened.\n", "NormalizedEvent.payload"),
        (BRONZE, "// The exchange's id of the order.\n", "Liquidation.order_id"),
        (BRONZE, "// What closes a trade bar.\n", "BarKind"),
        (BRONZE, "// A span of time.\n", "BarKind.BAR_KIND_TIME"),
        (
            SIDECAR,
            "// Takes normalized events and publishes them to the configured back ends.\n",
            "SidecarService",
        ),
        (
            SIDECAR,
            (
                "// Publishes one batch and answers when it is done. For simple callers and\n"
                "  // command-line tools; a service that publishes all the time uses Publish.\n"
            ),
            "SidecarService.PublishBatch",
        ),
    ],
)
def test_a_missing_comment_is_found(tmp_path, path, comment, name):
    copy = copy_of_the_schemas(tmp_path)
    replace(copy / path, comment, "")
    assert without_comment(copy, path) == [name]


# Helpers


def golden(case: str) -> bytes:
    return (GOLDEN / f"{case}.binpb").read_bytes()


def file_of(module: types.ModuleType) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def messages_of(
    file: descriptor_pb2.FileDescriptorProto,
) -> dict[str, dict[str, Description]]:
    found: dict[str, dict[str, Description]] = {}

    def add(message: descriptor_pb2.DescriptorProto, name: str) -> None:
        found[name] = {field.name: described(field, message) for field in message.field}
        assert [*message.extension, *message.extension_range, *message.reserved_range] == []
        for nested in message.nested_type:
            if not nested.options.map_entry:
                add(nested, f"{name}.{nested.name}")

    for message in file.message_type:
        add(message, message.name)
    return found


def described(
    field: descriptor_pb2.FieldDescriptorProto, message: descriptor_pb2.DescriptorProto
) -> Description:
    if field.proto3_optional:
        # The oneof around such a field is the compiler's own.
        return field.number, f"optional {kind(field)}", None
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    for entry in message.nested_type:
        if entry.options.map_entry and field.type_name.endswith(f".{message.name}.{entry.name}"):
            key, value = entry.field
            return field.number, f"map<{kind(key)}, {kind(value)}>", oneof
    labels = {field.LABEL_OPTIONAL: "", field.LABEL_REPEATED: "repeated ", field.LABEL_REQUIRED: "required "}
    return field.number, labels[field.label] + kind(field), oneof


def kind(field: descriptor_pb2.FieldDescriptorProto) -> str:
    name = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"{name} {field.type_name.removeprefix('.')}" if field.type_name else name


def copy_of_the_schemas(folder: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(ROOT / "proto", folder / "proto"))


def replace(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def buf(folder: pathlib.Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [BUF, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


def without_comment(folder: pathlib.Path, path: str) -> list[str]:
    """Names of everything in the file `path` of the schemas in `folder` that has no comment of its own."""
    assert buf(folder, "build", "--output", "all.binpb") == (0, "")
    # buf's image is a FileDescriptorSet with further fields.
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "all.binpb").read_bytes())
    (file,) = (file for file in files.file if file.name == path)
    commented = {
        tuple(location.path)
        for location in file.source_code_info.location
        if location.leading_comments.strip() or location.trailing_comments.strip()
    }
    return [name for place, name in declarations(file) if place not in commented]


def declarations(file: descriptor_pb2.FileDescriptorProto) -> list[tuple[tuple[int, ...], str]]:
    """Every declaration with its place, as field numbers and indexes within the file's descriptor."""
    found: list[tuple[tuple[int, ...], str]] = []

    def add_enum(enum: descriptor_pb2.EnumDescriptorProto, place: tuple[int, ...], name: str) -> None:
        found.append((place, name))
        found.extend(((*place, 2, i), f"{name}.{value.name}") for i, value in enumerate(enum.value))

    def add_message(message: descriptor_pb2.DescriptorProto, place: tuple[int, ...], name: str) -> None:
        found.append((place, name))
        found.extend(((*place, 2, i), f"{name}.{field.name}") for i, field in enumerate(message.field))
        found.extend(
            ((*place, 8, i), f"{name}.{oneof.name}")
            for i, oneof in enumerate(message.oneof_decl)
            if not oneof.name.startswith("_")  # the compiler's own, around an optional field
        )
        for i, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                add_message(nested, (*place, 3, i), f"{name}.{nested.name}")
        for i, enum in enumerate(message.enum_type):
            add_enum(enum, (*place, 4, i), f"{name}.{enum.name}")

    found.append(((12,), "syntax"))
    for i, message in enumerate(file.message_type):
        add_message(message, (4, i), message.name)
    for i, enum in enumerate(file.enum_type):
        add_enum(enum, (5, i), enum.name)
    for i, service in enumerate(file.service):
        found.append(((6, i), service.name))
        found.extend(
            ((6, i, 2, j), f"{service.name}.{method.name}") for j, method in enumerate(service.method)
        )
    return found
