"""`bronze-sidecar send` as a process of its own, into a real sidecar and a real NATS server."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import market
import pytest
import zstandard
from bronze_client.schema import Origin, PublishRequest, PublishResponse, StreamContext
from buses import NatsBus, assert_complete, trade
from scripted_sidecar import Abort, ScriptedSidecar, obliging
from servers import NatsServer
from sidecar_process import PROGRAM, SidecarProcess, free_port, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


def send(*arguments: str, stdin: bytes = b"") -> tuple[int, dict[str, Any], str]:
    """Run the command; return its status, its summary and what it wrote to standard error."""
    done = subprocess.run(
        [PROGRAM, "send", *arguments], input=stdin, capture_output=True, timeout=100, check=False
    )
    return done.returncode, json.loads(done.stdout), done.stderr.decode()


def lines(count: int) -> bytes:
    return b"".join(trade(position) + b"\n" for position in range(count))


def counts(summary: dict[str, Any]) -> tuple[int, int, int, int, int, int]:
    names = ("sent", "acknowledged", "filtered", "rejected", "failed", "dropped")
    return tuple(summary[name] for name in names)  # type: ignore[return-value]


@pytest.fixture
def bus(start_nats: Callable[..., NatsServer]) -> NatsBus:
    return NatsBus(start_nats())


@pytest.fixture
def nats_sidecar(bus: NatsBus) -> Iterator[SidecarProcess]:
    with sidecar(*bus.options()) as process:
        process.wait_until_ready()
        yield process


@pytest.fixture(scope="module")
def discarding() -> Iterator[SidecarProcess]:
    """Return a sidecar without a back end: it takes everything, and filters it."""
    with sidecar() as process:
        yield process


async def test_plain_and_compressed_files_and_pipes_arrive_complete_and_in_order(
    bus: NatsBus, nats_sidecar: SidecarProcess, tmp_path: Path
) -> None:
    text = lines(3_000)
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "gzip").write_bytes(gzip.compress(text))
    zstd = zstandard.ZstdCompressor().compress(text)
    to = f"--to={nats_sidecar.address}"
    for name in ("plain", "gzip"):
        status, summary, errors = send(str(tmp_path / name), to, f"--stream-id={name}")
        assert (status, counts(summary), errors) == (0, (3_000, 3_000, 0, 0, 0, 0), "")
        assert summary["published"] == 3_000
    status, summary, errors = send("-", to, "--stream-id=zstd", stdin=zstd)
    assert (status, counts(summary), errors) == (0, (3_000, 3_000, 0, 0, 0, 0), "")
    await assert_complete(bus, {"plain": 3_000, "gzip": 3_000, "zstd": 3_000}, duplicates_allowed=False)


async def test_the_same_file_under_the_same_stream_id_is_not_stored_twice(
    bus: NatsBus, nats_sidecar: SidecarProcess, tmp_path: Path
) -> None:
    file = tmp_path / "messages"
    file.write_bytes(lines(500))
    for _ in range(2):
        assert send(str(file), f"--to={nats_sidecar.address}", "--stream-id=again")[0] == 0
    await assert_complete(bus, {"again": 500}, duplicates_allowed=False)


async def test_a_replay_that_was_shorter_at_first_loses_nothing_to_its_end(
    bus: NatsBus, nats_sidecar: SidecarProcess
) -> None:
    for count in (300, 500, 500):
        assert send("-", f"--to={nats_sidecar.address}", "--stream-id=r", stdin=lines(count))[0] == 0
    ids = sorted([event_id async for _, event_id in bus.read()])
    assert ids == sorted([*(f"r:{position}" for position in range(500)), "r~end:300", "r~end:500"])


def test_what_is_not_published_is_counted_and_named(nats_sidecar: SidecarProcess) -> None:
    text = b"\n".join((trade(0), b"", b"garbage", b"[1]", b'{"type":"trade"}', b"\xff", b"  ", trade(5)))
    status, summary, _ = send("-", f"--to={nats_sidecar.address}", stdin=text)
    assert status == 1
    assert counts(summary) == (6, 6, 0, 4, 0, 0)
    assert summary["published"] == 2
    assert summary["failures"] == [
        "line 3, position 1 rejected: the message is not valid JSON: invalid character (byte 1)",
        "line 4, position 2 rejected: the message must be a JSON object",
        "line 5, position 3 rejected: trade: field 'exchange': is missing or empty",
        "line 6, position 4 rejected: the message is not valid UTF-8: invalid start byte (byte 1)",
    ]


def test_filtered_events_are_delivered_too(discarding: SidecarProcess) -> None:
    text = b"\n".join(market.replay(1_000))
    status, summary, _ = send("-", f"--to={discarding.address}", stdin=text)
    assert (status, summary["sent"], summary["published"]) == (0, 1_000, 0)
    assert summary["filtered"] > 1_000


def test_an_empty_input_is_delivered(discarding: SidecarProcess) -> None:
    status, summary, errors = send("-", f"--to={discarding.address}")
    assert (status, counts(summary)) == (0, (0, 0, 0, 0, 0, 0))
    assert errors == "bronze-sidecar: standard input contains no messages.\n"


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_file_that_is_cut_off_is_sent_as_far_as_it_goes(discarding: SidecarProcess, form: str) -> None:
    text = lines(20_000)
    content = gzip.compress(text) if form == "gzip" else zstandard.ZstdCompressor().compress(text)
    status, summary, errors = send("-", f"--to={discarding.address}", stdin=content[: len(content) // 2])
    assert status == 1
    assert 1_000 < summary["sent"] == summary["acknowledged"] < 20_000
    where = f"after {summary['sent']} lines and {len(content) // 2} bytes."
    assert summary["error"] == f"standard input: the {form} data is cut off, {where}"
    assert summary["error"] in errors


def test_the_context_is_what_the_options_say() -> None:
    with ScriptedSidecar(obliging) as scripted:
        status, summary, _ = send(
            *("-", f"--to={scripted.address}", "--stream-id=s", "--request-id=r", "--session-id=q"),
            *("--source=x/1", "--origin=archive", "--meta=transport:http", "--meta=a:b:c"),
            stdin=trade(0),
        )
        context = scripted.requests(0)[0].open.context
    assert (status, summary["stream_id"]) == (0, "s")
    assert context == StreamContext(
        stream_id="s",
        request_id="r",
        session_id="q",
        source="x/1",
        origin=Origin.ORIGIN_ARCHIVE,
        meta={"transport": "http", "a": "b:c"},
    )


def test_without_options_every_run_is_a_new_stream_of_replayed_data() -> None:
    with ScriptedSidecar(obliging) as scripted:
        for _ in range(2):
            assert send("-", f"--to={scripted.address}", stdin=trade(0))[0] == 0
        first, second = (scripted.requests(number)[0].open.context for number in range(2))
    assert first.stream_id != second.stream_id
    assert (first.origin, first.source) == (Origin.ORIGIN_REPLAY, "bronze-sidecar-send")


def test_the_rate_is_kept(discarding: SidecarProcess) -> None:
    status, summary, _ = send("-", f"--to={discarding.address}", "--rate=200", stdin=lines(200))
    assert status == 0
    # The last message is due after 199 intervals; none may be early.
    assert summary["seconds"] > 0.9


def test_an_absent_sidecar_is_waited_for() -> None:
    with sidecar() as process:
        process.kill()
        waiting = subprocess.Popen(
            [PROGRAM, "send", "-", f"--to={process.address}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert waiting.stderr
        # Written when the first attempt has failed.
        assert waiting.stderr.readline().startswith(b"bronze-sidecar: There is no stream to unix:///")
        process.start()
        out, _ = waiting.communicate(lines(1_000), timeout=60)
    assert waiting.returncode == 0
    assert counts(json.loads(out)) == (1_000, 1_000, 1_000, 0, 0, 0)


def test_it_gives_up_when_told_how_long_to_wait() -> None:
    address = f"127.0.0.1:{free_port()}"
    status, summary, errors = send("-", f"--to={address}", "--timeout=1", stdin=lines(10))
    assert status == 1
    assert (summary["sent"], summary["acknowledged"], summary["unacknowledged"]) == (10, 0, 10)
    assert summary["error"].startswith("gave up: nothing was acknowledged for 1 seconds. UNAVAILABLE: ")
    assert summary["error"] in errors


def test_a_time_limit_does_not_end_a_pipe_that_is_merely_quiet(discarding: SidecarProcess) -> None:
    quiet = subprocess.Popen(
        [PROGRAM, "send", "-", f"--to={discarding.address}", "--timeout=0.3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert quiet.stdin
    before = discarding.metric("bronze_events_received_total")
    quiet.stdin.write(lines(1))
    quiet.stdin.flush()
    deadline = time.monotonic() + 60
    while discarding.metric("bronze_events_received_total") == before and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        quiet.wait(1.0)
    out, _ = quiet.communicate(lines(1), timeout=30)
    assert quiet.returncode == 0
    assert json.loads(out)["acknowledged"] == 2


def test_a_sidecar_that_refuses_the_stream_ends_it() -> None:
    def refuse(requests: Iterator[PublishRequest]) -> Iterable[PublishResponse]:
        next(requests)
        raise Abort(grpc.StatusCode.INVALID_ARGUMENT, "not such a stream")

    with ScriptedSidecar(refuse) as scripted:
        status, summary, errors = send("-", f"--to={scripted.address}", stdin=lines(10))
    assert (status, summary["acknowledged"]) == (1, 0)
    assert summary["error"] == "INVALID_ARGUMENT: not such a stream"
    assert "bronze-sidecar: INVALID_ARGUMENT: not such a stream" in errors


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_delivers_what_it_has_and_sums_up(
    discarding: SidecarProcess, number: signal.Signals, status: int
) -> None:
    before = discarding.metric("bronze_events_received_total")
    running = subprocess.Popen(
        [PROGRAM, "send", "-", f"--to={discarding.address}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert running.stdin
    assert running.stdout
    running.stdin.write(lines(100))
    running.stdin.flush()
    deadline = time.monotonic() + 60
    while discarding.metric("bronze_events_received_total") < before + 100:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.send_signal(number)
    # The pipe is still open: a reader that waits for it must not hold up the end.
    summary = json.loads(running.stdout.read())
    assert running.wait(30) == status
    assert counts(summary) == (100, 100, 100, 0, 0, 0)
    running.stdin.close()
    running.stdout.close()


def test_an_interrupt_without_a_sidecar_ends_soon_and_says_what_is_not_delivered() -> None:
    running = subprocess.Popen(
        [PROGRAM, "send", "-", f"--to=127.0.0.1:{free_port()}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin
    assert running.stderr
    running.stdin.write(lines(10))
    running.stdin.flush()
    running.stderr.readline()
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert json.loads(out)["acknowledged"] == 0


def test_the_status_counts_also_when_nobody_reads_the_summary(discarding: SidecarProcess) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [PROGRAM, "send", "-", f"--to={discarding.address}"],
            input=b"{}\n",
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def on_terminal(columns: int, *arguments: str) -> tuple[int, str]:
    """Run the command with a terminal of its own; return its status and all that it wrote there."""
    terminal, other_side = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [PROGRAM, "send", *arguments], stdin=subprocess.DEVNULL, stdout=other_side, stderr=other_side
    )
    os.close(other_side)
    written = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            written += os.read(terminal, 65_536)
        except OSError:
            break  # Linux says so when the other side is closed
    os.close(terminal)
    return process.wait(60), written.decode()


def test_a_terminal_shows_the_progress_within_its_width(discarding: SidecarProcess, tmp_path: Path) -> None:
    file = tmp_path / f"{uuid4()}.ndjson"
    file.write_bytes(lines(1_500))
    status, written = on_terminal(100, str(file), f"--to={discarding.address}", "--rate=1000")
    assert status == 0
    shown = written.split("\r")
    assert any("[" in line and "% " in line and " messages, " in line for line in shown)
    assert "1,500 messages" in shown[-3]
    assert "1,500 acknowledged, 0 rejected" in shown[-3]
    assert max(len(line) for line in shown[:-2]) < 100
    assert json.loads(shown[-2])["acknowledged"] == 1_500


def test_a_terminal_says_what_is_waited_for(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    status, written = on_terminal(60, "/dev/null", f"--to={address}", "--timeout=2")
    assert status == 0  # nothing to send, nothing to wait for
    file = tmp_path / "messages"
    file.write_bytes(trade(0))
    status, written = on_terminal(60, str(file), f"--to={address}", "--timeout=2")
    assert status == 1
    assert f"waiting for the sidecar at {address}: UNAVAI" in written
