"""Runs the bronze job for tests, here or as an operator does, and reads its tables by other means."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import nats
import pyarrow as pa
from bronze_pipeline.bronze.job import BronzeBatchReport, BronzeJob
from bronze_pipeline.sources import BUS_BY_SCHEME
from bronze_pipeline.tables.lake import FORMATS, Lake
from pyspark.sql import SparkSession

PROGRAM = str(Path(sysconfig.get_path("scripts"), "bronze-pipeline"))


def run(
    spark: SparkSession,
    bus: str,
    options: dict[str, str],
    place: Path,
    *,
    checkpoint: str = "checkpoint",
    format_: str = FORMATS[0],
    **more: Any,
) -> list[BronzeBatchReport]:
    """Run the job until what is on the bus now is stored."""
    reports: list[BronzeBatchReport] = []
    job = BronzeJob(BUS_BY_SCHEME[bus], options, Lake(str(place), format_), on_batch=reports.append, **more)
    query = job.start(spark, str(place / checkpoint), available_now=True)
    query.awaitTermination()
    return reports


def rows(place: Path, table: str = "bronze") -> list[dict[str, Any]]:
    """Return the rows of a table, in the order of their positions on the bus."""
    found = pa.table(deltalake.DeltaTable(place / table).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: int(row["bus_position"]))


async def publish(url: str, stream: str, *values: bytes) -> None:
    """Put values into a JetStream stream, one after the other, and make the stream if it is not there."""
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        await jetstream.add_stream(name=stream, subjects=[f"{stream}.>"])
        for value in values:
            await jetstream.publish(f"{stream}.x", value)
    finally:
        await client.close()


class JobProcess:
    """`bronze-pipeline` as a process that can be killed with all that it started."""

    def __init__(
        self, log: Path, *arguments: str, program: Sequence[str] = (PROGRAM,), command: str = "bronze"
    ) -> None:
        self.log = log
        self.output = b""
        """What it printed, when it has ended."""
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [*program, command, *arguments],
                stdout=subprocess.PIPE,
                stderr=stream,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End Python, the JVM and, as their input ends, the workers; does nothing if they have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until something is so, while it runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.runs, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def finish(self, seconds: float) -> tuple[int, dict[str, Any]]:
        """Wait for the end; return exit status and summary."""
        self.output, _ = self._process.communicate(timeout=seconds)
        lines = self.output.splitlines()
        return self._process.returncode, json.loads(lines[-1]) if lines else {}


@contextmanager
def maintained(*places: Path) -> Iterator[list[int]]:
    """Maintain tables all the time, and kill that now and then; the list gets each exit status."""
    statuses: list[int] = []
    stop = threading.Event()
    chance = random.Random(1)  # noqa: S311 - no secret

    def work() -> None:
        while not stop.is_set():
            there = [place for place in places if (place / "_delta_log" / f"{0:020}.json").exists()]
            if not there:
                stop.wait(0.1)
                continue
            process = subprocess.Popen(
                [PROGRAM, "maintain", "--table", str(chance.choice(there)), "--open-days"],
                stdout=subprocess.DEVNULL,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.choice([0.5, 1.5, 60]))
            process.kill()
            statuses.append(process.wait())
            # The jobs need the processor too.
            stop.wait(0.5)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        thread.join()
