"""Replays many messages through a real tardis-machine with the client in it, and looks what is on the bus.

One client reads at full speed. Then the bus is read back: every position of the stream has to be there, each
event once. Beside the time stands what `bronze-sidecar send` takes for the same messages to the same bus when
nothing else is at work: that is the time of the bus.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import http.client
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import run
from typing import Any

import nats
import redis
from benched import Bus, serving
from bronze_client.schema import NormalizedEvent
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from real_machines import VERSIONS, InstalledMachine, installed_machine
from servers import HOST, Unavailable
from sidecar_process import PROGRAM, SidecarProcess
from tardis_data import SYMBOLS, tardis_data
from tardis_servers import hook_environment, path_of, wait_until

PER_MINUTE = 4_000
DAY = 24 * 60
READ_BYTES = 1 << 20
READ_AT_ONCE = 10_000
PATIENCE_SECONDS = 3_600


# -- what is replayed


@dataclass(frozen=True)
class Answer:
    """The response to a request."""

    messages: int
    digest: bytes
    seconds: float


def request_of(messages: int) -> dict[str, Any]:
    """Return a request for at least so many messages."""
    # Of what is recorded, a ninth is of other types.
    minutes = -(-messages * 9 // 8 // PER_MINUTE)
    if minutes > DAY:
        raise SystemExit(f"at most {DAY * PER_MINUTE * 8 // 9} messages")
    days, rest = divmod(minutes, DAY)
    return {
        "exchange": "bitmex",
        "symbols": [SYMBOLS["bitmex"]],
        "from": "2020-02-01T00:00:00Z",
        "to": f"2020-02-{1 + days:02}T{rest // 60:02}:{rest % 60:02}:00Z",
        "dataTypes": ["trade", "book_change", "book_ticker"],
    }


def ask(port: int, request: Any, keep: Callable[[bytes], object] = len) -> Answer:
    """Read an answer as fast as it comes."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_SECONDS)
    began, digest, messages = time.perf_counter(), hashlib.sha256(), 0
    connection.request("GET", path_of("/replay-normalized", request))
    response = connection.getresponse()
    while part := response.read1(READ_BYTES):
        messages += part.count(b"\n")
        digest.update(part)
        keep(part)
    connection.close()
    return Answer(messages, digest.digest(), time.perf_counter() - began)


def events_of(line: bytes) -> int:
    """Return how many events a message becomes: a change of the book has one for each level."""
    return line.count(b'"price":') or 1 if b'"type":"book_change"' in line else 1


# -- what is on the bus


@dataclass
class Found:
    """What was read from the bus."""

    messages: int
    levels: list[int] = field(init=False)
    """Of each position, the levels that were there, as bits."""
    events: int = 0
    doubled: int = 0
    ends: list[tuple[int, int]] = field(default_factory=list)
    """Of each end of a stream, how many messages it had, and how many of them were dropped."""

    def __post_init__(self) -> None:
        self.levels = [0] * self.messages

    def add(self, event_id: str, envelope: bytes) -> None:
        """Count an event."""
        stream, _, place = event_id.partition(":")
        if stream.endswith("~end"):
            meta = NormalizedEvent.FromString(envelope).meta
            self.ends.append((int(meta["stream_messages"]), int(meta["stream_dropped"])))
            return
        position, _, level = place.partition(".")
        bit = 1 << int(level or 0)
        self.doubled += bool(self.levels[int(position)] & bit)
        self.levels[int(position)] |= bit
        self.events += 1

    @property
    def missing(self) -> int:
        return self.levels.count(0)


async def nats_entries(bus: Bus) -> AsyncIterator[tuple[str, bytes]]:
    assert bus.server is not None
    client = await nats.connect(bus.server.url)
    try:
        stream = client.jetstream()
        left = (await stream.stream_info("BENCH")).state.messages
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        consumer = await stream.pull_subscribe("bronze.>", stream="BENCH", config=config)
        while left:
            for message in await consumer.fetch(min(1_000, left), timeout=60):
                left -= 1
                yield (message.headers or {})["Nats-Msg-Id"], message.data
    finally:
        await client.close()


async def redis_entries(bus: Bus) -> AsyncIterator[tuple[str, bytes]]:
    assert bus.server is not None
    with redis.Redis.from_url(bus.server.url) as client:
        for key in client.scan_iter(_type="stream"):
            last = "-"
            while entries := client.xrange(key, last, count=READ_AT_ONCE):
                for _, fields in entries:
                    yield fields[b"eventId"].decode(), fields[b"data"]
                last = f"({entries[-1][0].decode()}"


ENTRIES = {"nats": nats_entries, "redis": redis_entries}


async def read_back(bus: Bus, messages: int) -> Found:
    found = Found(messages)
    async for event_id, envelope in ENTRIES[bus.name](bus):
        found.add(event_id, envelope)
    return found


# -- measuring


@dataclass(frozen=True)
class Recorded:
    """What the server answers without the client."""

    answer: Answer
    events: int
    file: Path


def record(machine: InstalledMachine, folder: Path, request: Any) -> Recorded:
    """Ask a server without the client; afterwards its data is in the cache."""
    server = machine.server(folder / "plain", {}).start()
    file = folder / "messages.ndjson"
    try:
        with file.open("wb") as out:
            answer = ask(server.port, request, out.write)
    finally:
        server.stop()
    with file.open("rb") as lines:
        events = sum(map(events_of, lines))
    return Recorded(answer, events, file)


def running_sidecar(bus: Bus, folder: Path) -> SidecarProcess:
    process = SidecarProcess(folder, "--log-level=warning", *bus.options)
    process.start()
    process.wait_until_ready()
    return process


def measure(bus: Bus, machine: InstalledMachine, folder: Path, request: Any, recorded: Recorded) -> bool:
    """Print a row; return whether everything was there once."""
    bus.empty()
    sidecar = running_sidecar(bus, folder / f"{bus.name}-replay")
    server = machine.server(folder / f"{bus.name}-server", hook_environment(sidecar.address)).start()
    try:
        began = time.perf_counter()
        answer = ask(server.port, request)
        # The stream is closed when its end is on the bus, and that is sent when all else is.
        wait_until(lambda: sidecar.metric("bronze_streams") == 0, PATIENCE_SECONDS)
        seconds = time.perf_counter() - began
    finally:
        server.stop()
        sidecar.stop()
    found = asyncio.run(read_back(bus, answer.messages))
    bus.empty()
    alone = send_alone(bus, folder, recorded.file)
    (end,) = found.ends
    faults = [
        f"{found.missing} positions missing",
        f"{end[1]} dropped",
        f"{found.doubled} doubled",
        f"{recorded.events - found.events} events too few",
    ]
    print(
        f"{bus.name:6} {answer.messages:,} messages, {found.events:,} events: {', '.join(faults)}\n"
        f"       response {answer.seconds:.1f} s, on the bus {seconds:.1f} s; `send` alone {alone:.1f} s,"
        f" ratio {seconds / alone:.2f}",
        flush=True,
    )
    is_same = answer.digest == recorded.answer.digest
    if not is_same:
        print("       the response is not the one without the client")
    return is_same and end == (answer.messages, 0) and not any(int(each.split()[0]) for each in faults)


def send_alone(bus: Bus, folder: Path, file: Path) -> float:
    """Return how long it takes to send the messages of a file."""
    sidecar = running_sidecar(bus, folder / f"{bus.name}-send")
    try:
        began = time.perf_counter()
        run([PROGRAM, "send", str(file), "--to", sidecar.address], check=True, capture_output=True)
        return time.perf_counter() - began
    finally:
        sidecar.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=2_000_000, help="at least so many are replayed")
    parser.add_argument("--bus", choices=ENTRIES, action="append", help="by default all, one after the other")
    parser.add_argument("--version", choices=VERSIONS, default="18", help="of the real server")
    arguments = parser.parse_args()
    request = request_of(arguments.messages)
    with tempfile.TemporaryDirectory(prefix="bronze-replay-") as name:
        folder = Path(name)
        with tardis_data(folder, messages=PER_MINUTE) as data:
            try:
                machine = installed_machine(arguments.version, data, folder / "cache")
            except Unavailable as error:
                print(error, file=sys.stderr)
                return 2
            recorded = record(machine, folder, request)
            print(
                f"tardis-machine {machine.version}; alone it takes {recorded.answer.seconds:.1f} s",
                flush=True,
            )
            results = []
            for each in arguments.bus or ENTRIES:
                with serving(each, folder) as bus:
                    results.append(measure(bus, machine, folder, request, recorded))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
