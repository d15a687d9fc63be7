"""What is refused for good is written to the dead-letter destination before its ticket hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.base import Failed
from scripted import Answer, Script, event, record
from unit.delivery.test_lane import fast, put, running


def refuse(*places: int, error: DeliveryError | None = None) -> Answer:
    return lambda _: [Failed(place, error or Permanent("no")) for place in places]


async def test_a_refused_record_is_written_once_more_with_the_reason() -> None:
    script = Script(answers=[refuse(1)])
    headed = Record(Address("bitmex.b", "b", (("env", "prod"),)), event("2", symbol="b"))
    async with running(script, dead_letter="dead.{{symbol}}") as lane:
        ticket = put(lane, record("1", "a"), headed, record("3", "b"))
        await ticket.done.wait()
        assert (lane.events, lane.bytes) == (0, 0)
    assert script.writes == [["1", "2", "3"], ["2"]]
    assert ticket.failures == [("2", "scripted", "kept at 'dead.b': no")]
    letter = script.addresses[-1]
    assert (letter.destination, letter.key) == ("dead.b", "b")
    assert letter.headers == (
        ("env", "prod"),
        ("deadLetterReason", "no"),
        ("deadLetterDestination", "bitmex.b"),
    )


async def test_a_dead_letter_that_is_refused_too_is_not_written_again() -> None:
    script = Script(answers=[refuse(0), refuse(0, error=Permanent("not here either"))])
    async with running(script, dead_letter="dead") as lane:
        ticket = put(lane, record("1"))
        await ticket.done.wait()
        assert (lane.events, lane.bytes) == (0, 0)
    assert script.writes == [["1"], ["1"]]
    assert ticket.failures == [("1", "scripted", "no")]


@pytest.mark.parametrize("error", [Transient("busy"), Disconnected("gone")])
async def test_a_dead_letter_is_retried(error: DeliveryError) -> None:
    script = Script(answers=[refuse(0), refuse(0, error=error), refuse(0, error=error)])
    async with running(script, dead_letter="dead") as lane:
        ticket = put(lane, record("1"))
        await ticket.done.wait()
    assert script.writes == [["1"]] * 4
    assert ticket.failures == [("1", "scripted", "kept at 'dead': no")]


async def test_what_is_given_up_for_another_reason_is_not_redirected() -> None:
    script = Script(answers=[refuse(0, error=Transient("busy"))] * 2)
    async with running(script, fast(retry_limit=1), dead_letter="dead") as lane:
        ticket = put(lane, record("1"))
        await ticket.done.wait()
    assert script.writes == [["1"]] * 2
    assert ticket.failures == [("1", "scripted", "not stored after 1 retry: busy")]


async def test_a_record_that_was_meant_for_the_dead_letter_destination_is_given_up() -> None:
    script = Script(answers=[refuse(0)])
    async with running(script, dead_letter="dead") as lane:
        ticket = put(lane, record("1", "dead"))
        await ticket.done.wait()
    assert ticket.failures == [("1", "scripted", "no")]


async def test_a_record_whose_dead_letter_waits_is_not_safe() -> None:
    script = Script()
    gate = asyncio.Event()

    def refuse_and_close(batch: Sequence[Record]) -> Sequence[Failed]:
        script.gate = gate
        return refuse(0)(batch)

    script.answers.append(refuse_and_close)
    async with running(script, dead_letter="dead") as lane:
        ticket = put(lane, record("1"))
        while script.gate is None or not lane.in_flight():  # noqa: ASYNC110 - the lane gives no other sign
            await asyncio.sleep(0)
        assert lane.unsafe_events() == 1
        gate.set()
        await ticket.done.wait()
        assert lane.unsafe_events() == 0
