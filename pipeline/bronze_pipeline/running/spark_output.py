"""Keeps output of Spark's processes that is of no use to an operator off the terminal.

No setting does this: Java warns about a module that Spark requests, and PySpark prints the progress of its
state workers. The JVM and its workers write to the standard error that the JVM was started with.
"""

from __future__ import annotations

import logging
import os
import re
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

STDERR = 2
CHATTER = re.compile(
    r"\s*$"
    r"|WARNING: Using incubator modules: jdk\.incubator\.vector$"
    r"|(Starting )?Streaming TransformWithStateInPandas Python worker\b"
)


HUNG_UP = (EOFError, ConnectionError)


@contextmanager
def without_chatter(say: Callable[[str], None]) -> Iterator[None]:
    """Pass on the output of processes started meanwhile, for as long as they live, but without the chatter.

    `say` must not write to standard error itself: it is redirected meanwhile.
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


def without_farewells() -> None:
    """Keep off the terminal how the libraries notice that the Java process is gone; the job says it once."""
    # Py4J logs each call that cannot be made, by its own loggers and by the root.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        setattr(server, "handle_error", _handle_error)  # noqa: B010 - mypy would have to be told otherwise


def _handle_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exception(), HUNG_UP):
        socketserver.BaseServer.handle_error(server, request, address)
