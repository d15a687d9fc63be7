"""HTML from parts; whatever is not HTML already is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from bronze_cli.problems import printable


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str | Iterable[str], **attributes: str | float | bool | None) -> Markup:
    """Return an element. `class_` and `aria_label` are the attributes `class` and `aria-label`."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_plain(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | Iterable[str]) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(_inner(child) for child in children))


def _inner(child: str | Iterable[str]) -> str:
    if isinstance(child, Markup):
        return child
    return _plain(child) if isinstance(child, str) else "".join(map(_inner, child))


def _plain(text: str) -> str:
    # Control characters are not allowed in HTML, and those that change direction mislead.
    return escape(printable(text))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], *, label: str, texts: int = 1) -> Markup:
    """Return a table, in a region that the keyboard can scroll; the first `texts` columns are no numbers."""

    def cells(row: Iterable[str], scope: str) -> Iterable[Markup]:
        for place, cell in enumerate(row):
            kind = None if place < texts else "number"
            is_head = scope == "col" or place == 0
            yield tag("th", cell, scope=scope, class_=kind) if is_head else tag("td", cell, class_=kind)

    head = tag("thead", tag("tr", cells(heads, "col")))
    inner = tag("table", head, tag("tbody", [tag("tr", cells(row, "row")) for row in rows]))
    return tag("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def behind(summary: str, *inside: str) -> Markup:
    """Return what is shown when one opens it."""
    return tag("details", tag("summary", summary), *inside)
