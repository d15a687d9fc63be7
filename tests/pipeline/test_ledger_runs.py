"""Runs of ids against sets of ids: random histories, compared with Python's own sets."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from bronze_pipeline.ledger.entries import IDS as ID_SCHEMA
from bronze_pipeline.ledger.entries import first_of_each_event
from bronze_pipeline.ledger.runs import SCHEMA, Runs, contains, normal, of_ids, of_tables
from hypothesis import given
from hypothesis import strategies as st

IDS = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 12) | st.integers(10**17, 10**17 + 3),
    st.none() | st.integers(0, 4),
)
SETS = st.lists(st.sets(IDS, max_size=25), min_size=1, max_size=4)


def runs_of(ids: Iterable[tuple[str, int, int | None]]) -> Runs:
    columns = list(zip(*ids, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.int32())
    return of_ids(
        *(pa.chunked_array([pa.array(each, kind)]) for each, kind in zip(columns, types, strict=True))
    )


def ids_of(runs: Runs) -> list[tuple[str, int, int | None]]:
    return [
        (row["stream"], position, None if level < 0 else level)
        for row in runs.to_table().to_pylist()
        for position in range(row["first"], row["last"] + 1)
        for level in range(row["low"], row["high"] + 1)
    ]


@given(SETS)
def test_merged_runs_have_each_id_once(sets: list[set[tuple[str, int, int | None]]]) -> None:
    tables = [normal(runs_of(each)).to_table() for each in sets]
    found = ids_of(normal(of_tables(tables)))
    assert len(found) == len(set(found))
    assert set(found) == set[tuple[str, int, int | None]]().union(*sets)


@given(SETS, st.sets(IDS, min_size=1, max_size=30))
def test_runs_contain_what_was_put_into_them(
    sets: list[set[tuple[str, int, int | None]]], asked: set[tuple[str, int, int | None]]
) -> None:
    known = normal(of_tables([normal(runs_of(each)).to_table() for each in sets]))
    everything = set[tuple[str, int, int | None]]().union(*sets)
    rows = sorted(asked, key=str)
    assert contains(known, runs_of(rows)).tolist() == [each in everything for each in rows]


ROWS = st.lists(IDS | st.none() | st.just("odd"), max_size=30)


@given(ROWS)
def test_of_rows_with_one_id_the_first_is_kept(rows: list[tuple[str, int, int | None] | str | None]) -> None:
    """Rows without an id are all kept; ids of another form are compared as texts."""
    table = pa.Table.from_pylist([id_columns(row) for row in rows], ID_SCHEMA)
    first = [row is None or row not in rows[:place] for place, row in enumerate(rows)]
    found = first_of_each_event(table)
    assert (found is None) == all(first)
    assert found is None or found.to_pylist() == first


def id_columns(row: tuple[str, int, int | None] | str | None) -> dict[str, object]:
    if row is None or isinstance(row, str):
        return {"event_id": row}
    stream, position, level = row
    written = f"{stream}:{position}" + ("" if level is None else f".{level}")
    return {"event_id": written, "stream_id": stream, "position": position, "level": level}


def test_messages_alike_are_one_run() -> None:
    ids: list[tuple[str, int, int | None]] = [("a", position, None) for position in (3, 1, 2, 2)]
    ids += [("a", position, level) for position in (4, 5) for level in (1, 0)]
    ids += [("a", 6, 0), ("a", 6, 2), ("b", 7, None)]
    assert normal(runs_of(ids)).to_table() == pa.table(
        [
            ["a", "a", "a", "a", "b"],
            [1, 4, 6, 6, 7],
            [3, 5, 6, 6, 7],
            [-1, 0, 0, 2, -1],
            [-1, 1, 0, 2, -1],
        ],
        schema=SCHEMA,
    )


def test_a_level_that_comes_late_divides_a_run() -> None:
    before = normal(runs_of([("a", position, level) for position in range(5) for level in range(2)]))
    assert len(before) == 1
    after = normal(of_tables([before.to_table(), runs_of([("a", 2, 2)]).to_table()]))
    assert after.to_table().drop_columns("stream").to_pylist() == [
        {"first": 0, "last": 1, "low": 0, "high": 1},
        {"first": 2, "last": 2, "low": 0, "high": 2},
        {"first": 3, "last": 4, "low": 0, "high": 1},
    ]


def test_positions_that_need_all_bits() -> None:
    far = 999_999_999_999_999_999
    ids = [(f"s{number}", far - number % 3, 999_999_999) for number in range(40)]
    known = normal(runs_of(ids))
    assert contains(known, runs_of(ids)).all()
    assert not contains(known, runs_of([(stream, place, 999_999_998) for stream, place, _ in ids])).any()
    assert sorted(ids_of(normal(of_tables([known.to_table(), known.to_table()])))) == sorted(ids)
