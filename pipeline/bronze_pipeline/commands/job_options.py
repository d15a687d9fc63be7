"""What both jobs take: where they write, when they end, and how they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bronze_cli.options import option
from bronze_cli.values import Integer, Switch

from bronze_pipeline.commands.places import WritablePlace
from bronze_pipeline.commands.storage_options import StorageOptions
from bronze_pipeline.intervals import Interval, Time, trusted
from bronze_pipeline.jars import JarFolder


@dataclass(frozen=True)
class JobOptions(StorageOptions):
    """The options of a job that writes tables."""

    to: str = option(
        WritablePlace(), "Folder or URL of the tables; they are created if missing.", required=True
    )
    checkpoint: str | None = option(
        WritablePlace(), "Where the job keeps its progress; below --to by default."
    )
    available_now: bool = option(Switch(), "Stop once everything available now is stored.", default=False)
    trigger: Interval = option(Time(), "Time between micro-batches.", default=trusted("30s"))
    retries: int = option(
        Integer(0, 1_000_000),
        "Restarts in a row after failures that may be temporary, with growing pauses.",
        default=10,
    )
    storage_jars: Path | None = option(
        JarFolder(),
        "Folder with the jars of Hadoop's connector for the checkpoint's store, if neither spark-submit nor"
        " Spark's own folder provides them.",
    )
    cores: int | None = option(Integer(1, 4096), "Cores to use without spark-submit; all if not given.")
