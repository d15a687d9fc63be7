"""Whatever a producer sends, the sidecar stays within its memory, keeps answering, and serves the others.

The limit is that of the chart, 512 MiB; the peak of what the process ever had resident is compared with it.
After an attack it has little more than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from bronze_client import connect
from bronze_client.schema import (
    Batch,
    Open,
    PublishBatchRequest,
    PublishRequest,
    PublishResponse,
    StreamContext,
)
from bronze_sidecar.envelope.wire import varint
from servers import HOST, NatsServer, RedisServer
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

MEBIBYTE = 1 << 20
LIMIT = 512 * MEBIBYTE
SHARE = 128 * MEBIBYTE
"""A third of what is left beside the process itself: for queues."""
LEFT = 64 * MEBIBYTE
"""What the allocators may keep of memory that was given back: pieces between others that live on."""
HONEST = 10_000
PUBLISH = "/bronze.sidecar.v1.SidecarService/Publish"
PUBLISH_BATCH = "/bronze.sidecar.v1.SidecarService/PublishBatch"
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
TRADE = b'{"type":"trade","symbol":"S","exchange":"x","price":1,"amount":2,"side":"buy"}'


def book(symbol: str, levels: int) -> bytes:
    bids = b",".join([b'{"price":1,"amount":2}'] * levels)
    return b'{"type":"book_change","exchange":"x","symbol":"%b","bids":[%b],"asks":[]}' % (
        symbol.encode(),
        bids,
    )


class Attacker:
    """A producer without manners."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channels: list[grpc.aio.Channel] = []

    def channel(self) -> grpc.aio.Channel:
        # A connection of its own, whatever others there are.
        options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1), ("test", len(self._channels))]
        channel = grpc.aio.insecure_channel(self._address, options)
        self._channels.append(channel)
        return channel

    async def stream(self, context: StreamContext | None = None, channel: Any = None) -> Any:
        call: Any = (channel or self.channel()).stream_stream(PUBLISH)()
        opening = Open(producer_id=secrets.token_hex(4), context=context or StreamContext(stream_id="s"))
        await call.write(PublishRequest(open=opening).SerializeToString())
        return call

    async def batch(self, call: Any, batch: Batch) -> None:
        await call.write(PublishRequest(batch=batch).SerializeToString())

    async def until_answered(self, call: Any) -> str:
        """Read until the first batch is acknowledged or the call ends; return the failures or the reason."""
        try:
            while isinstance(answer := await call.read(), bytes):
                acknowledgement = PublishResponse.FromString(answer).acknowledgement
                if acknowledgement.sequence:
                    return "; ".join(each.reason for each in acknowledgement.outcome.failures[:3])
        except grpc.aio.AioRpcError:
            pass
        return f"{(await call.code()).name}: {await call.details()}"

    async def single(self, batch: Batch) -> str:
        request = PublishBatchRequest(context=StreamContext(stream_id="s"), batch=batch)
        return await self.send(request.SerializeToString())

    async def send(self, request: bytes) -> str:
        """Send a request that carries a single batch; return why it was refused."""
        try:
            call: Any = self.channel().unary_unary(PUBLISH_BATCH)
            await call(request)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return ""

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


# -- attacks: each returns what it was told


async def long_symbol_with_many_levels(attacker: Attacker) -> str:
    call = await attacker.stream()
    await attacker.batch(call, Batch(sequence=1, json=[book("s" * 500_000, 20_000)]))
    return await attacker.until_answered(call)


async def large_context(attacker: Attacker) -> str:
    call = await attacker.stream(StreamContext(stream_id="s", meta={"k": "v" * 500_000}))
    return await attacker.until_answered(call)


async def millions_of_levels(attacker: Attacker) -> str:
    call = await attacker.stream()
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await attacker.batch(call, Batch(sequence=1, json=[book("S", 1_500_000)]))
    return await attacker.until_answered(call)


async def as_many_levels_as_a_line_may_have(attacker: Attacker) -> str:
    call = await attacker.stream()
    await attacker.batch(call, Batch(sequence=1, json=[book("S", 45_000)]))
    return await attacker.until_answered(call)


async def newlines(attacker: Attacker) -> str:
    return await attacker.single(Batch(json=[b"\n" * 60_000_000]))


async def empty_envelopes(attacker: Attacker) -> str:
    return await attacker.single(Batch(envelopes=[b""] * 600_000))


async def thirty_million_empty_envelopes(attacker: Attacker) -> str:
    context = PublishBatchRequest(context=StreamContext(stream_id="s")).SerializeToString()
    batch = Batch(envelopes=[b""]).SerializeToString() * 30_000_000
    return await attacker.send(b"%b\x12%b%b" % (context, varint(len(batch)), batch))


async def refused_batches_of_many_runs(attacker: Attacker) -> str:
    said = set()
    for _ in range(30):
        call = await attacker.stream()
        await attacker.batch(call, Batch(sequence=1, envelopes=[b""] * 600_000))
        said.add(await attacker.until_answered(call))
    return "; ".join(said)


async def large_meta_on_many_streams(attacker: Attacker) -> str:
    said = ""
    for _ in range(20):
        call: Any = attacker.channel().stream_stream(PUBLISH)()
        opening = Open(producer_id="p", context=StreamContext(stream_id="s", meta={"k": "v" * 20 * MEBIBYTE}))
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(PublishRequest(open=opening).SerializeToString())
        said = await attacker.until_answered(call)
    return said


async def many_symbols_on_many_streams(attacker: Attacker) -> str:
    said = ""
    for _ in range(80):
        call = await attacker.stream()
        lines = [TRADE.replace(b'"S"', b'"%d%b"' % (number, b"s" * 240)) for number in range(1000)]
        await attacker.batch(call, Batch(sequence=1, json=[b"\n".join(lines)]))
        said += await attacker.until_answered(call)
    return said


async def symbols_of_three_kilobytes_on_many_streams(attacker: Attacker) -> str:
    said = set()
    for _ in range(20):
        call = await attacker.stream()
        for first in range(0, 4096, 256):
            symbols = [b"%d%b" % (number, b"s" * 2900) for number in range(first, first + 256)]
            lines = [TRADE.replace(b'"S"', b'"%b"' % symbol) for symbol in symbols]
            number = first // 256 + 1
            await attacker.batch(call, Batch(sequence=number, first_position=first, json=lines))
            said.add(await attacker.until_answered(call))
    return "; ".join(said)


async def symbols_of_900_kilobytes(attacker: Attacker) -> str:
    call = await attacker.stream()
    said = set()
    for number in range(1, 641):
        line = TRADE.replace(b'"S"', b'"%d%b"' % (number, b"s" * 900_000))
        await attacker.batch(call, Batch(sequence=number, first_position=number, json=[line]))
        said.add(await attacker.until_answered(call))
    return "; ".join(said)


async def failures_of_sessions_that_are_gone(attacker: Attacker) -> str:
    channel = attacker.channel()
    for _ in range(300):
        call = await attacker.stream(channel=channel)
        await attacker.batch(call, Batch(sequence=1, json=[b"\n" * 1000]))
        while isinstance(answer := await call.read(), bytes):
            if PublishResponse.FromString(answer).acknowledgement.sequence:
                break
        call.cancel()
    return ""


ATTACKS: dict[Callable[[Attacker], Awaitable[str]], str] = {
    long_symbol_with_many_levels: "field 'symbol': has 500000 bytes; at most 256 are allowed",
    large_context: "INVALID_ARGUMENT: context: field 'meta': 'k' has 500000 bytes; at most 4096 are allowed",
    millions_of_levels: "RESOURCE_EXHAUSTED: ",
    as_many_levels_as_a_line_may_have: "",
    newlines: "RESOURCE_EXHAUSTED: ",
    empty_envelopes: "INVALID_ARGUMENT: the batch has more than 1024 messages",
    thirty_million_empty_envelopes: "RESOURCE_EXHAUSTED: ",
    refused_batches_of_many_runs: "INVALID_ARGUMENT: the batch has more than 1024 messages",
    large_meta_on_many_streams: "RESOURCE_EXHAUSTED: ",
    many_symbols_on_many_streams: "",
    symbols_of_three_kilobytes_on_many_streams: "field 'symbol': has 2901 bytes; at most 256 are allowed",
    symbols_of_900_kilobytes: "field 'symbol': has 900001 bytes; at most 256 are allowed",
    failures_of_sessions_that_are_gone: "",
}


class Watch:
    """Asks for health all the time, from a thread of its own."""

    def __init__(self, process: SidecarProcess) -> None:
        self._process = process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self.answers = 0
        self.longest = 0.0
        self.faults: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._done.is_set():
            asked = time.monotonic()
            try:
                status, _ = self._process.get("/healthz")
            except OSError as error:
                self.faults.append(str(error))
            else:
                self.answers += status == 200
            self.longest = max(self.longest, time.monotonic() - asked)
            self._done.wait(0.05)


def peak(process: SidecarProcess) -> int:
    """Return the most bytes that the process ever had resident."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


async def until_resident(process: SidecarProcess, most: int) -> None:
    """Wait until the process has no more than this resident; it looks now and then what it can return."""
    deadline = time.monotonic() + 60
    while (resident := process.resident_bytes()) > most:
        assert time.monotonic() < deadline, f"{resident >> 20} MiB are resident, of at most {most >> 20}"
        await asyncio.sleep(0.1)


async def honest(address: str) -> None:
    """Publish as one should; everything arrives."""
    async with connect(address, source="honest/1", on_full="wait", max_wait=120.0) as publisher:
        for _ in range(HONEST):
            assert await publisher.publish_wait(TRADE)
        await publisher.flush(timeout=120)
        assert publisher.stats.published == HONEST


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.stop()


def options(server: NatsServer) -> list[str]:
    return ["--nats-servers", f"{HOST}:{server.port}", "--nats-stream", "S", "--nats-subject", "bronze.all"]


@pytest.fixture
def limited(bus: NatsServer) -> Iterator[SidecarProcess]:
    with sidecar(*options(bus), "--memory-limit=512Mi") as process:
        process.wait_until_ready()
        yield process


@contextlib.asynccontextmanager
async def attacking(process: SidecarProcess) -> AsyncIterator[Attacker]:
    await honest(process.address)
    before = process.resident_bytes()
    attacker = Attacker(process.address)
    try:
        with Watch(process) as watch:
            yield attacker
        assert not watch.faults
        assert watch.answers
    finally:
        await attacker.close()
    await honest(process.address)
    assert peak(process) < LIMIT
    print(
        f"peak {peak(process) >> 20} MiB, before {before >> 20}, after {process.resident_bytes() >> 20};"
        f" health answered within {watch.longest:.2f} s"
    )
    await until_resident(process, before + LEFT)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
async def test_an_attack_hurts_nobody(
    limited: SidecarProcess, attack: Callable[[Attacker], Awaitable[str]]
) -> None:
    async with attacking(limited) as attacker:
        assert ATTACKS[attack] in await attack(attacker)


SMALL = b'{"type":"x", "exchange": "abcdefghijklmnopqrstuvwxyz"}\n' * 1000
"""Nearly as many messages as a batch may have, as large as a batch may be."""


@pytest.mark.parametrize("lines", [b"\n".join([book("S", 100)] * 200), SMALL], ids=["books", "small"])
async def test_what_waits_for_a_frozen_bus_stays_within_the_bound(tmp_path: Path, lines: bytes) -> None:
    server = NatsServer(tmp_path / "nats").start()
    try:
        with sidecar(*options(server), "--memory-limit=512Mi") as process:
            process.wait_until_ready()
            await honest(process.address)
            before = process.resident_bytes()
            server.freeze()
            attacker = Attacker(process.address)
            try:
                with Watch(process) as watch:
                    calls = [await attacker.stream() for _ in range(105)]
                    for call in calls[:5]:
                        # So that something waits, whatever the others send.
                        books = [b"\n".join([book("S", 100)] * 200)]
                        await attacker.batch(call, Batch(sequence=1, json=books))
                    for call in calls[5:]:
                        # Within the credits of each stream, and far beyond what all may hold.
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.2):
                                for number in range(1, 21):
                                    batch = Batch(
                                        sequence=number, first_position=100_000 * number, json=[lines]
                                    )
                                    await attacker.batch(call, batch)
                    waiting = process.status()["backends"]["nats"]["waiting_events"]
                    assert 20_000 < waiting <= 100_000
                assert not watch.faults
            finally:
                server.thaw()
                await attacker.close()
            await honest(process.address)
            assert peak(process) < LIMIT
            await until_resident(process, before + SHARE)
    finally:
        server.stop()


LONG_TRADES = b"\n".join([TRADE.replace(b'"type"', b'"id":"%b","type"' % (b"i" * 900))] * 1000)
"""Nearly as large as a batch may be, also as envelopes."""


async def test_streams_that_wait_for_room_are_woken_one_after_the_other(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats").start()
    try:
        with sidecar(*options(server), "--memory-limit=512Mi") as process:
            process.wait_until_ready()
            await honest(process.address)
            before = process.resident_bytes()
            server.freeze()
            attacker = Attacker(process.address)
            try:
                for _ in range(40):
                    call = await attacker.stream()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.2):
                            for number in range(1, 41):
                                batch = Batch(
                                    sequence=number, first_position=1000 * number, json=[LONG_TRADES]
                                )
                                await attacker.batch(call, batch)
                waiting = process.status()["backends"]["nats"]
                assert waiting["waiting_bytes"] > waiting["most_bytes"] // 2
                server.thaw()
                with Watch(process) as watch:
                    while waiting["waiting_events"]:
                        assert waiting["waiting_bytes"] <= waiting["most_bytes"]
                        assert waiting["waiting_events"] <= waiting["most_events"]
                        waiting = process.status()["backends"]["nats"]
                assert not watch.faults
            finally:
                server.thaw()
                await attacker.close()
            await honest(process.address)
            assert peak(process) < LIMIT
            await until_resident(process, before + LEFT)
    finally:
        server.stop()


async def test_what_waits_for_several_frozen_buses_stays_within_the_bound(tmp_path: Path) -> None:
    """Where each takes other events, several batches wait with what was mapped of them."""
    nats, redis = NatsServer(tmp_path / "nats").start(), RedisServer(tmp_path / "redis").start()
    most_levels = book("S", 40_000)
    batches = [[most_levels], [LONG_TRADES], [most_levels[:-1] + b"," + b" " * 9000 + b'"x":1}', TRADE]]
    try:
        with sidecar(
            *(*options(nats), "--nats-include-payloads=bookChange"),
            *("--redis-url", f"redis://{HOST}:{redis.port}", "--redis-stream", "bronze"),
            "--redis-include-payloads=trade",
            *("--memory-limit=512Mi", "--max-queue-events=30000"),
        ) as process:
            process.wait_until_ready()
            await honest(process.address)
            before = process.resident_bytes()
            nats.freeze()
            redis.freeze()
            attacker = Attacker(process.address)
            try:
                with Watch(process) as watch:
                    for number in range(100):
                        call = await attacker.stream()
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.2):
                                for sequence in range(1, 5):
                                    json = batches[number % 3]
                                    batch = Batch(
                                        sequence=sequence, first_position=10_000 * sequence, json=json
                                    )
                                    await attacker.batch(call, batch)
                    waiting = {
                        name: each["waiting_events"] for name, each in process.status()["backends"].items()
                    }
                    assert all(10_000 < each <= 30_000 for each in waiting.values()), waiting
                assert not watch.faults
            finally:
                nats.thaw()
                redis.thaw()
                await attacker.close()
            await honest(process.address)
            assert peak(process) < LIMIT
            await until_resident(process, before + SHARE)
    finally:
        nats.stop()
        redis.stop()


async def test_calls_that_are_closed_while_they_wait_leave_nothing(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats").start()
    try:
        with sidecar(*options(server), "--memory-limit=512Mi", "--max-queue-events=2000") as process:
            process.wait_until_ready()
            await honest(process.address)
            before = process.resident_bytes()
            server.freeze()
            attacker = Attacker(process.address)
            try:
                channel = attacker.channel()
                # All together, their batches are larger than what the process may have.
                for _ in range(800):
                    call = await attacker.stream(channel=channel)
                    assert isinstance(await call.read(), bytes)
                    await attacker.batch(call, Batch(sequence=1, json=[LONG_TRADES]))
                    # Answered when the batch was read: the connection takes one after the other.
                    status = process.status()
                    call.cancel()
                assert status["backends"]["nats"]["waiting_events"] <= 2000
            finally:
                server.thaw()
                await attacker.close()
            await honest(process.address)
            assert peak(process) < LIMIT
            await until_resident(process, before + LEFT)
    finally:
        server.stop()


async def test_half_sent_requests_are_few(limited: SidecarProcess) -> None:
    """Each is larger than a request may be, and none is ever finished."""
    async with attacking(limited) as attacker:
        pieces = []
        for _ in range(12):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(limited.address.removeprefix("unix://"))
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):
                connection.sendall(_half_request(60 * MEBIBYTE, 4 * MEBIBYTE))
            pieces.append(connection)
        call = await attacker.stream()
        assert isinstance(await call.read(), bytes)
        for connection in pieces:
            connection.close()


def _half_request(announced: int, sent: int) -> bytes:
    """Return the beginning of an HTTP/2 connection with a call whose message does not end."""

    def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
        return len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + content

    def header(name: bytes, value: bytes) -> bytes:
        return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value

    headers = b"".join(
        header(name, value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", PUBLISH_BATCH.encode()),
            (b":authority", b"x"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        )
    )
    parts = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0, b""), frame(1, 4, 1, headers)]
    body = b"\x00" + announced.to_bytes(4) + b"\n" * sent
    parts += [frame(0, 0, 1, body[start : start + 16_000]) for start in range(0, len(body), 16_000)]
    return b"".join(parts)


async def test_idle_connections_keep_nobody_out(limited: SidecarProcess) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX))
            idle.connect(limited.address.removeprefix("unix://"))
        for _ in range(1500):
            stack.enter_context(socket.create_connection((HOST, limited.port)))
        async with attacking(limited):
            assert limited.get("/healthz")[0] == 200
