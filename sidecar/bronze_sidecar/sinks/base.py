"""The boundary of back ends: what each declares, and how a connected one is written to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import msgspec

from bronze_sidecar.errors import DeliveryError
from bronze_sidecar.event import Event
from bronze_sidecar.naming import Target, control_character
from bronze_sidecar.problems import Fault
from bronze_sidecar.template import Template

if TYPE_CHECKING:
    from bronze_sidecar.routes import Route

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
    type_headers: bool = True
    """Whether the sidecar writes `payloadCase` and `dataType`."""
    id_header: str = ""
    """The header that carries the event's id; empty if none does."""
    static_headers: Mapping[str, str] = field(default_factory=dict)
    templated_headers: Mapping[str, Template] = field(default_factory=dict)
    meta_prefix: str = ""
    """Meta entries become headers under this prefix; empty means that they do not."""
    drop_empty_headers: bool = False
    headers_noun: str = "headers"

    def templates(self) -> list[Template]:
        """Return every template that plays a part."""
        templates = [self.destination, self.template, self.key]
        templates += [*self.routing.values(), *self.templated_headers.values()]
        return [template for template in templates if template]

    def template_of(self, payload_case: str) -> Template:
        """Return the destination template that holds for a payload case."""
        return self.routing.get(payload_case) or self.template or self.destination


class Address:
    """Where records go, what their order is kept by, and the headers that follow from that.

    Routes keep addresses, so whatever a sink prepares for one serves many records.
    """

    __slots__ = ("destination", "headers", "key", "prepared")

    def __init__(self, destination: str, key: str, headers: tuple[tuple[str, str], ...]) -> None:
        self.destination = destination
        self.key = key
        self.headers = headers
        self.prepared: Any = None
        """The sink's own, such as the start of its command."""

    @property
    def order(self) -> tuple[str, str]:
        """Records with the same order are written one after the other."""
        return self.destination, self.key


class Record(msgspec.Struct, gc=False):
    """An event addressed to one destination of one sink."""

    address: Address
    event: Event


class Limits(NamedTuple):
    """The most that one write may carry."""

    records: int
    bytes: int


class Failed(NamedTuple):
    """A record that a write did not store, by its place in the batch."""

    place: int
    error: DeliveryError


class Sink(Protocol):
    """A connected back end. It never queues, batches, retries, logs or counts: lanes do."""

    limits: Limits
    forgets_ids_after: float | None
    """Seconds for which the back end drops a record that comes twice; None if it never does."""

    async def ping(self) -> None:
        """Return if the back end answers; raise Disconnected if it does not."""

    async def write(self, batch: Sequence[Record]) -> Sequence[Failed]:
        """Store the batch, in order; return after the back end has confirmed it.

        Return the records that were not stored; raise DeliveryError if none was. When a record may be
        stored later (Transient), no later record of its order may have been stored before it.
        """


class Backend(ABC):
    """The options of one back end, complete and checked one by one.

    A back end is one module here and one line in `bronze_sidecar.sinks`.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    max_batch_size: int
    max_batch_delay_ms: int

    @abstractmethod
    def open(self, route: Route) -> AbstractAsyncContextManager[Sink]:
        """Connect; close on leaving. Raise Transient if it may work later, Permanent if it never will."""

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
