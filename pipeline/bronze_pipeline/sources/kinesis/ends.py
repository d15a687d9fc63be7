"""Finds where a micro-batch ends in a shard: the driver looks, the tasks read.

Kinesis cannot say which record of a shard is the newest, or how many there are. But it gives the first record
after a time. So the driver reads a few records from where the last micro-batch ended, to see how dense they
are, and then single records at later times, until it has one that is far enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bronze_pipeline.sources.kinesis.calls import END, TIME, Record, ShardCalls, arrival_ms
from bronze_pipeline.sources.kinesis.stream import Shard

# What the driver reads of each shard, at most, before it looks further ahead.
SAMPLE = 1_000
# Records of a shard in a millisecond, where the sample has fewer: they may come closer together later. A
# shard takes at most one.
LEAST_DENSITY = 1 / 16
# The newest records are read one by one if they are not older than this.
TIP_MS = 1_000


@dataclass(frozen=True)
class ShardEnd:
    """How far a micro-batch goes in a shard."""

    position: str
    is_at_tip: bool = False
    """Whether the shard had no more, up to the time that was asked for."""
    has_gap: bool = False
    """Whether records before it have expired."""


def find_end(
    client: Any, stream: str, shard: Shard, start: str, *, most_records: int, until_ms: float
) -> ShardEnd:
    """Return how far to read on from a position: about so many records, and not beyond a time."""
    calls = ShardCalls(client, stream, shard.id, start)
    sample: list[Record] = []
    has_gap = False
    while len(sample) < min(SAMPLE, most_records):
        answer = calls.call(min(SAMPLE, most_records) - len(sample))
        sample += answer.records
        has_gap |= answer.has_gap
        if answer.is_end or (shard.is_closed and not answer.behind_ms and not answer.records):
            return ShardEnd(END, is_at_tip=True, has_gap=has_gap)
        is_late = bool(sample) and arrival_ms(sample[-1]) > until_ms
        if not shard.is_closed and (not answer.behind_ms or is_late):
            return ShardEnd(calls.position, is_at_tip=True, has_gap=has_gap)
    if len(sample) >= most_records:
        return ShardEnd(calls.position, has_gap=has_gap)
    ahead_ms = arrival_ms(sample[-1]) + _span_ms(sample, most_records - len(sample))
    target_ms = ahead_ms if shard.is_closed else min(until_ms, ahead_ms)
    found = _first_at(client, stream, shard.id, target_ms)
    if found is None and shard.is_closed:
        return ShardEnd(END, is_at_tip=True, has_gap=has_gap)
    is_at_tip = found is None or target_ms >= until_ms
    end = found["SequenceNumber"] if found else _tip(client, stream, shard.id, sample[-1], target_ms)
    # Times are approximate: what came later may have an earlier one.
    return ShardEnd(max(end, calls.position, key=int), is_at_tip=is_at_tip, has_gap=has_gap)


def _span_ms(sample: list[Record], records: int) -> float:
    """Return in what time so many records came, if they came as the sample did."""
    density = len(sample) / max(1.0, arrival_ms(sample[-1]) - arrival_ms(sample[0]))
    return records / max(density, LEAST_DENSITY)


def _first_at(client: Any, stream: str, shard: str, ms: float) -> Record | None:
    """Return the first record that arrived at a time or later."""
    calls = ShardCalls(client, stream, shard, f"{TIME}{math.ceil(ms)}")
    while True:
        answer = calls.call(1)
        if answer.records:
            return answer.records[0]
        if answer.is_end or not answer.behind_ms:
            return None


def _tip(client: Any, stream: str, shard: str, known: Record, later_ms: float) -> str:
    """Return the position of the newest record, which is not before the known one nor after the time."""
    step_ms = float(TIP_MS)
    while later_ms - arrival_ms(known) > TIP_MS:
        # Most shards have a record of the last seconds; otherwise halve the time.
        middle_ms = max(later_ms - step_ms, (arrival_ms(known) + later_ms) / 2)
        found = _first_at(client, stream, shard, middle_ms)
        if found is None:
            later_ms = middle_ms
            step_ms *= 2
        else:
            known = found
    calls = ShardCalls(client, stream, shard, known["SequenceNumber"])
    while True:
        answer = calls.call()
        if answer.is_end or not answer.behind_ms:
            return calls.position
