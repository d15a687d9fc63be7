"""HTML that cannot be broken by data: whatever is not made here is escaped."""

from __future__ import annotations

from html import escape
from typing import NewType

Html = NewType("Html", str)
"""Text that is HTML already."""


class Element:
    """A piece of HTML."""

    __slots__ = ("_text",)

    def __init__(self, text: Html) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


Content = str | Element | None


def element(tag: str, *contents: Content, **attributes: str | float | bool | None) -> Element:
    """Make an element; attributes end in `_` where Python has the word, and have `-` for `_`."""
    head = tag
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = name.rstrip("_").replace("_", "-")
        head += f" {spelled}" if value is True else f' {spelled}="{escape(str(value))}"'
    return Element(Html(f"<{head}>{together(*contents)}</{tag}>"))


def together(*contents: Content) -> Element:
    """Put contents one after the other."""
    return Element(Html("".join(_html(each) for each in contents)))


def _html(content: Content) -> str:
    if content is None:
        return ""
    return str(content) if isinstance(content, Element) else escape(content)
