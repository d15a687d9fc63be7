"""What happens to a table's columns when programs come and go: fields are added, and none ever changes.

A program that finds a table without some of its fields adds them; the rows that are there have NULL in them.
A program that finds fields it does not know leaves them alone, and its own rows have NULL in them. Both hold
for columns and for the fields of structs, at any depth. Types are those of Delta's schemas, as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import deltalake
import pyarrow as pa

# How often fields are added if other processes change the table meanwhile.
EVOLUTION_ATTEMPTS = 10

Type: TypeAlias = str | dict[str, Any]
# Where a type has others inside.
INNER = {"array": ("elementType",), "map": ("keyType", "valueType")}


@dataclass
class Comparison:
    """How a table's columns differ from those that a program needs."""

    merged: Type
    """What the table has, and behind that what it lacks."""
    added: list[str] = field(default_factory=list)
    """Fields that it lacks, as `trade.sequence`."""
    refused: list[str] = field(default_factory=list)
    """What cannot be used as it is."""

    @property
    def is_enough(self) -> bool:
        """Whether the table has all that the program needs."""
        return not self.added and not self.refused

    @property
    def schema(self) -> deltalake.Schema:
        return deltalake.Schema.from_json(json.dumps(self.merged))


def compare(there: deltalake.Schema, wanted: deltalake.Schema) -> Comparison:
    """Compare the columns of a table with those that a program needs."""
    found = Comparison("")
    found.merged = _merged(json.loads(there.to_json()), json.loads(wanted.to_json()), (), found)
    return found


def _merged(there: Type, wanted: Type, path: tuple[str, ...], found: Comparison) -> Type:
    if isinstance(there, str) or isinstance(wanted, str) or there["type"] != wanted["type"]:
        if there != wanted:
            found.refused.append(f"{'.'.join(path)} is {_shown(there)}, but must be {_shown(wanted)}")
        return there
    if there["type"] != "struct":
        inner = {name: _merged(there[name], wanted[name], path, found) for name in INNER[there["type"]]}
        return {**there, **inner}
    needed = {each["name"]: each for each in wanted["fields"]}
    fields = []
    for each in there["fields"]:
        own = needed.pop(each["name"], None)
        here = (*path, each["name"])
        if not each["nullable"] and (own is None or own["nullable"]):
            found.refused.append(f"{'.'.join(here)} must not be NULL")
        fields.append(
            each if own is None else {**each, "type": _merged(each["type"], own["type"], here, found)}
        )
    found.added += [".".join((*path, name)) for name in needed]
    return {**there, "fields": [*fields, *needed.values()]}


def _shown(kind: Type) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the fields of a schema; those that they lack are NULL."""
    columns = [
        rows[each.name].cast(each.type) if each.name in rows.schema.names else pa.nulls(len(rows), each.type)
        for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
