"""`bronze-sidecar health`: asks a running sidecar if it is alive, for callers that only start programs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bronze_cli.program import CommandFailed

from bronze_sidecar.cli.alive import fault_at
from bronze_sidecar.configuration.config import NAMES, PROCESS_OPTIONS, load

DESCRIPTION = """
Asks the sidecar running with these options if it is alive. Only --admin-listen matters; it may come from any
source. Exit status: 0 it answers · 1 it does not.
"""
OPTIONS = [each for each in PROCESS_OPTIONS if each.name in {"admin_listen", "config"}]

__all__ = ["DESCRIPTION", "NAMES", "OPTIONS", "run"]


def run(arguments: Sequence[str]) -> int:
    """Ask; raise CommandFailed if there is no good answer."""
    fault = fault_at(load(arguments, os.environ).admin_listen)
    if fault:
        raise CommandFailed(fault)
    return 0
