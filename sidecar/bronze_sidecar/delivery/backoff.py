"""How long to wait before the next attempt."""

from __future__ import annotations

import random


class Backoff:
    """Exponential, with full jitter and a cap."""

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self._first = first_ms / 1000
        self._longest = longest_ms / 1000

    def wait(self, attempts: int) -> float:
        """Return how long to wait after so many failed attempts."""
        return random.uniform(0, min(self._longest, self._first * 2 ** min(attempts - 1, 32)))  # noqa: S311 - no secret
