"""What the process may hold, derived from the memory that it may use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

MEBIBYTE = 1 << 20
DEFAULT_MEMORY = 512 * MEBIBYTE
# The interpreter, its libraries, and what the allocator keeps.
OWN_MEMORY = 128 * MEBIBYTE
LEAST_MEMORY = 192 * MEBIBYTE
# The process that watches over workers.
SUPERVISOR_MEMORY = 64 * MEBIBYTE
CGROUP_FILES = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
# A batch has at most as many bytes as the largest event; the rest is for what surrounds its events.
REQUEST_OVERHEAD = 192 << 10
# An event in a queue takes about as much beside its envelope as one of this size.
EVENTS_OF_QUEUE = 100_000, 64 * MEBIBYTE
DEAD_LETTER_FILES = 3
MOST_BATCHES_WAITING = 8
"""Batches of which a part was mapped, and waits for room in a lane."""
# Sessions are kept for a while after their streams are gone.
SESSIONS_OF_STREAM = 4


class Bounds(NamedTuple):
    """Bounds that options may override."""

    max_queue_events: int
    max_queue_bytes: int
    max_streams: int
    max_sessions: int


def bounds(memory: int, max_event_bytes: int, queues: int = 1) -> Bounds:
    """Divide what is left beside the process itself: a third for queues, a third for requests.

    Half of the queues' third is for envelopes, half for what surrounds them. The rest is for caches, answers
    that producers have not read, batches of which a part waits for room, and what is being written. `queues`
    is how many of them may be full of different events.
    """
    share = max(memory - OWN_MEMORY, LEAST_MEMORY - OWN_MEMORY) // 3
    queue_bytes = max(share // 2 // queues, max_event_bytes, MEBIBYTE)
    streams = max(1, share // request_bytes(max_event_bytes))
    return Bounds(
        max_queue_events=queue_bytes * EVENTS_OF_QUEUE[0] // EVENTS_OF_QUEUE[1],
        max_queue_bytes=queue_bytes,
        max_streams=streams,
        max_sessions=streams * SESSIONS_OF_STREAM,
    )


def different_queues(taken: Sequence[frozenset[str]]) -> int:
    """Return how many queues, for what each takes, may be full without having events in common.

    Whatever waits, waits in a few of the queues that hold all of it. If none of these can be left out, each
    takes something that the others do not.
    """
    for number in range(len(taken), 1, -1):
        for some in combinations(taken, number):
            if all(cases.difference(*some[:place], *some[place + 1 :]) for place, cases in enumerate(some)):
                return number
    return 1


def worker_memory(memory: int, workers: int) -> int:
    """Return how much of the memory each process has that takes events."""
    return memory if workers == 1 else (memory - SUPERVISOR_MEMORY) // workers


def request_bytes(max_event_bytes: int) -> int:
    """Return the most bytes of one request."""
    return max_event_bytes + REQUEST_OVERHEAD


def least_dead_letter_bytes(max_event_bytes: int) -> int:
    """Return how much the dead-letter files need, so that each takes a whole request as base64."""
    return DEAD_LETTER_FILES * 2 * request_bytes(max_event_bytes)


def available_memory() -> int:
    """Return the limit of the process's control group; a small default if it has none."""
    for file in CGROUP_FILES:
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):  # not there, or 'max'
            continue
        # Version 1 says "no limit" with a huge number.
        if limit < 1 << 60:
            return max(limit, LEAST_MEMORY)
    return DEFAULT_MEMORY
