"""The commands of `bronze-pipeline`: THE place to add one.

A command is a module here with a `Command`: its name, a line of help, `add_flags`, and `run`, which returns
the exit status. `run` raises `UsageError` for input that cannot be used (status 2) and `Failed` for work
that went wrong (status 1); both carry complete sentences.
"""

from __future__ import annotations

from bronze_pipeline.commands.base import Command
from bronze_pipeline.commands.bronze import BRONZE
from bronze_pipeline.commands.chart import CHART
from bronze_pipeline.commands.silver import SILVER
from bronze_pipeline.commands.verify import VERIFY

COMMANDS: tuple[Command, ...] = (BRONZE, SILVER, VERIFY, CHART)

__all__ = ["COMMANDS", "Command"]
