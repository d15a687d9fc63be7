"""Templates: text with `{{placeholders}}` that an event's values replace."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bronze_cli.problems import Fault, nearest, shorten

from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.naming import Target

FIELDS = {
    "exchange": "exchange",
    "symbol": "symbol",
    "payloadCase": "payload_case",
    "dataType": "data_type",
    "source": "source",
    "origin": "origin",
}
"""Placeholder to the event's attribute."""

PLACEHOLDERS = (*FIELDS, "meta.<key>")
VALUE_CACHE_SIZE = 4096
LONGEST_CACHED_VALUE = 256
_META = re.compile(r"meta\.([A-Za-z0-9_]+)", re.ASCII)
_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# Their values come from our own short lists and contain only letters, whatever an event says.
_LETTERS_ONLY = {"payloadCase", "origin"}

Renderer = Callable[[Event], str]


@dataclass(frozen=True)
class Template:
    """A checked template for one kind of name."""

    text: str
    target: Target = field(repr=False)
    literals: tuple[str, ...] = field(repr=False)
    """The text around the placeholders: one piece more than there are placeholders."""
    placeholders: tuple[str, ...] = field(repr=False)

    @property
    def uses_meta(self) -> bool:
        return any(name.startswith("meta.") for name in self.placeholders)

    @property
    def room(self) -> int:
        """How many characters each value may take so that the longest name is still legal."""
        fixed = len(self.target.name_of("".join(self.literals)))
        return (self.target.limit - fixed) // max(1, len(self.placeholders))

    def expression(self, bindings: dict[str, Any]) -> str:
        """Return Python source that renders the template for an event `e`; add the names it needs."""
        if not self.placeholders:
            return repr(self.text)
        escape = f"escape{len(bindings)}"
        room, target = self.room, self.target
        cached = lru_cache(VALUE_CACHE_SIZE)(lambda value: target.escape(value, room))
        bindings[escape] = lambda value: (
            cached(value) if len(value) <= LONGEST_CACHED_VALUE else target.escape(value, room)
        )
        parts = [repr(self.literals[0])]
        for name, literal in zip(self.placeholders, self.literals[1:], strict=True):
            parts += [f"{escape}({_value(name)})", repr(literal)]
        return "''.join((" + ", ".join(part for part in parts if part != "''") + ",))"

    def renderer(self) -> Renderer:
        """Compile the template to one function."""
        bindings: dict[str, Any] = {}
        source = f"lambda e: {self.expression(bindings)}"
        return eval(source, bindings)  # type: ignore[no-any-return] # noqa: S307 - made of checked names and repr'd text


def _value(placeholder: str) -> str:
    if placeholder in FIELDS:
        return f"e.{FIELDS[placeholder]}"
    key = placeholder.removeprefix("meta.")
    return "e.id" if key == "event_id" else f"e.meta.get({key!r}, '')"


def parse(text: str, target: Target) -> Template | list[Fault]:
    """Check a template for its target; return it, or everything that is wrong with it."""
    if not text.strip():
        return [Fault("the template is empty.", f"Give a {target.noun}.")]
    pieces = _BRACES.split(text)
    literals, names = tuple(pieces[::2]), tuple(piece.strip() for piece in pieces[1::2])
    if any("{" in literal or "}" in literal for literal in literals) or any("{" in name for name in names):
        return [Fault(f"unbalanced braces in '{shorten(text)}'.", "Write a placeholder as {{name}}.")]
    faults = [_unknown(name) for name in names if name not in FIELDS and not _META.fullmatch(name)]
    template = Template(text, target, literals, names)
    return faults or _legality_faults(template) or template


def trusted(text: str, target: Target) -> Template:
    """Parse a template of our own."""
    template = parse(text, target)
    if isinstance(template, list):
        raise ValueError(template)  # noqa: TRY004 - the text is wrong, not its type
    return template


def _unknown(name: str) -> Fault:
    close = nearest(name, FIELDS)
    hint = f"Did you mean '{{{{{close}}}}}'? " if close else ""
    return Fault(
        f"no placeholder '{shorten(name)}'.", f"{hint}The placeholders are {', '.join(PLACEHOLDERS)}."
    )


def _legality_faults(template: Template) -> list[Fault]:
    target = template.target
    # A letter replaces each value: values are escaped, so only the template's own text can be illegal.
    what = target.text_fault("x".join(template.literals))
    if what:
        return [Fault(f"'{shorten(template.text)}' is not a valid {target.noun}: {what}.")]
    if not target.escape_character:
        return []
    if target.name_of("{".join(template.literals)).count("{") != len(template.placeholders):
        return [
            Fault(f"'{shorten(template.text)}': a placeholder may only appear in the last part, the name.")
        ]
    if template.placeholders and template.room < target.shortest_value_room:
        return [
            Fault(
                f"'{shorten(template.text)}' leaves {max(0, template.room)} characters for each value;"
                f" a {target.noun} has at most {target.limit}, and a value needs"
                f" {target.shortest_value_room}.",
                "Shorten the text or use fewer placeholders.",
            )
        ]
    return _ambiguity_faults(template)


def _ambiguity_faults(template: Template) -> list[Fault]:
    """Two events with different values must never render alike.

    Working inwards from both ends, each value must be separated from its neighbour by a character that
    the value itself cannot contain; one value in the middle may be left over.
    """
    names, literals = template.placeholders, template.literals
    left, right = 0, len(names) - 1
    while left < right and _ends(names[left], literals[left + 1], template.target):
        left += 1
    while left < right and _ends(names[right], literals[right], template.target):
        right -= 1
    if left >= right:
        return []
    separators = sorted(
        character
        for character in ".:|/-~"
        if character not in template.target.value_alphabet
        and template.target.name_of(f"x{character}x") == f"x{character}x"
        and not template.target.text_fault(f"x{character}x".join(_padded(template)))
    )
    remedy = f"Separate them with {' or '.join(repr(each) for each in separators)}." if separators else ""
    return [
        Fault(
            f"'{shorten(template.text)}' is ambiguous: different values of {{{{{names[left]}}}}} and"
            f" {{{{{names[left + 1]}}}}} can give the same {template.target.noun}.",
            remedy,
        )
    ]


def _padded(template: Template) -> list[str]:
    return [template.literals[0] + "x", "x" + template.literals[-1]]


def _ends(name: str, literal: str, target: Target) -> bool:
    alphabet = frozenset(string.ascii_letters) if name in _LETTERS_ONLY else target.value_alphabet
    return any(character not in alphabet for character in literal)
