"""Jobs that write to one table, killed and compacted at any moment: every row once.

No Spark. What may come between a look and a commit is drawn for each commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
from bronze_pipeline.silver.storing import distinct
from bronze_pipeline.silver.upserts import UpsertTable
from bronze_pipeline.tables.files import FileWriter, Written
from bronze_pipeline.tables.lake import FORMATS, Lake
from bronze_pipeline.tables.tables import DeltaTable, ParquetTable, Table, commit_new
from hypothesis import given, settings
from hypothesis import strategies as st
from silver_frames import at

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "60"))
pytestmark = pytest.mark.timeout(120 + 10 * EXAMPLES)

ROWS = pa.schema(
    [("date", pa.date32()), ("event_ts", pa.timestamp("us", "UTC")), ("dedupe_key", pa.string())]
)
BARS = pa.schema([("date", pa.date32()), ("minute", pa.int64()), ("count", pa.int64())])


class Killed(Exception):  # noqa: N818 - what a process never sees of itself
    """Ends a job at once."""


def interrupted(
    commit: Callable[..., None], draw: st.DataObject, between: Callable[[], None]
) -> Callable[..., None]:
    """Return a commit before and behind which something may happen."""

    def commit_with(self: Table, *given: Any, **named: Any) -> None:
        for moment in ("before", "behind"):
            event = draw.draw(
                st.sampled_from(["nothing", "nothing", "other", "kill"]), label=f"{moment} a commit"
            )
            if moment == "before" and event == "other":
                between()
            if event == "kill":
                raise Killed
            if moment == "before":
                commit(self, *given, **named)

    return commit_with


def row(number: int) -> dict[str, Any]:
    """Make the row of a number; some of them on another day."""
    time = at(number * 20_000)
    return {"date": time.date(), "event_ts": time, "dedupe_key": str(number)}


def written(table: Table, numbers: Sequence[int]) -> list[Written]:
    writer = FileWriter(table.staging, ROWS, "part")
    writer.write(pa.RecordBatch.from_pylist([row(number) for number in numbers], ROWS))
    return writer.finish()


def stored(lake: Lake) -> list[int]:
    return sorted(int(key) for key in contents(lake)["dedupe_key"].to_pylist())


def contents(lake: Lake) -> pa.Table:
    if lake.format == "delta":
        return pa.table(deltalake.DeltaTable(lake.table_url("rows")).to_pyarrow_table())
    table = lake.open("rows", ROWS, ("date",))
    # What is in place and not noted is removed when its job comes again; readers of the notes do not see it.
    system, root = table.folder.open()
    paths = [f"{root}/{path}" for path in table.index()["path"].to_pylist()]
    parts = [pa.parquet.read_table(path, filesystem=system, columns=["dedupe_key"]) for path in paths]
    return pa.concat_tables([pa.table({"dedupe_key": pa.array([], pa.string())}), *parts])


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=5), min_size=1, max_size=5),
    draw=st.data(),
)
def test_each_row_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, format_: str, batches: list[list[int]], draw: st.DataObject
) -> None:
    lake = Lake(str(tmp_path_factory.mktemp("lake")), format_)
    others: list[int] = []

    def store(table: Table, numbers: Sequence[int], job: str, batch: int) -> None:
        if not table.has(job, batch):
            commit_new(table, written(table, numbers), job, batch, lambda files: distinct(table, files))

    def between() -> None:
        """Let another job store rows that this one may have, or a compaction come."""
        if format_ == "delta" and draw.draw(st.booleans()):
            deltalake.DeltaTable(lake.table_url("rows")).optimize.compact()
            return
        numbers = draw.draw(st.lists(st.integers(0, 11), min_size=1, max_size=3))
        others.append(len(others))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "commit", commit)
            store(lake.open("rows", ROWS, ("date",)), numbers, f"other{len(others)}", 0)
        given_.update(numbers)

    kind = DeltaTable if format_ == "delta" else ParquetTable
    commit = kind.commit
    given_: set[int] = set()
    for batch, numbers in enumerate(batches):
        given_.update(numbers)
        for _ in range(draw.draw(st.integers(0, 2))):
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                patch.setattr(kind, "commit", interrupted(commit, draw, between))
                store(lake.open("rows", ROWS, ("date",)), numbers, "job", batch)
        store(lake.open("rows", ROWS, ("date",)), numbers, "job", batch)
        assert stored(lake) == sorted(given_)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    batches=st.lists(st.dictionaries(st.integers(0, 5), st.integers(), min_size=1), min_size=1, max_size=5),
    draw=st.data(),
)
def test_each_key_has_its_last_row(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[int, int]], draw: st.DataObject
) -> None:
    place: Path = tmp_path_factory.mktemp("bars")
    url = str(place / "bars")

    def put(batch: int) -> None:
        rows = [
            {"date": date(2024, 1, 1 + minute % 2), "minute": minute, "count": count % 1000}
            for minute, count in batches[batch].items()
        ]
        table = UpsertTable(Lake(str(place)), "bars", BARS, ("date", "minute"))
        table.put(pa.Table.from_pylist(rows, BARS), "job", batch)

    def between() -> None:
        deltalake.DeltaTable(url).optimize.compact()

    commit = DeltaTable.commit
    expected: dict[int, int] = {}
    for batch, counts in enumerate(batches):
        expected |= {minute: count % 1000 for minute, count in counts.items()}
        for _ in range(draw.draw(st.integers(0, 2))):
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                patch.setattr(DeltaTable, "commit", interrupted(commit, draw, between))
                put(batch)
        put(batch)
        found = deltalake.DeltaTable(url).to_pyarrow_table(columns=["minute", "count"]).to_pylist()
        assert sorted((each["minute"], each["count"]) for each in found) == sorted(expected.items())
