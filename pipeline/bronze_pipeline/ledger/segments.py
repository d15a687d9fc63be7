"""A part of the ledger that never changes: runs in a file, and beside it where each stream's runs are.

Runs are sorted by stream and position, so those of a few streams and positions are in few groups of rows.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from bronze_pipeline.ledger import runs as run_tables
from bronze_pipeline.ledger.runs import Numbers, Runs

ROWS_IN_GROUP = 8 * 1024
STARTS = b"starts"
SUMMARY = pa.schema(
    [
        ("stream", pa.string()),
        ("lowest", pa.int64()),
        ("highest", pa.int64()),
        # Rows of the table, which are more than ids if some are there twice.
        ("rows", pa.int64()),
        # Its runs in the file: how many, and how many come before.
        ("runs", pa.int64()),
        ("offset", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Wanted:
    """Positions of a stream that are looked for."""

    stream: str
    lowest: int
    highest: int


def summarized(runs: Runs, rows: Numbers) -> pa.Table:
    """Describe the streams of runs in normal form; `rows` has how many rows each of the names has."""
    bounds = np.searchsorted(runs.stream, np.arange(len(runs.names) + 1))
    starts, ends = bounds[:-1], bounds[1:]
    lowest = runs.first[starts] if len(runs) else runs.first
    highest = np.maximum.reduceat(runs.last, starts) if len(runs) else runs.last
    return pa.table([runs.names, lowest, highest, rows, ends - starts, starts], schema=SUMMARY)


class Segment:
    """A stored part of the ledger."""

    def __init__(self, system: FileSystem, folder: str, name: str, count: int) -> None:
        self._system, self._folder = system, folder
        self.name = name
        self.count = count
        """How many runs it has."""

    def files(self) -> list[str]:
        return [f"{self.name}.parquet", f"{self.name}.streams.parquet"]

    @cached_property
    def summary(self) -> pa.Table:
        """The streams that it has, as rows of `SUMMARY`, sorted."""
        return read_table(self._system, f"{self._folder}/{self.name}.streams.parquet").combine_chunks()

    @cached_property
    def _file(self) -> pq.ParquetFile:
        path = f"{self._folder}/{self.name}.parquet"
        return pq.ParquetFile(path, filesystem=self._system, page_checksum_verification=True)

    @cached_property
    def _starts(self) -> list[int]:
        """The position with which each group of rows begins."""
        starts: list[int] = json.loads(self._file.schema_arrow.metadata[STARTS])
        return starts

    @cached_property
    def _in_group(self) -> int:
        """How many runs are in each group but the last."""
        count: int = self._file.metadata.row_group(0).num_rows
        return count

    def highest(self, streams: pa.StringArray) -> Numbers:
        """Return the highest position of each stream; -1 for those that are not here."""
        places = pc.index_in(streams, value_set=self.summary["stream"])
        found: Numbers = self.summary["highest"].take(places).fill_null(-1).to_numpy()
        return found

    def starts(self, stream: str) -> list[int]:
        """Return the positions with which groups of rows of a stream begin."""
        place = pc.index_in(pa.scalar(stream), value_set=self.summary["stream"]).as_py()
        if place is None:
            return []
        offset, count = (self.summary[name][place].as_py() for name in ("offset", "runs"))
        return self._starts[offset // self._in_group + 1 : (offset + count - 1) // self._in_group + 1]

    def read_all(self) -> pa.Table:
        return self._file.read()

    def read(self, wanted: Iterable[Wanted]) -> pa.Table:
        """Return the runs at some positions, and perhaps others of the same streams."""
        wanted = list(wanted)
        streams = pa.array([each.stream for each in wanted], pa.string())
        places = pc.index_in(streams, value_set=self.summary["stream"]).to_pylist()
        groups: set[int] = set()
        here = []
        for each, place in zip(wanted, places, strict=True):
            if place is None:
                continue
            row = {name: self.summary[name][place].as_py() for name in SUMMARY.names}
            if each.lowest <= row["highest"] and each.highest >= row["lowest"]:
                groups.update(self._groups(row, each))
                here.append(each.stream)
        if not groups:
            return run_tables.SCHEMA.empty_table()
        found = self._file.read_row_groups(sorted(groups))
        return found.filter(pc.is_in(found["stream"], value_set=pa.array(here, pa.string())))

    def _groups(self, row: dict[str, Any], wanted: Wanted) -> range:
        first, last = row["offset"] // self._in_group, (row["offset"] + row["runs"] - 1) // self._in_group
        # The first group may begin with another stream, all others begin with this one.
        starts = self._starts[first + 1 : last + 1]
        # One more at the front: levels of one position may be at both sides of a border.
        begin = max(first, first + bisect_right(starts, wanted.lowest) - 1)
        return range(begin, first + bisect_right(starts, wanted.highest) + 1)


def write(system: FileSystem, folder: str, runs: Runs, rows: Numbers) -> Segment:
    """Store runs in normal form."""
    name = f"segment-{uuid.uuid4().hex}"
    summary = summarized(runs, rows)
    starts = runs.first[::ROWS_IN_GROUP].tolist()
    table = runs.to_table().replace_schema_metadata({STARTS: json.dumps(starts).encode()})
    write_table(system, f"{folder}/{name}.parquet", table)
    write_table(system, f"{folder}/{name}.streams.parquet", summary)
    return Segment(system, folder, name, len(runs))


def write_table(system: FileSystem, path: str, table: pa.Table) -> None:
    """Store a table, completely or not at all."""
    draft = draft_of(path)
    pq.write_table(
        table,
        draft,
        row_group_size=ROWS_IN_GROUP,
        compression="zstd",
        write_statistics=False,
        write_page_checksum=True,
        filesystem=system,
    )
    system.move(draft, path)


def draft_of(path: str) -> str:
    """Return where a file is written before it is moved into place; no two have the same."""
    return f"{path}.{uuid.uuid4().hex}.new"


def read_table(system: FileSystem, path: str) -> pa.Table:
    with pq.ParquetFile(path, filesystem=system, page_checksum_verification=True) as file:
        return file.read()
