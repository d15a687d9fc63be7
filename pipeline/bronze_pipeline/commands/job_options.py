"""What both jobs take: where they write, how far they go, and how they are run."""

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

    to: str = option(WritablePlace(), "Folder or URL in which the tables are, or are made.", required=True)
    checkpoint: str | None = option(
        WritablePlace(), "Where the job notes how far it is; below --to by default."
    )
    available_now: bool = option(Switch(), "Ends when what is there now is stored.", default=False)
    trigger: Interval = option(Time(), "Time between micro-batches.", default=trusted("30s"))
    retries: int = option(
        Integer(0, 1_000_000),
        "How often in a row to start again after a failure that may pass, with growing pauses.",
        default=10,
    )
    cores: int | None = option(
        Integer(1, 4096), "Cores of this machine to use, without spark-submit; all if not given."
    )

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong between options."""
        if self.to and self.checkpoint is None and not Lake(self.to).is_local:
            yield Problem(
                "--checkpoint",
                "is required where --to is a URL.",
                "Give it in the form that Spark reads, such as s3a://.",
            )
