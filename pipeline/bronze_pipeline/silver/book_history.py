"""Reads what the table of book changes has of one book, for books that must be made anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bronze_pipeline.silver.book_rows import LevelChange
from bronze_pipeline.silver.follow import FILES, ReadFiles
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.tables import DeltaTable

NAME = "book_changes"
COLUMNS = (
    "stream_id", "symbol", "position", "level", "is_snapshot", "side", "price", "qty", "event_ts", "local_ts",
)  # fmt: skip
PARTITION_COLUMNS = ("date", "exchange")


@dataclass(frozen=True)
class BookHistory:
    """The table of book changes; it is sent to the workers, and opened there when it is needed."""

    lake: Lake
    schema: pa.Schema

    def __call__(self, book: Sequence[str | None], first: int, last: int) -> list[LevelChange]:
        """Return a book's changes from the last snapshot not behind `first`, or the beginning, to `last`."""
        stream, _, symbol = book
        url = self.lake.table_url(NAME)
        is_symbol = ds.field("symbol").is_null() if symbol is None else ds.field("symbol") == symbol
        where = (ds.field("stream_id") == stream) & (ds.field("position") <= last) & is_symbol
        read = ReadFiles(url, pa.schema([self.schema.field(name) for name in COLUMNS]), where)
        found: list[LevelChange] = []
        snapshot: int | None = None
        for path, highest in self._files(url, book, last):
            if snapshot is not None and highest is not None and highest < snapshot:
                break
            for rows in read([_file(path)]):
                found += _changes(rows)
            snapshot = max(
                (each.position for each in found if each.is_snapshot and each.position <= first), default=None
            )
        return found if snapshot is None else [each for each in found if each.position >= snapshot]

    def _files(self, url: str, book: Sequence[str | None], last: int) -> Iterator[tuple[str, int | None]]:
        """Yield the files that may have something of a book, with their highest positions, newest first."""
        stream, exchange, _ = book
        files = DeltaTable(url, self.schema, PARTITION_COLUMNS, NAME).files()
        exchanges = files["partition.exchange"]
        may = pc.is_null(exchanges) if exchange is None else pc.equal(exchanges, exchange).fill_null(False)
        for name, compare, value in (
            ("min.stream_id", pc.less_equal, stream),
            ("max.stream_id", pc.greater_equal, stream),
            ("min.position", pc.less_equal, last),
        ):
            if name in files.schema.names:
                may = pc.and_(may, compare(files[name], value).fill_null(True))
        chosen = files.filter(may)
        highest = chosen["max.position"] if "max.position" in files.schema.names else pa.nulls(len(chosen))
        pairs = zip(chosen["path"].to_pylist(), highest.to_pylist(), strict=True)
        yield from sorted(pairs, key=lambda pair: (pair[1] is not None, -(pair[1] or 0)))


def _file(path: str) -> pa.RecordBatch:
    # No column of the partition is read.
    return pa.RecordBatch.from_pylist(
        [{"path": path, "partition": '{"date": null, "exchange": null}'}], FILES
    )


def _changes(rows: pa.RecordBatch) -> Iterator[LevelChange]:
    columns = [
        rows["position"],
        rows["level"].fill_null(0),
        rows["is_snapshot"].fill_null(False),
        *(rows[name] for name in ("side", "price", "qty")),
        *(rows[name].cast(pa.int64()) for name in ("event_ts", "local_ts")),
    ]
    return (LevelChange(*values) for values in zip(*(column.to_pylist() for column in columns), strict=True))
