"""The line on a terminal."""

from __future__ import annotations

import io

import pytest
from bronze_cli.progress import Progress, fit


class Terminal(io.StringIO):
    """A terminal that cannot say how wide it is."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("share", "columns", "line"),
    [
        (0.5, 40, "[##########..........]  50%  ten, twenty"),
        (0.0, 22, "ten, twenty"),
        (1.0, 25, "[#####] 100%  ten, twenty"),
        (None, 80, "ten, twenty"),
        (0.5, 8, "ten, tw…"),
        (0.5, 1, "…"),
        (0.5, 0, ""),
    ],
)
def test_a_bar_and_then_the_text_take_the_room_that_there_is(share, columns, line):
    assert fit("ten, twenty", share, columns) == line


def test_the_newest_line_replaces_the_one_before_and_covers_it():
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show("a long line")
    progress.show("short")
    assert terminal.getvalue() == "\ra long line\rshort      "


def test_the_same_line_is_not_written_twice():
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show("same")
    progress.show("same")
    assert terminal.getvalue() == "\rsame"


def test_a_note_stays_and_the_last_line_too():
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show("half")
    progress.note("something happened")
    progress.end("all")
    assert terminal.getvalue() == "\rhalf\r    \rsomething happened\n\rall\n"


def test_control_characters_do_not_reach_the_terminal():
    terminal = Terminal()
    Progress(terminal).note("a\x1b[2Jb")
    assert terminal.getvalue() == "a�[2Jb\n"


def test_without_a_terminal_only_notes_are_written():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.show("half")
    progress.note("something happened")
    progress.end("all")
    assert stream.getvalue() == "something happened\n"


def test_without_a_stream_nothing_is_written():
    progress = Progress(None)
    progress.show("half")
    progress.note("something happened")
    progress.end("all")
