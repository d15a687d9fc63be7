"""What a Kafka topic lost. If told to continue, Spark's connector skips losses silently.

Retention and deletion remove the oldest records of a partition, so the offsets at which a micro-batch should
begin, from Spark's checkpoint, are compared with the first that arrived. If a topic is compacted or written
in transactions, offsets that never had a record for us also count as lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from bronze_pipeline.sources.base import loss

Offsets: TypeAlias = Mapping[str, Mapping[str, int]]
"""The next offset to read, by topic and partition."""


def planned(spark: SparkSession, checkpoint: str, batch: int) -> tuple[Offsets, Offsets]:
    """Return where Spark began and ended a micro-batch."""
    before = f"offsets/{batch - 1}" if batch else "sources/0/0"
    return _offsets(spark, f"{checkpoint}/{before}"), _offsets(spark, f"{checkpoint}/offsets/{batch}")


def _offsets(spark: SparkSession, path: str) -> Offsets:
    # A version, perhaps facts about the batch, and the offsets of our one source, each on a line.
    text: str = spark.read.text(path, wholetext=True).collect()[0][0]
    offsets: Offsets = json.loads(text.splitlines()[-1])
    return offsets


def losses(start: Offsets, end: Offsets, firsts: Mapping[tuple[str, str], int]) -> Sequence[pa.RecordBatch]:
    """Return a row for each partition whose records were gone."""
    return [
        loss(topic, partition, str(start.get(topic, {}).get(partition, 0)), what)
        for topic, partitions in end.items()
        for partition, last in partitions.items()
        for what in _loss(
            f"partition {partition} of the topic {topic}",
            start.get(topic, {}).get(partition, 0),
            last,
            firsts.get((topic, partition)),
        )
    ]


def _loss(where: str, start: int, end: int, first: int | None) -> Iterator[str]:
    if end < start:
        yield f"{where} goes back from offset {start} to {end}: it was recreated, or records were lost"
    elif start < (begins := end if first is None else first):
        yield f"offsets {start} to {begins - 1} are no longer in {where}"
