"""Routes: compiled once from a back end's rules, they give an event its address, or filter it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from bronze_cli.problems import Fault, shorten

from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event, Groups
from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.routing.rules import TRACE_HEADERS, Address, Rules
from bronze_sidecar.routing.template import FIELDS, Template

# What a back end's addresses may take; one takes about this much beside its texts, with what a sink prepares.
CACHE_BYTES = 16 << 20
ADDRESS_BYTES = 1024
LONGEST_KEY = 1024
"""Values that are longer together are not remembered."""
MOST_TRACED = 1024

AWKWARD_VALUES = (
    "BTC/USDT",
    "XBT.P",
    "1000*",
    ">",
    "a b",
    "a|b",
    "a-b",
    "a_b",
    "%41",
    "_41",
    "$SYS",
    "日本円",
    "",
    "X" * 300,
)
"""Symbols that have broken names on one bus or another; each route is tried with them at startup."""


class Route:
    """What one back end does with events."""

    def __init__(self, rules: Rules, *, is_native: bool = native.IS_INSTALLED) -> None:
        self.rules = rules
        self.is_native = is_native
        """Whether the sink uses compiled code."""
        self._cases = frozenset(PAYLOAD_CASES) if rules.include is None else rules.include
        self.address = _compile(rules, self._cases)
        """Returns where an event goes, or None if its payload case is filtered."""
        addressing = _addressing(rules, self._cases)
        self._names_ids = any("meta.event_id" in template.placeholders for template in addressing)
        self._templated = [(name, template.renderer()) for name, template in rules.templated_headers.items()]
        self.has_event_headers = bool(self._templated or rules.meta_prefix)
        """Whether headers other than the event's id differ between events of one address."""

        given = {*rules.static_headers, *rules.templated_headers}
        self._trace_headers = [name for name in TRACE_HEADERS if name not in given][: rules.room_for_trace]
        self._traced: dict[tuple[Address, tuple[tuple[str, str], ...]], Address] = {}
        self.needs_meta = bool(rules.meta_prefix) or any(template.uses_meta for template in rules.templates())
        """Whether an event's meta is used."""
        self.remembered: Any = None
        """For the sink's own use: what it must still know when it is opened anew."""

    def takes(self, payload_case: str) -> bool:
        """Return whether events of a payload case are published."""
        return payload_case in self._cases

    def addresses(self, groups: Groups, *, are_traced: bool = False) -> list[Address | None]:
        """Return where each event goes."""
        address_of = self._traced_address if are_traced and self._trace_headers else self.address
        if self._names_ids:
            return [address_of(event) for group in groups for event in group]
        addresses: list[Address | None] = []
        for group in groups:
            addresses += [address_of(group[0])] * len(group)
        return addresses

    def _traced_address(self, event: Event) -> Address | None:
        """Return an event's address with the headers of its trace.

        Each trace has addresses of its own, so that records without one cost no more than before.
        """
        address = self.address(event)
        meta = event.meta
        trace = tuple((name, value) for name in self._trace_headers if (value := meta.get(name)))
        if not address or not trace:
            return address
        known = self._traced.get((address, trace))
        if known is None:
            if len(self._traced) >= MOST_TRACED:
                self._traced.clear()
            known = Address(address.destination, address.key, (*address.headers, *trace))
            self._traced[address, trace] = known
        return known

    def event_headers(self, event: Event) -> list[tuple[str, str]]:
        """Return the headers that depend on the individual event, without its id."""
        headers = [(name, render(event)) for name, render in self._templated]
        prefix = self.rules.meta_prefix
        if prefix:
            headers += [(prefix + key, value) for key, value in event.meta.items()]
        return headers

    def headers(self, event: Event, address: Address | None = None) -> list[tuple[str, str]]:
        """Return all headers (fields, attributes) of the event's record."""
        rules = self.rules
        address = address or self._traced_address(event)
        headers = [*(address.headers if address else ()), *self.event_headers(event)]
        if rules.id_header:
            headers.append((rules.id_header, event.id))
        return [header for header in headers if header[1]] if rules.drop_empty_headers else headers


def _compile(rules: Rules, cases: frozenset[str]) -> Callable[[Event], Address | None]:
    """Return a function that finds an event's address, and remembers it unless it depends on meta."""
    renderers = {case: _renderer(rules.template_of(case), rules) for case in cases}

    def render(event: Event) -> Address | None:
        renderer = renderers.get(event.payload_case)
        return renderer(event) if renderer else None

    placeholders = {name for template in _addressing(rules, cases) for name in template.placeholders}
    if any(name.startswith("meta.") for name in placeholders):
        return render
    cache: dict[tuple[str, ...], Address] = {}
    cached_bytes = 0

    def remember(key: tuple[str, ...], event: Event) -> Address | None:
        nonlocal cached_bytes
        address = render(event)
        length = sum(map(len, key))
        if address and length <= LONGEST_KEY:
            size = ADDRESS_BYTES + 4 * (length + len(address.destination) + len(address.key))
            if cached_bytes + size > CACHE_BYTES:
                cache.clear()
                cached_bytes = 0
            cache[key] = address
            cached_bytes += size
        return address

    # A dictionary lookup by the fields that the templates name costs a fraction of rendering. The
    # headers of an address name the payload case and the data type.
    fields = "".join(f"e.{FIELDS[name]}, " for name in sorted(placeholders | {"payloadCase", "dataType"}))
    names = {"known": cache.get, "remember": remember}
    return eval(f"lambda e: known(k := ({fields})) or remember(k, e)", names)  # type: ignore[no-any-return] # noqa: S307


def _addressing(rules: Rules, cases: frozenset[str]) -> list[Template]:
    """Return the templates that make up an address."""
    return [template for template in (rules.key, *map(rules.template_of, cases)) if template]


def _renderer(destination: Template, rules: Rules) -> Callable[[Event], Address]:
    names: dict[str, Any] = {"Address": Address, "static": tuple(rules.static_headers.items())}
    headers = "static"
    if rules.type_headers:
        headers = "(('payloadCase', e.payload_case), ('dataType', e.data_type), *static)"
    key = rules.key or destination
    rendered = f"Address({destination.expression(names)}, {key.expression(names)}, {headers})"
    return eval(f"lambda e: {rendered}", names)  # type: ignore[no-any-return] # noqa: S307 - made of checked names and repr'd text


def trial_faults(options: Any) -> Iterator[tuple[str, Fault]]:
    """Render every template in a back end's options with awkward values; yield what is not safe."""
    for attribute, template in _templates(options):
        if not template.target.escape_character or not template.placeholders:
            continue
        fault = _trial_fault(template)
        if fault:
            yield attribute, fault


@lru_cache(64)
def _trial_fault(template: Template) -> Fault | None:
    render = template.renderer()
    names_both = {"exchange", "symbol"} <= set(template.placeholders)
    # A field that a template does not name cannot change its result.
    for case in PAYLOAD_CASES if "payloadCase" in template.placeholders else PAYLOAD_CASES[:1]:
        seen: dict[str, tuple[str, str]] = {}
        for exchange in AWKWARD_VALUES if "exchange" in template.placeholders else AWKWARD_VALUES[:1]:
            for symbol in AWKWARD_VALUES:
                event = Event(
                    envelope=b"",
                    id=symbol,
                    payload_case=case,
                    exchange=exchange,
                    symbol=symbol,
                    data_type=symbol,
                    source=symbol,
                    origin="replay",
                    meta=_Everywhere(symbol),
                )
                name = render(event)
                what = template.target.text_fault(name)
                if what:
                    return _trial_failed(
                        template, f"symbol '{shorten(symbol)}' gives '{shorten(name)}': {what}"
                    )
                other = seen.setdefault(name, (exchange, symbol))
                if names_both and other != (exchange, symbol):
                    return _trial_failed(
                        template, f"{other} and {(exchange, symbol)} both give '{shorten(name)}'"
                    )
    return None


def _trial_failed(template: Template, what: str) -> Fault:
    return Fault(
        f"'{shorten(template.text)}' can give an illegal or ambiguous {template.target.noun}: {what}."
    )


class _Everywhere(dict[str, str]):
    """A meta that has the same value under every key."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.value = value

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002
        return self.value


def _templates(options: Any) -> Iterator[tuple[str, Template]]:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        for template in value.values() if isinstance(value, dict) else [value]:
            if isinstance(template, Template):
                yield field.name, template
