"""What both jobs take: where they write, when they end, and how they run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bronze_cli.options import option
from bronze_cli.problems import Problem
from bronze_cli.values import Integer, Switch

from bronze_pipeline.commands.places import WritablePlace
from bronze_pipeline.intervals import Interval, Time, trusted
from bronze_pipeline.tables.lake import Lake


@dataclass(frozen=True)
class JobOptions:
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
    cores: int | None = option(Integer(1, 4096), "Cores to use without spark-submit; all if not given.")

    def problems(self) -> Iterator[Problem]:
        """Yield conflicts between options."""
        if self.to and self.checkpoint is None and not Lake(self.to).is_local:
            yield Problem(
                "--checkpoint",
                "is required if --to is a URL.",
                "Use a URL that Spark understands, such as s3a://.",
            )
