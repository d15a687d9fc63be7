"""Keeps what Spark's processes say of no use to an operator off the terminal.

No setting does: Java warns of a module that Spark asks for, and PySpark prints what its workers for state
go through. The JVM writes where its standard error went when it was started, as do the workers below it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STDERR = 2
CHATTER = re.compile(
    r"\s*$"
    r"|WARNING: Using incubator modules: jdk\.incubator\.vector$"
    r"|(Starting )?Streaming TransformWithStateInPandas Python worker\b"
)


@contextmanager
def without_chatter(say: Callable[[str], None]) -> Iterator[None]:
    """Pass on the lines of processes that are started meanwhile, as long as these live, but not all.

    `say` must not write to standard error itself: meanwhile that is not where it was.
    """
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading, say), name="stderr of Spark", daemon=True).start()
    before = os.dup(STDERR)
    os.dup2(writing, STDERR)
    os.close(writing)
    try:
        yield
    finally:
        os.dup2(before, STDERR)
        os.close(before)


def _pass_on(reading: int, say: Callable[[str], None]) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not CHATTER.match(line):
                say(line.rstrip("\n").expandtabs())
