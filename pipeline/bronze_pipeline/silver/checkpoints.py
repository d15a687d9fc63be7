"""Spark's checkpoint of a query, as far as the job looks into it: which offsets it has.

It is read by Hadoop's file systems, as Spark does, wherever it is.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


class Checkpoint:
    """The checkpoint of a query with one source."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._java: Any = spark._jvm  # noqa: SLF001 - Spark has no other way to its file systems
        self._place = self._path(place)
        self._system = self._place.getFileSystem(self._settings())

    def stored(self) -> int:
        """Return the number of the last batch that is done; -1 if none is."""
        return max(self._numbers("commits"), default=-1)

    def planned(self) -> int:
        """Return the number of the last batch that was begun; -1 if none was."""
        return max(self._numbers("offsets"), default=-1)

    def offset(self, batch: int) -> dict[str, Any] | None:
        """Return where a batch ends; None if that cannot be read, and Spark says why."""
        try:
            # A version, facts about the batch, and the offset of the one source, each on a line.
            found = json.loads(self._text(f"offsets/{batch}").splitlines()[-1])
        except (Py4JJavaError, IndexError, ValueError):
            return None
        return found if isinstance(found, dict) and "next" in found else None

    def _text(self, path: str) -> str:
        stream = self._system.open(self._path(self._place, path))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def set_aside(self) -> None:
        """Rename it, so that the query begins anew."""
        name = f"{self._place.getName()}-until-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
        self._system.rename(self._place, self._path(self._place.getParent(), name))

    def _numbers(self, folder: str) -> list[int]:
        path = self._path(self._place, folder)
        if not self._system.exists(path):
            return []
        names = (str(each.getPath().getName()) for each in self._system.listStatus(path))
        return [int(name) for name in names if name.isdigit()]

    def _settings(self) -> Any:
        return self._java.org.apache.spark.SparkContext.getOrCreate().hadoopConfiguration()

    def _path(self, *parts: Any) -> Any:
        return self._java.org.apache.hadoop.fs.Path(*parts)
