"""Option values that decide where events go: payload cases, templates, routes and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bronze_cli.options import Raw, ValueType
from bronze_cli.problems import Fault, control_character, did_you_mean, shorten
from bronze_cli.values.scalars import Scalar, one_or_more, split

from bronze_sidecar.envelope.payloads import CASE_BY_FOLDED_NAME, PAYLOAD_CASES, fold
from bronze_sidecar.routing.naming import Target
from bronze_sidecar.routing.template import Template, parse


class Cases(ValueType[frozenset[str]]):
    """Payload cases, in any spelling."""

    metavar = "CASE,…"

    def parse(self, raw: Raw) -> frozenset[str] | list[Fault]:
        if isinstance(raw, dict):
            return [Fault("must be a list, not a mapping.")]
        cases, faults = [], []
        for name in split(raw) if isinstance(raw, str) else raw:
            case = CASE_BY_FOLDED_NAME.get(fold(name))
            if case is None:
                faults.append(unknown_case(name))
            else:
                cases.append(case)
        return (
            faults
            or frozenset(cases)
            or [Fault("is empty.", f"The payload cases are {', '.join(PAYLOAD_CASES)}.")]
        )

    def json_schema(self) -> dict[str, Any]:
        return one_or_more({"type": "string"})

    def show(self, value: Iterable[str]) -> str:
        return ", ".join(case for case in PAYLOAD_CASES if case in value)


def unknown_case(name: str) -> Fault:
    return Fault(f"'{shorten(name)}' is not a payload case.", did_you_mean(name, PAYLOAD_CASES))


@dataclass(frozen=True)
class Destination(Scalar):
    """A name on the bus, possibly a template."""

    target: Target
    metavar = "TEMPLATE"

    def read(self, text: str) -> Template | list[Fault]:
        return parse(text, self.target)

    def show(self, value: Template) -> str:
        return value.text


@dataclass(frozen=True)
class Pairs(ValueType[dict[str, Any]]):
    """Keys and values: a YAML mapping, or `key:value` separated by commas."""

    metavar = "KEY:VALUE,…"

    def parse(self, raw: Raw) -> dict[str, Any] | list[Fault]:
        pairs: list[tuple[str, str]] = []
        faults: list[Fault] = []
        if isinstance(raw, dict):
            pairs = list(raw.items())
        else:
            for text in split(raw) if isinstance(raw, str) else raw:
                key, colon, value = text.partition(":")
                if colon:
                    pairs.append((key.strip(), value.strip()))
                else:
                    faults.append(
                        Fault(f"'{shorten(text)}' has no ':'.", f"Write {self.metavar.split(',')[0]}.")
                    )
        entries: dict[str, Any] = {}
        for key, text in pairs:
            name, value, wrong = self.entry(key, text)
            faults += wrong
            if name in entries:
                faults.append(Fault(f"'{shorten(name)}' is given twice."))
            entries[name] = value
        return faults or entries or [Fault("is empty.")]

    def entry(self, key: str, text: str) -> tuple[str, Any, list[Fault]]:
        """Return the key as it counts, the value, and what is wrong with either."""
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        mapping = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
        return {"oneOf": [mapping, *one_or_more({"type": "string"})["oneOf"]]}

    def show(self, value: dict[str, Any]) -> str:
        return ", ".join(f"{key}:{getattr(entry, 'text', entry)}" for key, entry in value.items())


@dataclass(frozen=True)
class Routing(Pairs):
    """Destinations for individual payload cases."""

    target: Target
    metavar = "CASE:TEMPLATE,…"

    def entry(self, key: str, text: str) -> tuple[str, Template | None, list[Fault]]:
        case = CASE_BY_FOLDED_NAME.get(fold(key))
        template = parse(text, self.target)
        faults = [] if case else [unknown_case(key)]
        if isinstance(template, list):
            return (
                case or key,
                None,
                faults + [Fault(f"for '{shorten(key)}', {f.what}", f.remedy) for f in template],
            )
        return case or key, template, faults


@dataclass(frozen=True)
class Headers(Pairs):
    """Static headers; the back end says which names it allows."""

    name_fault: Callable[[str], str | None]
    metavar = "NAME:VALUE,…"
    # A header may well hold an e-mail address.
    before_credentials = "://"

    def entry(self, key: str, text: str) -> tuple[str, str, list[Fault]]:
        what = self.header_fault(key) or (f"header '{shorten(key)}' has an empty value" if not text else None)
        if not what and control_character(text):
            what = f"the value of header '{shorten(key)}' contains {control_character(text)}"
        return key, text, [Fault(f"{what}.")] if what else []

    def header_fault(self, name: str) -> str | None:
        if not name:
            return "a header's name is empty"
        if fold(name) in {"payloadcase", "datatype"}:
            return f"header '{shorten(name)}' is reserved: the sidecar writes it itself"
        return self.name_fault(name)


@dataclass(frozen=True)
class TemplatedHeaders(Headers):
    """Headers whose values are templates."""

    target: Target
    metavar = "NAME:TEMPLATE,…"

    def entry(self, key: str, text: str) -> tuple[str, Template | None, list[Fault]]:  # type: ignore[override]
        what = self.header_fault(key)
        faults = [Fault(f"{what}.")] if what else []
        template = parse(text, self.target)
        if isinstance(template, list):
            return key, None, faults + [Fault(f"for '{shorten(key)}', {f.what}", f.remedy) for f in template]
        return key, template, faults
