"""Rows that wait for their files: divided as Python divides them, and no larger than what they have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bronze_pipeline.decoding.schema import EVENTS, PAYLOADS
from bronze_pipeline.tables import waiting
from bronze_pipeline.tables.waiting import WaitingRows
from hypothesis import given
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("list", pa.list_(pa.int32())),
        ("one", pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))])),
        ("other", pa.struct([("a", pa.int64())])),
    ]
)
TEXT = st.none() | st.text(max_size=3)
LIST = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)
ROW = st.fixed_dictionaries(
    {
        "text": TEXT,
        "list": LIST,
        "one": st.none() | st.fixed_dictionaries({"a": TEXT, "b": LIST}),
        "other": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9)}),
    }
)
ROWS = 1_000


@given(st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=4), st.data())
def test_groups_have_the_rows_that_they_ask_for(batches: list[list[dict[str, Any]]], data: Any) -> None:
    rows = WaitingRows(SCHEMA)
    for batch in batches:
        rows.add(pa.RecordBatch.from_pylist(batch, SCHEMA))
    everything = [row for batch in batches for row in batch]
    assert len(rows) == len(everything)
    assert rows.column("text").to_pylist() == [row["text"] for row in everything]
    places = st.lists(st.integers(0, len(everything) - 1), min_size=1, max_size=5)
    groups = data.draw(st.lists(places, max_size=3)) if everything else []
    found = rows.divided(["one", "text", "list", "other"], [np.array(each) for each in groups])
    assert [each.select(SCHEMA.names).to_pylist() for each in found] == [
        [everything[place] for place in each] for each in groups
    ]


def test_a_column_without_values_is_made_of_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ROWS_OF_NULLS", 4)
    rows = WaitingRows(SCHEMA)
    rows.add(pa.RecordBatch.from_pylist([{"text": str(number)} for number in range(10)], SCHEMA))
    (found,) = rows.divided(SCHEMA.names, [np.arange(10)])
    assert found.to_pylist() == [
        {"text": str(number), "list": None, "one": None, "other": None} for number in range(10)
    ]
    buffers = {chunk.field(0).buffers()[-1].address for chunk in found["other"].chunks}
    assert len(buffers) == 1


def test_what_waits_holds_nothing_but_what_rows_have() -> None:
    """A row has one of many payloads, and what it was made of is free at once."""
    trade = {"price_str": "1.5", "qty_str": "2", "trade_id": "x", "side": "SIDE_BUY"}
    row = {"payload_case": PAYLOADS["trade"], "exchange": "bitmex", "symbol": "XBTUSD", "trade": trade}
    before = pa.total_allocated_bytes()
    batch = pa.RecordBatch.from_pylist([row] * ROWS, EVENTS)
    made = pa.total_allocated_bytes() - before
    rows = WaitingRows(EVENTS)
    rows.add(batch)
    del batch
    held = pa.total_allocated_bytes() - before
    assert held < made / 2
    assert rows.nbytes <= held < 2 * rows.nbytes
