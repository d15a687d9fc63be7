"""Runs streams in the foreground: progress, signals, a summary, and errors that say what to do.

Failed streams are restarted from their checkpoints: buses restart, and Spark gives a worker process ten
seconds to start, which no setting changes and a busy machine may exceed. Anything that an operator must
resolve (wrong options, lost records, a table of another kind) ends the job at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bronze_buses.errors import Refused
from bronze_cli.program import CommandFailed
from bronze_cli.progress import Progress
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bronze_pipeline.running.failures import explain, lasting_error
from bronze_pipeline.running.session import open_session
from bronze_pipeline.running.spark_output import without_chatter, without_farewells
from bronze_pipeline.sources.base import Bus
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.tables.tables import TableError

POLL_SECONDS = 1
LONGEST_PAUSE_SECONDS = 30
JAVA_IS_GONE = (Py4JNetworkError, ConnectionRefusedError)
JAVA_DID_NOT_START = "JAVA_GATEWAY_EXITED"


class Totals(Protocol):
    """What a run has done so far."""

    def add(self, report: Any) -> None:
        """Count a micro-batch; the report's text is a log line."""

    def look(self, query: StreamingQuery) -> None:
        """Note what Spark says about a query."""

    def status(self) -> str:
        """Return the line to show while running."""

    def share(self) -> float | None:
        """Return how much is done; None if that cannot be known."""

    def outcome(self) -> str:
        """Return the line to show at the end."""

    def summary(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Watch:
    """Observes a run, and tells it to stop."""

    totals: Totals
    progress: Progress
    stop: threading.Event

    def on_batch(self, report: Any) -> None:
        self.totals.add(report)
        if not self.progress.is_shown:
            self.progress.note(str(report))


def run(
    work: Callable[[SparkSession, Watch], None],
    totals: Totals,
    *,
    cores: int | None,
    jars: Sequence[Path] = (),
) -> int:
    """Work until done, a signal, or a failure; print a summary as JSON on stdout."""
    progress = Progress(os.fdopen(os.dup(sys.stderr.fileno()), "w"))
    progress.show("starting Spark")
    stop = threading.Event()
    _heed_signals(stop)
    without_farewells()
    with without_chatter(progress.note), _java_alive():
        session = open_session("bronze-pipeline", cores=cores, jars=jars)
    # PySpark takes over Ctrl-C when the session opens.
    _heed_signals(stop)
    try:
        with _java_alive():
            work(session, Watch(totals, progress, stop))
    except PySparkException as error:
        if not stop.is_set():
            raise CommandFailed(explain(str(error))) from error
    finally:
        progress.end(totals.outcome())
        print(json.dumps(totals.summary()), flush=True)
        with suppress(*JAVA_IS_GONE):
            session.stop()
    return 0


@contextmanager
def _java_alive() -> Iterator[None]:
    """Say what to do if the Java process is gone, instead of how that was noticed."""
    try:
        yield
    except (*JAVA_IS_GONE, PySparkException) as error:
        if isinstance(error, PySparkException) and error.getCondition() != JAVA_DID_NOT_START:
            raise
        raise CommandFailed(
            "Spark's Java process has ended: it was killed, or ran out of memory."
            " Start the command again; it resumes where it stopped."
        ) from error


def _heed_signals(stop: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())


def keep_running(
    start: Callable[[], Iterable[StreamingQuery]], watch: Watch, *, retries: int, bus: Bus | None = None
) -> None:
    """Run streams until they are done or told to stop; raise CommandFailed if that is impossible.

    They start together, and restart together if one fails, at most `retries` times in a row.
    """
    failures = 0
    while not watch.stop.is_set():
        failure = _run_once(start, watch)
        # Workers get Ctrl-C too, and an interrupted batch counts as failed.
        if failure is None or watch.stop.is_set():
            return
        error = failure.error
        lasting = lasting_error(str(error), bus)
        if lasting is not None:
            raise CommandFailed(lasting) from error
        failures = 1 if failure.had_worked else failures + 1
        if failures > retries:
            raise CommandFailed(explain(str(error))) from error
        pause = min(2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
        reason = explain(str(error)).splitlines()[0]
        watch.progress.note(f"{reason}; restarting in {pause} s ({failures} of {retries})")
        watch.stop.wait(pause)


@dataclass(frozen=True)
class _Failure:
    error: PySparkException
    had_worked: bool
    """Whether the failed queries had made progress before, if only to see that there is nothing new."""


def _run_once(start: Callable[[], Iterable[StreamingQuery]], watch: Watch) -> _Failure | None:
    queries: list[StreamingQuery] = []
    try:
        queries += start()
        _follow(queries, watch)
    except (TableError, OptionError, Refused) as error:
        raise CommandFailed(str(error)) from error
    except PySparkException as error:
        failed = [query for query in queries if query.exception() is not None]
        return _Failure(error, bool(failed) and all(query.lastProgress is not None for query in failed))
    finally:
        for query in queries:
            query.stop()
    return None


def _follow(queries: Sequence[StreamingQuery], watch: Watch) -> None:
    running = list(queries)
    while running and not watch.stop.is_set():
        # Raises the query's error, as below.
        running[0].awaitTermination(POLL_SECONDS)
        for query in tuple(running):
            watch.totals.look(query)
            if not query.isActive:
                query.awaitTermination()
                running.remove(query)
        watch.progress.show(watch.totals.status(), watch.totals.share())
