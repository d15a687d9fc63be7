"""Every client at the end of its stream: what it tells the sidecar, and when it does not."""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import threading
from collections.abc import Iterator

import bronze_client
import grpc
import pytest
from bronze_client import PublishError, Stats
from bronze_client.schema import Batch, End, Outcome, PublishRequest, PublishResponse
from clients import ClientUnderTest, until_inside
from scripted_sidecar import Abort, ScriptedSidecar, acknowledged, count, in_loop, obliging, opened

Requests = Iterator[PublishRequest]
Responses = Iterator[PublishResponse]


LONG = 20.0


@pytest.fixture(autouse=True)
def _quick(client: ClientUnderTest) -> Iterator[None]:
    """Make pauses between attempts too short to matter."""
    with client.timing(first_pause=0.01, longest_pause=0.05):
        yield


def attentive(requests: Requests) -> Responses:
    """Acknowledge every batch, and want to hear of the end: a script."""
    yield opened(next(requests).open.acknowledged_sequence, takes_end=True)
    for request in requests:
        yield acknowledged(request.batch.sequence, Outcome(published=count(request.batch)))


def ends(sidecar: ScriptedSidecar) -> list[Batch]:
    return [batch for batch in sidecar.batches() if batch.HasField("end")]


@in_loop
async def test_closing_tells_how_many_positions_there_were(client: ClientUnderTest) -> None:
    with ScriptedSidecar(attentive) as sidecar:
        async with client.connect(sidecar.address, batch_events=2) as publisher:
            assert all(await publisher.publish_all([b"a", b"b", b"c"]))
            await publisher.close()
            assert await publisher.stats() == Stats(accepted=3, acknowledged=3, published=3)
        assert sidecar.batches()[2:] == [Batch(sequence=3, first_position=3, end=End(dropped=0))]


@in_loop
async def test_what_was_dropped_or_refused_at_the_end_is_counted(client: ClientUnderTest) -> None:
    with ScriptedSidecar(attentive) as sidecar:
        with pytest.raises(PublishError, match="1 dropped"):
            async with client.connect(sidecar.address, buffer_events=2) as publisher:
                assert await publisher.publish_all([b"a", b"b", b"c"]) == [True, True, False]
                with pytest.raises(TypeError):
                    await publisher.publish(None)
        assert sidecar.batches()[1:] == [Batch(sequence=2, first_position=4, end=End(dropped=2))]


@in_loop
async def test_what_was_dropped_first_is_counted_too(client: ClientUnderTest) -> None:
    with ScriptedSidecar(attentive) as sidecar:
        with pytest.raises(PublishError, match="2 dropped"):
            async with client.connect(
                sidecar.address, batch_events=1, buffer_events=1, on_full="drop_oldest"
            ) as publisher:
                await publisher.publish_all([b"a", b"b", b"c"])
        assert sidecar.batches() == [
            Batch(sequence=1, first_position=2, envelopes=[b"c"]),
            Batch(sequence=2, first_position=3, end=End(dropped=2)),
        ]


@in_loop
async def test_an_end_that_was_lost_with_its_connection_is_sent_again(client: ClientUnderTest) -> None:
    def losing(requests: Requests) -> Responses:
        next(requests)
        yield opened(takes_end=True)
        yield acknowledged(next(requests).batch.sequence)
        assert next(requests).batch.HasField("end")
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    with ScriptedSidecar(losing, attentive) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
        assert ends(sidecar) == [Batch(sequence=2, first_position=1, end=End(dropped=0))] * 2
        assert sidecar.requests(1)[0].open.acknowledged_sequence == 1


@in_loop
async def test_an_end_that_a_back_end_refuses_is_told(client: ClientUnderTest) -> None:
    def script(requests: Requests) -> Responses:
        next(requests)
        yield opened(takes_end=True)
        yield acknowledged(next(requests).batch.sequence)
        next(requests)
        failure = bronze_client.schema.Failure(position=1, kind="FAILURE_KIND_FAILED", reason="no")
        yield acknowledged(2, Outcome(failures=[failure]))
        next(requests, None)

    with ScriptedSidecar(script) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
    assert "1 events failed; the last one: position 1 failed: no" in client.logged()


@in_loop
async def test_an_end_that_is_not_acknowledged_in_time_is_logged(client: ClientUnderTest) -> None:
    go_on = threading.Event()

    def script(requests: Requests) -> Responses:
        next(requests)
        yield opened(takes_end=True)
        yield acknowledged(next(requests).batch.sequence)
        next(requests)
        go_on.wait(LONG)

    with ScriptedSidecar(script) as sidecar, client.timing(finish=0.05):
        async with client.connect(sidecar.address, close_timeout=0.1) as publisher:
            await publisher.publish(b"a")
            await publisher.flush(LONG)
        go_on.set()
    assert [line for line in client.logged() if line.startswith("The sidecar has not acknowledged")] == [
        "The sidecar has not acknowledged the stream's end. The sidecar has not acknowledged them yet."
    ]


@in_loop
async def test_a_stream_without_positions_has_no_end(client: ClientUnderTest) -> None:
    with ScriptedSidecar(attentive) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await until_inside(publisher, lambda inside: inside.is_open)
        assert sidecar.batches() == []


@in_loop
async def test_a_sidecar_that_does_not_know_of_ends_is_told_none(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
        assert [batch.first_position for batch in sidecar.batches()] == [0]
    assert client.logged() in ([], [f"The stream to {sidecar.address} is open."])


@in_loop
async def test_a_producer_that_did_not_get_to_its_end_tells_none(client: ClientUnderTest) -> None:
    with ScriptedSidecar(attentive) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
            await publisher.close(ended=False)
        assert [batch.first_position for batch in sidecar.batches()] == [0]


@in_loop
async def test_a_stream_whose_events_are_not_done_in_time_tells_no_end(client: ClientUnderTest) -> None:
    def silent(requests: Requests) -> Responses:
        next(requests)
        yield opened(takes_end=True)
        yield from (acknowledged(0) for _ in requests)

    with ScriptedSidecar(silent) as sidecar:
        with pytest.raises(PublishError, match="1 not acknowledged"):
            async with client.connect(sidecar.address, close_timeout=0.2) as publisher:
                await publisher.publish(b"a")
        assert ends(sidecar) == []


@in_loop
async def test_a_block_that_raises_tells_no_end() -> None:
    with ScriptedSidecar(attentive) as sidecar:
        with pytest.raises(ZeroDivisionError):
            async with bronze_client.connect(sidecar.address) as publisher:
                publisher.publish(b"a")
                raise ZeroDivisionError
        assert [batch.first_position for batch in sidecar.batches()] == [0]


def test_threads_tell_the_end_as_well() -> None:
    with ScriptedSidecar(attentive) as sidecar:
        with bronze_client.connect_sync(sidecar.address) as publisher:
            publisher.publish(b"a")
        with pytest.raises(ZeroDivisionError), bronze_client.connect_sync(sidecar.address) as publisher:
            publisher.publish(b"a")
            raise ZeroDivisionError
        assert ends(sidecar) == [Batch(sequence=2, first_position=1, end=End(dropped=0))]
