"""What holds of the mapping for any message."""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from bronze_client.schema import NormalizedEvent
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from hypothesis import example, given
from hypothesis import strategies as st

TYPES = (
    *("trade", "book_change", "book_snapshot", "grouped_book_snapshot", "quote", "book_ticker"),
    *("derivative_ticker", "liquidation", "option_summary", "trade_bar", "error", "disconnect"),
)
FIELDS = (
    *("exchange", "symbol", "name", "isSnapshot", "symbols", "timestamp", "localTimestamp", "id", "price"),
    *("amount", "side", "bids", "asks", "depth", "interval", "grouping", "removeCrossedLevels", "sequence"),
    *("bidPrice", "bidAmount", "askPrice", "askAmount", "markPrice", "indexPrice", "fundingRate", "markIV"),
    *("bestBidIV", "bestAskIV", "delta", "gamma", "theta", "vega", "openInterest", "kind", "open", "high"),
    *("low", "close", "volume", "trades", "openTimestamp", "closeTimestamp", "details", "code"),
    *("subSequentErrorsCount", "subsequentErrors", "other"),
)

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
doubles = st.floats(allow_nan=False, allow_infinity=False).map(repr)
levels = st.lists(st.tuples(doubles, doubles), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["buy", "time", "2020-01-01T00:00:00.123Z", "ws_send"]),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from(["price", "amount", "a"]), children, max_size=3)
    ),
    max_leaves=12,
)


def map_text(message, position=0):
    return Mapper(StreamContext("s")).events(message.encode(), position, b"")


def decode(event):
    return NormalizedEvent.FromString(event.envelope)


@given(numbers, numbers)
def test_decimals_survive_exactly(price, amount):
    (event,) = map_text(f'{{"type":"trade","exchange":"x","price":{price},"amount":{amount}}}')
    assert (decode(event).trade.price_str, decode(event).trade.qty_str) == (price, amount)


@given(numbers)
def test_only_a_zero_amount_deletes(amount):
    (event,) = map_text(f'{{"type":"book_change","exchange":"x","asks":[{{"price":1,"amount":{amount}}}]}}')
    assert decode(event).book_change.action == (2 if Decimal(amount).is_zero() else 1)


@given(numbers)
def test_an_integer_is_the_floor_within_its_limits(text):
    (event,) = map_text(f'{{"type":"book_snapshot","exchange":"x","sequence":{text}}}')
    low, high = -(2**63), 2**63 - 1
    number = Decimal(text)
    # Decimal compares numbers of any size exactly, and only small ones are turned into integers.
    inside = low <= number <= high
    floor = number.__floor__() if inside else (low if number < 0 else high)
    assert decode(event).book_snapshot.sequence == floor
    assert decode(event).meta.get("sequence") == (None if inside and number == floor else text)


@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime.min.replace(tzinfo=UTC))
@example(datetime.max.replace(tzinfo=UTC))
def test_times_survive_to_the_microsecond(time):
    text = time.strftime("%m-%dT%H:%M:%S.%f")
    (event,) = map_text(f'{{"type":"trade","exchange":"x","localTimestamp":"{time.year:04}-{text}Z"}}')
    stored = decode(event).local_ts
    assert 0 <= stored.nanos < 1_000_000_000
    assert stored.nanos % 1000 == 0
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert epoch + timedelta(seconds=stored.seconds, microseconds=stored.nanos // 1000) == time


@given(st.binary(max_size=200))
def test_any_bytes_are_mapped_or_rejected(message):
    with contextlib.suppress(Rejected):
        Mapper(StreamContext("s")).events(message, 0, b"")


@given(
    st.sampled_from(TYPES),
    st.integers(0, 400),
    st.integers(0, 10),
    st.binary(max_size=10),
)
def test_damaged_messages_are_mapped_or_rejected(kind, start, length, damage):
    message = (
        f'{{"type":"{kind}","exchange":"x","symbol":"A","details":"d","price":1.5,"amount":-2e-7,"side":"buy",'
        '"bids":[{"price":1,"amount":0},{}],"asks":[{"price":5e-8,"amount":1}],"interval":1000,"kind":"time",'
        '"timestamp":"2020-01-01T00:00:00.123456Z","localTimestamp":"2020-01-01T00:00:00.123Z"}'
    ).encode()
    damaged = message[:start] + damage + message[start + length :]
    with contextlib.suppress(Rejected):
        for event in Mapper(StreamContext("s")).events(damaged, 0, b""):
            assert decode(event).meta["event_id"] == event.id


@given(
    st.sampled_from(TYPES) | st.text(max_size=12),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=8),
)
def test_any_values_in_any_fields_are_mapped_or_rejected(kind, fields):
    message = json.dumps({"type": kind, "exchange": "x", "details": "d"} | fields)
    with contextlib.suppress(Rejected):
        for event in map_text(message):
            decoded = decode(event)
            assert decoded.meta["event_id"] == event.id
            assert NormalizedEvent.FromString(decoded.SerializeToString(deterministic=True)) == decoded


@given(levels, levels, st.integers(0, 2**64 - 1))
def test_levels_keep_their_order_and_number(bids, asks, position):
    bid_texts, ask_texts = (
        ",".join(f'{{"price":{price},"amount":{amount}}}' for price, amount in side) for side in (bids, asks)
    )
    events = map_text(
        f'{{"type":"book_change","exchange":"x","bids":[{bid_texts}],"asks":[{ask_texts}]}}', position
    )
    changes = [decode(event).book_change for event in events]
    expected = [(1, *level) for level in bids] + [(2, *level) for level in asks]
    assert [(change.side, change.price_str, change.qty_str) for change in changes] == (
        expected or [(0, "0", "0")]
    )
    ids = [f"s:{position}.{level}" for level in range(len(expected))]
    assert [event.id for event in events] == (ids or [f"s:{position}"])


@given(levels, levels)
def test_snapshots_keep_their_levels(bids, asks):
    bid_texts, ask_texts = (
        ",".join(f'{{"price":{price},"amount":{amount}}}' for price, amount in side) for side in (bids, asks)
    )
    (event,) = map_text(
        f'{{"type":"book_snapshot","exchange":"x","bids":[{bid_texts}],"asks":[{ask_texts}]}}'
    )
    snapshot = decode(event).book_snapshot
    assert [(level.price_str, level.qty_str) for level in snapshot.bids] == bids
    assert [(level.price_str, level.qty_str) for level in snapshot.asks] == asks


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_ids_are_unique_within_a_stream(sides):
    mapper = Mapper(StreamContext("s"))
    events = [
        event
        for position, (bids, asks) in enumerate(sides)
        for event in mapper.events(
            json.dumps(
                {"type": "book_change", "exchange": "x", "bids": [{}] * bids, "asks": [{}] * asks}
            ).encode(),
            position,
            b"",
        )
    ]
    assert len({event.id for event in events}) == len(events)
