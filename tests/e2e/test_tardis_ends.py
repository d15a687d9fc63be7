"""The end of a stream says on the bus how many messages it had, and how many of them were dropped."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import grpc
import pytest
from bronze_client.schema import PublishRequest, PublishResponse
from hook_bus import HookBus
from hook_requests import Start, live, replay_of
from scripted_sidecar import Abort, ScriptedSidecar, acknowledged, opened
from tardis_servers import Variant, WebSocket, wait_until

pytestmark = pytest.mark.servers


def ends(bus: HookBus) -> list[tuple[str, int, int]]:
    """Return the routes of the streams that have ended, and how many messages they had and dropped."""
    wait_until(lambda: bus.sidecar.metric("bronze_streams") == 0)
    return sorted(
        (end["route"], int(end["stream_messages"]), int(end["stream_dropped"])) for end in bus.ends()
    )


def test_each_stream_has_an_end(start: Start, bus: HookBus, variant: Variant) -> None:
    server = start(variant, bus.address)
    server.replay(replay_of(300))
    server.ws_replay(replay_of(40))
    server.ws_stream(live({"trades": 5}, {"error": "odd"}))
    bus.wait_for(346)
    assert ends(bus) == [
        ("/replay-normalized", 300, 0),
        ("/ws-replay-normalized", 40, 0),
        ("/ws-stream-normalized", 6, 0),
    ]


def test_a_replay_that_was_cut_short_has_none(start: Start, bus: HookBus, variant: Variant) -> None:
    server = start(variant, bus.address)
    server.replay(replay_of(300, failAfter=100))
    server.ws_replay(replay_of(300, failAfter=100))
    with WebSocket(server.port + 1, "/ws-replay-normalized", replay_of(100_000, pauseMs=1)) as client:
        client.read_some(3)
    wait_until(lambda: len(bus.read()) >= 96 + 1 + 100 + 1 + 3)
    assert ends(bus) == []


@pytest.mark.parametrize("fault", ["frozen", "killed"])
def test_a_stream_of_which_nothing_found_room_has_one(
    start: Start, own_bus: HookBus, variant: Variant, fault: str
) -> None:
    server = start(variant, own_bus.address, buffer_events="256", when_full="drop")
    server.replay(replay_of(1))
    own_bus.wait_for(1)
    own_bus.begin()
    getattr(own_bus.sidecar, {"frozen": "freeze", "killed": "kill"}[fault])()
    server.replay(replay_of(256))
    server.ws_replay(replay_of(700))
    server.ws_stream(live({"trades": 900}))
    getattr(own_bus.sidecar, {"frozen": "thaw", "killed": "start"}[fault])()
    own_bus.wait_for(256)
    wait_until(lambda: len(own_bus.ends()) == 3)
    assert ends(own_bus) == [
        ("/replay-normalized", 256, 0),
        ("/ws-replay-normalized", 700, 700),
        ("/ws-stream-normalized", 900, 900),
    ]


def test_an_end_is_sent_until_it_is_acknowledged(start: Start, variant: Variant) -> None:
    """A sidecar killed when only the end is missing may need longer than a producer waits by default."""

    def killed(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened(takes_end=True)
        while not (batch := next(requests).batch).HasField("end"):
            yield acknowledged(batch.sequence)
        raise Abort(grpc.StatusCode.UNAVAILABLE)

    def comes_back(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        done = next(requests).open.acknowledged_sequence
        time.sleep(7)
        yield opened(done, takes_end=True)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(killed, comes_back) as sidecar:
        server = start(variant, sidecar.address)
        server.replay(replay_of(100))
        wait_until(lambda: [each for each in sidecar.batches() if each.HasField("end")][1:])
        first, again = [each for each in sidecar.batches() if each.HasField("end")]
        assert (first.first_position, first.end.dropped) == (100, 0)
        assert again == first
        server.stop()


def test_the_end_of_the_process_is_the_end_of_live_streams(
    start: Start, bus: HookBus, variant: Variant
) -> None:
    """A replay could have gone further."""
    server = start(variant, bus.address)
    endless = live({"trades": 700}, {"waitMs": 600_000})
    with (
        WebSocket(server.port + 1, "/ws-stream-normalized", endless) as stream,
        WebSocket(server.port + 1, "/ws-replay-normalized", replay_of(100_000, pauseMs=1)) as replay,
    ):
        stream.read_some(700)
        replay.read_some(3)
        assert server.terminate() == -signal.SIGTERM
    assert ends(bus) == [("/ws-stream-normalized", 700, 0)]


def test_a_live_stream_of_which_nothing_found_room_ends_with_the_process(
    start: Start, own_bus: HookBus, variant: Variant
) -> None:
    server = start(variant, own_bus.address, buffer_events="256", when_full="drop", flush_ms="30000")
    server.replay(replay_of(1))
    own_bus.wait_for(1)
    own_bus.begin()
    own_bus.sidecar.freeze()
    server.replay(replay_of(256))
    # Full blocks; what is less is handed over a little later.
    endless = live({"trades": 768}, {"waitMs": 600_000})
    with WebSocket(server.port + 1, "/ws-stream-normalized", endless) as stream:
        stream.read_some(768)
        own_bus.sidecar.thaw()
        assert server.terminate() == -signal.SIGTERM
    assert ends(own_bus) == [("/replay-normalized", 256, 0), ("/ws-stream-normalized", 768, 768)]
