"""Twelve envelopes, one for each payload case, encoded by hand into `<case>.binpb` beside this file.

Nothing here comes from the generated code or from a Protobuf library, so that a mistake in the schema
cannot hide in both. Every field is written as its number, its wire type and its value, in the order of
the numbers, and every field of the envelope and of the payload is set. Run as a script, it writes the files.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TypeAlias, Union

Field: TypeAlias = tuple[int, int, Union[int, str, "Fields"]]
Fields: TypeAlias = Sequence[Field]

VARINT = 0
LEN = 2

EVENTS: dict[str, Fields] = {
    "trade": [
        (1, LEN, "tardis-machine/17.0.1"),  # source
        (2, LEN, "binance"),  # exchange
        (3, LEN, "币安人生USDT"),  # symbol
        (4, LEN, [(1, VARINT, 1577836800), (2, VARINT, 123456000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1577836801), (2, VARINT, 1)]),  # ingest_ts
        (6, VARINT, 1),  # origin: ORIGIN_REALTIME
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "trade")]),  # meta
        (10, LEN, [(1, LEN, "event_id"), (2, LEN, "live-7f3a:0")]),  # meta
        (
            100,  # trade
            LEN,
            [
                (1, LEN, "T-4242"),  # trade_id
                (2, LEN, "5e-8"),  # price_str
                (3, LEN, "1000000.000000000000000001"),  # qty_str
                (4, VARINT, 2),  # side: SIDE_SELL
                (5, VARINT, -9223372036854775808),  # sequence
                (10, LEN, [(1, VARINT, -1), (2, VARINT, 999999000)]),  # event_ts
            ],
        ),
    ],
    "bookChange": [
        (1, LEN, "recorder/2.3"),  # source
        (2, LEN, "deribit"),  # exchange
        (3, LEN, "BTC-26NOV26-100000-C"),  # symbol
        (4, LEN, [(1, VARINT, 1600000000), (2, VARINT, 7000000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1600000001), (2, VARINT, 8000)]),  # ingest_ts
        (6, VARINT, 2),  # origin: ORIGIN_REPLAY
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "book_change")]),  # meta
        (10, LEN, [(1, LEN, "event_id"), (2, LEN, "c0ffee:12.3")]),  # meta
        (10, LEN, [(1, LEN, "is_snapshot"), (2, LEN, "false")]),  # meta
        (
            101,  # book_change
            LEN,
            [
                (1, VARINT, 1),  # side: SIDE_BUY
                (2, VARINT, 2),  # action: ACTION_DELETE
                (3, LEN, "7541.5"),  # price_str
                (4, LEN, "0"),  # qty_str
                (5, VARINT, -2147483648),  # level
                (6, VARINT, 9223372036854775807),  # sequence
                (10, LEN, [(1, VARINT, 1599999999), (2, VARINT, 6)]),  # event_ts
            ],
        ),
    ],
    "bookSnapshot": [
        (1, LEN, "tardis-machine/16.0.0"),  # source
        (2, LEN, "bitmex"),  # exchange
        (3, LEN, "XBTUSD"),  # symbol
        (4, LEN, [(1, VARINT, 1700000000), (2, VARINT, 250000000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1700000002), (2, VARINT, 500000000)]),  # ingest_ts
        (6, VARINT, 3),  # origin: ORIGIN_ARCHIVE
        (10, LEN, [(1, LEN, "data_name"), (2, LEN, "book_snapshot_3_100ms")]),  # meta
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "book_snapshot")]),  # meta
        (
            102,  # book_snapshot
            LEN,
            [
                (1, VARINT, 3),  # depth
                (2, LEN, [(1, LEN, "36000.5"), (2, LEN, "10")]),  # bids
                (2, LEN, [(1, LEN, "36000.0"), (2, LEN, "20.25")]),  # bids
                (2, LEN, [(1, LEN, "35999.5"), (2, LEN, "30")]),  # bids
                (3, LEN, [(1, LEN, "36001"), (2, LEN, "0.1")]),  # asks
                (3, LEN, [(1, LEN, "36001.5"), (2, LEN, "0.2")]),  # asks
                (10, LEN, [(1, VARINT, 1700000001), (2, VARINT, 125000000)]),  # event_ts
                (11, VARINT, 4294967295),  # grouping
                (12, VARINT, 100),  # interval_ms
                (13, VARINT, 1),  # remove_crossed_levels
                (14, VARINT, -42),  # sequence
            ],
        ),
    ],
    "groupedBookSnapshot": [
        (1, LEN, "tardis-machine/16.1.0"),  # source
        (2, LEN, "kraken"),  # exchange
        (3, LEN, "XBT/€"),  # symbol
        (4, LEN, [(1, VARINT, 1500000000), (2, VARINT, 11000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1500000003), (2, VARINT, 22000)]),  # ingest_ts
        (6, VARINT, 2),  # origin: ORIGIN_REPLAY
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "grouped_book_snapshot")]),  # meta
        (10, LEN, [(1, LEN, "grouping"), (2, LEN, "12.5")]),  # meta
        (
            108,  # grouped_book_snapshot
            LEN,
            [
                (1, VARINT, 4294967295),  # depth
                (2, LEN, [(1, LEN, "2300"), (2, LEN, "1.5")]),  # bids
                (2, LEN, [(1, LEN, "2288"), (2, LEN, "2.5")]),  # bids
                (3, LEN, [(1, LEN, "2312"), (2, LEN, "3.5")]),  # asks
                (3, LEN, [(1, LEN, "2324"), (2, LEN, "4.5")]),  # asks
                (3, LEN, [(1, LEN, "2336"), (2, LEN, "5.5")]),  # asks
                (10, LEN, [(1, VARINT, 1500000001), (2, VARINT, 33000)]),  # event_ts
                (11, VARINT, 12),  # grouping
                (12, VARINT, 60000),  # interval_ms
                (13, VARINT, 1),  # remove_crossed_levels
                (14, VARINT, 77),  # sequence
            ],
        ),
    ],
    "quote": [
        (1, LEN, "quoter/0.9"),  # source
        (2, LEN, "coinbase"),  # exchange
        (3, LEN, "BTC-USD"),  # symbol
        (4, LEN, [(1, VARINT, 1609459200), (2, VARINT, 1000000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1609459201), (2, VARINT, 2000000)]),  # ingest_ts
        (6, VARINT, 1),  # origin: ORIGIN_REALTIME
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "quote")]),  # meta
        (10, LEN, [(1, LEN, "route"), (2, LEN, "primary")]),  # meta
        (
            103,  # quote
            LEN,
            [
                (1, LEN, "28990.01"),  # bid_price_str
                (2, LEN, "0.75"),  # bid_qty_str
                (3, LEN, "28990.02"),  # ask_price_str
                (4, LEN, "1.25"),  # ask_qty_str
                (10, LEN, [(1, VARINT, 1609459199), (2, VARINT, 3000000)]),  # event_ts
            ],
        ),
    ],
    "derivativeTicker": [
        (1, LEN, "tardis-machine/15.2"),  # source
        (2, LEN, "bybit"),  # exchange
        (3, LEN, "ETHUSD"),  # symbol
        (4, LEN, [(1, VARINT, 1640995200), (2, VARINT, 10)]),  # local_ts
        (5, LEN, [(1, VARINT, 1640995201), (2, VARINT, 20)]),  # ingest_ts
        (6, VARINT, 2),  # origin: ORIGIN_REPLAY
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "derivative_ticker")]),  # meta
        (10, LEN, [(1, LEN, "request_id"), (2, LEN, "r-1")]),  # meta
        (10, LEN, [(1, LEN, "session_id"), (2, LEN, "s-2")]),  # meta
        (
            104,  # derivative_ticker
            LEN,
            [
                (1, LEN, "3676.23"),  # mark_price_str
                (2, LEN, "3676.99"),  # index_price_str
                (3, LEN, "-0.000125"),  # funding_rate_str
                (10, LEN, [(1, VARINT, 1640995199), (2, VARINT, 30)]),  # event_ts
            ],
        ),
    ],
    "liquidation": [
        (1, LEN, "tardis-machine/15.3"),  # source
        (2, LEN, "binance-futures"),  # exchange
        (3, LEN, "1000SHIB*"),  # symbol
        (4, LEN, [(1, VARINT, 1672531200), (2, VARINT, 100000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1672531201), (2, VARINT, 200000)]),  # ingest_ts
        (6, VARINT, 3),  # origin: ORIGIN_ARCHIVE
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "liquidation")]),  # meta
        (10, LEN, [(1, LEN, "transport"), (2, LEN, "http")]),  # meta
        (
            105,  # liquidation
            LEN,
            [
                (1, VARINT, 2),  # side: SIDE_SELL
                (2, LEN, "0.008071"),  # price_str
                (3, LEN, "123456"),  # qty_str
                (4, LEN, "order-99"),  # order_id
                (10, LEN, [(1, VARINT, 1672531199), (2, VARINT, 300000)]),  # event_ts
            ],
        ),
    ],
    "optionSummary": [
        (1, LEN, "tardis-machine/15.4"),  # source
        (2, LEN, "okex-options"),  # exchange
        (3, LEN, "BTC-USD-241227-100000-P"),  # symbol
        (4, LEN, [(1, VARINT, 1704067200), (2, VARINT, 4000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1704067201), (2, VARINT, 5000)]),  # ingest_ts
        (6, VARINT, 1),  # origin: ORIGIN_REALTIME
        (10, LEN, [(1, LEN, "app_version"), (2, LEN, "2024.1")]),  # meta
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "option_summary")]),  # meta
        (
            106,  # option_summary
            LEN,
            [
                (1, LEN, "0.6531"),  # iv_str
                (2, LEN, "-0.41"),  # delta_str
                (3, LEN, "1.5E-5"),  # gamma_str
                (4, LEN, "-12.75"),  # theta_str
                (5, LEN, "88.125"),  # vega_str
                (6, LEN, "310.5"),  # oi_str
                (10, LEN, [(1, VARINT, 1704067199), (2, VARINT, 6000)]),  # event_ts
            ],
        ),
    ],
    "bookTicker": [
        (1, LEN, "tardis-machine/15.5"),  # source
        (2, LEN, "gate-io"),  # exchange
        (3, LEN, "DOGE_USDT"),  # symbol
        (4, LEN, [(1, VARINT, 1735689600), (2, VARINT, 40000000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1735689601), (2, VARINT, 50000000)]),  # ingest_ts
        (6, VARINT, 2),  # origin: ORIGIN_REPLAY
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "book_ticker")]),  # meta
        (10, LEN, [(1, LEN, "note"), (2, LEN, "prix à vérifier")]),  # meta
        (
            107,  # book_ticker
            LEN,
            [
                (1, LEN, "0.31541"),  # best_bid_price_str
                (2, LEN, "5500"),  # best_bid_qty_str
                (3, LEN, "0.31542"),  # best_ask_price_str
                (4, LEN, "6600"),  # best_ask_qty_str
                (10, LEN, [(1, VARINT, 1735689599), (2, VARINT, 60000000)]),  # event_ts
            ],
        ),
    ],
    "tradeBar": [
        (1, LEN, "tardis-machine/15.6"),  # source
        (2, LEN, "ftx"),  # exchange
        (3, LEN, "SOL/USD"),  # symbol
        (4, LEN, [(1, VARINT, 2147483648), (2, VARINT, 70)]),  # local_ts
        (5, LEN, [(1, VARINT, 253402300799), (2, VARINT, 999999999)]),  # ingest_ts
        (6, VARINT, 3),  # origin: ORIGIN_ARCHIVE
        (10, LEN, [(1, LEN, "data_name"), (2, LEN, "trade_bar_4294967s")]),  # meta
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "trade_bar")]),  # meta
        (10, LEN, [(1, LEN, "symbols"), (2, LEN, "SOL/USD,BTC/USD")]),  # meta
        (
            109,  # trade_bar
            LEN,
            [
                (1, VARINT, 3),  # kind: BAR_KIND_VOLUME
                (2, VARINT, 18446744073709551615),  # interval
                (3, VARINT, 4294967295),  # interval_ms
                (4, LEN, "101.5"),  # open_str
                (5, LEN, "109.25"),  # high_str
                (6, LEN, "99.125"),  # low_str
                (7, LEN, "104"),  # close_str
                (8, LEN, "98765.4321"),  # volume_str
                (9, VARINT, 9223372036854775808),  # trade_count
                (10, LEN, [(1, VARINT, -62135596800), (2, VARINT, 80)]),  # event_ts
                (11, LEN, [(1, VARINT, -86400), (2, VARINT, 90)]),  # end_ts
            ],
        ),
    ],
    "error": [
        (1, LEN, "tardis-machine/15.7"),  # source
        (2, LEN, "huobi"),  # exchange
        (3, LEN, "btcusdt"),  # symbol
        (4, LEN, [(1, VARINT, 1234567890), (2, VARINT, 12000)]),  # local_ts
        (5, LEN, [(1, VARINT, 1234567891), (2, VARINT, 13000)]),  # ingest_ts
        (6, VARINT, 1),  # origin: ORIGIN_REALTIME
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "error")]),  # meta
        (10, LEN, [(1, LEN, "event_id"), (2, LEN, "live-7f3a:18446744073709551615")]),  # meta
        (
            150,  # error
            LEN,
            [
                (1, LEN, "429 Too Many Requests\n“slow down”"),  # details
                (2, VARINT, 4294967295),  # subsequent_errors
                (3, VARINT, 4),  # code: ERROR_CODE_SOURCE_RATE_LIMIT
            ],
        ),
    ],
    "disconnect": [
        (1, LEN, "tardis-machine/15.8"),  # source
        (2, LEN, "upbit"),  # exchange
        (3, LEN, "KRW-BTC"),  # symbol
        (4, LEN, [(1, VARINT, 1000000000), (2, VARINT, 14)]),  # local_ts
        (5, LEN, [(1, VARINT, 1000000001), (2, VARINT, 15)]),  # ingest_ts
        (6, VARINT, 2),  # origin: ORIGIN_REPLAY
        (10, LEN, [(1, LEN, "data_type"), (2, LEN, "disconnect")]),  # meta
        (10, LEN, [(1, LEN, "symbols"), (2, LEN, "KRW-BTC,KRW-ETH")]),  # meta
        (
            151,  # disconnect
            LEN,
            [
                (1, LEN, "stream_disconnected"),  # reason
                (2, VARINT, 1006),  # close_code
            ],
        ),
    ],
}


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first; a negative number is its 64-bit two's complement."""
    rest = value & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode(fields: Fields) -> bytes:
    return b"".join(
        varint(number << 3 | wire_type) + encoded_value(wire_type, value)
        for number, wire_type, value in fields
    )


def encoded_value(wire_type: int, value: int | str | Fields) -> bytes:
    if isinstance(value, int):
        if wire_type != VARINT:
            raise ValueError(f"a number has wire type {VARINT}, not {wire_type}")
        return varint(value)
    if wire_type != LEN:
        raise ValueError(f"text and messages have wire type {LEN}, not {wire_type}")
    content = value.encode() if isinstance(value, str) else encode(value)
    return varint(len(content)) + content


if __name__ == "__main__":
    for case, event in EVENTS.items():
        pathlib.Path(__file__).with_name(f"{case}.binpb").write_bytes(encode(event))
