"""`bronze-sidecar tap` on a running sidecar: what passes is shown, and the stream is not held up by it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from buses import NatsBus, RedisBus
from servers import NatsServer, RedisServer, free_port
from sidecar_process import PROGRAM, SidecarProcess, sidecar
from steady import steady

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@pytest.fixture
def redis(start_redis: Callable[..., RedisServer]) -> RedisBus:
    return RedisBus(start_redis())


@pytest.fixture
def process(redis: RedisBus) -> Iterator[SidecarProcess]:
    with sidecar(*redis.options()) as process:
        process.wait_until_ready()
        yield process


def tap(to: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "tap", "--to", to, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def tapped(to: str, *arguments: str) -> list[dict[str, Any]]:
    done = tap(to, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def rubbish(position: int) -> bytes:
    return b'{"type":"trade","exchange":"kraken","symbol":"A","price":"%d"}' % position


def test_events_are_shown_as_they_are_on_the_bus(process: SidecarProcess) -> None:
    with steady(process.address):
        (event,) = tapped(
            process.address, "--limit=1", "--symbol=ETHUSD,OTHER", "--kind=Trade", "--backend=redis"
        )
    position = int(event["eventId"].removeprefix("exchange-1:"))
    assert event["skippedBefore"] == 0
    assert (event["backend"], event["destination"]) == ("redis", "bronze:bitmex:ETHUSD")
    assert {"name": "eventId", "value": f"exchange-1:{position}"} in event["headers"]
    assert {"name": "payloadCase", "value": "trade"} in event["headers"]
    assert event["event"]["trade"]["priceStr"] == f"{position}.5"
    assert event["event"]["meta"]["event_id"] == event["eventId"]


def test_as_text_it_is_for_people(process: SidecarProcess) -> None:
    with steady(process.address):
        done = tap(process.address, "--limit", "1", "--symbol", "XBTUSD", "--exchange", "bitmex")
    assert done.returncode == 0
    first, *others = done.stdout.splitlines()
    assert first.startswith("exchange-1:")
    assert first.endswith("  redis → bronze:bitmex:XBTUSD")
    assert any("payloadCase=trade" in line for line in others)
    assert any("trade bitmex XBTUSD" in line and "qtyStr=1" in line for line in others)


def test_what_is_rejected_is_shown_with_its_reason_and_as_it_came(process: SidecarProcess) -> None:
    with steady(process.address), steady(process.address, 1, rubbish, name="broken"):
        event, other = tapped(process.address, "--rejected", "--limit=2", "--exchange=kraken")
        assert event["failure"] == other["failure"] == "rejected"
        assert "price" in event["reason"]
        assert json.loads(event["message"])["price"] == event["eventId"].removeprefix("broken-1:")
        text = tap(process.address, "--rejected", "--limit=1").stdout
    assert "  because  trade: field 'price'" in text
    assert '  message  {"type":"trade","exchange":"kraken"' in text


def test_what_a_back_end_gave_up_is_shown_too(start_nats: Callable[..., NatsServer]) -> None:
    denied = '{publish: {deny: "bronze.bitmex.ETHUSD"}}'
    users = f"authorization {{users = [{{user: a, password: b, permissions: {denied}}}]}}"
    bus = NatsBus(start_nats(config=users))
    with sidecar(*bus.options(), "--nats-user=a", "--nats-pass=b") as process:
        process.wait_until_ready()
        with steady(process.address):
            (event,) = tapped(process.address, "--rejected", "--limit=1", "--backend=nats", "--symbol=ETHUSD")
    assert (event["failure"], event["destination"]) == ("given up", "bronze.bitmex.ETHUSD")
    assert "may not publish" in event["reason"]
    assert event["event"]["symbol"] == "ETHUSD"


def test_of_many_events_a_sample_is_shown_and_the_others_are_counted(process: SidecarProcess) -> None:
    with steady(process.address, 2, each_second=2000):
        events = tapped(process.address, "--limit=700")
        assert sum(event["skippedBefore"] for event in events) > 0
        text = tap(process.address, "--limit=700").stdout
    assert "… " in text
    assert " more\n" in text


def test_one_that_does_not_read_holds_nobody_up(process: SidecarProcess) -> None:
    frozen = subprocess.Popen([PROGRAM, "tap", "--to", process.address], stdout=subprocess.PIPE)
    try:
        with steady(process.address, 2, each_second=1000):
            assert frozen.stdout is not None
            assert frozen.stdout.read(1)
            frozen.send_signal(signal.SIGSTOP)
            before = process.metric("bronze_events_published_total")
            deadline = time.monotonic() + 60
            while process.metric("bronze_events_published_total") < before + 10_000:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert process.resident_bytes() < 200 << 20
    finally:
        frozen.kill()
        frozen.communicate()


def test_it_ends_with_the_sidecar_and_does_not_hold_its_end_up(process: SidecarProcess) -> None:
    with steady(process.address):
        looking = subprocess.Popen(
            [PROGRAM, "tap", "--to", process.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert looking.stdout is not None
        assert looking.stdout.read(1)
    process.terminate()
    # The time that it has is 25 seconds; one who only looks must not use it up.
    assert process.wait(20) == 0
    _, complaint = looking.communicate(timeout=60)
    assert looking.returncode == 1
    assert b"has stopped" in complaint or b"no sidecar answers" in complaint


def test_ctrl_c_is_how_one_ends_it(process: SidecarProcess) -> None:
    with steady(process.address):
        looking = subprocess.Popen(
            [PROGRAM, "tap", "--to", process.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert looking.stdout is not None
        assert looking.stdout.read(1)
        looking.send_signal(signal.SIGINT)
        _, complaint = looking.communicate(timeout=60)
    assert (looking.returncode, complaint) == (0, b"")


@pytest.mark.parametrize("off", ["--no-tap", "--tap=false"])
def test_it_can_be_switched_off(redis: RedisBus, off: str) -> None:
    with sidecar(*redis.options(), off) as process:
        done = tap(process.address)
    assert done.returncode == 1
    assert "does not show events: --tap=false" in done.stderr


def test_only_the_own_machine_is_answered(redis: RedisBus) -> None:
    # An address of this machine that is not loopback, as another machine would come from one.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            own = probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but loopback")
    port = free_port()
    with sidecar(*redis.options(), "--listen", f"0.0.0.0:{port}", "--insecure") as process:
        done = tap(f"{own}:{port}")
        assert done.returncode == 1
        assert "on the sidecar's own machine alone" in done.stderr
        with steady(process.address):
            assert len(tapped(f"127.0.0.1:{port}", "--limit=1")) == 1


def test_only_so_many_may_look_and_their_places_are_free_again(process: SidecarProcess) -> None:
    with steady(process.address):
        looking = [
            subprocess.Popen([PROGRAM, "tap", "--to", process.address], stdout=subprocess.PIPE)
            for _ in range(4)
        ]
        for each in looking:
            assert each.stdout is not None
            assert each.stdout.read(1)
        done = tap(process.address)
        assert done.returncode == 1
        assert "4 look already" in done.stderr
        for each in looking:
            each.kill()
            each.communicate()
        deadline = time.monotonic() + 60
        while tap(process.address, "--limit=1").returncode:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_without_an_address_it_asks_the_sidecar_with_the_same_options(
    process: SidecarProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIDECAR_LISTEN", f"127.0.0.1:1,{process.address}")
    with steady(process.address):
        done = subprocess.run(
            [PROGRAM, "tap", "--limit=1"], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0
    assert done.stdout.startswith("exchange-1:")


def test_nobody_answers(tmp_path: object) -> None:
    done = tap(f"unix://{tmp_path}/none")
    assert done.returncode == 1
    assert "no sidecar answers at unix://" in done.stderr
