"""What every command is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command of `bronze-pipeline`."""

    name: str
    summary: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """The command line cannot be used. Carries every problem, not only the first."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class CommandFailed(Exception):  # noqa: N818 - named for what it says
    """The work went wrong; the text says why."""
