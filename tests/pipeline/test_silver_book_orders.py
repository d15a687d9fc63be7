"""Books whose changes arrive in any order, in any micro-batches, through kills: always the same rows.

No Spark. The expected rows are of a replay in the order of the positions that shares nothing with the code.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from bronze_pipeline.silver.book import OrderBook
from bronze_pipeline.silver.book_rows import AGAIN, BookState, LevelChange, Shape, rows_after
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "300"))
pytestmark = pytest.mark.timeout(120 + EXAMPLES)

KEY = ("r", "x", "A")
DEPTH = 2
SECOND = 1_000_000


@st.composite
def messages(draw: st.DrawFn) -> list[LevelChange]:
    """Make a stream: a few messages, some of them snapshots, in which a price may come twice."""
    found = []
    for place in range(draw(st.integers(1, 12))):
        position = 3 * place + draw(st.integers(0, 2))
        is_snapshot = draw(st.integers(0, 4)) == 0
        # Times go back now and then.
        event_us = max(0, position + draw(st.integers(-4, 4))) * SECOND
        for level in range(draw(st.integers(1, 3))):
            side = draw(st.sampled_from(["buy", "sell", None]))
            price = draw(st.sampled_from([Decimal(1), Decimal("1.5"), Decimal(2), Decimal(3), None]))
            quantity = Decimal(draw(st.integers(0, 2)))
            found.append(LevelChange(position, level, is_snapshot, side, price, quantity, event_us, None))
    return found


def replay(changes: Sequence[LevelChange], interval_us: int | None) -> dict[int, tuple[Any, ...]]:
    """Return the rows by position, or by interval, as they should be."""
    rows: dict[int, tuple[Any, ...]] = {}
    levels: dict[tuple[str, Decimal], Decimal] = {}
    has_snapshot, unusable = False, 0
    for position in sorted({each.position for each in changes}):
        message = sorted(each for each in changes if each.position == position)
        if message[0].is_snapshot:
            levels, has_snapshot, unusable = {}, True, 0
        for _, _, _, side, price, quantity, *_ in message:
            if side is None or price is None or quantity is None:
                unusable += 1
            elif quantity:
                levels[side, price] = quantity
            else:
                levels.pop((side, price), None)
        bids = sorted(((price, qty) for (side, price), qty in levels.items() if side == "buy"), reverse=True)
        asks = sorted((price, qty) for (side, price), qty in levels.items() if side == "sell")
        time = message[0].event_us or 0
        name = position if interval_us is None else time // interval_us * interval_us
        rows[name] = (position, time, has_snapshot, unusable, bids[:DEPTH], asks[:DEPTH])
    return rows


class Table:
    """What is committed: the changes, and the rows made of them, each micro-batch once."""

    def __init__(self, interval_us: int | None) -> None:
        self.shape = Shape(DEPTH, interval_us)
        self.changes: list[LevelChange] = []
        self.rows: dict[int, tuple[Any, ...]] = {}

    def history(self, key: Sequence[str | None], first: int, last: int) -> list[LevelChange]:
        assert key == KEY
        known = [each for each in self.changes if each.position <= last]
        snapshot = max(
            (each.position for each in known if each.is_snapshot and each.position <= first), default=-1
        )
        return [each for each in known if each.position >= snapshot]

    def store(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            name = row["position"] if row["interval_us"] is None else row["interval_us"]
            # A row that is new must not be there: it is appended without a look.
            assert row[AGAIN] or name not in self.rows
            sides = ([(each["price"], each["qty"]) for each in row[side]] for side in ("bids", "asks"))
            self.rows[name] = (
                *(row[each] for each in ("position", "event_us", "has_snapshot", "unusable")),
                *sides,
            )


def stored_and_read(state: BookState, far: list[bytes], near: int) -> BookState:
    """Store a book and its log of far levels as a micro-batch does, and read it as the next one."""
    packed = state.book.pack(near)
    if packed.replaces:
        far.clear()
    if packed.far:
        far.append(packed.far)
    return BookState(OrderBook.unpack(packed.near, lambda: far), state.emitted)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    stream=messages(),
    interval_us=st.sampled_from([None, 5 * SECOND]),
    draw=st.data(),
)
def test_rows_do_not_depend_on_arrival_or_kills(
    stream: list[LevelChange], interval_us: int | None, draw: st.DataObject
) -> None:
    table, state = Table(interval_us), BookState()
    far: list[bytes] = []
    near = draw.draw(st.integers(1, 3))
    arriving = draw.draw(st.permutations(stream)) if draw.draw(st.booleans()) else list(stream)
    while arriving:
        size = draw.draw(st.integers(1, len(arriving)))
        batch, arriving = arriving[:size], arriving[size:]
        # The table of changes may be ahead of what the books have followed.
        ahead = draw.draw(st.integers(0, len(arriving)))
        table.changes = [each for each in stream if each not in arriving[ahead:]]
        if draw.draw(st.booleans()):
            killed = copy.deepcopy(state)
            made = rows_after(killed, KEY, batch, table.shape, table.history)
            if draw.draw(st.booleans()):
                # Killed between the commits: rows again are stored, new ones are not.
                table.store([row for row in made if row[AGAIN]])
        table.store(rows_after(state, KEY, batch, table.shape, table.history))
        state = stored_and_read(state, far, near)
    assert table.rows == replay(stream, interval_us)
