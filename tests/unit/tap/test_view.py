"""What is shown of what passes: chosen, bounded, and with a count of the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import pytest
from bronze_client.schema import FailureKind, TapRequest
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.tap.view import View
from configurations import NATS, backend_of

ROUTE = Route(backend_of(*NATS, "--nats-subject-template=bronze.{{symbol}}").rules())


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, which stands still unless a test moves it."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def record(number: int, *, exchange: str = "bitmex", symbol: str = "XBTUSD", size: int = 3) -> Record:
    event = Event(b"e" * size, f"s:{number}", "trade", exchange, symbol, "trade", "test/1", "replay", {})
    address = ROUTE.address(event)
    assert address is not None
    return Record(address, event)


def records(count: int) -> list[Record]:
    return [record(number) for number in range(count)]


def letter(number: int, *, backend: str = "", kind: Literal["rejected", "failed"] = "rejected") -> DeadLetter:
    return DeadLetter(
        time=datetime(2026, 1, 1, tzinfo=UTC),
        kind=kind,
        reason="because",
        backend=backend,
        event_id=f"s:{number}",
        stream_id="s",
        position=number,
        form="json" if kind == "rejected" else "envelope",
        content=b"{}",
    )


def ids(view: View) -> tuple[list[str], int]:
    """Return the events that are shown, and how many are not."""
    news = view.fetch()
    return [event.event_id for event in news.events], news.skipped


def see(view: View, seen: Sequence[Record], backend: str = "nats") -> None:
    view.stored(ROUTE, backend, seen)


def test_a_record_is_shown_as_it_went_to_the_bus() -> None:
    view = View(TapRequest())
    see(view, [record(7)])
    (event,) = view.fetch().events
    assert (event.event_id, event.envelope, event.backend) == ("s:7", b"eee", "nats")
    assert (event.destination, event.key) == ("bronze.XBTUSD", "bronze.XBTUSD")
    assert [(each.name, each.value) for each in event.headers] == [
        ("payloadCase", "trade"),
        ("dataType", "trade"),
        ("Nats-Msg-Id", "s:7"),
    ]
    assert event.failure == FailureKind.FAILURE_KIND_UNSPECIFIED
    assert ids(view) == ([], 0)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (TapRequest(exchanges=["deribit"]), ["s:1"]),
        (TapRequest(symbols=["ETHUSD", "X"]), ["s:2"]),
        (TapRequest(exchanges=["bitmex"], symbols=["XBTUSD"]), ["s:0"]),
        (TapRequest(payload_cases=["trade"]), ["s:0", "s:1", "s:2"]),
        (TapRequest(payload_cases=["quote"]), []),
        (TapRequest(backends=["nats"]), ["s:0", "s:1", "s:2"]),
        (TapRequest(backends=["redis"]), []),
        (TapRequest(failures_only=True), []),
    ],
)
def test_only_what_is_wanted_is_shown_and_the_rest_is_not_counted(
    request_: TapRequest, expected: list[str]
) -> None:
    view = View(request_)
    see(view, [record(0), record(1, exchange="deribit"), record(2, symbol="ETHUSD")])
    assert ids(view) == (expected, 0)


def test_so_many_are_shown_a_second_spread_over_the_write_and_others_are_counted(clock: list[float]) -> None:
    view = View(TapRequest())
    see(view, records(900))
    assert ids(view) == ([f"s:{number}" for number in range(0, 900, 3)], 600)
    see(view, records(10))
    assert ids(view) == ([], 10)
    clock[0] += 0.1
    see(view, records(60))
    assert ids(view) == ([f"s:{number}" for number in range(0, 60, 2)], 30)
    # What was not used adds up to one second's worth, no more.
    clock[0] += 3600
    see(view, records(600))
    assert ids(view)[1] == 300


def test_failures_have_a_share_that_events_cannot_take() -> None:
    view = View(TapRequest())
    see(view, records(5000))
    view.fetch()
    for number in range(150):
        view.failed(letter(number))
    assert ids(view) == ([f"s:{number}" for number in range(100)], 50)


def test_a_failure_says_what_kind_and_why() -> None:
    view = View(TapRequest(failures_only=True))
    view.failed(letter(1))
    view.failed(letter(2, backend="nats", kind="failed"))
    rejected, given_up = view.fetch().events
    assert rejected.failure == FailureKind.FAILURE_KIND_REJECTED
    assert (rejected.backend, rejected.json, rejected.reason) == ("", b"{}", "because")
    assert given_up.failure == FailureKind.FAILURE_KIND_FAILED
    assert (given_up.backend, given_up.envelope) == ("nats", b"{}")


def test_failures_of_other_back_ends_are_not_shown() -> None:
    view = View(TapRequest(backends=["redis"]))
    view.failed(letter(1))
    view.failed(letter(2, backend="nats", kind="failed"))
    view.failed(letter(3, backend="redis", kind="failed"))
    assert ids(view) == (["s:3"], 0)


def test_what_nobody_fetches_fills_no_memory() -> None:
    view = View(TapRequest())
    see(view, [record(number, size=300_000) for number in range(9)])
    assert ids(view) == (["s:0", "s:1", "s:2"], 6)
    # One that is larger than all of that is shown alone.
    see(view, [record(0, size=5_000_000), record(1)])
    assert ids(view) == (["s:0"], 1)
