"""A minute of messages as exchanges write them, and the envelopes that they become: both written by hand."""

from __future__ import annotations

from tardis_data import Message

# When the server got it, the meta that is its own, and the payload.
Envelope = tuple[str, dict[str, str], dict[str, object]]


def seconds(text: str) -> str:
    return f"2020-03-01T00:00:{text}Z"


def level(number: int, side: str, size: int, price: float | None = None) -> dict[str, object]:
    entry: dict[str, object] = {"symbol": "XBTUSD", "id": number, "side": side, "size": size}
    return entry if price is None else entry | {"price": price}


def bitmex(table: str, action: str, *data: dict[str, object]) -> dict[str, object]:
    return {"table": table, "action": action, "data": list(data)}


MESSAGES: dict[str, list[Message]] = {
    "bitmex": [
        (
            1_500,
            "orderBookL2",
            bitmex(
                *("orderBookL2", "partial"),
                *(level(1, "Buy", 100, 9351.5), level(2, "Buy", 200, 9351), level(3, "Buy", 50, 9340)),
                *(level(4, "Sell", 300, 9352), level(5, "Sell", 400, 9352.5), level(6, "Sell", 60, 9370)),
            ),
        ),
        (
            162_521,
            "trade",
            bitmex(
                *("trade", "insert"),
                {
                    "timestamp": seconds("00.148"),
                    "symbol": "XBTUSD",
                    "side": "Sell",
                    "size": 25,
                    "price": 9351.5,
                    "trdMatchID": "e84a82ea",
                },
            ),
        ),
        (
            202_250,
            "orderBookL2",
            bitmex("orderBookL2", "update", level(2, "Buy", 1_183_637), level(5, "Sell", 147_272)),
        ),
        (
            203_000,
            "orderBookL2",
            bitmex("orderBookL2", "delete", {"symbol": "XBTUSD", "id": 4, "side": "Sell"}),
        ),
        (
            1_249_724,
            "quote",
            bitmex(
                *("quote", "insert"),
                {
                    "timestamp": seconds("01.244"),
                    "symbol": "XBTUSD",
                    "bidPrice": 9351.5,
                    "bidSize": 100,
                    "askPrice": 9352.5,
                    "askSize": 147_272,
                },
            ),
        ),
        (
            37_178_970,
            "liquidation",
            bitmex(
                *("liquidation", "insert"),
                {
                    "orderID": "5c41a3c2",
                    "symbol": "XBTUSD",
                    "side": "Sell",
                    "price": 9352,
                    "leavesQty": 28_498,
                },
            ),
        ),
    ],
    "binance-futures": [
        (
            3_000,
            "markPrice",
            {
                "stream": "btcusdt@markPrice@1s",
                "data": {
                    "e": "markPriceUpdate",
                    "E": 1_583_020_800_000,
                    "s": "BTCUSDT",
                    "p": "9352.60302708",
                    "i": "9352.49469997",
                    "r": "0.00009537",
                    "T": 1_583_049_600_000,
                },
            },
        ),
        (
            8_737_029,
            "forceOrder",
            {
                "stream": "btcusdt@forceOrder",
                "data": {
                    "e": "forceOrder",
                    "E": 1_583_020_808_735,
                    "o": {
                        "s": "BTCUSDT",
                        "S": "SELL",
                        "q": "0.014",
                        "p": "9352.20",
                        "ap": "9352.20",
                        "X": "FILLED",
                        "l": "0.014",
                        "z": "0.014",
                        "T": 1_583_020_808_732,
                    },
                },
            },
        ),
    ],
}


def levels(*given: tuple[str, str]) -> list[dict[str, str]]:
    return [{"priceStr": price, "qtyStr": quantity} for price, quantity in given]


def book_change(action: str, side: str, price: str, quantity: str, time: str) -> Envelope:
    change = {"side": side, "action": action, "priceStr": price, "qtyStr": quantity, "eventTs": time}
    return time, {"data_type": "book_change", "is_snapshot": "false"}, {"bookChange": change}


TYPES = {
    "bitmex": [
        *("trade", "book_change", "book_ticker", "liquidation", "quote", "book_snapshot_3_0ms"),
        *("book_snapshot_2_grouped10_0ms", "trade_bar_1ticks"),
    ],
    "binance-futures": ["derivative_ticker", "liquidation"],
}

# What becomes of the message at a position of the answer.
ENVELOPES: dict[str, dict[int, list[Envelope]]] = {
    "bitmex": {
        1: [
            (
                seconds("00.001500"),
                {"data_type": "book_snapshot", "data_name": "quote"},
                {
                    "bookSnapshot": {
                        "depth": 1,
                        "bids": levels(("9351.5", "100")),
                        "asks": levels(("9352", "300")),
                        "eventTs": seconds("00.001500"),
                        "removeCrossedLevels": True,
                    }
                },
            )
        ],
        3: [
            (
                seconds("00.001500"),
                {"data_type": "book_snapshot", "data_name": "book_snapshot_2_grouped10_0ms"},
                {
                    "groupedBookSnapshot": {
                        "depth": 2,
                        "bids": levels(("9350", "300"), ("9340", "50")),
                        "asks": levels(("9360", "700"), ("9370", "60")),
                        "eventTs": seconds("00.001500"),
                        "grouping": 10,
                        "removeCrossedLevels": True,
                    }
                },
            )
        ],
        4: [
            (
                seconds("00.162521"),
                {"data_type": "trade"},
                {
                    "trade": {
                        "tradeId": "e84a82ea",
                        "priceStr": "9351.5",
                        "qtyStr": "25",
                        "side": "SIDE_SELL",
                        "eventTs": seconds("00.148"),
                    }
                },
            )
        ],
        5: [
            (
                seconds("00.162521"),
                {"data_type": "trade_bar", "data_name": "trade_bar_1ticks"},
                {
                    "tradeBar": {
                        "kind": "BAR_KIND_TICK",
                        "interval": "1",
                        "openStr": "9351.5",
                        "highStr": "9351.5",
                        "lowStr": "9351.5",
                        "closeStr": "9351.5",
                        "volumeStr": "25",
                        "tradeCount": "1",
                        "eventTs": seconds("00.148"),
                        "endTs": seconds("00.148"),
                    }
                },
            )
        ],
        6: [
            book_change("ACTION_UPSERT", "SIDE_BUY", "9351", "1183637", seconds("00.202250")),
            book_change("ACTION_UPSERT", "SIDE_SELL", "9352.5", "147272", seconds("00.202250")),
        ],
        9: [book_change("ACTION_DELETE", "SIDE_SELL", "9352", "0", seconds("00.203"))],
        11: [
            (
                seconds("00.203"),
                {"data_type": "book_snapshot", "data_name": "book_snapshot_3_0ms"},
                {
                    "bookSnapshot": {
                        "depth": 3,
                        "bids": levels(("9351.5", "100"), ("9351", "1183637"), ("9340", "50")),
                        "asks": [*levels(("9352.5", "147272"), ("9370", "60")), {}],
                        "eventTs": seconds("00.203"),
                        "removeCrossedLevels": True,
                    }
                },
            )
        ],
        13: [
            (
                seconds("01.249724"),
                {"data_type": "book_ticker"},
                {
                    "bookTicker": {
                        "bestBidPriceStr": "9351.5",
                        "bestBidQtyStr": "100",
                        "bestAskPriceStr": "9352.5",
                        "bestAskQtyStr": "147272",
                        "eventTs": seconds("01.244"),
                    }
                },
            )
        ],
        14: [
            (
                seconds("37.178970"),
                {"data_type": "liquidation"},
                {
                    "liquidation": {
                        "side": "SIDE_SELL",
                        "priceStr": "9352",
                        "qtyStr": "28498",
                        "orderId": "5c41a3c2",
                        "eventTs": seconds("37.178970"),
                    }
                },
            )
        ],
    },
    "binance-futures": {
        0: [
            (
                seconds("00.003"),
                {"data_type": "derivative_ticker"},
                {
                    "derivativeTicker": {
                        "markPriceStr": "9352.60302708",
                        "indexPriceStr": "9352.49469997",
                        "fundingRateStr": "0.00009537",
                        "eventTs": seconds("00"),
                    }
                },
            )
        ],
        1: [
            (
                seconds("08.737029"),
                {"data_type": "liquidation"},
                {
                    "liquidation": {
                        "side": "SIDE_SELL",
                        "priceStr": "9352.2",
                        "qtyStr": "0.014",
                        "eventTs": seconds("08.732"),
                    }
                },
            )
        ],
    },
}
