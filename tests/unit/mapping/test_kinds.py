"""What a message will become is known without mapping it."""

from __future__ import annotations

import pytest
from bronze_sidecar.errors import Rejected
from bronze_sidecar.mapping.kinds import payload_case
from bronze_sidecar.mapping.mapper import Mapper, StreamContext
from unit.mapping.test_mapper import CASES, INGEST_FIELD

ODD = {
    '{"exchange":"x","bids":[{"price":1,"amount":1}],"type":"book_change"}': "bookChange",
    '{"type":"tr\\u0061de","exchange":"x"}': "trade",
    ' { "type" : "trade" , "exchange":"x"}': "trade",
    '{"type":"trade","exchange":"x","type":"quote"}': None,
    '{"type":"quote","exchange":"x","nested":{"type":"trade"}}': "quote",
    '{"type":"book_snapshot","exchange":"x","grouping":null}': "bookSnapshot",
    '{"type":"book_snapshot","exchange":"x","grouping":10}': "groupedBookSnapshot",
    '{"type":"book_snapshot","exchange":"x","grouping":null,"grouping":0}': "groupedBookSnapshot",
    '{"type":"book_snapshot","exchange":"x","grouping":10,"grouping":null}': "bookSnapshot",
    '{"type":"grouped_book_snapshot","exchange":"x"}': "groupedBookSnapshot",
    '{"type":"stream_end","exchange":"x"}': None,
    '{"type":1,"exchange":"x"}': None,
    '{"exchange":"x"}': None,
    '["trade"]': None,
    '{"type":"trade","exchange":"x"': None,
    "": None,
}


def mapped(message: str) -> set[str]:
    try:
        events = Mapper(StreamContext("s")).events(message.encode(), 0, INGEST_FIELD)
    except Rejected:
        return set()
    return {event.payload_case for event in events}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_what_the_mapping_makes_of_it(case: dict[str, str]) -> None:
    cases = mapped(case["message"])
    assert cases <= {payload_case(case["message"].encode())}


@pytest.mark.parametrize("message", ODD)
def test_of_odd_messages_too(message: str) -> None:
    found = payload_case(message.encode())
    assert mapped(message) == ({found} if found else set())
    assert found == ODD[message]
