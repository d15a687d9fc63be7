"""Sending lines to a sidecar that does what the test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from bronze_client.schema import Outcome, PublishRequest, PublishResponse
from bronze_sidecar.cli.lines import Lines
from bronze_sidecar.cli.transfer import LineNumbers, SendOptions, Transfer
from scripted_sidecar import Abort, ScriptedSidecar, acknowledged, frozen, obliging, opened, rejected
from servers import free_port


@pytest.fixture
def transfer(tmp_path: Path) -> Any:
    """Return a function that sends a text, and returns the exit status and the summary."""

    def run(text: bytes, address: str, **options: Any) -> tuple[int, dict[str, Any]]:
        file = tmp_path / "input"
        file.write_bytes(text)
        one = Transfer(Lines(str(file)), SendOptions(to=address, **options))
        return asyncio.run(one.run()), one.summary()

    return run


def test_every_line_is_one_position_and_empty_ones_are_none(transfer: Any) -> None:
    with ScriptedSidecar(obliging) as scripted:
        status, summary = transfer(b'{"a":1}\n\n{"b":2}\r\n  \n[3]', scripted.address)
        (batch,) = scripted.batches()
    assert (status, summary["sent"], summary["acknowledged"], summary["published"]) == (0, 3, 3, 3)
    assert batch.first_position == 0
    assert b"".join(batch.json) == b'{"a":1}\n{"b":2} \n [3]'


def test_a_long_input_goes_through_a_bounded_buffer_in_order(transfer: Any) -> None:
    text = b"".join(b'{"n":%d}\n' % number for number in range(60_000))
    with ScriptedSidecar(obliging) as scripted:
        status, summary = transfer(text, scripted.address)
        sent = b"\n".join(block for batch in scripted.batches() for block in batch.json)
    assert (status, summary["acknowledged"]) == (0, 60_000)
    assert sent == text.rstrip(b"\n")


def test_rejections_are_counted_and_the_first_are_named(transfer: Any) -> None:
    def reject(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened()
        for request in requests:
            failures = [rejected(position) for position in range(7)]
            yield acknowledged(request.batch.sequence, Outcome(published=1, failures=failures))

    with ScriptedSidecar(reject) as scripted:
        status, summary = transfer(b"{}\n" * 8, scripted.address)
    assert (status, summary["acknowledged"], summary["rejected"], summary["published"]) == (1, 8, 7, 1)
    assert summary["failures"] == [
        f"line {number + 1}, position {number} rejected: bad" for number in range(5)
    ]


def test_a_line_that_is_too_large_for_the_credits_is_rejected_alone(transfer: Any) -> None:
    def mean(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened(size=1_000)
        for request in requests:
            yield acknowledged(request.batch.sequence, Outcome(published=1))

    # More than the buffer takes come before it, so that the credits are known by then.
    text = b'{"a":1}\n' * 30_000 + b'{"b":"%b"}\n' % (b"x" * 2_000)
    with ScriptedSidecar(mean) as scripted:
        status, summary = transfer(text, scripted.address)
    assert (status, summary["sent"], summary["acknowledged"], summary["rejected"]) == (1, 30_000, 30_000, 1)
    assert summary["failures"] == [
        "line 30001, position 30000 rejected: The event has 2009 bytes; at most 1000 can be sent."
    ]


def test_a_sidecar_that_refuses_ends_it_with_its_reason(transfer: Any) -> None:
    def refuse(requests: Iterator[PublishRequest]) -> Iterable[PublishResponse]:
        next(requests)
        raise Abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")

    with ScriptedSidecar(refuse) as scripted:
        status, summary = transfer(b"{}\n" * 100_000, scripted.address)
    assert (status, summary["acknowledged"]) == (1, 0)
    assert summary["error"] == "UNAUTHENTICATED: who are you"
    # It stopped reading, instead of dropping all that the file holds.
    assert summary["dropped"] <= 1


def test_without_acknowledgements_it_gives_up_after_the_time_given(transfer: Any) -> None:
    with ScriptedSidecar(frozen) as scripted:
        status, summary = transfer(b"{}\n" * 3, scripted.address, timeout=0.3)
    assert (status, summary["unacknowledged"]) == (1, 3)
    assert summary["error"].startswith("gave up: nothing was acknowledged for 0.3 seconds.")


def test_a_broken_input_is_told_after_what_was_readable(transfer: Any) -> None:
    with ScriptedSidecar(obliging) as scripted:
        status, summary = transfer(b"\x1f\x8b garbage", scripted.address)
    assert (status, summary["sent"]) == (1, 0)
    assert "the gzip data is " in summary["error"]


def test_a_rate_spreads_the_messages(transfer: Any) -> None:
    with ScriptedSidecar(obliging) as scripted:
        status, summary = transfer(b"{}\n" * 20, scripted.address, rate=50.0)
    assert status == 0
    assert summary["seconds"] >= 0.35


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"time,price\n1,2\n", "line 1, nor in the next 1."),
        (b"\n[\n", "line 2."),
        (b'{\n"type": "trade"\n}\n', "line 1, nor in the next 2."),
        (b"\x89PNG\r\n\x1a\n" + b"\0\n" * 50, "line 1, nor in the next 19."),
    ],
)
def test_a_file_of_another_kind_is_not_sent(transfer: Any, text: bytes, where: str) -> None:
    with ScriptedSidecar(obliging) as scripted:
        status, summary = transfer(text, scripted.address)
    assert (status, summary["sent"]) == (1, 0)
    assert summary["error"].endswith(f"this is not newline-delimited JSON: no JSON object in {where}")


def test_what_stands_before_the_first_object_is_sent_and_judged_by_the_sidecar(transfer: Any) -> None:
    with ScriptedSidecar(obliging) as scripted:
        status, summary = transfer(b'# header\n[1]\n{"a":1}\nrubbish\n', scripted.address)
        (batch,) = scripted.batches()
    assert (status, summary["sent"]) == (0, 4)
    assert b"".join(batch.json) == b' # header\n [1]\n{"a":1}\n rubbish'


def test_without_a_sidecar_it_gives_up_after_a_while(transfer: Any) -> None:
    address = f"127.0.0.1:{free_port()}"
    status, summary = transfer(b"{}\n", address, connect_timeout=0.3)
    assert (status, summary["acknowledged"]) == (1, 0)
    assert summary["error"].startswith(f"gave up: no sidecar has answered at {address} for 0.3 seconds. UNAV")


def test_lines_are_counted_across_empty_ones_however_many() -> None:
    numbers = LineNumbers()
    for position in range(1_000):
        numbers.add(position, 3 * position + 2)
    assert [numbers.of(position) for position in (0, 1, 500, 999)] == [2, 5, 1502, 2999]
    numbers.forget(700)
    assert [numbers.of(position) for position in (700, 999)] == [2102, 2999]
    assert numbers.add(1_000, 3002) == 301
