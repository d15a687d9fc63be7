"""The facts of two workers as those of one sidecar."""

from __future__ import annotations

from typing import Any

from bronze_sidecar.configuration.config import Config
from bronze_sidecar.ingest.failures import Failures
from bronze_sidecar.ingest.server import SidecarService
from bronze_sidecar.status.page import StatusPage
from bronze_sidecar.status.snapshot import Snapshot
from bronze_sidecar.status.together import together
from bronze_sidecar.telemetry.metrics import Metrics

EARLY, LATE = "2026-01-01T00:00:00.000+00:00", "2026-01-01T00:00:09.000+00:00"


def own() -> dict[str, Any]:
    config, metrics = Config(memory_limit=512 << 20), Metrics()
    facts = Snapshot(config, [], SidecarService(config, [], metrics), Failures(), metrics).facts()
    return {**facts, "memory": {"limit_bytes": 512 << 20, "resident_bytes": 50}}


def backend(**facts: Any) -> dict[str, Any]:
    usual = {
        "title": "NATS",
        "state": "ready",
        "since": EARLY,
        "order": "strict per key",
        "per_second": 1.5,
        "published_events": 0,
        "waiting_events": 1,
        "waiting_bytes": 10,
        "most_events": 100,
        "most_bytes": 1000,
        "in_flight_events": 0,
        "oldest_unacknowledged_seconds": 0.0,
        "retried_events": 0,
        "given_up": {"events": 0},
        "last_error": None,
        "held": None,
    }
    return usual | facts


def worker(**facts: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "pid": 1,
        "started": EARLY,
        "stopping": False,
        "not_ready": [],
        "publishing": "on",
        "memory": {"limit_bytes": 1, "resident_bytes": 100},
        "streams": {"open": 2, "most": 26},
        "sessions": {"remembered": 3, "most": 104},
        "received": {
            "messages": 10,
            "per_second": 2.5,
            "bytes": 99,
            "filtered_events": 1,
            "rejected": {"events": 0},
        },
        "dead_letters": {"file": "", "written": 1, "lost": 0},
        "producers": [],
        "more_producers": 0,
        "destinations": [],
        "last_failures": [],
        "backends": {"nats": backend()},
        "history": {
            "sample_seconds": 5.0,
            "received_per_second": [1.0, 2.0],
            "resident_bytes": [7, 8, 9],
            "backends": {"nats": {"published_per_second": [1.0, 2.0], "waiting_events": [0, 1, 2]}},
        },
    }
    return usual | facts


def test_what_is_counted_is_added_up() -> None:
    facts = together(own(), {0: worker(), 1: worker(pid=2)})
    assert facts["memory"] == {"limit_bytes": 512 << 20, "resident_bytes": 250}
    assert facts["streams"] == {"open": 4, "most": 52}
    assert facts["sessions"] == {"remembered": 6, "most": 208}
    received = facts["received"]
    assert (received["messages"], received["per_second"], received["filtered_events"]) == (20, 5.0, 2)
    assert facts["dead_letters"]["written"] == 2
    nats = facts["backends"]["nats"]
    assert (nats["waiting_events"], nats["most_events"], nats["per_second"]) == (2, 200, 3.0)
    assert nats["order"] == "strict per key"
    assert [(each["worker"], each["pid"]) for each in facts["workers"]] == [(0, 1), (1, 2)]


def test_a_back_end_is_as_well_as_its_worst_worker() -> None:
    away = backend(
        state="lost: gone",
        since=LATE,
        oldest_unacknowledged_seconds=7.0,
        last_error={"time": LATE, "reason": "gone"},
        given_up={"events": 2, "since": EARLY, "last": EARLY, "reason": "too large"},
    )
    usual = backend(given_up={"events": 3, "since": EARLY, "last": LATE, "reason": "not allowed"})
    facts = together(own(), {0: worker(backends={"nats": usual}), 1: worker(backends={"nats": away})})
    nats = facts["backends"]["nats"]
    assert (nats["state"], nats["since"], nats["oldest_unacknowledged_seconds"]) == ("lost: gone", LATE, 7.0)
    assert nats["last_error"] == {"time": LATE, "reason": "gone"}
    assert nats["given_up"] == {"events": 5, "since": EARLY, "last": LATE, "reason": "not allowed"}
    assert facts["problems"][0]["what"] == "NATS is away: gone"


def test_keys_that_are_held_back_are_those_of_all() -> None:
    def held(events: int) -> dict[str, Any]:
        first = {"destination": "d", "key": f"k{events}", "events": events, "since": EARLY, "reason": "no"}
        return {"keys": 2, "events": events, "first": [first]}

    each = [worker(backends={"nats": backend(held=held(events))}) for events in (3, 8)]
    nats = together(own(), {0: each[0], 1: each[1], 2: worker()})["backends"]["nats"]
    assert (nats["held"]["keys"], nats["held"]["events"]) == (4, 11)
    assert [key["key"] for key in nats["held"]["first"]] == ["k8", "k3"]


def test_charts_end_now_whenever_their_worker_began() -> None:
    young = {
        "sample_seconds": 5.0,
        "received_per_second": [10.0],
        "resident_bytes": [1, 1],
        "backends": {"nats": {"published_per_second": [10.0], "waiting_events": [5, 5]}},
    }
    history = together(own(), {0: worker(), 1: worker(history=young)})["history"]
    assert history["received_per_second"] == [1.0, 12.0]
    assert history["resident_bytes"] == [7, 9, 10]
    assert history["backends"]["nats"]["waiting_events"] == [0, 6, 7]


def test_a_worker_that_read_a_newer_configuration_adds_its_back_ends() -> None:
    chart = {"published_per_second": [4.0], "waiting_events": [3]}
    history = worker()["history"]
    newer = worker(
        backends={"nats": backend(), "redis": backend(title="Redis")},
        history={**history, "backends": {**history["backends"], "redis": chart}},
    )
    facts = together(own(), {0: worker(), 1: newer})
    waiting = {name: each["waiting_events"] for name, each in facts["backends"].items()}
    assert waiting == {"nats": 2, "redis": 1}
    assert facts["history"]["backends"]["redis"] == chart


def test_destinations_count_by_what_each_worker_publishes() -> None:
    def using(published: int, **shares: float) -> dict[str, Any]:
        uses = [{"backend": "nats", "destination": name, "share": share} for name, share in shares.items()]
        return worker(destinations=uses, backends={"nats": backend(published_events=published)})

    facts = together(own(), {0: using(300, a=1.0), 1: using(100, a=0.5, b=0.5)})
    assert facts["destinations"] == [
        {"backend": "nats", "destination": "a", "share": 0.875},
        {"backend": "nats", "destination": "b", "share": 0.125},
    ]


def producer(**facts: object) -> dict[str, object]:
    return {
        "producer_id": "p",
        "source": "tardis",
        "origin": "replay",
        "stream_id": "s",
        "connected": True,
        "since": EARLY,
        "messages": 1,
        "messages_per_second": 0.0,
        "next_position": 1,
        "unacknowledged_messages": 0,
        "unacknowledged_bytes": 0,
        "rejected": {"events": 0},
        "given_up": {"events": 0},
        **facts,
    }


def test_producers_name_their_worker_and_the_page_shows_them() -> None:
    facts = together(own(), {0: worker(), 1: worker(producers=[producer()], more_producers=4)})
    assert [(each["stream_id"], each["worker"]) for each in facts["producers"]] == [("s", 1)]
    assert facts["more_producers"] == 4
    assert b"tardis" in StatusPage(lambda: facts).page()


def test_a_connected_producer_stays_where_it_is_and_one_that_left_something_comes_first() -> None:
    first = [
        producer(stream_id="idle"),
        producer(stream_id="gone", connected=False),
        producer(stream_id="left", connected=False, unacknowledged_messages=3),
    ]
    second = [producer(stream_id="sending", unacknowledged_messages=3)]
    facts = together(own(), {0: worker(producers=first), 1: worker(producers=second)})
    assert [each["stream_id"] for each in facts["producers"]] == ["idle", "sending", "left", "gone"]


def test_before_any_worker_answers_there_is_a_page_all_the_same() -> None:
    facts = together(own(), {})
    assert facts["backends"] == {}
    assert StatusPage(lambda: facts).page().startswith(b"<!doctype html>")
