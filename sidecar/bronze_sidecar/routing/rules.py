"""How a back end wants its events addressed, and what an addressed event is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from bronze_cli.problems import control_character

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.naming import Target
from bronze_sidecar.routing.template import Template

FREE_TEXT = Target(noun="text", limit=0, text_fault=control_character, escape_character="")
"""Header and attribute values: nothing is escaped."""

TRACE_HEADERS = ("traceparent", "tracestate")
"""What carries a trace from one program to the next, by W3C's Trace Context: entries of meta, and headers."""
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
    dead_letter: Template | None = None
    """Where records go that were refused for good; None means nowhere."""
    key: Template | None = None
    """Events with the same key stay in order; None means the destination itself is the key."""
    type_headers: bool = True
    """Whether the sidecar writes `payloadCase` and `dataType`."""
    id_header: str = ""
    """The header that carries the event's id; empty if there is none."""
    static_headers: Mapping[str, str] = field(default_factory=dict)
    templated_headers: Mapping[str, Template] = field(default_factory=dict)
    meta_prefix: str = ""
    """Meta entries become headers under this prefix; empty means they do not."""
    room_for_trace: int = len(TRACE_HEADERS)
    """How many trace headers a record may have; none where the envelope's meta stands for headers."""
    drop_empty_headers: bool = False
    headers_noun: str = "headers"

    def templates(self) -> list[Template]:
        """Return every template in use."""
        templates = [self.destination, self.template, self.key, self.dead_letter]
        templates += [*self.routing.values(), *self.templated_headers.values()]
        return [template for template in templates if template]

    def template_of(self, payload_case: str) -> Template:
        """Return the destination template that applies to a payload case."""
        return self.routing.get(payload_case) or self.template or self.destination


class Address:
    """Where records go, the key that keeps their order, and the headers that follow from that.

    Routes keep addresses, so what a sink prepares for one serves many records.
    """

    __slots__ = ("destination", "headers", "key", "prepared")

    def __init__(self, destination: str, key: str, headers: tuple[tuple[str, str], ...]) -> None:
        self.destination = destination
        self.key = key
        self.headers = headers
        self.prepared: Any = None
        """For the sink's own use, such as the start of its command."""

    @property
    def order(self) -> tuple[str, str]:
        """Records with the same order are written one after the other."""
        return self.destination, self.key


class Record(msgspec.Struct, gc=False):
    """An event addressed to one destination of one sink."""

    address: Address
    event: Event
