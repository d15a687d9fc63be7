"""A table as readers see it, whatever its format: the files of its commits, and what the log says of each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from bronze_pipeline.tables.commit_log import CommitLog
from bronze_pipeline.tables.files import NULL_PARTITION, Folder
from bronze_pipeline.tables.tables import format_of

FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        # When the file came into the table: with its micro-batch, or when it replaced others.
        ("added", pa.timestamp("ms", "UTC")),
        ("date", pa.string()),
        ("exchange", pa.string()),
        ("lowest_case", pa.string()),
        ("highest_case", pa.string()),
        ("lowest_stream", pa.string()),
        ("highest_stream", pa.string()),
        ("lowest_position", pa.int64()),
        ("highest_position", pa.int64()),
    ]
)
"""What is known of a file without opening it; NULL if the log does not say."""

_IN_DELTA_LOG = {
    "size": "size_bytes",
    "rows": "num_records",
    "added": "modification_time",
    "date": "partition.date",
    "exchange": "partition.exchange",
    "lowest_case": "min.payload_case",
    "highest_case": "max.payload_case",
    "lowest_stream": "min.stream_id",
    "highest_stream": "max.stream_id",
    "lowest_position": "min.position",
    "highest_position": "max.position",
}


class CommittedTable:
    """The files of a table, as they were when it was opened."""

    def __init__(self, url: str) -> None:
        self._system, self._root = Folder(url, ()).open()
        self.files: pa.Table = _in_delta(url) if format_of(url) == "delta" else _in_notes(url)

    def open(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(f"{self._root}/{path}", filesystem=self._system)

    def read(self, columns: list[str]) -> Iterator[pa.Table]:
        """Yield some columns of all rows, a row group at a time."""
        for path in self.files["path"].to_pylist():
            file = self.open(path)
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns)


def _in_delta(url: str) -> pa.Table:
    actions = pa.table(deltalake.DeltaTable(url).get_add_actions(flatten=True))
    there = set(actions.schema.names)
    # The log writes paths URL-encoded.
    paths = pa.array([unquote(path) for path in actions["path"].to_pylist()], pa.string())
    columns = [
        actions[_IN_DELTA_LOG[field.name]].cast(field.type)
        if _IN_DELTA_LOG[field.name] in there
        else pa.nulls(len(actions), field.type)
        for field in FILES
        if field.name != "path"
    ]
    return pa.table([paths, *columns], schema=FILES)


def _in_notes(url: str) -> pa.Table:
    notes = CommitLog(url)
    rows = []
    for commit in notes.commits():
        added: datetime = notes.noted_at(commit.number)
        for file in commit.files:
            partition = {
                name: None if value == NULL_PARTITION else value for name, value in file.partition.items()
            }
            rows.append(
                {
                    "path": file.path,
                    "size": file.size,
                    "rows": file.rows,
                    "added": added.astimezone(UTC),
                    **partition,
                    "lowest_case": file.lowest.get("payload_case"),
                    "highest_case": file.highest.get("payload_case"),
                    "lowest_stream": file.lowest.get("stream_id"),
                    "highest_stream": file.highest.get("stream_id"),
                    "lowest_position": file.lowest.get("position"),
                    "highest_position": file.highest.get("position"),
                }
            )
    return pa.Table.from_pylist(rows, FILES)
