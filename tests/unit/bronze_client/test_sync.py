"""The client without asyncio, against a sidecar that does as it is told."""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from bronze_client import Failure, PublishError, Stats, SyncPublisher, connect_sync
from bronze_client.schema import Outcome, PublishRequest, PublishResponse
from scripted_sidecar import (
    Abort,
    ScriptedSidecar,
    acknowledged,
    frozen,
    obliging,
    opened,
    quick_reconnects,
    rejected,
)

LONG = 20.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with quick_reconnects(monkeypatch):
        yield


@pytest.fixture(autouse=True)
def _one_thread_at_most() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate()].count("bronze-client") <= 1


@pytest.fixture
def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_events_arrive_under_their_positions() -> None:
    with ScriptedSidecar(obliging) as sidecar:
        with connect_sync(sidecar.address, batch_events=2, stream_id="s") as publisher:
            assert publisher.stream_id == "s"
            for event in (b"a", b"b", {"c": 1}):
                assert publisher.publish(event)
            publisher.flush(LONG)
            assert publisher.stats == Stats(accepted=3, acknowledged=3, published=3)
            with pytest.raises(TypeError):
                publisher.publish(None)  # type: ignore[arg-type]
            publisher.publish(b"d")
        assert [(batch.first_position, [*batch.envelopes, *batch.json]) for batch in sidecar.batches()] == [
            (0, [b"a", b"b"]),
            (2, [b'{"c":1}']),
            (4, [b"d"]),
        ]


def test_after_closing_events_are_dropped() -> None:
    with ScriptedSidecar(obliging) as sidecar, connect_sync(sidecar.address) as publisher:
        publisher.publish(b"a")
        publisher.close()
        assert publisher.publish(b"b") is False
        publisher.flush()
        publisher.close()
        assert (publisher.stats.acknowledged, publisher.stats.dropped) == (1, 1)


def test_many_threads_publish_at_once() -> None:
    with ScriptedSidecar(obliging) as sidecar:
        with connect_sync(sidecar.address, on_full="wait", max_wait=LONG, buffer_events=500) as publisher:

            def produce(name: int) -> list[bool]:
                return [publisher.publish(b"%d:%d" % (name, number)) for number in range(1000)]

            with ThreadPoolExecutor(4) as pool:
                assert all(all(accepted) for accepted in pool.map(produce, range(4)))
            publisher.flush(LONG)
            assert publisher.stats.acknowledged == 4000
        batches = sidecar.batches()
    events = [event for batch in batches for event in batch.envelopes]
    assert len(set(events)) == 4000
    for name in range(4):
        assert [event for event in events if event.startswith(b"%d:" % name)] == [
            b"%d:%d" % (name, number) for number in range(1000)
        ]
    position = 0
    for batch in batches:
        assert batch.first_position == position
        position += len(batch.envelopes)


def test_a_lost_connection_is_resumed() -> None:
    def lost(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened()
        next(requests)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    with ScriptedSidecar(lost, obliging) as sidecar:
        with connect_sync(sidecar.address) as publisher:
            publisher.publish(b"a")
            publisher.flush(LONG)
            assert publisher.stats.reconnects == 1
        assert sidecar.received[0][1] == sidecar.received[1][1]


def test_a_frozen_sidecar_costs_events_but_no_time() -> None:
    told: list[int] = []
    with ScriptedSidecar(frozen, obliging) as sidecar:
        with connect_sync(
            sidecar.address, buffer_events=10, on_drop=lambda count, _: told.append(count)
        ) as publisher:
            assert [publisher.publish(b"a") for _ in range(100)] == [True] * 10 + [False] * 90
            with pytest.raises(PublishError) as caught:
                publisher.flush(0.1)
            assert (caught.value.unacknowledged, caught.value.dropped) == (10, 90)
            sidecar.release.set()
            publisher.flush(LONG)
        assert sum(told) == 90


def test_waiting_for_room_has_a_limit(free_address: str) -> None:
    with (
        pytest.raises(PublishError, match="1 not acknowledged, 1 dropped"),
        connect_sync(
            free_address, buffer_events=1, on_full="wait", max_wait=0.05, close_timeout=0
        ) as publisher,
    ):
        assert publisher.publish(b"a")
        assert not publisher.publish(b"b")


def test_waiting_has_no_limit_by_default_and_is_logged_once_for_all_threads(
    free_address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bronze_client.session.WARNING_SECONDS", 0.2)
    with (
        ThreadPoolExecutor(4) as threads,
        connect_sync(free_address, buffer_events=1, on_full="wait") as publisher,
    ):
        publisher.publish(b"a")
        waiting = [threads.submit(publisher.publish, b"b") for _ in range(4)]
        while len(logged := [text for text in caplog.messages if "waits for room" in text]) < 2:
            time.sleep(0.002)
        assert not any(each.done() for each in waiting)
        sidecar = ScriptedSidecar(obliging)
        sidecar.start(free_address)
        assert all(each.result(LONG) for each in waiting)
        publisher.flush(LONG)
    sidecar.stop()
    start = f"Publishing to {free_address} waits for room: nothing was acknowledged for 0.2 s. "
    assert all(text.startswith(start) for text in logged)


def test_waiting_for_room_ends_when_the_sidecar_refuses_the_stream() -> None:
    go_on = threading.Event()

    def refuse(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened()
        go_on.wait()
        raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "no")

    with (
        ScriptedSidecar(refuse) as sidecar,
        pytest.raises(PublishError, match=r"1 not acknowledged, 1 dropped\. INVALID_ARGUMENT: no"),
        connect_sync(sidecar.address, buffer_events=1, on_full="wait", max_wait=LONG) as publisher,
    ):
        publisher.publish(b"a")
        threading.Timer(0.05, go_on.set).start()
        assert not publisher.publish(b"b")


def test_failures_are_told() -> None:
    def script(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened()
        for request in requests:
            yield acknowledged(request.batch.sequence, Outcome(failures=[rejected(0)]))

    told: list[Failure] = []
    with ScriptedSidecar(script) as sidecar:
        with (
            pytest.raises(PublishError, match="1 failed"),
            connect_sync(sidecar.address, on_failure=told.append) as publisher,
        ):
            publisher.publish(b"a")
        assert [failure.position for failure in told] == [0]


def test_an_error_in_the_block_is_not_masked(free_address: str) -> None:
    with pytest.raises(KeyError, match="mine"), connect_sync(free_address, close_timeout=0) as publisher:
        publisher.publish(b"a")
        raise KeyError("mine")


def test_files_that_cannot_be_read_are_told_at_once() -> None:
    with pytest.raises(FileNotFoundError), connect_sync("127.0.0.1:1", tls_ca_file="none.pem"):
        pass


FORKING = """
import asyncio, os, sys, threading
from bronze_client import connect, connect_sync

class Odd(Exception):
    pass

def told(call):
    try:
        result = call()
        if asyncio.iscoroutine(result):
            result.send(None)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"

def in_child(publisher, calls):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    for call in calls:
        print(told(call), flush=True)
    os._exit(0)

with connect_sync("127.0.0.1:1", close_timeout=0) as publisher:
    # As if another thread held it at the moment of the fork.
    with publisher._shared, publisher._closing:
        in_child(publisher, [lambda: publisher.publish(b"a"), publisher.flush, publisher.close])

async def main():
    async with connect("127.0.0.1:1", close_timeout=0, on_full="wait", max_wait=9) as publisher:
        await asyncio.sleep(0)
        calls = [lambda: publisher.publish(b"a"), lambda: publisher.publish_wait(b"a")]
        in_child(publisher, [*calls, publisher.flush, publisher.close])

asyncio.run(main())

child = None
try:
    with connect_sync("127.0.0.1:1", close_timeout=0) as publisher:
        child = os.fork()
        if not child:
            raise Odd("of the child")
    assert os.waitpid(child, 0)[1] == 0
except Odd as error:
    print(f"Odd: {error}", flush=True)
    os._exit(0)
"""


def test_a_forked_child_is_told_and_does_not_hang() -> None:
    """Whatever the other threads held at the moment of the fork."""
    # Publishers of other tests have set it in this process.
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    command = [sys.executable, "-c", FORKING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100)
    *refusals, last = done.stdout.splitlines()
    refusal = (
        "RuntimeError: This publisher was connected before the process was forked (os.fork), and does not"
        " work in the child. Connect in the child, or start it by spawn."
    )
    assert refusals == [refusal] * 7
    # What the block raises is not masked.
    assert last == "Odd: of the child"


def test_several_publishers_live_side_by_side(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedSidecar(obliging) as sidecar:

        def produce(publisher: SyncPublisher) -> None:
            for _ in range(500):
                publisher.publish(b"a")
            publisher.flush(LONG)

        with connect_sync(sidecar.address) as one, connect_sync(sidecar.address) as two:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(produce, (one, two)))
            assert one.stats.acknowledged == two.stats.acknowledged == 500
    assert caplog.records == []


def test_publishers_without_asyncio_share_a_connection() -> None:
    with (
        ScriptedSidecar(obliging) as sidecar,
        connect_sync(sidecar.address) as one,
        connect_sync(sidecar.address) as two,
    ):
        for publisher in (one, two):
            publisher.publish(b"a")
            publisher.flush(LONG)
        assert sidecar.connections == 1
        one.close()
        two.publish(b"b")
        two.flush(LONG)
        assert two.stats.reconnects == 0
