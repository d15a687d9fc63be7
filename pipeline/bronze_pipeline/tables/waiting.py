"""Rows that wait for their files, in little memory.

Most events have one of many payloads, and a column of structs takes memory for rows that have none. So only
the rows that have one are kept of it, and which these are. Everything is copied as it comes: what a decoder
made is one piece of memory, which would be held as a whole by any part of it, and can be used again at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Places: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
ROWS_OF_NULLS = 16 * 1024
"""Columns without any value are made of the same piece of so many rows again and again."""


class WaitingRows:
    """The rows, by columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
        self._places: dict[str, list[Places]] = {
            field.name: [] for field in schema if pa.types.is_struct(field.type)
        }
        self._count = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> list[str]:
        names: list[str] = self._schema.names
        return names

    def add(self, batch: pa.RecordBatch) -> None:
        """Accept rows with the columns of the schema."""
        for name, parts in self._parts.items():
            column = batch[name]
            if name in self._places:
                self._places[name].append(_places_of(column) + self._count)
            has_less = name in self._places and column.null_count
            values = column.drop_null() if has_less else pa.concat_arrays([column])
            if len(values):
                parts.append(values)
                self.nbytes += values.nbytes
        self._count += len(batch)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column that is not one of structs."""
        return pa.chunked_array(self._parts[name], self._schema.field(name).type)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns that are not of structs."""
        return pa.table({name: self.column(name) for name in names})

    def divided(self, names: Sequence[str], groups: Sequence[Places]) -> list[pa.Table]:
        """Return groups of rows as tables with some columns. Each column that was divided is gone."""
        if not groups:
            return []
        columns = [self._divided(name, groups) for name in names]
        schema = pa.schema([self._schema.field(name) for name in names])
        return [pa.Table.from_arrays(list(each), schema=schema) for each in zip(*columns, strict=True)]

    def _divided(self, name: str, groups: Sequence[Places]) -> list[pa.ChunkedArray]:
        kind = self._schema.field(name).type
        # One column after the other, so that only one is in memory twice.
        values = pa.concat_arrays(self._parts.pop(name) or [pa.nulls(0, kind)])
        if name not in self._places:
            return [pa.chunked_array([values.take(pa.array(places))]) for places in groups]
        numbers = np.full(self._count, -1)
        numbers[np.concatenate(self._places.pop(name))] = np.arange(len(values))
        return [_taken(values, numbers[places]) for places in groups]


def _places_of(column: pa.Array) -> Places:
    """Return which rows have a value."""
    if column.null_count == len(column):
        return np.empty(0, np.int64)
    places: Places = pc.indices_nonzero(column.is_valid()).to_numpy().astype(np.int64)
    return places


def _taken(values: pa.Array, numbers: Places) -> pa.ChunkedArray:
    """Return values by their numbers; NULL for -1."""
    missing = numbers < 0
    if not missing.any():
        return pa.chunked_array([values.take(pa.array(numbers))])
    if not missing.all():
        return pa.chunked_array([values.take(pa.array(numbers, mask=missing))])
    nulls = pa.nulls(min(len(numbers), ROWS_OF_NULLS), values.type)
    whole, rest = divmod(len(numbers), ROWS_OF_NULLS)
    return pa.chunked_array([nulls] * whole + [nulls[:rest]], values.type)
