"""A Kinesis stream: its options, its shards, and where reading begins; `bus.py` says what a position is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from bronze_cli.options import option
from bronze_cli.values import Text

from bronze_pipeline.sources.aws import AwsAccess
from bronze_pipeline.sources.base import DataLoss, loss
from bronze_pipeline.sources.kinesis.calls import BEGINNING, TIME
from bronze_pipeline.sources.options import EARLIEST, LATEST, Start, StreamOptions, read_options

NAME = "bronze.kinesis"


@dataclass(frozen=True)
class Shard:
    """A shard as Kinesis lists it."""

    id: str
    parents: tuple[str, ...]
    is_closed: bool


class PositionStart(Start):
    """A time, positions, or either end of the stream."""

    def is_position(self, text: str) -> bool:
        return start_positions(text) is not None

    def choices(self) -> str:
        return "earliest, latest, a time such as 2026-01-31T12:00:00Z, or <shard id>:<sequence number>"


@dataclass(frozen=True)
class KinesisOptions(AwsAccess, StreamOptions):
    """Everything about a stream and how to reach it; it is sent to workers, so it holds plain values."""

    stream: str = option(Text(), "Stream to read.", required=True)
    start: str = option(
        PositionStart(), "Where a new checkpoint begins: earliest, latest or a position.", default="earliest"
    )


class KinesisStream:
    """A stream, for the driver and for workers."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.access = options = read_options(KinesisOptions, NAME, given)
        self.name = options.stream
        self.max_records = options.max_records_per_batch
        self.goes_on_after_loss = options.goes_on_after_loss
        self._start = options.start
        self._positions = start_positions(options.start) or {"": BEGINNING}

    def first(self, shard: str) -> str:
        """Return where to begin in a shard without a checkpoint."""
        if self._start == LATEST:
            return f"{TIME}{time.time_ns() // 1_000_000}"
        return self._positions.get(shard, self._positions[""])

    def created(self, client: Any) -> str:
        summary = client.describe_stream_summary(StreamName=self.name)["StreamDescriptionSummary"]
        return str(summary["StreamCreationTimestamp"].astimezone(UTC).isoformat())

    def shards(self, client: Any) -> dict[str, Shard]:
        pages = client.get_paginator("list_shards").paginate(StreamName=self.name)
        return {
            facts["ShardId"]: Shard(
                facts["ShardId"],
                tuple(facts[name] for name in ("ParentShardId", "AdjacentParentShardId") if facts.get(name)),
                "EndingSequenceNumber" in facts["SequenceNumberRange"],
            )
            for page in pages
            for facts in page["Shards"]
        }

    def gone(self, shard: str, position: str) -> pa.RecordBatch:
        """Return a row that says that a record has expired; raise DataLoss unless losses are accepted."""
        what = (
            f"the record {position or 'at the beginning'} of the shard {shard} of {self.name} has expired;"
            " records after it may be lost"
        )
        if not self.goes_on_after_loss:
            raise DataLoss(what)
        return loss(self.name, shard, position, what)


def start_positions(start: str) -> dict[str, str] | None:
    """Return where to begin in each shard, with '' for all others; None if the text does not say."""
    if start in {EARLIEST, LATEST}:
        return {"": BEGINNING}
    pairs = [part.strip().rpartition(":") for part in start.split(",")]
    if all(
        shard.startswith("shardId-") and number.isascii() and number.isdigit() for shard, _, number in pairs
    ):
        return {"": BEGINNING} | {shard: number for shard, _, number in pairs}
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        return None
    return None if moment.tzinfo is None else {"": f"{TIME}{round(moment.timestamp() * 1000)}"}
