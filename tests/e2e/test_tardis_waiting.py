"""A replay goes on as fast as the bus takes its messages, and loses none; a live stream never waits."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import threading
from typing import Any

import pytest
from hook_bus import HookBus
from hook_requests import Start, by_stream, live, numbers, positions, replay_of, trade_ids
from servers import HOST, free_port
from tardis_servers import Conversation, MachineServer, Variant, WebSocket, path_of, wait_until

pytestmark = pytest.mark.servers

FULL = "the buffer is full: replays go on as fast as "


class Asking(threading.Thread):
    """A client that reads all of an answer, meanwhile."""

    def __init__(self, server: MachineServer, transport: str, request: Any) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._transport = transport
        self._request = request
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        ask = self._server.replay if self._transport == "http" else self._server.ws_replay
        self.answer = ask(self._request)

    def wait(self) -> list[bytes]:
        self.join(60)
        assert self.answer is not None
        if isinstance(self.answer, Conversation):
            assert self.answer.code == 1000
            return self.answer.messages
        lines: list[bytes] = self.answer.lines
        return lines


def dropped(server: MachineServer) -> int:
    """Return how many messages were not published, as the server says it."""
    found = [line for line in server.said() if "since the start" in line]
    return int(found[-1].rpartition("; ")[2].split()[0]) if found else 0


@pytest.mark.parametrize("bound", [{"buffer_events": "1000"}, {"buffer_bytes": "200000"}])
@pytest.mark.parametrize("transport", ["http", "ws"])
def test_a_replay_waits_for_room(
    start: Start, own_bus: HookBus, variant: Variant, transport: str, bound: dict[str, str]
) -> None:
    hooked, plain = start(variant, own_bus.address, **bound), start(variant)
    own_bus.sidecar.freeze()
    request = replay_of(20_000)
    asking = Asking(hooked, transport, request)
    wait_until(lambda: [line for line in hooked.said() if line.startswith(FULL)])
    own_bus.sidecar.thaw()
    answer = asking.wait()
    assert answer == Asking(plain, transport, request).wait()
    events = own_bus.wait_for(20_000)
    assert positions(events) == list(range(20_000))
    assert trade_ids(events) == numbers(20_000)
    assert dropped(hooked) == 0


@pytest.mark.parametrize("transport", ["http", "ws"])
def test_the_end_of_a_response_waits_too(
    start: Start, own_bus: HookBus, variant: Variant, transport: str
) -> None:
    """Small replays fill the buffer as a large one does: none may end before its messages have found room."""
    server = start(variant, own_bus.address, buffer_events="100")
    own_bus.sidecar.freeze()
    asking = [Asking(server, transport, replay_of(40)) for _ in range(10)]
    wait_until(lambda: [line for line in server.said() if line.startswith(FULL)])
    # Two fit into the buffer, or three of whatever was in one block; the others have no end.
    wait_until(lambda: [each for each in asking if each.answer])
    assert len([each for each in asking if each.answer]) < 5
    own_bus.sidecar.thaw()
    assert [len(each.wait()) for each in asking] == [40] * 10
    streams = by_stream(own_bus.wait_for(400))
    assert [positions(stream) for stream in streams] == [list(range(40))] * 10
    assert dropped(server) == 0


@pytest.mark.parametrize("transport", ["http", "ws"])
def test_a_replay_that_fails_while_it_waits(
    start: Start, own_bus: HookBus, variant: Variant, transport: str
) -> None:
    hooked, plain = start(variant, own_bus.address, buffer_events="100"), start(variant)
    own_bus.sidecar.freeze()
    first, fails = Asking(hooked, transport, replay_of(40)), replay_of(5000, failAfter=70)
    first.wait()
    asking = Asking(hooked, transport, fails)
    wait_until(lambda: [line for line in hooked.said() if line.startswith(FULL)])
    own_bus.sidecar.thaw()
    asking.join(60)
    expected = plain.replay(fails) if transport == "http" else plain.ws_replay(fails)
    assert asking.answer == expected
    count = 64 if transport == "http" else 70
    streams = sorted(by_stream(own_bus.wait_for(40 + count + 1)), key=len)
    assert [len(stream) for stream in streams] == [1, 40, count]
    assert streams[0][0].HasField("error")


def test_one_replay_leaves_room_to_others(start: Start, own_bus: HookBus, variant: Variant) -> None:
    server = start(variant, own_bus.address, buffer_events="10000")
    own_bus.sidecar.freeze()
    first = Asking(server, "http", replay_of(50_000))
    wait_until(lambda: [line for line in server.said() if line.startswith(FULL)])
    # A live stream, which never waits, and a small replay go on.
    assert len(server.ws_stream(live({"trades": 1000})).messages) == 1000
    assert len(server.replay(replay_of(1000)).lines) == 1000
    assert first.answer is None
    own_bus.sidecar.thaw()
    assert len(first.wait()) == 50_000
    streams = by_stream(own_bus.wait_for(52_000))
    assert sorted(map(len, streams)) == [1000, 1000, 50_000]
    assert dropped(server) == 0


def test_live_streams_never_wait(start: Start, own_bus: HookBus, variant: Variant) -> None:
    server = start(variant, own_bus.address, buffer_events="1000")
    own_bus.sidecar.freeze()
    assert len(server.ws_stream(live({"trades": 20_000})).messages) == 20_000
    own_bus.sidecar.thaw()
    assert server.terminate() == -signal.SIGTERM
    assert 0 < dropped(server) < 20_000
    own_bus.wait_for(20_000 - dropped(server))


@pytest.mark.parametrize("transport", ["http", "ws"])
def test_a_client_that_goes_away_ends_the_wait(
    start: Start, own_bus: HookBus, variant: Variant, transport: str
) -> None:
    server = start(variant, own_bus.address, buffer_events="1000")
    own_bus.sidecar.freeze()
    request = replay_of(50_000)
    if transport == "http":
        client = http.client.HTTPConnection(HOST, server.port, timeout=60)
        client.request("GET", path_of("/replay-normalized", request))
        assert client.getresponse().read(1)
        wait_until(lambda: [line for line in server.said() if line.startswith(FULL)])
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
    else:
        with WebSocket(server.port + 1, "/ws-replay-normalized", request):
            wait_until(lambda: [line for line in server.said() if line.startswith(FULL)])
    # What waited for room was sent, but not published; one block, and what was written when it was full.
    wait_until(lambda: dropped(server))
    assert 250 <= dropped(server) < 600
    own_bus.sidecar.thaw()
    wait_until(lambda: own_bus.sidecar.metric("bronze_streams") == 0)
    assert len(server.replay(replay_of(2000)).lines) == 2000
    assert not [line for line in server.said() if "client failed" in line]


@pytest.mark.parametrize("transport", ["http", "ws"])
def test_the_longest_wait(start: Start, own_bus: HookBus, variant: Variant, transport: str) -> None:
    """After it messages are dropped and counted, until there is room again."""
    server = start(variant, own_bus.address, buffer_events="1000", max_wait_ms="300")
    server.replay(replay_of(1))
    own_bus.wait_for(1)
    own_bus.begin()
    own_bus.sidecar.freeze()
    assert len(Asking(server, transport, replay_of(20_000)).wait()) == 20_000
    own_bus.sidecar.thaw()
    assert server.terminate() == -signal.SIGTERM
    assert 0 < dropped(server) < 20_000
    events = own_bus.wait_for(20_000 - dropped(server))
    assert [str(each) for each in positions(events)] == trade_ids(events)


def test_a_sidecar_that_is_not_there_is_not_waited_for_long(start: Start) -> None:
    server = start("modules", f"{HOST}:{free_port()}", buffer_events="1000", flush_ms="0")
    assert len(Asking(server, "http", replay_of(20_000)).wait()) == 20_000
    # The second one does not wait at all.
    assert len(Asking(server, "ws", replay_of(20_000)).wait()) == 20_000
    assert server.terminate() == -signal.SIGTERM
    (held,) = re.findall(r"exiting with unacknowledged messages: (\d+)", "\n".join(server.said()))
    assert dropped(server) + int(held) == 40_000


def test_a_sidecar_that_is_killed_and_comes_back(start: Start, own_bus: HookBus, variant: Variant) -> None:
    server = start(variant, own_bus.address, buffer_events="1000")
    own_bus.sidecar.kill()
    asking = [Asking(server, transport, replay_of(20_000)) for transport in ("http", "ws")]
    wait_until(lambda: [line for line in server.said() if line.startswith(FULL)])
    own_bus.sidecar.start()
    assert [len(each.wait()) for each in asking] == [20_000] * 2
    streams = by_stream(own_bus.wait_for(40_000))
    assert [positions(stream) for stream in streams] == [list(range(20_000))] * 2
    assert dropped(server) == 0


def test_the_end_of_the_process_publishes_what_waits(
    start: Start, own_bus: HookBus, variant: Variant
) -> None:
    server = start(variant, own_bus.address, buffer_events="1000")
    own_bus.sidecar.freeze()
    with WebSocket(server.port + 1, "/ws-replay-normalized", replay_of(50_000)) as client:
        wait_until(lambda: [line for line in server.said() if line.startswith(FULL)])
        own_bus.sidecar.thaw()
        assert server.terminate() == -signal.SIGTERM
        received = len(client.read_all().messages)
    events = own_bus.read()
    assert positions(events) == list(range(len(events)))
    assert len(events) >= received
    assert dropped(server) == 0
