"""Options are declared once, as fields of a dataclass; every spelling of their names derives from there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bronze_cli.problems import Fault

Raw = str | list[str] | dict[str, str]
"""What a source gives: text from a flag, a variable or a YAML scalar; a list or mapping from YAML."""

T_co = TypeVar("T_co", covariant=True)
VARIABLE_PREFIX = "SIDECAR_"


class ValueType(Protocol[T_co]):
    """The type of an option's value."""

    metavar: str
    """Stands for the value in `--help`."""

    def parse(self, raw: Raw) -> T_co | list[Fault]:
        """Return the value, or everything that is wrong with it."""

    def json_schema(self) -> dict[str, Any]:
        """Describe what the YAML file may hold."""

    def show(self, value: Any) -> str:
        """Write a value as an operator would."""


@dataclass(frozen=True)
class Option(Generic[T_co]):
    """One option with all its names."""

    name: str
    """In snake_case, as in the YAML file."""
    attribute: str
    """The field that holds it: the name, or with `_` behind it where the name is a keyword."""
    group: str
    """The back end it belongs to; empty for the process's own."""
    value_type: ValueType[T_co]
    doc: str
    default: Any
    required: bool
    alternative: str
    """The option that may be given instead of a required one."""
    secret: bool
    in_file: bool
    """Whether the YAML file may hold it."""

    @property
    def path(self) -> str:
        return f"{self.group}.{self.name}" if self.group else self.name

    @property
    def flag(self) -> str:
        return "--" + self.path.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.path.replace(".", "_").upper()

    @property
    def is_switch(self) -> bool:
        """Whether the flag may stand without a value."""
        return self.value_type.metavar == ""


def option(
    value_type: ValueType[Any],
    doc: str,
    *,
    default: Any = None,
    required: bool = False,
    alternative: str = "",
    secret: bool = False,
    in_file: bool = True,
) -> Any:
    """Declare an option as a dataclass field."""
    declared = {
        "value_type": value_type,
        "doc": doc,
        "required": required,
        "alternative": alternative,
        "secret": secret,
        "in_file": in_file,
    }
    # A configuration may end up in a log or a traceback; its secrets must not.
    return dataclasses.field(default=default, kw_only=True, repr=not secret, metadata=declared)


def options_of(cls: type[Any], group: str) -> Sequence[Option[Any]]:
    """Return the options that a dataclass declares, in order."""
    return [
        Option(
            name=field.name.rstrip("_"),
            attribute=field.name,
            group=group,
            default=field.default,
            **field.metadata,
        )
        for field in dataclasses.fields(cls)
        if "value_type" in field.metadata
    ]
