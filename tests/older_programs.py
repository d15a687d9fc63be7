"""The columns of programs that are older than this one."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def without(schema: pa.Schema, *paths: str) -> pa.Schema:
    """Return the columns of a program that did not know some fields, such as `trade.sequence`."""
    return pa.schema(list(_left(schema, paths)))


def _left(fields: Iterable[pa.Field], paths: tuple[str, ...]) -> list[pa.Field]:
    left = [field for field in fields if field.name not in paths]
    return [
        field.with_type(_type_without(field.type, _below(field.name, paths)))
        if _below(field.name, paths)
        else field
        for field in left
    ]


def _below(name: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path.removeprefix(f"{name}.") for path in paths if path.startswith(f"{name}."))


def _type_without(kind: pa.DataType, paths: tuple[str, ...]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_type_without(kind.value_type, paths))
    return pa.struct(_left(kind, paths))
