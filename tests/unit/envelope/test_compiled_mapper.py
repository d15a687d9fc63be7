"""The compiled mapper makes the same events of JSON as the Python code, and hands back what is not usual."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import market
import pytest
import yaml
from bronze_sidecar.envelope import native
from bronze_sidecar.mapping.mapper import FrameCache, Mapper, StreamContext
from fuzz_native import Comparison
from odd_messages import odd_message

BATCHES = int(os.environ.get("BATCHES", "3000"))
FIXTURES = Path(__file__).parents[2] / "fixtures" / "normalized"
TRADE = b'{"type":"trade","exchange":"x","symbol":"A"}'
BOOK = b'{"type":"book_change","exchange":"x","bids":[{},{},{}],"asks":[null,{}]}'
pytestmark = pytest.mark.skipif(not native.IS_INSTALLED, reason="there was no Rust compiler to build it")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Comparison()


def mapper(**bounds: Any) -> Mapper:
    return Mapper(StreamContext(stream_id="s"), is_native=True, **bounds)


def map_usual(lines: Sequence[bytes], own: Mapper | None = None) -> tuple[int, list[list[Any]]]:
    """Return how many lines compiled code maps before it hands one back, and their events."""
    groups: list[list[Any]] = []
    index, events, size, is_full = (own or mapper()).map_usual(list(lines), 0, 7, b"", groups, 0, 0)
    assert events == sum(map(len, groups))
    assert size == sum(map(len, lines[:index]))
    assert not is_full
    return index, groups


def test_both_make_the_same_of_odd_messages(comparison: Comparison) -> None:
    rnd = random.Random(0)  # noqa: S311 - not a secret
    events = 0
    for _ in range(BATCHES):
        line = odd_message(rnd).replace(b"\n", b" ")
        found, count = comparison.differs(json=[line])
        assert not found, f"{line!r}: {found}"
        events += count
    # Enough of them can be mapped, and enough cannot.
    assert 0.5 < events / BATCHES < 4


def test_both_make_the_same_of_the_sample_messages(comparison: Comparison) -> None:
    messages = list(market.replay(4_000))
    for start in range(0, len(messages), 1000):
        found, count = comparison.differs(json=messages[start : start + 1000])
        assert not found
        assert count > 1000


@pytest.mark.parametrize(
    "message",
    [
        '\t{"type":"trade","exchange":"x"}',
        '\n{"type":"trade","exchange":"x"}',
        ' {"type":"trade","exchange":"x"}',
        '{"type":"trade","exchange":"x"}\r\n',
        '{"type":"trade","exchange":"x"} {}',
        '{"type":"trade","exchange":"x","price":1,"price":"1"}',
        '{"type":"trade","exchange":"x","price":"1","price":1}',
        '{"type":"trade","type":"quote","exchange":"x"}',
        '{"type":"disconnect","exchange":"x","symbol":1,"symbols":["A"]}',
        '{"type":"disconnect","exchange":"x","symbol":"B","symbols":[null]}',
        '{"type":"trade_bar","exchange":"x","timestamp":1,"closeTimestamp":"2024-05-31T00:00:00Z"}',
        '{"type":"trade_bar","exchange":"x","timestamp":"no time","closeTimestamp":"2024-05-31T00:00:00Z"}',
        '{"type":"error","exchange":"x","details":"d","subSequentErrorsCount":1,"subsequentErrors":"2"}',
        '{"type":"trade","exchange":"x","bids":5}',
        '{"type":"trade","exchange":"' + "é" * 129 + '"}',
    ],
)
def test_both_make_the_same_of_a_message(comparison: Comparison, message: str) -> None:
    encoded = message.encode()
    assert comparison.differs(mixed=[TRADE, encoded, TRADE])[0] == ""
    if "\n" not in message:
        assert comparison.differs(json=[TRADE, encoded, TRADE])[0] == ""


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.yaml")), ids=lambda path: path.stem)
def test_compiled_code_maps_every_type(path: Path) -> None:
    usual = yaml.safe_load(path.read_text(encoding="utf-8"))[0]["message"].encode()
    assert map_usual([usual])[0] == 1


def test_compiled_code_maps_nearly_all_sample_messages() -> None:
    messages = list(market.replay(4_000))
    assert sum(map_usual([message])[0] for message in messages) > 0.99 * len(messages)


def test_a_message_that_is_not_usual_is_handed_back() -> None:
    assert map_usual([TRADE, b"no JSON", TRADE]) == (1, [[*map_usual([TRADE])[1][0]]])


def test_messages_alike_share_what_surrounds_their_payload() -> None:
    _, groups = map_usual([TRADE, TRADE, TRADE.replace(b"A", b"B")])
    first, second, other = (group[0] for group in groups)
    assert first.meta is second.meta
    assert first.meta is not other.meta


def test_a_slice_takes_no_more_than_it_may() -> None:
    groups: list[list[Any]] = []
    own = mapper(most_events=6, most_bytes=10_000)
    assert own.map_usual([TRADE, BOOK, TRADE], 0, 0, b"", groups, 0, 0)[0::3] == (2, True)
    assert [len(group) for group in groups] == [1, 5]
    groups.clear()
    own = mapper(most_bytes=len(TRADE) * 2)
    assert own.map_usual([TRADE] * 3, 0, 0, b"", groups, 0, 0) == (2, 2, 2 * len(TRADE), True)


def test_a_message_of_many_levels_is_handed_back() -> None:
    assert map_usual([BOOK], mapper(most_events=5))[0] == 1
    assert map_usual([BOOK], mapper(most_events=4))[0] == 0
    assert map_usual([BOOK], mapper(most_bytes=600))[0] == 0


def test_a_line_that_is_too_large_is_handed_back() -> None:
    assert map_usual([TRADE], mapper(largest=len(TRADE)))[0] == 1
    assert map_usual([TRADE], mapper(largest=len(TRADE) - 1))[0] == 0


def test_what_is_remembered_is_given_back() -> None:
    cache = FrameCache()
    own = Mapper(StreamContext(stream_id="s"), cache, is_native=True)
    before = map_usual([TRADE], own)[1][0][0]
    assert cache.bytes > 0
    own.close()
    assert cache.bytes == 0
    after = map_usual([TRADE], own)[1][0][0]
    assert after == before
    assert after.meta is not before.meta
    assert cache.bytes == 0
    assert map_usual([TRADE], own)[1][0][0].meta is not after.meta


def test_batches_of_both_sorts_are_alike(comparison: Comparison) -> None:
    assert comparison.differs(mixed=[TRADE, BOOK, b"\x12\x01x", b"{", TRADE])[0] == ""
