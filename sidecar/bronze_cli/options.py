"""Options are declared once, as fields of a dataclass; every spelling of their names is derived from that."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from bronze_cli.problems import Fault

Raw = str | list[str] | dict[str, str]
"""What a source gives: text from a flag, a variable or a YAML scalar; a list or mapping from YAML."""

T_co = TypeVar("T_co", covariant=True)


class ValueType(Protocol[T_co]):
    """The type of an option's value. Each is a subclass."""

    metavar: str
    """Placeholder for the value in `--help`; empty if the flag may be given without one."""
    before_credentials: str = ":"
    """What precedes a user and password in a value; a value that holds them is never shown."""

    def parse(self, raw: Raw) -> T_co | list[Fault]:
        """Return the value, or everything that is wrong with it."""

    def json_schema(self) -> dict[str, Any]:
        """Describe what the YAML file may hold."""

    def show(self, value: Any) -> str:
        """Write a value as an operator would."""

    def combined(self, earlier: Raw, later: Raw) -> Raw | None:  # noqa: ARG002 - for types that combine
        """Return the combination of two flags; None if the option may be given only once."""
        return None


@dataclass(frozen=True)
class Option(Generic[T_co]):
    """One option with all its names."""

    name: str
    """In snake_case, as in the YAML file."""
    attribute: str
    """The field that holds it: the name, followed by `_` if it is a keyword."""
    group: str
    """The back end it belongs to; empty for the process's own."""
    value_type: ValueType[T_co]
    doc: str
    default: Any
    required: bool
    alternatives: Sequence[str]
    """Options that may be given instead of a required one."""
    secret: bool
    in_file: bool
    """Whether the YAML file may hold it."""
    variable_prefix: str
    """What its environment variable begins with; empty if it has none."""

    @property
    def path(self) -> str:
        return f"{self.group}.{self.name}" if self.group else self.name

    @property
    def flag(self) -> str:
        return "--" + self.path.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        return self.variable_prefix + self.path.replace(".", "_").upper() if self.variable_prefix else ""

    @property
    def is_switch(self) -> bool:
        """Whether the flag may be given without a value."""
        return self.value_type.metavar == ""


def option(
    value_type: ValueType[Any],
    doc: str,
    *,
    default: Any = None,
    required: bool = False,
    alternatives: Sequence[str] = (),
    secret: bool = False,
    in_file: bool = True,
) -> Any:
    """Declare an option as a dataclass field."""
    declared = {
        "value_type": value_type,
        "doc": doc,
        "required": required,
        "alternatives": alternatives,
        "secret": secret,
        "in_file": in_file,
    }
    # A configuration may end up in a log or a traceback; its secrets must not.
    return dataclasses.field(default=default, kw_only=True, repr=not secret, metadata=declared)


def options_of(cls: type[Any], group: str = "", *, variable_prefix: str = "") -> Sequence[Option[Any]]:
    """Return the options that a dataclass declares: required ones first, its own before inherited ones.

    An option is named after its field, without a trailing `_`, unless the class spells it differently in
    `spellings`.
    """
    spellings: Mapping[str, str] = getattr(cls, "spellings", {})
    fields = {field.name: field for field in dataclasses.fields(cls)}
    options = [
        Option(
            name=spellings.get(name, name.rstrip("_")),
            attribute=name,
            group=group,
            default=fields[name].default,
            variable_prefix=variable_prefix,
            **fields[name].metadata,
        )
        for name in dict.fromkeys(_declared(cls))
        if name in fields and "value_type" in fields[name].metadata
    ]
    return sorted(options, key=lambda each: not each.required)


def _declared(cls: type[Any]) -> Iterator[str]:
    for each in cls.__mro__:
        yield from inspect.get_annotations(each)
