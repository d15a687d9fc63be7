"""Reads a source without Spark, in the calls that Spark makes."""

from __future__ import annotations

import argparse
from typing import Any

from bronze_pipeline.sources import Bus
from pyspark.sql.streaming.datasource import ReadAllAvailable

ALL = ReadAllAvailable()


def rows(reader: Any, *offsets: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is between two offsets; of a batch, all."""
    return [
        row
        for partition in reader.partitions(*offsets)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def rows_from_the_start(reader: Any) -> list[dict[str, Any]]:
    """Return what a stream without a checkpoint reads first."""
    start = reader.initialOffset()
    return rows(reader, start, reader.latestOffset(start, ALL))


def values(found: list[dict[str, Any]]) -> list[str | None]:
    return [row["value"].decode() if row["value"] is not None else None for row in found]


def flags(bus: Bus, *arguments: str) -> argparse.Namespace:
    """Parse a bus' own part of a command line."""
    parser = argparse.ArgumentParser()
    bus.add_flags(parser)
    return parser.parse_args(arguments)
