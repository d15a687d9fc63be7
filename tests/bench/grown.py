"""A bronze table as years would leave it, made in a minute: its log and its ledger, without data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bronze_pipeline.ledger.runs import Runs
from bronze_pipeline.ledger.store import Manifest, Store
from bronze_pipeline.tables.checkpoints import SCHEMA
from bronze_pipeline.tables.delta_log import DELTA_LOG, DeltaLog
from bronze_pipeline.tables.history import DeltaHistory
from bronze_pipeline.tables.lake import Lake

ROWS_AT_ONCE = 50_000
RUNS_IN_SEGMENT = 2_000_000
BOOKS = 10
"""One stream in so many has book changes, with one to nine levels a message; the others have trades."""
LEVELS = (1, 9)


@dataclass(frozen=True)
class Size:
    """How much a table has."""

    commits: int
    files: int
    streams: int
    events: int


def stream_name(number: int) -> str:
    return f"stream-{number:06}"


def grow(lake: Lake, size: Size) -> int:
    """Make the table; return the position at which each stream goes on."""
    lake.events()
    folder = Path(lake.place, "bronze", DELTA_LOG)
    log = DeltaLog(folder)
    # Entries of a log that nobody reads any more; the newest are read.
    for version in range(1, size.commits + 1):
        line = json.dumps({"txn": {"appId": "past", "version": version}})
        (folder / f"{version:020}.json").write_text(f"{line}\n")
    checkpoint = max(1, size.commits - 50)
    _write_checkpoint(folder, log, checkpoint, size)
    return _write_ledger(lake, size)


def _write_checkpoint(folder: Path, log: DeltaLog, version: int, size: Size) -> None:
    path = folder / f"{version:020}.checkpoint.parquet"
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        metadata = log.metadata | {"configuration": list(log.metadata["configuration"].items())}
        metadata["format"] = {"provider": "parquet", "options": []}
        heads = [
            {"metaData": metadata},
            {"protocol": log.protocol},
            {"txn": {"appId": "past", "version": version}},
        ]
        writer.write_table(pa.Table.from_pylist(heads, SCHEMA))
        for start in range(0, size.files, ROWS_AT_ONCE):
            numbers = range(start, min(start + ROWS_AT_ONCE, size.files))
            writer.write_table(pa.Table.from_pylist([{"add": _file(number)} for number in numbers], SCHEMA))
    said = {"version": version, "size": size.files + 3}
    (folder / "_last_checkpoint").write_text(json.dumps(said))


def _file(number: int) -> dict[str, object]:
    day, exchange = f"2025-{number % 12 + 1:02}-{number % 28 + 1:02}", f"exchange{number % 20}"
    bounds = {"stream_id": stream_name(number % 900), "position": number, "payload_case": "bookChange"}
    stats = {"numRecords": 1000, "minValues": bounds, "maxValues": bounds, "nullCount": {"stream_id": 0}}
    return {
        "path": f"date={day}/exchange={exchange}/part-{number:032x}.parquet",
        "partitionValues": [("date", day), ("exchange", exchange)],
        "size": 100_000,
        "modificationTime": 1_750_000_000_000,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


def _write_ledger(lake: Lake, size: Size) -> int:
    """Write segments as time makes them: each has all streams, at positions behind those of the last."""
    url = lake.table_url("bronze")
    chance = np.random.default_rng(1)
    each = size.events // size.streams
    messages = int(each / np.mean(LEVELS))
    count = max(1, -(-messages * (size.streams // BOOKS) // RUNS_IN_SEGMENT))
    store, segments = Store(url), []
    names = pa.array([stream_name(number) for number in range(size.streams)])
    for part in range(count):
        parts, rows = [], np.zeros(size.streams, np.int64)
        for number in range(size.streams):
            total = messages if number % BOOKS == 0 else each
            begin, end = total * part // count, total * (part + 1) // count
            parts.append(_runs(chance, number, begin, end, has_levels=number % BOOKS == 0))
            rows[number] = (parts[-1][:, 2] - parts[-1][:, 1] + 1) @ (parts[-1][:, 4] - parts[-1][:, 3] + 1)
        runs = Runs(names, *np.ascontiguousarray(np.concatenate(parts).T))
        segments.append(store.add_segment(runs, rows))
    history = DeltaHistory(url)
    store.settle(Manifest(history.table_id(), history.newest(-1), segments, 0))
    return each


def _runs(
    chance: np.random.Generator, stream: int, begin: int, end: int, *, has_levels: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the runs of a stream's positions: stream, first, last, low and high of each."""
    if not has_levels:
        return np.array([[stream, begin, end - 1, -1, -1]], np.int64)
    levels = chance.integers(LEVELS[0], LEVELS[1] + 1, end - begin)
    starts = np.flatnonzero(np.diff(levels, prepend=0))
    ends = np.append(starts[1:], len(levels)) - 1
    low = np.zeros(len(starts), np.int64)
    return np.stack([low + stream, starts + begin, ends + begin, low, levels[starts] - 1], axis=1)
