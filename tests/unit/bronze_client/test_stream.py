"""Every client on the wire, against a sidecar that does as it is told."""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from bronze_client import Failure, PublishError, Stats
from bronze_client.schema import Outcome, PublishRequest, PublishResponse
from clients import ClientUnderTest, Told, until_inside, until_stats
from scripted_sidecar import (
    Abort,
    ScriptedSidecar,
    acknowledged,
    count,
    frozen,
    granted,
    in_loop,
    obliging,
    opened,
    rejected,
    until,
)

Requests = Iterator[PublishRequest]
Responses = Iterator[PublishResponse]


LONG = 20.0
"""Seconds that a flush may take before the test is lost anyway."""


@pytest.fixture(autouse=True)
def _quick(client: ClientUnderTest) -> Iterator[None]:
    """Make pauses between attempts too short to matter."""
    with client.timing(first_pause=0.01, longest_pause=0.05):
        yield


@pytest.fixture
def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@in_loop
async def test_the_stream_is_opened_with_its_context(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with client.connect(
            sidecar.address,
            source="recorder/1.0",
            origin="replay",
            stream_id="s-1",
            request_id="r",
            session_id="t",
            meta={"route": "a"},
        ) as publisher:
            assert publisher.stream_id == "s-1"
            await publisher.publish(b"a")
        opening = sidecar.requests(0)[0].open
    assert len(opening.producer_id) == 32
    assert opening.acknowledged_sequence == 0
    context = opening.context
    assert (context.stream_id, context.source, context.origin) == ("s-1", "recorder/1.0", 2)
    assert (context.request_id, context.session_id, dict(context.meta)) == ("r", "t", {"route": "a"})


@in_loop
async def test_events_arrive_in_batches_under_their_positions(client: ClientUnderTest) -> None:
    events = [b"a", b"b", {"type": "trade"}, '{\n"x":1}', b"c", '{"y":2}', {}, b"d"]
    with ScriptedSidecar(obliging) as sidecar:
        async with client.connect(sidecar.address, batch_events=2) as publisher:
            assert all(await publisher.publish_all(events))
            await publisher.flush(LONG)
            assert await publisher.stats() == Stats(accepted=8, acknowledged=8, published=8)
        batches = sidecar.batches()
    assert [(batch.sequence, batch.first_position) for batch in batches] == [(1, 0), (2, 2), (3, 4), (4, 6)]
    assert [list(batch.envelopes) for batch in batches] == [[b"a", b"b"], [], [], []]
    assert [list(batch.json) for batch in batches] == [[], [b'{"type":"trade"}\n{ "x":1}'], [], []]
    assert [list(batch.mixed) for batch in batches] == [[], [], [b"c", b' {"y":2}'], [b" {}", b"d"]]


@in_loop
async def test_a_partial_batch_is_sent_without_a_flush(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
            await until_stats(publisher, lambda stats: stats.acknowledged == 1)
            await publisher.publish(b"b")
            await until_stats(publisher, lambda stats: stats.acknowledged == 2)


@in_loop
async def test_nothing_waits_for_company_while_nothing_is_in_flight(client: ClientUnderTest) -> None:
    """The first event goes at once; others gather until that is acknowledged, or until there are enough."""
    go_on = threading.Semaphore(0)

    def script(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        for request in requests:
            go_on.acquire(timeout=LONG)
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(script) as sidecar:
        async with client.connect(sidecar.address, batch_events=3, batch_delay=2 * LONG) as publisher:
            await publisher.publish(b"a")
            await until(lambda: len(sidecar.batches()) == 1)
            await publisher.publish(b"b")
            await publisher.publish(b"c")
            go_on.release()
            await until(lambda: len(sidecar.batches()) == 2)
            await publisher.publish_all([b"d", b"e", b"f", b"g"])
            await until_inside(publisher, lambda inside: inside.sent_events == 5)
            go_on.release(2)
            await until(lambda: len(sidecar.batches()) == 4)
            go_on.release()
    batches = [list(batch.envelopes) for batch in sidecar.batches()]
    assert batches == [[b"a"], [b"b", b"c"], [b"d", b"e", b"f"], [b"g"]]


@in_loop
async def test_a_unix_socket_works_as_well(client: ClientUnderTest, tmp_path: Path) -> None:
    sidecar = ScriptedSidecar(obliging)
    sidecar.start(f"unix://{tmp_path}/s.sock")
    async with client.connect(sidecar.address) as publisher:
        await publisher.publish(b"a")
        await publisher.flush(LONG)
    sidecar.stop()


@in_loop
async def test_closing_ends_the_stream_in_good_order(client: ClientUnderTest) -> None:
    ended = threading.Event()

    def script(requests: Requests) -> Responses:
        yield from obliging(requests)
        ended.set()

    with ScriptedSidecar(script) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
        assert ended.wait(LONG)
        await publisher.close()
        assert await publisher.publish(b"b") is False
        await publisher.flush()


@in_loop
async def test_events_wait_for_a_sidecar_that_comes_later(client: ClientUnderTest, free_address: str) -> None:
    async with client.connect(free_address) as publisher:
        await publisher.publish(b"a")
        with pytest.raises(PublishError, match="1 not acknowledged") as caught:
            await publisher.flush(0.2)
        assert caught.value.unacknowledged == 1
        assert "UNAVAILABLE" in caught.value.reason
        sidecar = ScriptedSidecar(obliging)
        sidecar.start(free_address)
        await publisher.flush(LONG)
        assert await publisher.stats() == Stats(accepted=1, acknowledged=1, published=1)
    sidecar.stop()


@in_loop
async def test_what_is_not_acknowledged_is_sent_again_byte_for_byte(client: ClientUnderTest) -> None:
    def lost(requests: Requests) -> Responses:
        yield opened(next(requests).open.acknowledged_sequence)
        assert [next(requests).batch.sequence for _ in range(3)] == [1, 2, 3]
        yield acknowledged(1)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    with ScriptedSidecar(lost, obliging) as sidecar:
        async with client.connect(sidecar.address, batch_events=2, stream_id="s") as publisher:
            await publisher.publish_all([b"a", b"b", b"c", b"d", {"e": 1}])
            await publisher.flush(LONG)
            assert (await publisher.stats()).reconnects == 1
            assert (await publisher.stats()).acknowledged == 5
        first, second = sidecar.received
    assert second[1:] == first[2:4]
    before, after = (PublishRequest.FromString(requests[0]).open for requests in (first, second))
    assert (after.producer_id, after.context) == (before.producer_id, before.context)
    assert (before.acknowledged_sequence, after.acknowledged_sequence) == (0, 1)


@in_loop
async def test_what_was_done_before_the_connection_was_lost_is_not_sent_again(
    client: ClientUnderTest,
) -> None:
    def lost(requests: Requests) -> Responses:
        yield opened()
        for _ in range(4):
            next(requests)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    def resumed(requests: Requests) -> Responses:
        next(requests)
        yield opened(2, outcome=Outcome(published=1, filtered=2, failures=[rejected(3)]))
        assert next(requests).batch.sequence == 3
        yield acknowledged(3, Outcome(published=1))
        next(requests, None)

    with ScriptedSidecar(lost, resumed) as sidecar:
        async with client.connect(sidecar.address, batch_events=2) as publisher:
            await publisher.publish_all([b"a", b"b", b"c", b"d", b"e"])
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert caught.value.failures == (Failure(3, "rejected", "bad"),)
            stats = await publisher.stats()
        assert (stats.acknowledged, stats.published, stats.filtered, stats.rejected) == (5, 2, 2, 1)


@in_loop
async def test_numbers_go_on_after_the_one_that_the_sidecar_names(client: ClientUnderTest) -> None:
    def script(requests: Requests) -> Responses:
        next(requests)
        yield opened(41)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(script) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await until(lambda: sidecar.received)
            await publisher.publish(b"a")
            await publisher.flush(LONG)
        assert [(batch.sequence, batch.first_position) for batch in sidecar.batches()] == [(42, 0)]


@in_loop
async def test_a_killed_sidecar_that_comes_back_gets_the_rest(client: ClientUnderTest) -> None:
    hold = threading.Event()

    def slow(requests: Requests) -> Responses:
        yield opened()
        next(requests)
        yield acknowledged(next(requests).batch.sequence)
        hold.wait()

    sidecar = ScriptedSidecar(slow, obliging)
    sidecar.start("127.0.0.1:0")
    async with client.connect(sidecar.address, batch_events=1) as publisher:
        await publisher.publish(b"a")
        await publisher.flush(LONG)
        await publisher.publish(b"b")
        hold.set()
        await asyncio.to_thread(sidecar.stop)
        await publisher.publish(b"c")
        await until_inside(publisher, lambda inside: "UNAVAILABLE" in inside.trouble)
        sidecar.start(sidecar.address)
        await publisher.flush(LONG)
        assert (await publisher.stats()).acknowledged == 3
    sidecar.stop()
    assert [request.batch.envelopes[0] for request in sidecar.requests(1)[1:]] == [b"b", b"c"]


@pytest.mark.parametrize(
    "code",
    ["RESOURCE_EXHAUSTED", "UNAVAILABLE", "ABORTED", "INTERNAL", "UNKNOWN", "CANCELLED", "DEADLINE_EXCEEDED"],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_after_a_passing_error_the_stream_is_resumed(
    client: ClientUnderTest, code: str, is_open: bool
) -> None:
    def cut_off(requests: Requests) -> Responses:
        next(requests)
        if is_open:
            yield opened()
            next(requests)
        raise Abort(grpc.StatusCode[code])

    @in_loop
    async def run() -> None:
        with ScriptedSidecar(cut_off, cut_off, obliging) as sidecar:
            async with client.connect(sidecar.address) as publisher:
                await publisher.publish(b"a")
                await publisher.flush(LONG)
                assert (await publisher.stats()).acknowledged == 1
                assert (await publisher.stats()).reconnects == (2 if is_open else 0)
            assert len(sidecar.received) == 3

    run()


@pytest.mark.parametrize(
    "code",
    ["INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION"],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_refused_stream_is_not_tried_again(client: ClientUnderTest, code: str, is_open: bool) -> None:
    def refuse(requests: Requests) -> Responses:
        next(requests)
        if is_open:
            yield opened()
            next(requests)
        raise Abort(grpc.StatusCode[code], "no such thing")

    @in_loop
    async def run() -> None:
        on_drop = Told()
        with ScriptedSidecar(refuse) as sidecar:
            with pytest.raises(PublishError, match=f"1 not acknowledged. {code}: no such thing"):
                async with client.connect(sidecar.address, on_drop=on_drop) as publisher:
                    await publisher.publish(b"a")
                    with pytest.raises(PublishError) as caught:
                        await publisher.flush(LONG)
                    assert caught.value.reason == f"{code}: no such thing"
                    assert await publisher.publish(b"b") is False
                    assert (await publisher.stats()).dropped == 1
                    with pytest.raises(PublishError, match="1 not acknowledged, 1 dropped"):
                        await publisher.flush(LONG)
            assert len(sidecar.received) == 1
            assert on_drop.told == [(1, f"{code}: no such thing")]

    run()


@in_loop
async def test_an_answer_that_cannot_be_read_is_a_lost_connection(client: ClientUnderTest) -> None:
    class Garbage:
        def SerializeToString(self) -> bytes:  # noqa: N802
            return b"\xff\xff"

    def script(requests: Requests) -> Iterator[Garbage]:
        next(requests)
        yield Garbage()

    with ScriptedSidecar(script, obliging) as sidecar:  # type: ignore[arg-type]
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
            await publisher.flush(LONG)


@in_loop
async def test_a_stream_that_the_sidecar_ends_is_resumed(client: ClientUnderTest) -> None:
    def brief(requests: Requests) -> Responses:
        next(requests)
        yield opened()

    def silent(requests: Requests) -> Responses:
        next(requests)
        yield from ()

    with ScriptedSidecar(brief, silent, obliging) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
            await publisher.flush(LONG)


@in_loop
async def test_a_sidecar_that_stops_in_good_order_is_left_and_found_again(client: ClientUnderTest) -> None:
    go_on = threading.Event()

    def stopping(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        sequence = next(requests).batch.sequence
        go_on.wait()
        yield acknowledged(sequence)

    sidecar = ScriptedSidecar(stopping, obliging)
    sidecar.start("127.0.0.1:0")
    async with client.connect(sidecar.address) as publisher:
        await publisher.publish(b"a")
        await until_inside(publisher, lambda inside: inside.sent)
        stopped = sidecar._server.stop(LONG)
        go_on.set()
        await publisher.flush(LONG)
        await asyncio.to_thread(stopped.wait)
        sidecar.start(sidecar.address)
        await publisher.publish(b"b")
        await publisher.flush(LONG)
        assert (await publisher.stats()).reconnects == 1
    sidecar.stop()
    assert [list(batch.envelopes) for batch in sidecar.batches()] == [[b"a"], [b"b"]]


@in_loop
async def test_what_does_not_speak_grpc_is_tried_again(client: ClientUnderTest, free_address: str) -> None:
    host, port = free_address.split(":")
    heard: list[bytes] = []

    class Babbler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\nWhat?")
                heard.append(self.request.recv(3))

    class Server(socketserver.TCPServer):
        allow_reuse_address = True  # the sidecar comes to the same one

    async with client.connect(free_address) as publisher:
        with Server((host, int(port)), Babbler) as babbler:
            threading.Thread(target=babbler.serve_forever, args=[0.01]).start()
            await publisher.publish(b"a")
            with pytest.raises(PublishError, match="1 not acknowledged"):
                await publisher.flush(0.2)
            await until(lambda: len(heard) > 1)
            await asyncio.to_thread(babbler.shutdown)
        sidecar = ScriptedSidecar(obliging)
        sidecar.start(free_address)
        await publisher.flush(LONG)
    sidecar.stop()


@in_loop
async def test_a_sidecar_that_does_not_open_the_stream_is_tried_again(client: ClientUnderTest) -> None:
    def mute(requests: Requests) -> Responses:
        next(requests)
        sidecar.release.wait()
        yield from ()

    with client.timing(open=0.1), ScriptedSidecar(mute, obliging) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish(b"a")
            await publisher.flush(LONG)


@in_loop
async def test_credits_for_events_are_never_exceeded(client: ClientUnderTest) -> None:
    sizes = []

    def stingy(requests: Requests) -> Responses:
        next(requests)
        yield opened(events=3)
        for request in requests:
            sizes.append(count(request.batch))
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(stingy) as sidecar:
        async with client.connect(sidecar.address, batch_events=8) as publisher:
            await publisher.publish_all([b"a"] * 16)
            await publisher.flush(LONG)
        assert [batch.first_position for batch in sidecar.batches()] == [0, 3, 6, 8, 11, 14]
    assert sizes == [3, 3, 2, 3, 3, 2]


@in_loop
async def test_credits_bound_what_is_on_its_way_together(client: ClientUnderTest) -> None:
    allowed = threading.Semaphore(0)

    def slow(requests: Requests) -> Responses:
        next(requests)
        yield opened(events=5, size=100)
        for request in requests:
            allowed.acquire()
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(slow) as sidecar:
        async with client.connect(sidecar.address, batch_events=2) as publisher:
            await publisher.publish_all([b"a"] * 10)
            await until_inside(publisher, lambda inside: inside.sent == 2)
            while (await publisher.stats()).acknowledged < 10:
                before = (await publisher.stats()).acknowledged
                allowed.release()
                await until_stats(publisher, lambda stats, before=before: stats.acknowledged > before)  # type: ignore[misc]
                assert (await publisher.inside()).sent_events <= 5
            await publisher.flush(LONG)


@in_loop
async def test_credits_for_bytes_are_never_exceeded_and_too_large_events_are_dropped(
    client: ClientUnderTest,
) -> None:
    published = threading.Event()

    def stingy(requests: Requests) -> Responses:
        next(requests)
        published.wait()
        yield opened(size=10)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(stingy) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish_all([b"aaaaaa", b"bbbb", b"ccccccccccc", b"d", b"eeeeeeeeee"])
            published.set()
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert (caught.value.unacknowledged, caught.value.dropped) == (0, 1)
            assert caught.value.reason == "The event is larger than the sidecar accepts."
            with pytest.raises(ValueError, match="The event has 11 bytes; at most 10 can be sent"):
                await publisher.publish(b"f" * 11)
        assert [(batch.first_position, list(batch.envelopes)) for batch in sidecar.batches()] == [
            (0, [b"aaaaaa", b"bbbb"]),
            (3, [b"d"]),
            (4, [b"eeeeeeeeee"]),
        ]


@in_loop
async def test_no_batch_is_larger_than_the_sidecar_takes(client: ClientUnderTest) -> None:
    published = threading.Event()

    def bounded(requests: Requests) -> Responses:
        next(requests)
        published.wait()
        yield opened(batch_bytes=10)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(bounded) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish_all([b"aaaa", b"bbbb", b"cccc", b"d" * 11, b"e" * 10, b"f"])
            published.set()
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert (caught.value.unacknowledged, caught.value.dropped) == (0, 1)
            with pytest.raises(ValueError, match="The event has 11 bytes; at most 10 can be sent"):
                await publisher.publish(b"g" * 11)
        assert [(batch.first_position, list(batch.envelopes)) for batch in sidecar.batches()] == [
            (0, [b"aaaa", b"bbbb"]),
            (2, [b"cccc"]),
            (4, [b"e" * 10]),
            (5, [b"f"]),
        ]


@in_loop
async def test_credits_can_be_taken_away_and_given_again(client: ClientUnderTest) -> None:
    go_on = threading.Event()

    def pausing(requests: Requests) -> Responses:
        next(requests)
        yield opened(events=0, size=0)
        go_on.wait()
        yield granted(10)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(pausing) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await until_inside(publisher, lambda inside: inside.is_open)
            await publisher.publish(b"a")
            with pytest.raises(PublishError, match="The sidecar has not acknowledged them yet"):
                await publisher.flush(0.1)
            assert len(sidecar.received[0]) == 1
            go_on.set()
            await publisher.flush(LONG)


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"events": 1}, [(3, 0, [0]), (4, 1, [1]), (5, 2, [2]), (6, 3, [3])]),
        ({"batch_bytes": 9}, [(3, 0, [0, 1]), (4, 2, [2]), (5, 3, [3])]),
        ({"size": 7}, [(3, 0, [0]), (4, 1, [1]), (5, 2, [2]), (6, 3, [3])]),
    ],
    ids=["events", "batch", "bytes"],
)
def test_what_was_numbered_is_cut_anew_for_a_sidecar_that_takes_less(
    client: ClientUnderTest, limits: dict[str, Any], expected: list[tuple[int, int, list[int]]], is_json: bool
) -> None:
    def lost(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        next(requests)
        next(requests)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    def stingy(requests: Requests) -> Responses:
        opening = next(requests).open
        yield opened(opening.acknowledged_sequence, **limits)
        for request in requests:
            yield acknowledged(request.batch.sequence, Outcome(published=count(request.batch)))

    events = [b"aaaa", b"bbbb", b"cccc", b"dddd"]
    if is_json:
        # With its newline each is as long as an envelope.
        events = [b"{ }", b"{\t}", b"{} ", b" {}"]

    @in_loop
    async def run() -> None:
        with ScriptedSidecar(lost, stingy) as sidecar:
            async with client.connect(sidecar.address, batch_events=3) as publisher:
                await publisher.publish_all([each.decode() if is_json else each for each in events])
                await publisher.flush(LONG)
                assert await publisher.stats() == Stats(accepted=4, acknowledged=4, published=4, reconnects=1)
            batches = [request.batch for request in sidecar.requests(2)[1:]]
        assert [
            (
                batch.sequence,
                batch.first_position,
                [*batch.envelopes, *(line for block in batch.json for line in block.split(b"\n"))],
            )
            for batch in batches
        ] == [
            (number, position, [events[place] for place in places]) for number, position, places in expected
        ]

    run()


@in_loop
async def test_an_event_that_a_sidecar_took_and_another_does_not_is_dropped(client: ClientUnderTest) -> None:
    def lost(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        next(requests)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    def stingy(requests: Requests) -> Responses:
        opening = next(requests).open
        yield opened(opening.acknowledged_sequence, batch_bytes=4)
        for request in requests:
            yield acknowledged(request.batch.sequence, Outcome(published=count(request.batch)))

    with ScriptedSidecar(lost, stingy) as sidecar:
        async with client.connect(sidecar.address) as publisher:
            await publisher.publish_all([b"aaaa", b"bbbbb", b"cc"])
            with pytest.raises(
                PublishError, match=r"1 dropped\. The event is larger than the sidecar accepts"
            ):
                await publisher.flush(LONG)
            assert await publisher.stats() == Stats(
                accepted=3, acknowledged=2, published=2, dropped=1, reconnects=1
            )
        assert [batch.first_position for batch in sidecar.batches()] == [0, 0, 2]


@in_loop
async def test_a_batch_that_is_too_much_again_and_again_ends_the_stream(client: ClientUnderTest) -> None:
    """As gRPC itself refuses a message, for a sidecar that does not say how large a batch may be."""

    def refuse(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        next(requests)
        raise Abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max")

    reason = "RESOURCE_EXHAUSTED: Received message larger than max"
    with ScriptedSidecar(refuse) as sidecar:
        with pytest.raises(PublishError, match=f"1 not acknowledged, 1 dropped. {reason}"):
            async with client.connect(sidecar.address) as publisher:
                await publisher.publish(b"a")
                with pytest.raises(PublishError, match=f"1 not acknowledged. {reason}"):
                    await publisher.flush()
                assert await publisher.publish(b"b") is False
        assert len(sidecar.received) == 10


@in_loop
async def test_the_credits_alone_bound_what_is_in_flight(client: ClientUnderTest) -> None:
    """However many batches that is, and all of them are sent again."""
    go_on = threading.Event()

    def lost(requests: Requests) -> Responses:
        next(requests)
        yield opened(events=500)
        for _ in range(500):
            next(requests)
        go_on.wait(LONG)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    with ScriptedSidecar(lost, obliging) as sidecar:
        async with client.connect(sidecar.address, batch_events=1) as publisher:
            await publisher.publish_all([b"a"] * 1000)
            await until_inside(publisher, lambda inside: inside.sent >= 500)
            assert (await publisher.inside()).sent == 500
            go_on.set()
            await publisher.flush(LONG)
            assert (await publisher.stats()).published == 1000
        assert [batch.first_position for batch in sidecar.batches()] == [*range(500), *range(1000)]


@in_loop
async def test_a_frozen_sidecar_costs_events_but_no_time_and_no_memory(client: ClientUnderTest) -> None:
    on_drop = Told()
    with ScriptedSidecar(frozen, obliging) as sidecar:
        async with client.connect(
            sidecar.address,
            batch_events=10,
            buffer_events=50,
            on_drop=on_drop,
        ) as publisher:
            await until_inside(publisher, lambda inside: inside.is_open)
            assert await publisher.publish_all([b"a"] * 1000) == [True] * 50 + [False] * 950
            stats = await publisher.stats()
            assert (stats.buffered_events, stats.buffered_bytes, stats.dropped) == (50, 50, 950)
            sidecar.release.set()
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert (caught.value.unacknowledged, caught.value.dropped) == (0, 950)
            assert await publisher.publish(b"b")
            await publisher.flush(LONG)
        assert on_drop.told == [(950, "The buffer is full.")]
        last = sidecar.batches()[-1]
        assert (last.first_position, list(last.envelopes)) == (1000, [b"b"])


@in_loop
async def test_without_a_sidecar_publishing_returns_and_closing_tells(
    client: ClientUnderTest, free_address: str
) -> None:
    with pytest.raises(PublishError) as caught:
        async with client.connect(free_address, buffer_events=10, close_timeout=0.2) as publisher:
            await publisher.publish_all([b"a"] * 100)
    assert (caught.value.unacknowledged, caught.value.dropped) == (10, 90)
    assert "UNAVAILABLE" in caught.value.reason


@in_loop
async def test_the_oldest_are_dropped_but_never_those_on_their_way(client: ClientUnderTest) -> None:
    go_on = threading.Event()

    def slow(requests: Requests) -> Responses:
        next(requests)
        yield opened(events=1)
        next(requests)
        go_on.wait(LONG)
        yield acknowledged(1)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(slow) as sidecar:
        async with client.connect(
            sidecar.address, batch_events=1, buffer_events=3, on_full="drop_oldest"
        ) as publisher:
            await publisher.publish(b"a")
            await until_inside(publisher, lambda inside: inside.sent)
            assert await publisher.publish_all([b"b", b"c", b"d", b"e"]) == [True] * 4
            go_on.set()
            with pytest.raises(PublishError, match=r"2 dropped\. The buffer is full"):
                await publisher.flush(LONG)
        received = {batch.first_position: batch.envelopes[0] for batch in sidecar.batches()}
        assert received == {0: b"a", 3: b"d", 4: b"e"}


@in_loop
async def test_drops_are_reported_together(client: ClientUnderTest, free_address: str) -> None:
    on_drop = Told(fails=True)
    with client.timing(report=3600.0), pytest.raises(PublishError):
        async with client.connect(
            free_address, buffer_events=1, on_drop=on_drop, close_timeout=0
        ) as publisher:
            await publisher.publish_all([b"a"] * 4)
            await until(lambda: on_drop.told)
            await publisher.publish_all([b"a"] * 5)
            await asyncio.sleep(0)
            assert on_drop.told == [(3, "The buffer is full.")]
    # What was held back is told in the end.
    assert on_drop.told == [(3, "The buffer is full."), (5, "The buffer is full.")]


@in_loop
async def test_drops_and_failures_are_logged_if_nobody_listens(client: ClientUnderTest) -> None:
    def script(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        for request in requests:
            yield acknowledged(request.batch.sequence, Outcome(failures=[rejected(0, "no type")]))

    with ScriptedSidecar(script) as sidecar, pytest.raises(PublishError):
        async with client.connect(sidecar.address, buffer_events=1) as publisher:
            await publisher.publish_all([b"a", b"b"])
    logged = client.logged()
    assert "1 events were dropped: The buffer is full." in logged
    assert "1 events failed; the last one: position 0 rejected: no type" in logged


@in_loop
async def test_failures_are_told_one_by_one_and_kept_up_to_a_limit(client: ClientUnderTest) -> None:
    def script(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        next(requests)
        failures = [rejected(position) for position in range(150)]
        failures[1].kind = 2  # type: ignore[assignment]
        failures[1].backend = "nats"
        failures[1].level = 7
        yield acknowledged(1, Outcome(published=50, failures=failures))
        next(requests)
        yield acknowledged(2, Outcome(published=1))
        next(requests, None)

    on_failure = Told(fails=True)
    with ScriptedSidecar(script) as sidecar:
        async with client.connect(sidecar.address, on_failure=on_failure) as publisher:
            await publisher.publish_all([b"a"] * 200)
            with pytest.raises(PublishError) as caught:
                await publisher.flush(LONG)
            assert (caught.value.failed, len(caught.value.failures)) == (150, 100)
            assert caught.value.failures[:2] == (
                Failure(0, "rejected", "bad"),
                Failure(1, "failed", "bad", backend="nats", level=7),
            )
            assert str(caught.value) == (
                "Events were not delivered: 150 failed (first: position 0 rejected: bad)."
            )
            assert str(caught.value.failures[1]) == "position 1.7 failed by nats: bad"
            assert [failure.position for failure in on_failure.told] == list(range(150))
            await publisher.publish(b"b")
            await publisher.flush(LONG)
            assert await publisher.stats() == Stats(
                accepted=201, acknowledged=201, published=51, rejected=149, failed=1
            )


@in_loop
async def test_an_event_that_is_refused_leaves_a_gap(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with client.connect(sidecar.address, on_full="wait", max_wait=1.0) as publisher:
            await publisher.publish(b"a")
            with pytest.raises(TypeError):
                await publisher.publish(None)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="empty"):
                await publisher.publish_wait("")
            assert await publisher.publish_wait(b"b")
            await publisher.flush(LONG)
            assert (await publisher.stats()).accepted == 2
        assert [batch.first_position for batch in sidecar.batches()] == [0, 3]


@in_loop
async def test_waiting_for_room_ends_when_there_is_some(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with client.connect(
            sidecar.address, buffer_events=10, batch_events=5, on_full="wait", max_wait=LONG
        ) as publisher:
            assert all(await publisher.publish_wait_all([b"%d" % number for number in range(200)]))
            assert all(await asyncio.gather(*(publisher.publish_wait(b"x") for _ in range(50))))
            await publisher.flush(LONG)
            assert await publisher.stats() == Stats(accepted=250, acknowledged=250, published=250)
        events = [event for batch in sidecar.batches() for event in batch.envelopes]
    assert events == [b"%d" % number for number in range(200)] + [b"x"] * 50


@in_loop
async def test_waiting_for_room_ends_after_its_limit_or_with_the_stream(
    client: ClientUnderTest, free_address: str
) -> None:
    with pytest.raises(PublishError):
        async with client.connect(
            free_address, buffer_events=1, on_full="wait", max_wait=0.05, close_timeout=0
        ) as publisher:
            assert await publisher.publish_wait(b"a")
            assert not await publisher.publish_wait(b"b")
            assert not await publisher.publish(b"c")
            assert (await publisher.stats()).dropped == 2

    with pytest.raises(PublishError):
        async with client.connect(
            free_address, buffer_events=1, on_full="wait", max_wait=float("inf"), close_timeout=0
        ) as publisher:
            await publisher.publish(b"a")
            waiting = asyncio.create_task(publisher.publish_wait(b"b"))
            await asyncio.sleep(0)
            with pytest.raises(PublishError):
                await publisher.close()
            assert await waiting is False
            await publisher.publish(b"c")
            raise PublishError(unacknowledged=1, dropped=0, failed=0, failures=(), reason="")


@in_loop
async def test_waiting_has_no_limit_by_default_and_is_logged_again_and_again(
    client: ClientUnderTest, free_address: str
) -> None:
    assert client.check_options(free_address, on_full="wait").on_full == "wait"
    logged: list[str] = []

    def warnings() -> list[str]:
        logged.extend(client.logged())
        return [line for line in logged if "waits for room" in line]

    with client.timing(warning=0.02):
        async with client.connect(
            free_address, buffer_events=1, on_full="wait", close_timeout=0
        ) as publisher:
            await publisher.publish(b"a")
            waiting = asyncio.create_task(publisher.publish_wait(b"b"))
            await until(lambda: len(warnings()) >= 3)
            assert not waiting.done()
            sidecar = ScriptedSidecar(obliging)
            sidecar.start(free_address)
            assert await waiting
            await publisher.flush(LONG)
        sidecar.stop()
    start = f"Publishing to {free_address} waits for room: nothing was acknowledged for 0.02 s. "
    assert all(line.startswith(start) for line in warnings())
    assert "UNAVAILABLE" in warnings()[-1]


@in_loop
async def test_an_event_that_turns_out_too_large_while_it_waits_is_refused(client: ClientUnderTest) -> None:
    go_on = threading.Event()

    def stingy(requests: Requests) -> Responses:
        go_on.wait()
        next(requests)
        yield opened(size=10)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(stingy) as sidecar:
        async with client.connect(
            sidecar.address, buffer_events=1, on_full="wait", max_wait=LONG
        ) as publisher:
            await publisher.publish(b"a")
            waiting = asyncio.create_task(publisher.publish_wait(b"b" * 11))
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(ValueError, match="The event has 11 bytes; at most 10 can be sent"):
                await waiting
            assert await publisher.publish_wait(b"c")
            await publisher.flush(LONG)
        assert [batch.first_position for batch in sidecar.batches()] == [0, 2]


@in_loop
async def test_many_events_arrive_once_and_in_order_through_lost_connections(client: ClientUnderTest) -> None:
    def flaky(requests: Requests) -> Responses:
        opening = next(requests).open
        done.append(opening.acknowledged_sequence)
        yield opened(opening.acknowledged_sequence)
        for number, request in enumerate(requests):
            if number == 7:
                raise Abort(grpc.StatusCode.UNAVAILABLE)
            batches.setdefault(request.batch.sequence, set()).add(request.SerializeToString())
            if number % 3 == 0:
                yield acknowledged(request.batch.sequence)

    batches: dict[int, set[bytes]] = {}
    done: list[int] = []
    with ScriptedSidecar(*[flaky] * 12, obliging) as sidecar:
        async with client.connect(
            sidecar.address, batch_events=20, on_full="wait", max_wait=LONG
        ) as publisher:
            assert all(await publisher.publish_wait_all([b"%d" % number for number in range(2000)]))
            await publisher.flush(LONG)
            assert (await publisher.stats()).acknowledged == 2000
            assert (await publisher.stats()).reconnects == 12
        seen = {batch.sequence: batch for batch in sidecar.batches()}
    assert all(len(versions) == 1 for versions in batches.values())
    assert sorted(done) == done
    assert list(seen) == list(range(1, 101))
    assert [event for batch in seen.values() for event in batch.envelopes] == [b"%d" % n for n in range(2000)]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for this host that signs itself, and its key."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    )
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return certificate, key


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
@in_loop
async def test_tls_with_a_client_certificate(
    client: ClientUnderTest, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate_file, key_file = certificate
    trusted = certificate_file.read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(key_file.read_bytes(), trusted)], trusted, require_client_auth=True
    )
    sidecar = ScriptedSidecar(obliging)
    sidecar.start("127.0.0.1:0", credentials)
    address = sidecar.address.replace("127.0.0.1", "localhost")
    async with client.connect(
        address, tls_ca_file=certificate_file, tls_cert_file=certificate_file, tls_key_file=key_file
    ) as publisher:
        await publisher.publish(b"a")
        await publisher.flush(LONG)
    with pytest.raises(PublishError, match="UNAVAILABLE"):
        async with client.connect(address, tls_ca_file=certificate_file, close_timeout=0.5) as publisher:
            await publisher.publish(b"a")
    with pytest.raises(FileNotFoundError):
        async with client.connect(address, tls_ca_file=tmp_path / "none.pem"):
            pass
    sidecar.stop()
