"""Doing something soon after it is asked for, but not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Throttle:
    """Runs an action when asked, at most once in each interval."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, interval_seconds: float, action: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._interval = interval_seconds
        self._action = action
        self._next_time = loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Run the action as soon as it may run."""
        if self._timer is None:
            self._timer = self._loop.call_at(self._next_time, self._run)

    def finish(self) -> None:
        """Run the action now if it was asked for, and never again by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._run()

    def _run(self) -> None:
        self._timer = None
        self._next_time = self._loop.time() + self._interval
        self._action()
