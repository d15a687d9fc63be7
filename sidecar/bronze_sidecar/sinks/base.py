"""What every back end declares: its options, its checks, and the rules that its route is compiled from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bronze_sidecar.naming import Target, control_character
from bronze_sidecar.problems import Fault
from bronze_sidecar.template import Template

FREE_TEXT = Target(noun="text", limit=0, text_fault=control_character, escape_character="")
"""Header and attribute values: nothing is escaped."""

DEFAULT_KEY = "{{exchange}}|{{symbol}}|{{payloadCase}}"


@dataclass(frozen=True)
class Rules:
    """How events are addressed on one back end."""

    destination: Template
    """The base destination."""
    template: Template | None = None
    """Beats the base destination."""
    routing: Mapping[str, Template] = field(default_factory=dict)
    """By payload case; beats the template."""
    include: frozenset[str] | None = None
    """The payload cases to publish; None means all."""
    key: Template | None = None
    """What order is kept by; None means the destination itself."""
    own_headers: tuple[tuple[str, str], ...] = (("payloadCase", "payloadCase"), ("dataType", "dataType"))
    """Headers that the sidecar writes: name and placeholder."""
    static_headers: Mapping[str, str] = field(default_factory=dict)
    templated_headers: Mapping[str, Template] = field(default_factory=dict)
    meta_prefix: str = ""
    """Meta entries become headers under this prefix; empty means that they do not."""
    drop_empty_headers: bool = False
    headers_noun: str = "headers"

    def template_of(self, payload_case: str) -> Template:
        """Return the destination template that holds for a payload case."""
        return self.routing.get(payload_case) or self.template or self.destination


class Backend(ABC):
    """The options of one back end, complete and checked one by one.

    A back end is one module here and one line in `bronze_sidecar.sinks`.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def rules(self) -> Rules:
        """Return how events are addressed."""

    @abstractmethod
    def faults(self) -> Iterator[tuple[str, Fault]]:
        """Yield what is wrong between options, each with the option to name."""


def both_or_neither(backend: Backend, first: str, second: str) -> Iterator[tuple[str, Fault]]:
    """Two options that mean nothing without each other."""
    for given, absent in ((first, second), (second, first)):
        if getattr(backend, given) is not None and getattr(backend, absent) is None:
            yield given, Fault("is of no use alone.", f"Add {flag(backend, absent)}.")


def needs_switch(backend: Backend, switch: str, *names: str) -> Iterator[tuple[str, Fault]]:
    """Options that have no effect while a switch is off."""
    for name in names:
        if getattr(backend, name) is not None and not getattr(backend, switch):
            yield name, Fault("has no effect.", f"Add {flag(backend, switch)}.")


def meta_prefix_faults(
    static_headers: Mapping[str, str] | None, prefix: str | None
) -> Iterator[tuple[str, Fault]]:
    """A static header that looks like a meta header could stand twice in a record."""
    for name in static_headers or {}:
        if prefix and name.startswith(prefix):
            yield (
                "static_headers",
                Fault(
                    f"header '{name}' starts with the prefix of meta headers, '{prefix}'.",
                    "Rename one of them.",
                ),
            )


def flag(backend: Backend, name: str) -> str:
    return f"--{backend.name}-{name.rstrip('_').replace('_', '-')}"
