"""How long events took on their way: from the exchange to the recorder, to the sidecar, into the table.

Delays are counted in classes that grow by an eighth each, so that memory does not grow with the table and
a quantile is right to about 6 %.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bronze_pipeline.decoding.schema import EVENTS, PAYLOADS
from bronze_pipeline.report.counts import NO_EXCHANGE, case_of
from bronze_pipeline.tables.committed import CommittedTable

STEPS = ("exchange to recorder", "recorder to sidecar", "sidecar to table")
CLASSES_IN_DECADE = 20
DECADES = 15
"""Up to 10^15 microseconds, which is 31 years."""
MOST_FILES = 500
"""Delays are looked up in so many files, evenly spread over the days."""
# Not the time of an exchange: a bar has its beginning there.
WITHOUT_EXCHANGE_TIME = {"trade_bar"}
EVENT_TIMES = {
    PAYLOADS[field.name]: f"{field.name}.event_ts"
    for field in EVENTS
    if field.name in PAYLOADS
    and field.name not in WITHOUT_EXCHANGE_TIME
    and field.type.get_field_index("event_ts") >= 0
}
"""The column with the exchange's time, by kind of event."""
REPLAYED = ("ORIGIN_REPLAY", "ORIGIN_ARCHIVE")
# As the tasks name files; compaction chooses other names, and the time of its commit says nothing here.
OF_A_BATCH = re.compile(r"-[0-9a-f]{32}\.parquet$")

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass
class Spread:
    """How many delays are in each class."""

    classes: Numbers = field(default_factory=lambda: np.zeros(DECADES * CLASSES_IN_DECADE, np.int64))
    negative: int = 0
    """How many ended before they began, for clocks differ."""

    def add(self, microseconds: Numbers) -> None:
        ordinary = microseconds[microseconds >= 0]
        self.negative += len(microseconds) - len(ordinary)
        places = np.log10(np.maximum(ordinary, 1)) * CLASSES_IN_DECADE
        places = np.minimum(places.astype(np.int64), len(self.classes) - 1)
        self.classes += np.bincount(places, minlength=len(self.classes))

    def __iadd__(self, other: Spread) -> Self:
        self.classes += other.classes
        self.negative += other.negative
        return self

    @property
    def events(self) -> int:
        return int(self.classes.sum()) + self.negative

    def quantile(self, share: float) -> float:
        """Return the delay, in seconds, that this share of the events does not exceed."""
        rank = share * self.events - self.negative
        if rank <= 0:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.classes), rank))
        return seconds_of(min(place, len(self.classes) - 1) + 0.5)


def seconds_of(place: float) -> float:
    """Return the delay at a place in the classes."""
    return float(10 ** (place / CLASSES_IN_DECADE) / 1e6)


@dataclass
class Delays:
    """The delays of each step, by exchange."""

    spreads: dict[tuple[str, str], Spread] = field(default_factory=dict)
    """By step and exchange."""
    files: int = 0
    """In how many files they were looked up."""
    replayed: int = 0
    """Events of replays: when the sidecar got them says nothing about their way from the recorder."""

    def of_step(self, step: str) -> Spread:
        found = Spread()
        for (each, _), spread in self.spreads.items():
            if each == step:
                found += spread
        return found

    def exchanges(self) -> list[str]:
        return sorted({exchange for _, exchange in self.spreads})

    def add(self, step: str, exchange: str, began: pa.ChunkedArray, ended: pa.ChunkedArray) -> None:
        delays = pc.subtract(_microseconds(ended), _microseconds(began)).drop_null()
        if len(delays):
            self.spreads.setdefault((step, exchange), Spread()).add(delays.to_numpy())


def measure(table: CommittedTable, on_file: Callable[[], None] = lambda: None) -> Delays:
    """Look up the delays of a table's events."""
    found = Delays()
    for row in _chosen(table):
        on_file()
        found.files += 1
        exchange = row["exchange"] or NO_EXCHANGE
        added = row["added"] if OF_A_BATCH.search(row["path"]) else None
        file = table.open(row["path"])
        for group in range(file.num_row_groups):
            _measure(found, exchange, _times(file, group), added)
    return found


def _chosen(table: CommittedTable) -> Iterator[dict[str, Any]]:
    files = table.files.sort_by([("date", "ascending"), ("path", "ascending")])
    chosen = np.unique(np.linspace(0, max(0, len(files) - 1), min(MOST_FILES, len(files))).astype(np.int64))
    yield from files.take(pa.array(chosen)).to_pylist()


def _times(file: pq.ParquetFile, group: int) -> pa.Table:
    """Return the times of a row group's events, and where these come from."""
    case = case_of(file, group)
    wanted = EVENT_TIMES.values() if case is None else filter(None, [EVENT_TIMES.get(case)])
    rows = file.read_row_group(group, ["local_ts", "ingest_ts", "origin", *wanted])
    times = [
        pc.struct_field(rows[name], "event_ts")
        for name in rows.schema.names
        if pa.types.is_struct(rows.schema.field(name).type)
    ]
    event_ts = pc.coalesce(*times) if times else pa.nulls(len(rows), rows["local_ts"].type)
    return rows.select(["local_ts", "ingest_ts", "origin"]).append_column("event_ts", event_ts)


def _measure(found: Delays, exchange: str, rows: pa.Table, added: Any) -> None:
    local, ingest = rows["local_ts"], rows["ingest_ts"]
    found.add(STEPS[0], exchange, rows["event_ts"], local)
    replayed = pc.is_in(rows["origin"], pa.array(REPLAYED))
    found.replayed += pc.sum(replayed).as_py() or 0
    live = pc.invert(replayed)
    found.add(STEPS[1], exchange, local.filter(live), ingest.filter(live))
    if added is not None:
        stored = pa.chunked_array([pa.repeat(pa.scalar(added, ingest.type), len(rows))])
        found.add(STEPS[2], exchange, ingest, stored)


def _microseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
