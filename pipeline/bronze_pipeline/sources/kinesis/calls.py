"""Calls that read a shard from a position onwards; `bus.py` says what a position is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bronze_pipeline.sources.options import OptionError

BEGINNING = ""
TIME = "@"
END = "end"

# The most records that GetRecords returns; it also stops at 10 MiB.
MOST_IN_CALL = 10_000
# A shard answers five calls a second.
SECONDS_BETWEEN_CALLS = 0.2

Record = Mapping[str, Any]


@dataclass(frozen=True)
class ShardAnswer:
    """What one call gave."""

    records: list[Record]
    behind_ms: int
    """How far the records are behind the newest; 0 if there are no more for now."""
    is_end: bool
    """Whether the shard is closed, and has no more."""
    has_gap: bool
    """Whether the record read last has expired, and perhaps others after it."""


class ShardCalls:
    """Calls GetRecords repeatedly."""

    def __init__(self, client: Any, stream: str, shard: str, position: str) -> None:
        self._client = client
        self._names = {"StreamName": stream, "ShardId": shard}
        self._iterator: str | None = None
        self._check = ""
        self._was_empty = False
        self.position = position
        """Of the last record given."""

    def call(self, most_records: int = MOST_IN_CALL) -> ShardAnswer:
        if self._was_empty:
            time.sleep(SECONDS_BETWEEN_CALLS)
        answer = self._answer(most_records)
        records = answer["Records"]
        has_gap = False
        if self._check and records:
            # The iterator begins with the last record read, to check that it is still there.
            has_gap = records[0]["SequenceNumber"] != self._check
            records = records if has_gap else records[1:]
            self._check = ""
        if records:
            self.position = records[-1]["SequenceNumber"]
        self._iterator = answer.get("NextShardIterator")
        self._was_empty = not records
        return ShardAnswer(records, answer.get("MillisBehindLatest", 0), self._iterator is None, has_gap)

    def _answer(self, most_records: int) -> Mapping[str, Any]:
        while True:
            if self._iterator is None:
                self._iterator = self._open()
                self._check = self.position if self.position.isdigit() else ""
            limit = min(MOST_IN_CALL, max(1, most_records) + bool(self._check))
            try:
                answer: Mapping[str, Any] = self._client.get_records(
                    ShardIterator=self._iterator, Limit=limit
                )
            except self._client.exceptions.ExpiredIteratorException:
                self._iterator = None
                continue
            return answer

    def _open(self) -> str:
        position = self.position
        if position == BEGINNING:
            where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        elif position.startswith(TIME):
            ms = int(position.removeprefix(TIME))
            where = {
                "ShardIteratorType": "AT_TIMESTAMP",
                "Timestamp": datetime.fromtimestamp(ms / 1000, UTC),
            }
        else:
            where = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": position}
        try:
            return str(self._client.get_shard_iterator(**self._names, **where)["ShardIterator"])
        except self._client.exceptions.InvalidArgumentException as error:
            shard, stream = self._names["ShardId"], self._names["StreamName"]
            raise OptionError(f"the shard {shard} of {stream} has no position {position}.") from error


def arrival_ms(record: Record) -> float:
    """Return when a record arrived, approximately."""
    return float(record["ApproximateArrivalTimestamp"].timestamp() * 1000)
