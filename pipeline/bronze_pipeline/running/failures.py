"""Finds what an operator needs to know in what Spark reports about a failed stream."""

from __future__ import annotations

import re

from bronze_pipeline.sources.base import Bus, DataLoss

# Our own errors, as Spark quotes them from a worker's traceback.
LASTING_ERRORS = re.compile(
    r"bronze_(?:pipeline|buses)\.[\w.]*(?:DataLoss|OptionError|Refused|TableError): (.+)"
)
# Whether one that fell behind can go on is decided when it starts again.
PASSING_ERRORS = re.compile(r"bronze_(?:pipeline|buses)\.[\w.]*(?:Unreachable|FellBehind): (.+)")
# Checkpoint errors that no retry can fix.
BROKEN_CHECKPOINTS = re.compile(
    r"\[(?:STREAMING_CHECKPOINT_MISSING_METADATA_FILE|STREAMING_STATEFUL_OPERATOR_\w+"
    r"|STATE_STORE_INVALID_CONFIG_AFTER_RESTART|CANNOT_LOAD_STATE_STORE\.CANNOT_READ_\w+"
    r"|CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED)\] (.+)"
)
OTHER_STATE = re.compile(r"\[STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE\]")
CHECKPOINT = re.compile(r"checkpointLocation=([^,\]]+)")
# Spark describes the query after the error.
QUERY = "\n=== Streaming Query ==="
RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
# What py4j adds to a Java error; for an aborted job, only how its last task failed.
RAISED_BY_JAVA = re.compile(r"\n: (?:.*most recent failure: .*?\): )?(.+)")
AROUND = re.compile(
    r"^\[STREAM_FAILED\].*? terminated with exception: |Traceback \(.*|(?:\s*SQLSTATE: \w+)+$"
)


def explain(text: str) -> str:
    """Return what went wrong: the text of our own error, or a line about another error and then all of it."""
    found = LASTING_ERRORS.search(text) or PASSING_ERRORS.search(text)
    return found[1] if found else f"{_line_about(text)}\n{text}"


def _line_about(text: str) -> str:
    text = text.partition(QUERY)[0].strip()
    raised: list[str] = RAISED.findall(text)
    if raised and not raised[-1].startswith("py4j."):
        return raised[-1]
    by_java = RAISED_BY_JAVA.search(text) if raised else None
    if by_java:
        return by_java[1].rstrip(": ")
    return AROUND.sub("", text.partition("\n")[0]) or "Spark does not say why"


def lasting_error(text: str, bus: Bus | None = None) -> str | None:
    """Return an error that an operator must resolve, if that is what Spark reports."""
    found = LASTING_ERRORS.search(text)
    if found:
        return found[1]
    broken = BROKEN_CHECKPOINTS.search(text)
    if broken:
        return (
            f"the checkpoint cannot be used: {AROUND.sub('', broken[1])} Restore it, or use a new one:"
            " events already in the tables are recognized by their ids."
        )
    if OTHER_STATE.search(text):
        found = CHECKPOINT.search(text)
        place = f" {found[1]}" if found else ""
        return (
            f"the state in the checkpoint{place} is of another version of this program."
            " Rename that folder: the query begins anew, and replaces the rows that are stored."
        )
    if bus is None:
        return None
    lost = bus.loss_in(text)
    return str(DataLoss(lost)) if lost else bus.refusal_in(text)
