"""A terminal line that updates while work is in progress."""

from __future__ import annotations

import os
from typing import TextIO

from bronze_cli.problems import printable

FALLBACK_COLUMNS = 80
SHORTEST_BAR, LONGEST_BAR = 5, 30


class Progress:
    """Shows only the latest line, and nothing without a terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_shown = stream is not None and stream.isatty()
        self._shown = ""
        """What the line holds now."""

    def show(self, text: str, share: float | None = None) -> None:
        """Replace the line; `share`, the part that is done, becomes a bar if there is room."""
        if not self.is_shown:
            return
        text = fit(printable(text), share, self._width())
        if text != self._shown:
            self._write("\r" + text.ljust(len(self._shown)))
            self._shown = text

    def note(self, text: str) -> None:
        """Write a line that stays; the next one begins below it."""
        self._clear()
        self._write(printable(text) + "\n")

    def end(self, text: str, share: float | None = None) -> None:
        """Show a last line that stays."""
        if self.is_shown:
            self.show(text, share)
            self._write("\n")
            self._shown = ""

    def _clear(self) -> None:
        if self._shown:
            self._write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _write(self, text: str) -> None:
        if self._stream is not None:
            self._stream.write(text)
            self._stream.flush()

    def _width(self) -> int:
        assert self._stream is not None  # noqa: S101 - it is a terminal
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = 0
        # The last column stays free: some terminals wrap once it is used.
        return (columns or FALLBACK_COLUMNS) - 1


def fit(text: str, share: float | None, columns: int) -> str:
    """Put a bar in front if there is room; cut what does not fit."""
    if len(text) > columns:
        return text[: max(0, columns - 1)] + "…"[:columns]
    length = min(LONGEST_BAR, columns - len(text) - len("[] 100%  "))
    if share is None or length < SHORTEST_BAR:
        return text
    return f"[{'#' * int(share * length):.<{length}}] {share:4.0%}  {text}"
