"""Operators hear of every failure: in the log, few lines with counts; in the status, the last ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bronze_client.schema import Batch
from bronze_sidecar.ingest import failures as module
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.ingest.failures import Failures, StreamFailures, place
from bronze_sidecar.ingest.intake import Contents, Ticket
from bronze_sidecar.mapping.mapper import StreamContext
from scripted import record
from structlog.testing import capture_logs

CONTEXT = StreamContext(
    stream_id="s", source="test/1", origin=2, request_id="r", session_id="t", meta={"desk": "a"}
)


def ticket(failures: Failures, batch: Batch) -> Ticket:
    operators = StreamFailures(failures, CONTEXT, "producer")
    return Ticket(Contents(batch), operators, lambda _: None)


def facts(letter: DeadLetter) -> tuple[object, ...]:
    return (
        letter.kind,
        letter.backend,
        letter.event_id,
        letter.position,
        letter.level,
        letter.form,
        letter.content,
    )


async def test_a_given_up_record_becomes_a_letter_with_all_that_sends_it_again() -> None:
    letters: list[DeadLetter] = []
    mine = ticket(Failures(letters.append), Batch(first_position=7, json=[b"{}"]))
    mine.failed(record("s:7.2", key="bronze.a"), "nats", "too large")
    (letter,) = letters
    assert facts(letter) == ("failed", "nats", "s:7.2", 7, 2, "envelope", b"x" * 10)
    assert (letter.reason, letter.destination, letter.producer_id) == ("too large", "bronze.a", "producer")
    assert (letter.source, letter.origin) == ("test", "replay")


@pytest.mark.parametrize(
    ("batch", "message", "form"),
    [
        (Batch(json=[b"nonsense"]), b"nonsense", "json"),
        (Batch(envelopes=[b"nonsense"]), b"nonsense", "envelope"),
        (Batch(mixed=[b" nonsense"]), b" nonsense", "json"),
        (Batch(mixed=[b"nonsense"]), b"nonsense", "envelope"),
    ],
)
async def test_a_rejected_message_becomes_a_letter_with_its_bytes_and_context(
    batch: Batch, message: bytes, form: str
) -> None:
    letters: list[DeadLetter] = []
    mine = ticket(Failures(letters.append), batch)
    mine.rejected(3, "not valid", message)
    mine.tell_operators()
    (letter,) = letters
    assert facts(letter) == ("rejected", "", "s:3", 3, None, form, message)
    assert (letter.source, letter.origin) == ("test/1", "replay")
    assert (letter.request_id, letter.session_id, letter.meta) == ("r", "t", {"desk": "a"})


async def test_the_first_of_a_kind_is_logged_at_once_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOG_INTERVAL_SECONDS", 0.05)
    failures = Failures()
    mine = ticket(failures, Batch(json=[b"{}"]))
    with capture_logs() as logs:
        for position in range(100):
            mine.failed(record(f"s:{position}"), "nats", f"too large: {position}")
            mine.rejected(position, "not valid", b"")
            mine.tell_operators()
        mine.failed(record("s:5"), "redis", "wrong type")
        assert shown(logs) == [
            ("events given up", "nats", 1, "s", 0, "too large: 0"),
            ("events rejected", None, 1, "s", 0, "not valid"),
            ("events given up", "redis", 1, "s", 5, "wrong type"),
        ]
        logs.clear()
        while len(logs) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert sorted(shown(logs)) == [
            ("events given up", "nats", 99, "s", 99, "too large: 99"),
            ("events rejected", None, 99, "s", 99, "not valid"),
        ]
        assert {each["log_level"] for each in logs} == {"error"}


async def test_what_was_only_counted_is_logged_at_the_end() -> None:
    failures = Failures()
    mine = ticket(failures, Batch(json=[b"{}"]))
    with capture_logs() as logs:
        for position in range(3):
            mine.rejected(position, "not valid", b"")
        mine.tell_operators()
        failures.close()
    assert [each["count"] for each in logs] == [1, 2]


async def test_the_last_ten_of_each_kind_are_remembered() -> None:
    failures = Failures()
    mine = ticket(failures, Batch(json=[b"{}"]))
    mine.rejected(0, "not a message", b"{}")
    mine.tell_operators()
    for position in range(12):
        mine.failed(record(f"s:{position}.0"), "nats", "too large")
    rejected, *last = failures.last()
    assert (rejected["kind"], rejected["position"], rejected["reason"]) == ("rejected", 0, "not a message")
    assert [each["position"] for each in last] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert last[0].pop("time")
    assert last[0] == {
        "kind": "failed",
        "backend": "nats",
        "stream_id": "s",
        "position": 2,
        "level": 0,
        "reason": "too large",
        "source": "test",
        "destination": "a",
    }
    failures.close()


@pytest.mark.parametrize(("text", "expected"), [("0", (0, None)), ("12", (12, None)), ("12.0", (12, 0))])
def test_a_place_is_read_from_an_ids_end(text: str, expected: tuple[int, int | None]) -> None:
    assert place(text) == expected


def shown(logs: Any) -> list[tuple[Any, ...]]:
    names = ("event", "backend", "count", "stream_id", "position", "reason")
    return [tuple(each.get(name) for name in names) for each in logs]
