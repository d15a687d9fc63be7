"""What every back end does, shown against its real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from bronze_client.schema import NormalizedEvent, Origin, Side, Trade
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.errors import Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Backend, Failed, Sink
from configurations import backend_of
from servers import NativeServer


@dataclass(frozen=True)
class Stored:
    """A record as an independent client read it."""

    data: bytes
    headers: dict[str, str]


@dataclass
class Peer:
    """A server that a sink writes to, and how to read it by other means."""

    flags: tuple[str, ...]
    """Options that reach the server."""
    read_all: Callable[[str], Awaitable[list[Stored]]]
    """Returns what a destination holds, in order."""
    server: NativeServer | None = None
    wrong_flags: tuple[str, ...] = ()
    """Options that do not."""
    secrets: tuple[str, ...] = ()
    """What no message may hold."""
    options: tuple[str, ...] = field(default=())
    """What the message about the wrong options names."""

    @property
    def own(self) -> NativeServer:
        assert self.server is not None, "this test needs a server of its own"
        return self.server


class SinkContract:
    """What every back end does. A subclass is named Test…, and provides what is listed here.

    Class attributes:
    - `headers`: all headers of `headed_event()`, written out by hand.
    - `header_flags`: the options for them: a static header `env` with the value `prod`, and meta headers.
    - `oversized_bytes`: an envelope that is too large for the server of `small_peer`.

    A method, and one that may be left out:
    - `addressing(prefix)`: options for the destination `<prefix>.{{symbol}}`; the prefix is
      `contract.<hexadecimal digits>`, another for each test.
    - `be_impatient(monkeypatch)`: makes the sink give up a silent server after about a second.

    Fixtures, each of which returns a `Peer`:
    - `peer`: a server that tests share.
    - `own_peer`: a server of the test's own, which the test kills, starts again and freezes.
    - `small_peer`: a server that refuses an envelope of `oversized_bytes`.
    - `password_peer`: a server that asks for credentials. `flags` has the right ones, `wrong_flags` wrong
      ones, `secrets` the passwords in either; `options` are named by the error.
    - `tls_peer`: a server with TLS whose certificate comes from a private authority. `flags` trusts that,
      `wrong_flags` another one; `options` are named by the error.
    """

    headers: ClassVar[dict[str, str]]
    header_flags: ClassVar[tuple[str, ...]]
    oversized_bytes: ClassVar[int]

    def addressing(self, prefix: str) -> tuple[str, ...]:
        raise NotImplementedError

    def be_impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing to do for a sink that gives up soon anyway."""

    @pytest.fixture
    def prefix(self) -> str:
        return f"contract.{uuid.uuid4().hex}"

    def backend(self, peer: Peer, prefix: str, *more: str, wrong: bool = False) -> Backend:
        flags = peer.wrong_flags if wrong else peer.flags
        backend: Backend = backend_of(*flags, *self.addressing(prefix), *more)
        return backend

    # -- what is stored

    async def test_stores_a_batch_in_order(self, peer: Peer, prefix: str) -> None:
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", number) for number in range(1000)]))
            assert not await sink.write(
                records(backend, [trade("A", number) for number in range(1000, 1500)])
            )
        stored = await peer.read_all(f"{prefix}.A")
        assert [price(each) for each in stored] == list(range(1500))

    async def test_leaves_bytes_as_they_are(self, peer: Peer, prefix: str) -> None:
        awkward = [
            b"\r\n",
            b"\0" * 10,
            bytes(range(256)),
            b"$3\r\nfoo\r\n*1\r\n",
            b"+OK\r\n",
            b"MSG a 1 2\r\n",
        ]
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            batch = records(
                backend, [event("A", number, envelope) for number, envelope in enumerate(awkward)]
            )
            assert not await sink.write(batch)
        assert [each.data for each in await peer.read_all(f"{prefix}.A")] == awkward

    async def test_writes_headers(self, peer: Peer, prefix: str) -> None:
        backend = self.backend(peer, prefix, *self.header_flags)
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [headed_event()]))
        (stored,) = await peer.read_all(f"{prefix}.BTC-USDT")
        assert stored.headers == self.headers

    async def test_stores_records_of_several_destinations(self, peer: Peer, prefix: str) -> None:
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            batch = [trade("ABC"[number % 3], number) for number in range(300)]
            assert not await sink.write(records(backend, batch))
        for first, symbol in enumerate("ABC"):
            stored = await peer.read_all(f"{prefix}.{symbol}")
            assert [price(each) for each in stored] == list(range(first, 300, 3))

    async def test_stores_as_many_records_as_its_limits_allow(self, peer: Peer, prefix: str) -> None:
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            count = sink.limits.records
            batch = [event("A", number, b"%d" % number) for number in range(count)]
            assert not await sink.write(records(backend, batch))
        stored = await peer.read_all(f"{prefix}.A")
        assert [int(each.data) for each in stored] == list(range(count))

    async def test_stores_as_many_bytes_as_its_limits_allow(self, peer: Peer, prefix: str) -> None:
        size = 64 * 1024
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            count = sink.limits.bytes // size
            batch = [event("A", number, bytes([number % 256]) * size) for number in range(count)]
            assert not await sink.write(records(backend, batch))
        stored = await peer.read_all(f"{prefix}.A")
        assert [each.data for each in stored] == [bytes([number % 256]) * size for number in range(count)]

    async def test_an_oversized_record_fails_alone(self, small_peer: Peer, prefix: str) -> None:
        backend = self.backend(small_peer, prefix)
        events = [trade("A", 0), event("A", 1, b"x" * self.oversized_bytes), trade("A", 2), trade("B", 3)]
        errors = await write_all(backend, records(backend, events))
        assert {place: type(error) for place, error in errors.items()} == {1: Permanent}
        assert [price(each) for each in await small_peer.read_all(f"{prefix}.A")] == [0, 2]
        assert [price(each) for each in await small_peer.read_all(f"{prefix}.B")] == [3]

    async def test_writes_what_was_prepared_while_another_write_was_under_way(
        self, peer: Peer, prefix: str
    ) -> None:
        backend = self.backend(peer, prefix)
        batches = [
            records(backend, [trade("AB"[number % 2], number) for number in range(start, start + 100)])
            for start in range(0, 500, 100)
        ]
        async with backend.open(Route(backend.rules())) as sink:
            # Not everything is known before the first write.
            early = sink.prepare(batches[1])
            assert not await sink.write(batches[0])
            under_way = asyncio.create_task(sink.write(batches[1], early))
            await asyncio.sleep(0)
            # What is prepared need not be written, nor at once.
            sink.prepare(batches[4])
            prepared = sink.prepare(batches[2])
            assert not await under_way
            assert not await sink.write(batches[2], prepared)
            assert not await sink.write(batches[3])
        for first, symbol in enumerate("AB"):
            stored = await peer.read_all(f"{prefix}.{symbol}")
            assert [price(each) for each in stored] == list(range(first, 400, 2))

    async def test_an_oversized_record_fails_alone_in_what_was_prepared(
        self, small_peer: Peer, prefix: str
    ) -> None:
        backend = self.backend(small_peer, prefix)
        large = event("B", 1, b"x" * self.oversized_bytes)
        batch = records(backend, [trade("A", 0), large, trade("A", 2)])
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", 9), trade("B", 9)]))
            failures = dict(await sink.write(batch, sink.prepare(batch)))
        assert isinstance(failures.pop(1), Permanent)
        assert all(isinstance(error, NotTried) for error in failures.values())

    # -- servers that fail

    async def test_works_again_after_the_server_was_killed(self, own_peer: Peer, prefix: str) -> None:
        backend = self.backend(own_peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            await sink.ping()
            assert not await sink.write(records(backend, [trade("A", 1)]))
            own_peer.own.kill()
            with pytest.raises(Transient):
                await sink.write(records(backend, [trade("A", 2)]))
            with pytest.raises(Disconnected):
                await sink.ping()
        with pytest.raises(Transient):
            async with backend.open(Route(backend.rules())):
                pass
        own_peer.own.start()
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("B", 3)]))
        assert [price(each) for each in await own_peer.read_all(f"{prefix}.B")] == [3]

    async def test_gives_up_a_frozen_server(
        self, own_peer: Peer, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = self.backend(own_peer, prefix)
        # Only with a server that is frozen: others have as long as a busy machine needs.
        with monkeypatch.context() as impatience:
            async with backend.open(Route(backend.rules())) as sink:
                own_peer.own.freeze()
                self.be_impatient(impatience)
                started = time.monotonic()
                with pytest.raises(Disconnected):
                    await sink.write(records(backend, [trade("A", 1)]))
                assert time.monotonic() - started < 11
            with pytest.raises(Transient):
                async with backend.open(Route(backend.rules())):
                    pass
        own_peer.own.thaw()
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("B", 2)]))
        assert [price(each) for each in await own_peer.read_all(f"{prefix}.B")] == [2]

    async def test_gives_up_a_frozen_server_that_reads_no_more(
        self, own_peer: Peer, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.be_impatient(monkeypatch)
        backend = self.backend(own_peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            own_peer.own.freeze()
            batch = [event("A", number, b"x" * 512 * 1024) for number in range(32)]
            with pytest.raises(Disconnected):
                await sink.write(records(backend, batch))
        own_peer.own.thaw()

    # -- opening and closing

    async def test_nobody_listens(self, own_peer: Peer, prefix: str) -> None:
        own_peer.own.stop()
        backend = self.backend(own_peer, prefix)
        with pytest.raises(Transient) as caught:
            async with backend.open(Route(backend.rules())):
                pass
        assert str(own_peer.own.port) in str(caught.value)

    async def test_logs_in(self, password_peer: Peer, prefix: str) -> None:
        backend = self.backend(password_peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", 1)]))
        assert [price(each) for each in await password_peer.read_all(f"{prefix}.A")] == [1]

    async def test_wrong_credentials_name_the_options_and_no_secret(
        self, password_peer: Peer, prefix: str
    ) -> None:
        backend = self.backend(password_peer, prefix, wrong=True)
        with pytest.raises(Permanent) as caught:
            async with backend.open(Route(backend.rules())):
                pass
        for option in password_peer.options:
            assert option in str(caught.value)
        for secret in password_peer.secrets:
            assert secret not in str(caught.value)

    async def test_encrypts(self, tls_peer: Peer, prefix: str) -> None:
        backend = self.backend(tls_peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", number) for number in range(1000)]))
        assert [price(each) for each in await tls_peer.read_all(f"{prefix}.A")] == list(range(1000))

    async def test_trusts_no_other_authority(self, tls_peer: Peer, prefix: str) -> None:
        backend = self.backend(tls_peer, prefix, wrong=True)
        with pytest.raises((Permanent, Transient)) as caught:
            async with backend.open(Route(backend.rules())):
                pass
        for option in tls_peer.options:
            assert option in str(caught.value)

    async def test_leaves_no_task_and_no_socket(self, peer: Peer, prefix: str) -> None:
        backend = self.backend(peer, prefix)
        async with backend.open(Route(backend.rules())) as sink:  # what is made once may stay
            await sink.write(records(backend, [trade("A", 1)]))
        await becomes(lambda: len(asyncio.all_tasks()), 1)
        sockets = open_sockets()
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("A", 2)]))
            assert open_sockets() > sockets
        await becomes(lambda: len(asyncio.all_tasks()), 1)
        await becomes(open_sockets, sockets)

    async def test_leaves_no_task_and_no_socket_after_a_loss(self, own_peer: Peer, prefix: str) -> None:
        backend = self.backend(own_peer, prefix)
        sockets = open_sockets()
        async with backend.open(Route(backend.rules())):
            own_peer.own.kill()
        with pytest.raises(Transient):
            async with backend.open(Route(backend.rules())):
                pass
        await becomes(lambda: len(asyncio.all_tasks()), 1)
        await becomes(open_sockets, sockets)

    async def test_closes_after_a_write_was_cancelled(self, own_peer: Peer, prefix: str) -> None:
        backend = self.backend(own_peer, prefix)
        async with asyncio.timeout(60), backend.open(Route(backend.rules())) as sink:
            own_peer.own.freeze()
            write = asyncio.create_task(_write(sink, records(backend, [trade("A", 1)])))
            await asyncio.wait([write], timeout=0.2)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write
        own_peer.own.thaw()
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(records(backend, [trade("B", 2)]))
        await becomes(lambda: len(asyncio.all_tasks()), 1)


# -- events, made without the code under test


def trade(symbol: str, number: int) -> Event:
    """Return a trade whose price is the number."""
    envelope = NormalizedEvent(
        source="tardis",
        exchange="binance",
        symbol=symbol,
        origin=Origin.ORIGIN_REPLAY,
        meta={"event_id": f"stream:{number}"},
        trade=Trade(trade_id=f"t-{number}", price_str=str(number), qty_str="0.5", side=Side.SIDE_BUY),
    )
    return event(symbol, number, envelope.SerializeToString())


def price(stored: Stored) -> int:
    """Return the number of a trade that was stored."""
    return int(NormalizedEvent.FromString(stored.data).trade.price_str)


def event(symbol: str, number: int, envelope: bytes, **facts: Any) -> Event:
    ordinary: dict[str, Any] = {
        "id": f"stream:{number}",
        "payload_case": "trade",
        "exchange": "binance",
        "data_type": "trade",
        "source": "tardis",
        "origin": "replay",
        "meta": {},
    }
    return Event(symbol=symbol, envelope=envelope, **(ordinary | facts))


def headed_event() -> Event:
    """Return the event whose headers each back end's test writes out."""
    return event(
        "BTC-USDT",
        42,
        b"envelope",
        payload_case="tradeBar",
        data_type="trade_bar_1m",
        meta={"request_id": "r-1", "city": "Zürich"},
    )


def records(backend: Backend, events: Sequence[Event]) -> list[Record]:
    """Address the events."""
    route = Route(backend.rules())
    addressed = []
    for each in events:
        address = route.address(each)
        assert address is not None
        addressed.append(Record(address, each))
    return addressed


async def _write(sink: Sink, batch: Sequence[Record]) -> Sequence[Failed]:
    return await sink.write(batch)


async def write_all(backend: Backend, batch: Sequence[Record]) -> dict[int, Exception]:
    """Write as a lane does: again what was not tried, anew after a loss; return what failed for good."""
    errors: dict[int, Exception] = {}
    places = list(range(len(batch)))
    async with asyncio.timeout(60):
        while places:
            with contextlib.suppress(Disconnected):
                async with backend.open(Route(backend.rules())) as sink:
                    while places:
                        failures = dict(await sink.write([batch[place] for place in places]))
                        errors |= {
                            places[place]: error
                            for place, error in failures.items()
                            if not isinstance(error, NotTried)
                        }
                        places = [
                            places[place] for place, error in failures.items() if isinstance(error, NotTried)
                        ]
    return errors


# -- what a process holds


def open_sockets() -> int:
    """Return how many sockets this process has open."""
    count = 0
    for each in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{each}").startswith("socket:")  # noqa: PTH115
    return count


async def becomes(value: Callable[[], int], wanted: int) -> None:
    """Wait until a value is the one that is wanted."""
    deadline = time.monotonic() + 60
    while value() != wanted and time.monotonic() < deadline:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)
    assert value() == wanted
