"""Finds, in what Spark says of a stream that failed, what an operator wants to know."""

from __future__ import annotations

import re

from bronze_pipeline.sources.base import Bus, DataLoss

# Errors of ours, as Spark quotes them from a worker's traceback.
LASTING_ERRORS = re.compile(r"bronze_pipeline\.[\w.]*(?:DataLoss|OptionError|TableError): (.+)")
PASSING_ERRORS = re.compile(r"bronze_pipeline\.[\w.]*Unreachable: (.+)")


def our_error(text: str) -> str | None:
    """Return what one of our own errors says, if Spark quotes one."""
    found = LASTING_ERRORS.search(text) or PASSING_ERRORS.search(text)
    return found[1] if found else None


def lasting_error(text: str, bus: Bus) -> str | None:
    """Return what the operator has to decide about, if that is what Spark reports."""
    found = LASTING_ERRORS.search(text)
    if found:
        return found[1]
    lost = bus.loss_in(text)
    return str(DataLoss(lost)) if lost else None
