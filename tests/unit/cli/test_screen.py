"""The facts in a terminal: whatever its width, nothing is wider, and what matters is there."""

from __future__ import annotations

from typing import Any

import pytest
from bronze_sidecar.cli.live.screen import BAD, GOOD, Line, lines

NOW = "2026-11-18T20:00:00.000+00:00"
THEN = "2026-11-18T19:59:00.000+00:00"


def facts(**others: Any) -> dict[str, Any]:
    nothing = {"events": 0}
    backend = {
        "title": "NATS",
        "state": "ready",
        "per_second": 1234.5,
        "waiting_events": 50,
        "waiting_bytes": 100,
        "most_events": 100,
        "most_bytes": 1000,
        "oldest_unacknowledged_seconds": 2.0,
        "given_up": nothing,
        "retried_events": 7,
        "published_events": 99_000,
    }
    producer = {
        "source": "tardis-machine/18",
        "messages_per_second": 10.0,
        "connected": True,
        "next_position": 5000,
        "unacknowledged_messages": 3,
        "rejected": nothing,
        "given_up": nothing,
        "origin": "realtime",
        "stream_id": "live-1",
    }
    return {
        "version": "1.2.3",
        "time": NOW,
        "uptime_seconds": 61,
        "received": {
            "per_second": 20.0,
            "messages": 7,
            "filtered_events": 1,
            "rejected": {"events": 2, "since": THEN, "last": THEN, "reason": "x"},
        },
        "memory": {"resident_bytes": 1 << 20, "limit_bytes": 4 << 20},
        "problems": [],
        "backends": {"nats": backend},
        "history": {"backends": {"nats": {"published_per_second": [0.0, 5.0, 10.0]}}},
        "producers": [producer],
        "more_producers": 0,
        "last_failures": [],
        "destinations": [{"destination": "bronze.a", "backend": "nats", "share": 1.0}],
        **others,
    }


def texts(found: list[Line]) -> list[str]:
    return [line.text for line in found]


def test_there_is_everything_where_there_is_room() -> None:
    assert texts(lines(facts(), 200)) == [
        "Bronze Sidecar 1.2.3 · up 1 min 1 s · 20:00:00 UTC",
        (
            "receives 20/s · 7 messages · 1 filtered · 2 rejected · 0 given up ·"
            " memory 1.0 MiB of 4.0 MiB (25 %)"
        ),
        "",
        "All is well",
        "",
        (
            "BACK END  STATE     RATE  WAITING  QUEUE  OLDEST  GIVEN UP  RETRIED  PUBLISHED  ON DISK"
            "  LAST MINUTES"
        ),
        "NATS      ready  1,234/s       50   50 %     2 s         0        7     99,000        0  ▁▄█",
        "",
        "PRODUCER           RATE  POSITION  UNACKNOWLEDGED  REFUSED  ORIGIN    STREAM",
        "tardis-machine/18  10/s     5,000               3        0  realtime  live-1",
        "",
        "MOST USED  BACK END        SHARE",
        "bronze.a   NATS      about 100 %",
    ]


def test_problems_come_first_in_their_colour() -> None:
    problem = {"level": "error", "what": "NATS is away: gone", "detail": "5 events wait.", "since": THEN}
    found = lines(facts(problems=[problem]), 200)
    assert Line("NATS is away: gone — since 19:59:00 UTC (1 min 0 s)", BAD) in found
    assert Line("  5 events wait.") in found
    assert Line("All is well", GOOD) not in found


@pytest.mark.parametrize("width", [1, 24, 40, 52, 80, 120])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    failure = {
        "time": THEN,
        "kind": "failed",
        "backend": "nats",
        "stream_id": "s" * 64,
        "position": 5,
        "destination": "d" * 200,
        "reason": "r" * 200,
    }
    problem = {"level": "error", "what": "w" * 300, "detail": "word " * 60, "since": None}
    found = texts(lines(facts(last_failures=[failure], problems=[problem]), width))
    assert all(len(text) <= max(width, 24) for text in found)
    assert any(text.startswith("NATS") and "ready" in text for text in found)


def test_control_characters_do_not_get_to_the_terminal() -> None:
    problem = {"level": "error", "what": "a\x1b[2Jb", "detail": "", "since": None}
    assert "\x1b" not in "".join(texts(lines(facts(problems=[problem]), 100)))
