"""Options, formatted for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from bronze_cli.options import Option

WIDTH = 100


def wrapped(text: str, width: int = WIDTH) -> Iterator[str]:
    """Yield the wrapped lines of paragraphs, which are separated by empty lines."""
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ""
        yield from textwrap.wrap(" ".join(paragraph.split()), width, break_on_hyphens=False)


def described(options: Iterable[Option[Any]], width: int = WIDTH) -> Iterator[str]:
    """Yield the lines that describe options."""
    for each in options:
        yield f"  {each.flag} {each.value_type.metavar}".rstrip()
        yield from textwrap.wrap(
            _sentence(each), width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
        )


def _sentence(each: Option[Any]) -> str:
    notes = [f"${each.variable}"] if each.variable else []
    if each.secret:
        notes.append(f"or the path of a file in ${each.variable}_FILE or {each.flag}-file")
    if each.required:
        notes.append("required")
    elif (default := default_text(each)) != "":
        notes.append(f"default {default}")
    return f"{each.doc} [{'; '.join(notes)}]" if notes else each.doc


def default_text(each: Option[Any]) -> str:
    """Write an option's default as an operator would; empty if there is none."""
    return "" if each.default is None else each.value_type.show(each.default)
