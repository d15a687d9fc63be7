"""Reads a source without Spark, in the calls that Spark makes."""

from __future__ import annotations

from typing import Any

import pytest
from bronze_cli.problems import ConfigError
from bronze_pipeline.commands.bronze import plan
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


def source_options(url: str, *flags: str) -> dict[str, str]:
    """Make a source's options as the command line does."""
    return plan(["--from", url, "--to", "lake", *flags]).source_options


def problems_of(url: str, *flags: str) -> str:
    """Return what is wrong with a command line."""
    with pytest.raises(ConfigError) as caught:
        plan(["--from", url, "--to", "lake", *flags])
    return str(caught.value)
