"""As many tasks as a micro-batch is worth: each writes a file for each day and exchange.

How many rows a micro-batch has is known when it is done. So the next one goes by that: after a pause, one
batch at most has too few tasks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

ROWS_FOR_A_TASK = 20_000


class FewTasks:
    """Remembers how large the last micro-batch was."""

    def __init__(self) -> None:
        self._tasks: int | None = None

    def of(self, frame: DataFrame, most: int | None = None) -> DataFrame:
        """Return the frame, read by no more tasks than the last one was worth."""
        counts = [count for count in (self._tasks, most) if count is not None]
        return frame.coalesce(min(counts)) if counts else frame

    def note(self, rows: int) -> None:
        """Take note of the rows of a micro-batch."""
        self._tasks = max(1, -(-rows // ROWS_FOR_A_TASK))
