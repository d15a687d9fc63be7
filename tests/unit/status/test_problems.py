"""What is wrong, in sentences: found in the facts, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest
from bronze_sidecar.status.problems import problems

NOW = "2026-11-18T20:00:00.000+00:00"
LONG_AGO = "2026-11-18T18:00:00.000+00:00"
THEN = "2026-11-18T19:59:00.000+00:00"
NOTHING = {"events": 0}


def tally(events: int, *, last: str = NOW, reason: str = "because", destination: str = "") -> dict[str, Any]:
    return {"events": events, "since": THEN, "last": last, "reason": reason, "destination": destination}


def backend(**others: Any) -> dict[str, Any]:
    return {
        "title": "NATS",
        "state": "ready",
        "since": THEN,
        "held": None,
        "given_up": NOTHING,
        "waiting_events": 0,
        "waiting_bytes": 0,
        "most_events": 1000,
        "most_bytes": 1000,
        "oldest_unacknowledged_seconds": 5.0,
        **others,
    }


def producer(source: str = "p/1", **others: Any) -> dict[str, Any]:
    return {
        "source": source,
        "stream_id": "s",
        "connected": True,
        "rejected": NOTHING,
        "unacknowledged_messages": 0,
        "unacknowledged_bytes": 0,
        **others,
    }


def found(*producers: dict[str, Any], backends: dict[str, Any] | None = None, **others: Any) -> list[str]:
    """Return each problem as one text."""
    facts = {
        "time": NOW,
        "stopping": False,
        "memory": {"resident_bytes": 10, "limit_bytes": 100},
        "dead_letters": {"file": "", "written": 0, "lost": 0},
        "received": {"rejected": NOTHING},
        "producers": list(producers),
        "backends": {"nats": backend()} if backends is None else backends,
        **others,
    }
    return [f"{each['level']}: {each['what']} | {each['detail']}" for each in problems(facts)]


def test_nothing_is_wrong() -> None:
    assert found(producer()) == []


def test_a_back_end_that_is_away_with_what_waits_for_it() -> None:
    away = backend(state="lost: reset by peer", waiting_events=100, waiting_bytes=3)
    assert found(backends={"nats": away}) == [
        (
            "error: NATS is away: reset by peer | Waiting in memory: 100 events (10 % of its queue), the"
            " oldest for 5 s. What waits is delivered when it is back; none of it is lost."
        )
    ]
    assert found(backends={"nats": backend(state="connecting")}) == [
        "error: NATS is not connected yet | Nothing waits for it."
    ]


def test_a_queue_that_is_full_holds_producers_up() -> None:
    full = {"state": "failing: busy", "waiting_events": 2, "waiting_bytes": 990}
    (text,) = found(backends={"nats": backend(**full)})
    assert "(99 % of its queue), the oldest for 5 s. The queue is full: producers wait. What waits" in text
    (text,) = found(backends={"nats": backend(**full, disk="ready", on_disk_events=5)})
    assert "producers wait" not in text
    assert "Waiting on disk: 5 events." in text


def test_events_that_a_back_end_refuses_while_that_is_news() -> None:
    refused = tally(3, reason="too large", destination="bronze.a")
    assert found(backends={"nats": backend(given_up=refused)}) == [
        (
            "error: NATS has refused 3 events for good, the last for 'bronze.a': too large | They are lost"
            " unless the producer sends them again. The last one at 20:00:00 UTC."
        )
    ]
    old = tally(3, last=LONG_AGO, destination="bronze.a")
    assert found(backends={"nats": backend(given_up=old)}) == []


def test_dead_letters_are_where_refused_events_are() -> None:
    letters = {"file": "/letters", "written": 1, "lost": 0}
    (text,) = found(backends={"nats": backend(given_up=tally(1))}, dead_letters=letters)
    assert "They are kept in /letters." in text
    (text,) = found(dead_letters={**letters, "lost": 2})
    assert text.startswith("error: 2 dead letters could not be written")


def test_a_producer_that_sends_rubbish() -> None:
    assert found(producer(rejected=tally(2, reason="no type"))) == [
        (
            "error: p/1 sends what cannot be published: 2 messages rejected, the last because no type |"
            " Stream s. They are lost unless the producer sends them again."
        )
    ]


def test_many_of_them_are_not_all_named() -> None:
    many = found(*(producer(f"p/{number}", rejected=tally(1)) for number in range(8)))
    assert len(many) == 6
    assert many[-1].startswith("error: 3 more producers")


def test_one_that_is_gone_with_something_on_the_way() -> None:
    gone = producer(connected=False, unacknowledged_messages=7, unacknowledged_bytes=2048)
    assert found(gone) == [
        (
            "warning: 1 producer left before everything was acknowledged | Still on the way: 7 messages"
            " (2.0 KiB) of theirs."
        )
    ]


def test_errors_come_first() -> None:
    texts = found(stopping=True, backends={"nats": backend(state="connecting")})
    assert [text.partition(":")[0] for text in texts] == ["error", "warning"]


@pytest.mark.parametrize(("used", "expected"), [(90, 0), (91, 1)])
def test_memory_that_is_nearly_used_up(used: int, expected: int) -> None:
    assert len(found(memory={"resident_bytes": used, "limit_bytes": 100})) == expected


def test_held_back_keys() -> None:
    first = {"destination": "bronze.a", "reason": "no stream", "since": THEN}
    held = {"keys": 1, "events": 4, "first": [first]}
    assert found(backends={"nats": backend(held=held)}) == [
        (
            "warning: NATS does not store events for 'bronze.a': no stream | Held back and tried again:"
            " 4 events of 1 key; other keys go on."
        )
    ]
