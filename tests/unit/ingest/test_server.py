"""The gRPC service over a real connection, with back ends that do what the test says."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from bronze_client.schema import (
    Batch,
    End,
    FailureKind,
    NormalizedEvent,
    Open,
    Outcome,
    PublishBatchRequest,
    PublishBatchResponse,
    PublishRequest,
    PublishResponse,
    StreamContext,
)
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.envelope import native
from bronze_sidecar.errors import Permanent, Transient
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.ingest.failures import Failures
from bronze_sidecar.ingest.intake import Ticket
from bronze_sidecar.ingest.server import SidecarService
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Failed
from bronze_sidecar.telemetry.metrics import Metrics
from scripted import Script, Scripted

PUBLISH = "/bronze.sidecar.v1.SidecarService/Publish"
PUBLISH_BATCH = "/bronze.sidecar.v1.SidecarService/PublishBatch"
TRADE = (
    b'{"type":"trade","symbol":"XBTUSD","exchange":"bitmex","id":"1","price":7996.5,"amount":50,"side":"sell",'
    b'"timestamp":"2019-06-01T00:00:00.000Z","localTimestamp":"2019-06-01T00:00:00.123456Z"}'
)
BOOK = (
    b'{"type":"book_change","symbol":"XBTUSD","exchange":"bitmex","isSnapshot":false,"bids":'
    b'[{"price":1,"amount":2},{"price":3,"amount":0}],"asks":[{"price":4,"amount":5}],'
    b'"timestamp":"2019-06-01T00:00:00.000Z","localTimestamp":"2019-06-01T00:00:00.123Z"}'
)


def envelope(symbol: str = "XBTUSD", **fields: object) -> bytes:
    event = NormalizedEvent(exchange="bitmex", symbol=symbol, **fields)  # type: ignore[arg-type]
    event.trade.price_str = "7996.5"
    return event.SerializeToString()


class Stream:
    """A producer's end of one Publish stream."""

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, bytes]) -> None:
        self.call = call

    async def send(self, request: PublishRequest) -> None:
        await self.call.write(request.SerializeToString())

    async def open(
        self,
        producer: str = "",
        *,
        stream_id: str = "s",
        known: int = 0,
        context: StreamContext | None = None,
    ) -> PublishResponse:
        await self.send(
            PublishRequest(
                open=Open(
                    producer_id=producer or secrets.token_hex(4),
                    context=context or StreamContext(stream_id=stream_id),
                    acknowledged_sequence=known,
                )
            )
        )
        return await self.read()

    async def batch(self, sequence: int, first: int, *envelopes: bytes, json: Sequence[bytes] = ()) -> None:
        batch = Batch(sequence=sequence, first_position=first, envelopes=envelopes, json=json)
        await self.send(PublishRequest(batch=batch))

    async def read(self) -> PublishResponse:
        response: object = await self.call.read()
        assert isinstance(response, bytes), (
            f"the stream ended: {await self.call.code()} {await self.call.details()}"
        )
        return PublishResponse.FromString(response)

    async def acknowledged(self, sequence: int) -> Outcome:
        """Read until a batch is acknowledged; add up what became of the events."""
        total = Outcome()
        while True:
            acknowledgement = (await self.read()).acknowledgement
            total.published += acknowledgement.outcome.published
            total.filtered += acknowledgement.outcome.filtered
            total.failures.extend(acknowledgement.outcome.failures)
            if acknowledgement.sequence >= sequence:
                return total

    async def refused(self) -> tuple[grpc.StatusCode, str]:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while isinstance(await self.call.read(), bytes):  # type: ignore[redundant-expr]
                pass
        return await self.call.code(), await self.call.details() or ""


class Running:
    """A service with its lanes, and connections to it."""

    def __init__(
        self, service: SidecarService, channel: grpc.aio.Channel, lanes: list[Lane], address: str
    ) -> None:
        self.service = service
        self.channel = channel
        self.lanes = lanes
        self.address = address

    def stream(self) -> Stream:
        return Stream(self.channel.stream_stream(PUBLISH)())

    async def publish_batch(self, batch: Batch, context: StreamContext | None = None) -> Outcome:
        request = PublishBatchRequest(context=context or StreamContext(stream_id="s"), batch=batch)
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(PUBLISH_BATCH)
        response = await call(request.SerializeToString())
        return PublishBatchResponse.FromString(response).outcome


@pytest.fixture(autouse=True, params=["compiled", "python"])
def scanning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything with and without the compiled scanner of envelopes."""
    if request.param == "python":
        monkeypatch.setattr(native, "IS_INSTALLED", False)
    elif not native.IS_INSTALLED:
        pytest.skip("there was no Rust compiler to build the scanner")


@asynccontextmanager
async def serving(
    tmp_path: Path, *backends: Scripted, config: Config | None = None, failures: Failures | None = None
) -> AsyncIterator[Running]:
    config = config or Config(retry_backoff_ms=1, retry_backoff_max_ms=2)
    metrics = Metrics()
    lanes = [Lane(backend, config, metrics.lane(backend.name)) for backend in backends]
    service = SidecarService(config, lanes, metrics, failures)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service.handler(),))
    address = f"unix://{tmp_path / 's'}"
    server.add_insecure_port(address)
    tasks = [asyncio.create_task(lane.run()) for lane in lanes]
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Running(service, channel, lanes, address)
    finally:
        await server.stop(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_opening_grants_credits_and_batches_are_acknowledged_in_order(tmp_path: Path) -> None:
    script = Script()
    config = Config(max_queue_events=500, max_queue_bytes=1 << 20)
    async with serving(tmp_path, Scripted(script), config=config) as running:
        stream = running.stream()
        opened = (await stream.open()).opened
        assert opened.acknowledged_sequence == 0
        assert (opened.credits.events, opened.credits.bytes) == (500, 1 << 20)
        await stream.batch(1, 0, envelope(), envelope())
        await stream.batch(2, 2, json=[TRADE])
        outcome = await stream.acknowledged(2)
        assert outcome == Outcome(published=3)
        assert script.stored == ["s:0", "s:1", "s:2"]
        await stream.call.done_writing()
        assert await stream.refused() == (grpc.StatusCode.OK, "")


async def test_json_blocks_hold_a_message_a_line_and_positions_count_messages(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        block = TRADE + b"\n" + BOOK + b"\n"
        outcome = await running.publish_batch(Batch(first_position=7, json=[block, TRADE]))
        assert outcome == Outcome(published=5)
        assert script.stored == ["s:7", "s:8.0", "s:8.1", "s:8.2", "s:9"]


async def test_a_mixed_batch_keeps_the_order_of_its_messages(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        mixed = [TRADE, envelope(), b" " + BOOK, envelope(), envelope(), TRADE]
        assert await running.publish_batch(Batch(first_position=7, mixed=mixed)) == Outcome(published=8)
        assert script.stored == ["s:7", "s:8", "s:9.0", "s:9.1", "s:9.2", "s:10", "s:11", "s:12"]
        stream = running.stream()
        await stream.open()
        await stream.send(PublishRequest(batch=Batch(sequence=1, mixed=[envelope(), TRADE])))
        assert await stream.acknowledged(1) == Outcome(published=2)
        await stream.send(PublishRequest(batch=Batch(sequence=2, first_position=2, mixed=[envelope()])))
        assert await stream.acknowledged(2) == Outcome(published=1)


async def test_envelopes_of_a_mixed_batch_are_published_as_those_of_any_other(tmp_path: Path) -> None:
    """Also one whose bytes hold line feeds: the tag of its source is one."""
    taken: list[Record] = []

    def take(batch: Sequence[Record]) -> Sequence[Failed]:
        taken.extend(batch)
        return []

    sent = envelope(source="a\nb")
    async with serving(tmp_path, Scripted(Script(answers=[take]))) as running:
        await running.publish_batch(Batch(mixed=[TRADE, sent]))
    assert taken[1].event.envelope.startswith(sent)
    published = NormalizedEvent.FromString(taken[1].event.envelope)
    assert (published.source, published.meta["event_id"]) == ("a\nb", "s:1")


async def test_bad_messages_of_a_mixed_batch_are_refused_singly(tmp_path: Path) -> None:
    script = Script()
    no_payload = NormalizedEvent(exchange="bitmex").SerializeToString()
    large_text = TRADE.replace(b'"id":"1"', b'"id":"%b"' % (b"x" * 5000))
    bad = [b"\xff\xff", b" not json", no_payload, large_text, b"", b"{}", envelope(source="X" * 5000), b"[1]"]
    async with serving(tmp_path, Scripted(script), config=Config(max_event_bytes=4096)) as running:
        batch = Batch(first_position=10, mixed=[envelope(), *bad, TRADE, envelope()])
        outcome = await running.publish_batch(batch)
    assert outcome.published == 3
    assert script.stored == ["s:10", "s:19", "s:20"]
    assert [each.position for each in outcome.failures] == [11, 12, 13, 14, 15, 16, 17, 18]
    reasons = [each.reason for each in outcome.failures]
    assert reasons[0] == reasons[7] == "the bytes are not a NormalizedEvent"
    assert "JSON" in reasons[1]
    assert reasons[2] == reasons[4] == "the envelope has no payload that this version knows"
    assert "--max-event-bytes allows 4096" in reasons[3]
    assert "type" in reasons[5]
    assert "--max-event-bytes allows 4096" in reasons[6]


@pytest.mark.parametrize("kind", ["mixed", "json", "envelopes"])
async def test_operators_hear_of_bad_messages_in_the_order_of_the_stream(tmp_path: Path, kind: str) -> None:
    """Whatever is found first: what is malformed, what is too large as it came, or as what it became."""
    letters: list[DeadLetter] = []
    failures = Failures(letters.append)
    context = StreamContext(stream_id="s", meta={"desk": "d" * 2000})
    # They are within the bound; with the stream's context they are not.
    grows = BOOK.replace(b'"bids":[', b'"bids":[{"price":%b,"amount":1},' % (b"1" * 3000))
    grown = envelope(source="X" * 3000)
    large = TRADE.replace(b'"id":"1"', b'"id":"%b"' % (b"x" * 5000))
    messages = {
        "mixed": [grows, b"\xff", b"{}", grown, TRADE, b"\xff", large, grows, b"{"],
        "json": [grows, b"{}", TRADE, large, b"{}", grows, b"["],
        "envelopes": [grown, b"\xff", envelope(), b"\xff", grown],
    }[kind]
    async with serving(
        tmp_path, Scripted(Script()), config=Config(max_event_bytes=4096), failures=failures
    ) as running:
        batch = Batch(first_position=5, **{kind: messages})  # type: ignore[arg-type]
        outcome = await running.publish_batch(batch, context)
    expected = {
        "mixed": ["s:5.0", "s:6", "s:7", "s:8", "s:10", "s:11", "s:12.0", "s:13"],
        "json": ["s:5.0", "s:6", "s:8", "s:9", "s:10.0", "s:11"],
        "envelopes": ["s:5", "s:6", "s:8", "s:9"],
    }[kind]
    assert [letter.event_id for letter in letters] == expected
    assert [f"s:{each['position']}" for each in failures.last()] == [
        each.partition(".")[0] for each in expected
    ]
    assert len(outcome.failures) == len(expected)
    failures.close()


async def test_bad_events_are_refused_singly_and_the_rest_goes_on(tmp_path: Path) -> None:
    script = Script()
    no_payload = NormalizedEvent(exchange="bitmex").SerializeToString()
    large = envelope(source="X" * 5000)
    async with serving(tmp_path, Scripted(script), config=Config(max_event_bytes=4096)) as running:
        batch = Batch(first_position=10, envelopes=[envelope(), b"\xff\xff", no_payload, large, envelope()])
        outcome = await running.publish_batch(batch)
    assert outcome.published == 2
    rejected = FailureKind.FAILURE_KIND_REJECTED
    assert [(each.position, each.kind) for each in outcome.failures] == [
        (11, rejected),
        (12, rejected),
        (13, rejected),
    ]
    reasons = [each.reason for each in outcome.failures]
    assert reasons[0] == "the bytes are not a NormalizedEvent"
    assert reasons[1] == "the envelope has no payload that this version knows"
    assert "--max-event-bytes allows 4096" in reasons[2]
    assert script.stored == ["s:10", "s:14"]


async def test_bad_json_is_refused_with_type_field_and_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        wrong = TRADE.replace(b"7996.5", b'"7996.5"')
        outcome = await running.publish_batch(Batch(json=[b"not json", wrong, TRADE]))
    assert outcome.published == 1
    assert [each.position for each in outcome.failures] == [0, 1]
    assert "trade" in outcome.failures[1].reason
    assert "price" in outcome.failures[1].reason


async def test_envelopes_get_what_they_lack_and_keep_their_bytes(tmp_path: Path) -> None:
    taken: list[Record] = []

    def keep(batch: Sequence[Record]) -> Sequence[Failed]:
        taken.extend(batch)
        return ()

    complete = NormalizedEvent(exchange="bitmex", symbol="XBTUSD", source="mine/1", origin="ORIGIN_REALTIME")
    complete.ingest_ts.seconds = 5
    complete.meta["request_id"] = "own"
    complete.trade.price_str = "1"
    bare = envelope()
    context = StreamContext(
        stream_id="s", source="ctx/2", origin="ORIGIN_REPLAY", request_id="r-1", meta={"route": "/replay"}
    )
    async with serving(tmp_path, Scripted(Script(answers=[keep]))) as running:
        await running.publish_batch(Batch(envelopes=[complete.SerializeToString(), bare]), context)
    first, second = (NormalizedEvent.FromString(record.event.envelope) for record in taken)
    assert taken[0].event.envelope.startswith(complete.SerializeToString())
    assert taken[1].event.envelope.startswith(bare)
    assert (first.source, first.origin, first.ingest_ts.seconds, first.ingest_ts.nanos) == ("mine/1", 1, 5, 0)
    assert dict(first.meta) == {"request_id": "own", "route": "/replay", "event_id": "s:0"}
    assert (second.source, second.origin) == ("ctx/2", 2)
    assert second.ingest_ts.seconds > 1_600_000_000
    assert dict(second.meta) == {"request_id": "r-1", "route": "/replay", "event_id": "s:1"}
    assert second.trade.price_str == "7996.5"


async def test_what_no_back_end_takes_is_counted_as_filtered(tmp_path: Path) -> None:
    trades = Scripted(Script(), include=frozenset({"trade"}))
    async with serving(tmp_path, trades) as running:
        assert await running.publish_batch(Batch(json=[TRADE, BOOK])) == Outcome(published=1, filtered=3)


async def test_without_a_back_end_everything_is_acknowledged_as_filtered(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        stream = running.stream()
        await stream.open()
        await stream.batch(1, 0, json=[TRADE, BOOK])
        assert await stream.acknowledged(1) == Outcome(filtered=4)


async def test_a_batch_is_done_when_all_back_ends_are_and_one_refusal_counts_once(tmp_path: Path) -> None:
    slow, refusing = Script(gate=asyncio.Event()), Script(answers=[lambda _: [Failed(0, Permanent("no"))]])
    async with serving(tmp_path, Scripted(slow), Scripted(refusing)) as running:
        stream = running.stream()
        await stream.open()
        await stream.batch(1, 0, json=[BOOK])
        while len(refusing.writes) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(stream.call.read()), 0.05)
        slow.gate.set()  # type: ignore[union-attr]


async def test_a_failure_names_position_level_and_back_end(tmp_path: Path) -> None:
    script = Script(answers=[lambda _: [Failed(1, Permanent("too large"))]])
    async with serving(tmp_path, Scripted(script)) as running:
        outcome = await running.publish_batch(Batch(first_position=4, json=[BOOK]))
    assert outcome.published == 2
    (failure,) = outcome.failures
    assert (failure.position, failure.level, failure.backend) == (4, 1, "scripted")
    assert (failure.kind, failure.reason) == (FailureKind.FAILURE_KIND_FAILED, "too large")


async def test_a_batch_sent_again_by_the_same_run_is_answered_and_not_published_again(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        first = running.stream()
        await first.open("p")
        await first.batch(1, 0, envelope())
        await first.acknowledged(1)
        first.call.cancel()
        second = running.stream()
        opened = (await second.open("p", known=0)).opened
        assert opened.acknowledged_sequence == 1
        assert opened.outcome == Outcome(published=1)
        await second.batch(1, 0, envelope())
        await second.acknowledged(1)
        await second.batch(2, 1, envelope())
        assert await second.acknowledged(2) == Outcome(published=1)
        assert script.stored == ["s:0", "s:1"]


async def test_a_batch_still_on_its_way_is_not_taken_twice(tmp_path: Path) -> None:
    script = Script(gate=asyncio.Event())
    async with serving(tmp_path, Scripted(script)) as running:
        first = running.stream()
        await first.open("p")
        await first.batch(1, 0, envelope())
        while not running.lanes[0].events:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        first.call.cancel()
        second = running.stream()
        assert (await second.open("p")).opened.acknowledged_sequence == 0
        await second.batch(1, 0, envelope())
        script.gate.set()  # type: ignore[union-attr]
        assert (await second.acknowledged(1)).published == 1
        assert script.stored == ["s:0"]


async def test_a_new_run_of_the_same_stream_publishes_anew_under_the_same_ids(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        for producer in ("p1", "p2"):
            stream = running.stream()
            await stream.open(producer)
            await stream.batch(1, 0, envelope())
            await stream.acknowledged(1)
        assert script.stored == ["s:0", "s:0"]


async def test_a_sidecar_that_forgot_the_run_goes_on_where_the_producer_is(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        stream = running.stream()
        assert (await stream.open("p", known=56)).opened.acknowledged_sequence == 56
        await stream.batch(57, 14_336, envelope())
        await stream.acknowledged(57)
        assert script.stored == ["s:14336"]


async def test_resuming_ends_the_connection_before(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        first, second = running.stream(), running.stream()
        await first.open("p")
        await second.open("p")
        code, details = await first.refused()
        assert code == grpc.StatusCode.ABORTED
        assert "resumed" in details


async def test_resuming_ends_a_half_closed_call_and_hears_of_what_it_sent(tmp_path: Path) -> None:
    script = Script(gate=asyncio.Event())
    async with serving(tmp_path, Scripted(script)) as running:
        first, second = running.stream(), running.stream()
        await first.open("p")
        await first.batch(1, 0, envelope())
        await first.call.done_writing()
        while not running.lanes[0].events:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert (await second.open("p")).opened.acknowledged_sequence == 0
        code, details = await first.refused()
        assert (code, "resumed" in details) == (grpc.StatusCode.ABORTED, True)
        assert script.gate
        script.gate.set()
        assert await second.acknowledged(1) == Outcome(published=1)
        assert script.stored == ["s:0"]


async def test_a_producer_that_ignores_its_credits_is_cut_off(tmp_path: Path) -> None:
    script = Script(gate=asyncio.Event())
    async with serving(tmp_path, Scripted(script), config=Config(max_queue_events=4)) as running:
        stream = running.stream()
        await stream.open()
        await stream.batch(1, 0, envelope(), envelope(), envelope())
        await stream.batch(2, 3, envelope(), envelope())
        code, details = await stream.refused()
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "5 events" in details
        assert running.lanes[0].events == 3


async def test_a_single_batch_is_refused_while_a_lane_is_full(tmp_path: Path) -> None:
    script = Script(openings=[Transient("connection refused")] * 1000)
    config = Config(max_queue_events=2, retry_backoff_ms=1, retry_backoff_max_ms=2)
    async with serving(tmp_path, Scripted(script), config=config) as running:
        waiting = asyncio.create_task(running.publish_batch(Batch(envelopes=[envelope(), envelope()])))
        while running.lanes[0].has_room(1, 1):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.publish_batch(Batch(envelopes=[envelope()]))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "scripted is unreachable: connection refused" in (refused.value.details() or "")
        waiting.cancel()


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (b"\xff\xff\xff", "not a PublishRequest"),
        (
            PublishRequest(batch=Batch(sequence=1, envelopes=[b"x"])).SerializeToString(),
            "must open the stream",
        ),
        (PublishRequest(open=Open(context=StreamContext(stream_id="s"))).SerializeToString(), "producer_id"),
        (PublishRequest(open=Open(producer_id="p")).SerializeToString(), "stream_id"),
        (
            PublishRequest(
                open=Open(producer_id="p", context=StreamContext(stream_id="s", meta={"event_id": "x"}))
            ).SerializeToString(),
            "event_id",
        ),
    ],
)
async def test_a_stream_that_opens_wrongly_is_told_why(
    tmp_path: Path, request_bytes: bytes, reason: str
) -> None:
    async with serving(tmp_path) as running:
        stream = running.stream()
        await stream.call.write(request_bytes)
        code, details = await stream.refused()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert reason in details


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (Batch(sequence=2, envelopes=[b"x"]), "batch 1 must come next, not batch 2"),
        (Batch(sequence=1), "empty"),
        (Batch(sequence=1, envelopes=[b"x"], json=[b"{}"]), "not several"),
        (Batch(sequence=1, envelopes=[b"x"], mixed=[b"{}"]), "not several"),
        (Batch(sequence=1, json=[b"{}"], mixed=[b"{}"]), "not several"),
    ],
)
async def test_a_wrong_batch_ends_the_stream_with_the_reason(
    tmp_path: Path, batch: Batch, reason: str
) -> None:
    async with serving(tmp_path) as running:
        stream = running.stream()
        await stream.open()
        await stream.send(PublishRequest(batch=batch))
        code, details = await stream.refused()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert reason in details


async def test_draining_acknowledges_what_was_accepted_and_refuses_the_rest(tmp_path: Path) -> None:
    script = Script(gate=asyncio.Event())
    async with serving(tmp_path, Scripted(script)) as running:
        stream = running.stream()
        await stream.open()
        await stream.batch(1, 0, envelope(), envelope())
        while not running.lanes[0].events:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        running.service.drain()
        response = await stream.read()
        assert response.WhichOneof("kind") == "credits"
        assert (response.credits.events, response.credits.bytes) == (0, 0)
        await stream.batch(2, 2, envelope())
        script.gate.set()  # type: ignore[union-attr]
        assert (await stream.acknowledged(1)).published == 2
        code, details = await stream.refused()
        assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "the sidecar is stopping")
        late = running.stream()
        assert (await late.refused())[0] == grpc.StatusCode.UNAVAILABLE


# Bounds


def book(levels: int) -> bytes:
    bids = ",".join(f'{{"price":{number + 1},"amount":1}}' for number in range(levels))
    return f'{{"type":"book_change","exchange":"x","symbol":"S","bids":[{bids}],"asks":[]}}'.encode()


@pytest.mark.parametrize(
    ("batch", "events"),
    [
        (Batch(sequence=1, json=[b"\n".join(book(7) for _ in range(20)), book(333)]), 20 * 7 + 333),
        (Batch(sequence=1, mixed=[*[book(7), envelope()] * 10, book(333)]), 10 * 8 + 333),
    ],
    ids=["json", "mixed"],
)
async def test_what_messages_become_never_exceeds_the_bound(
    tmp_path: Path, batch: Batch, events: int
) -> None:
    script = Script(gate=asyncio.Event())
    config = Config(max_queue_events=50, retry_backoff_ms=1, retry_backoff_max_ms=2)
    async with serving(tmp_path, Scripted(script, max_batch_size=10), config=config) as running:
        stream = running.stream()
        await stream.open()
        await stream.send(PublishRequest(batch=batch))
        lane, most = running.lanes[0], 0
        assert script.gate
        while len(script.stored) < events:
            most = max(most, lane.events)
            if lane.events > 40 or script.gate.is_set():
                script.gate.set()
            await asyncio.sleep(0)
        assert most <= 50
        assert (await stream.acknowledged(1)).published == events
        assert script.stored[-1] == "s:20.332"


async def test_streams_take_turns_for_room(tmp_path: Path) -> None:
    script = Script(gate=asyncio.Event())
    config = Config(max_queue_events=10, retry_backoff_ms=1, retry_backoff_max_ms=2)
    async with serving(tmp_path, Scripted(script), config=config) as running:
        streams = [running.stream() for _ in range(8)]
        for number, stream in enumerate(streams):
            await stream.open(stream_id=f"s{number}")
            await stream.batch(1, 0, *[envelope()] * 8)
        assert script.gate
        lane = running.lanes[0]
        while not lane.events:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert lane.events <= 10
        script.gate.set()
        for stream in streams:
            assert (await stream.acknowledged(1)).published == 8


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"source": "x" * 257}, "field 'source': has 257 bytes; at most 256 are allowed"),
        ({"request_id": "x" * 300}, "field 'request_id': has 300 bytes; at most 256 are allowed"),
        ({"meta": {"k" * 257: "v"}}, "field 'meta': has 257 bytes; at most 256 are allowed"),
        ({"meta": {"k": "v" * 5000}}, "field 'meta': 'k' has 5000 bytes; at most 4096 are allowed"),
        ({"meta": {f"k{n}": "v" for n in range(65)}}, "field 'meta': has 65 entries; at most 64 are allowed"),
        ({"meta": {f"k{n}": "v" * 4000 for n in range(5)}}, "field 'meta': has 20010 bytes; at most 16384"),
    ],
)
async def test_a_context_that_is_too_large_is_refused(
    tmp_path: Path, context: dict[str, object], reason: str
) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        stream = running.stream()
        await stream.send(
            PublishRequest(
                open=Open(producer_id="p", context=StreamContext(stream_id="s", **context))  # type: ignore[arg-type]
            )
        )
        code, details = await stream.refused()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert reason in details


async def test_names_that_are_too_long_are_refused_singly(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        stream = running.stream()
        await stream.open()
        long_symbol = TRADE.replace(b"XBTUSD", b"X" * 300)
        await stream.batch(1, 0, json=[b"\n".join((TRADE, long_symbol, TRADE))])
        outcome = await stream.acknowledged(1)
        assert [(each.position, each.reason) for each in outcome.failures] == [
            (1, "trade: field 'symbol': has 300 bytes; at most 256 are allowed")
        ]
        await stream.batch(2, 3, envelope(), envelope("Y" * 300))
        outcome = await stream.acknowledged(2)
        assert [(each.position, each.reason) for each in outcome.failures] == [
            (4, "exchange and symbol have more than 256 characters")
        ]
    assert script.stored == ["s:0", "s:2", "s:3"]


async def test_a_line_of_json_is_an_event_for_the_limit(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script()), config=Config(max_event_bytes=1024)) as running:
        stream = running.stream()
        await stream.open()
        padded = TRADE.replace(b'"id":"1"', b'"id":"1","note":"%b"' % (b"x" * 1024))
        await stream.batch(1, 0, json=[padded])
        (failure,) = (await stream.acknowledged(1)).failures
    assert failure.reason == f"the event has {len(padded)} bytes; --max-event-bytes allows 1024"


async def test_more_streams_than_allowed_are_refused_and_the_others_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script()), config=Config(max_streams=2)) as running:
        # One after the other: a call begins when it is made.
        await (first := running.stream()).open()
        await (second := running.stream()).open()
        code, details = await running.stream().refused()
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details == "2 streams are open; --max-streams allows no more"
        await first.batch(1, 0, envelope())
        assert (await first.acknowledged(1)).published == 1
        await second.call.done_writing()
        assert await second.call.code() == grpc.StatusCode.OK
        while running.service.open_streams > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await running.stream().open()


async def test_more_sessions_than_allowed_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script()), config=Config(max_sessions=1)) as running:
        await running.stream().open("a")
        late = running.stream()
        await late.send(PublishRequest(open=Open(producer_id="b", context=StreamContext(stream_id="s"))))
        code, details = await late.refused()
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details == "1 producer runs are remembered; --max-sessions allows no more"


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (Batch(json=[b"\n" * 70_000]), "the batch has more than 1024 messages"),
        (Batch(envelopes=[b""] * 1025), "the batch has more than 1024 messages"),
        (Batch(mixed=[b"{"] * 1025), "the batch has more than 1024 messages"),
        (Batch(envelopes=[b"x"], first_position=2**64 - 1), "positions end at"),
        (Batch(json=[b"{}"], first_position=2**62), "positions end at"),
        (Batch(first_position=2**62 + 1, end=End()), "positions end at"),
        (Batch(json=[b"{}"], end=End()), "a batch carries one of envelopes, json, mixed and end"),
        (Batch(first_position=3, end=End(dropped=4)), "the stream dropped more messages than it had"),
    ],
)
async def test_a_batch_that_cannot_be_meant_is_refused(tmp_path: Path, batch: Batch, reason: str) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.publish_batch(batch)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert reason in (refused.value.details() or "")
        batch.sequence = 1
        stream = running.stream()
        await stream.open()
        await stream.send(PublishRequest(batch=batch))
        code, details = await stream.refused()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert reason in details


async def test_a_batch_that_waits_for_room_is_taken_whole_when_its_connection_is_lost(tmp_path: Path) -> None:
    script = Script(gate=asyncio.Event())
    config = Config(max_queue_events=10, retry_backoff_ms=1, retry_backoff_max_ms=2)
    async with serving(tmp_path, Scripted(script), config=config) as running:
        first = running.stream()
        await first.open("p")
        await first.batch(1, 0, json=[book(35)])
        while running.lanes[0].events < 10:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        first.call.cancel()
        again = running.stream()
        await again.open("p")
        await again.batch(1, 0, json=[book(35)])  # it is on its way, and not taken again
        await again.batch(2, 1, json=[TRADE])
        assert script.gate
        script.gate.set()
        assert (await again.acknowledged(2)).published == 36
    assert script.stored == [*(f"s:0.{level}" for level in range(35)), "s:1"]


async def test_credits_name_the_largest_batch(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        opened = (await running.stream().open()).opened
    assert opened.credits.batch_bytes == 1_048_576


async def test_every_outcome_is_told_to_a_producer_that_reads_late(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        stream = running.stream()
        await stream.open()
        for number in range(1, 1001):
            await stream.batch(number, number - 1, envelope() if number % 2 else b"no envelope")
        outcome = await stream.acknowledged(1000)
    assert (outcome.published, len(outcome.failures)) == (500, 500)
    assert [each.position for each in outcome.failures] == list(range(1, 1000, 2))


async def test_a_producer_that_never_reads_is_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bronze_sidecar.ingest.session.MOST_UNTOLD", 5)
    async with serving(tmp_path, Scripted(Script())) as running:
        stream = running.stream()
        await stream.open("p")
        session = running.service._sessions._sessions["p", "s"]
        monkeypatch.setattr(session, "tell", lambda _: None)  # as if nothing could be written
        for number in range(1, 21):
            await stream.batch(number, number - 1, envelope())
        while session.acknowledged <= 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert 6 <= session.accepted < 20


@pytest.mark.parametrize("end", ["cancel", "done_writing"])
async def test_every_outcome_is_told_after_a_connection_was_lost_unread(tmp_path: Path, end: str) -> None:
    """3,000 batches are refused; whoever comes back without having read that hears of each of them."""
    count = 3000
    async with serving(tmp_path, Scripted(Script())) as running:
        first = running.stream()
        await first.open("p")
        for number in range(1, count + 1):
            await first.batch(number, number - 1, b"no envelope")
        session = running.service._sessions._sessions["p", "s"]
        while session.acknowledged < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if end == "cancel":
            first.call.cancel()
        else:
            await first.call.done_writing()
        second = running.stream()
        opened = (await second.open("p", known=0)).opened
        told = [each.position for each in opened.outcome.failures]
        # What is not acknowledged is sent again.
        for number in range(opened.acknowledged_sequence + 1, count + 1):
            await second.batch(number, number - 1, b"no envelope")
        if opened.acknowledged_sequence < count:
            told += [each.position for each in (await second.acknowledged(count)).failures]
    assert told == list(range(count))


@pytest.mark.parametrize("end", ["cancel", "done_writing"])
async def test_a_run_is_resumed_after_its_call_was_ended(tmp_path: Path, end: str) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        first = running.stream()
        await first.open("p")
        await first.batch(1, 0, envelope())
        await first.acknowledged(1)
        await first.batch(2, 1, envelope())
        session = running.service._sessions._sessions["p", "s"]
        while session.acknowledged < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if end == "cancel":
            first.call.cancel()
        else:
            await first.call.done_writing()
        while session.take_over:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        opened = (await running.stream().open("p", known=1)).opened
        assert (opened.acknowledged_sequence, opened.outcome) == (2, Outcome(published=1))
        assert script.stored == ["s:0", "s:1"]


@pytest.mark.parametrize(
    "batch",
    [Batch(sequence=1, envelopes=[envelope()] * 1000), Batch(sequence=1, json=[TRADE] * 1000)],
    ids=["envelopes", "json"],
)
async def test_events_that_their_context_makes_large_are_taken_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: Batch
) -> None:
    sizes: list[int] = []
    put = Lane.put

    def noted(lane: Lane, ticket: Ticket, records: list[Record], size: int) -> None:
        sizes.append(size)
        put(lane, ticket, records, size)

    monkeypatch.setattr(Lane, "put", noted)
    # Nearly as large as it may be.
    context = StreamContext(stream_id="s", meta={f"k{number:02}": "v" * 250 for number in range(64)})
    async with serving(tmp_path, Scripted(Script())) as running:
        stream = running.stream()
        await stream.open(context=context)
        await stream.send(PublishRequest(batch=batch))
        assert (await stream.acknowledged(1)).published == 1000
    assert sum(sizes) > 16_000_000
    assert max(sizes) < 1_200_000


async def test_a_refused_batch_is_refused_again(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(Script())) as running:
        for _ in range(3):
            stream = running.stream()
            await stream.open("p")
            await stream.batch(1, 0, *[b""] * 1025)
            reason = "the batch has more than 1024 messages"
            assert await stream.refused() == (grpc.StatusCode.INVALID_ARGUMENT, reason)
        stream = running.stream()
        await stream.open("p")
        await stream.batch(1, 0, envelope())
        assert (await stream.acknowledged(1)).published == 1


def the_end(sequence: int, positions: int, dropped: int = 0) -> PublishRequest:
    return PublishRequest(batch=Batch(sequence=sequence, first_position=positions, end=End(dropped=dropped)))


async def test_the_end_of_a_stream_is_published_with_its_figures(tmp_path: Path) -> None:
    taken: list[Record] = []

    def keep(batch: Sequence[Record]) -> Sequence[Failed]:
        taken.extend(batch)
        return ()

    context = StreamContext(
        stream_id="s", source="ctx/2", origin="ORIGIN_REPLAY", request_id="r-1", meta={"route": "/replay"}
    )
    async with serving(tmp_path, Scripted(Script(answers=[keep, keep]))) as running:
        stream = running.stream()
        assert (await stream.open(context=context)).opened.takes_end
        await stream.batch(1, 0, json=[TRADE])
        assert await stream.acknowledged(1) == Outcome(published=1)
        await stream.send(the_end(2, 500, 20))
        # It is no event of the producer's.
        assert await stream.acknowledged(2) == Outcome()
    record = taken[1]
    assert (record.event.id, record.address.destination) == ("s~end:500", "bitmex.%%")
    event = NormalizedEvent.FromString(record.event.envelope)
    assert (event.exchange, event.symbol, event.source, event.origin) == ("bitmex", "", "ctx/2", 2)
    assert (event.WhichOneof("payload"), event.disconnect.reason) == ("disconnect", "stream_ended")
    assert event.ingest_ts.seconds > 1_600_000_000
    assert dict(event.meta) == {
        "data_type": "stream_end",
        "stream_messages": "500",
        "stream_dropped": "20",
        "request_id": "r-1",
        "route": "/replay",
        "event_id": "s~end:500",
    }
    facts = record.event
    assert (facts.payload_case, facts.data_type, facts.origin) == ("disconnect", "stream_end", "replay")


async def test_an_end_that_is_sent_again_is_acknowledged_and_published_once(tmp_path: Path) -> None:
    script = Script()
    async with serving(tmp_path, Scripted(script)) as running:
        first = running.stream()
        await first.open("p")
        await first.batch(1, 0, json=[TRADE])
        await first.send(the_end(2, 1))
        await first.acknowledged(2)
        again = running.stream()
        opened = (await again.open("p", known=1)).opened
        assert opened.acknowledged_sequence == 2
        await again.send(the_end(2, 1))
        await again.batch(3, 1, json=[TRADE])
        await again.acknowledged(3)
    assert script.stored == ["s:0", "s~end:1", "s:1"]


async def test_the_exchange_of_an_end_is_known_after_a_reconnect_and_unknown_without_events(
    tmp_path: Path,
) -> None:
    places: list[str] = []

    def keep(batch: Sequence[Record]) -> Sequence[Failed]:
        places.extend(record.address.destination for record in batch)
        return ()

    async with serving(tmp_path, Scripted(Script(answers=[keep] * 3))) as running:
        stream = running.stream()
        await stream.open("p")
        await stream.batch(1, 0, json=[TRADE])
        await stream.acknowledged(1)
        again = running.stream()
        await again.open("p", known=1)
        await again.send(the_end(2, 1))
        await again.acknowledged(2)
        empty = running.stream()
        await empty.open("q", stream_id="t")
        await empty.send(the_end(1, 3, 3))
        await empty.acknowledged(1)
    assert places == ["bitmex.XBTUSD", "bitmex.%%", "unknown.%%"]


async def test_an_end_that_is_filtered_is_done_and_one_that_is_refused_is_told(tmp_path: Path) -> None:
    refusing = Script(answers=[lambda _: [Failed(0, Permanent("no"))]])
    trades = Scripted(Script(), include=frozenset({"trade"}))
    async with serving(tmp_path, trades) as running:
        assert await running.publish_batch(Batch(first_position=4, end=End())) == Outcome()
    async with serving(tmp_path, Scripted(refusing)) as running:
        outcome = await running.publish_batch(Batch(first_position=4, end=End()))
    (failure,) = outcome.failures
    assert (failure.position, failure.backend, failure.reason) == (4, "scripted", "no")


class Other(Scripted):
    """A second back end."""

    name = "other"


QUOTE = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
QUOTE.quote.SetInParent()
GROUPED = BOOK.replace(b"book_change", b"book_snapshot").replace(b'"bids"', b'"grouping":10,"bids"')
NOT_TAKEN = {
    "envelopes": Batch(envelopes=[QUOTE.SerializeToString()]),
    "json": Batch(json=[BOOK + b"\n" + b'{"type":"trade"', b"{}"]),
    "mixed": Batch(mixed=[BOOK, QUOTE.SerializeToString(), b"\xff"]),
    "grouped": Batch(json=[GROUPED]),
}
"""Batches of which a back end for trades and snapshots takes nothing."""


@asynccontextmanager
async def serving_with_a_full_lane(tmp_path: Path) -> AsyncIterator[tuple[Running, Script, Script]]:
    """Serve two back ends, each with its own payload cases, while streams wait for the queue of one."""
    full, other = Script(gate=asyncio.Event()), Script()
    config = Config(max_queue_events=10, retry_backoff_ms=1, retry_backoff_max_ms=2)
    backends = (
        Scripted(full, include=frozenset({"trade", "bookSnapshot"})),
        Other(other, include=frozenset({"bookChange", "quote", "groupedBookSnapshot"})),
    )
    async with serving(tmp_path, *backends, config=config) as running:
        for number in range(5):
            await (stream := running.stream()).open(stream_id=f"waits{number}")
            await stream.batch(1, 0, *[envelope()] * 10)
        while not running.service.is_taking:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        yield running, full, other


@pytest.mark.parametrize("kind", NOT_TAKEN)
async def test_a_full_lane_holds_up_nothing_that_it_does_not_take(tmp_path: Path, kind: str) -> None:
    async with serving_with_a_full_lane(tmp_path) as (running, full, other):
        stream = running.stream()
        await stream.open()
        for number in range(1, 30):
            batch = Batch(sequence=number, first_position=10 * number)
            batch.MergeFrom(NOT_TAKEN[kind])
            await stream.send(PublishRequest(batch=batch))
            await stream.acknowledged(number)
        assert (await running.publish_batch(NOT_TAKEN[kind])).published
        assert len({name.partition(":")[2] for name in other.stored if name.startswith("s:")}) >= 29
        assert running.lanes[0].events == 10
        assert not full.stored


async def test_what_a_full_lane_takes_waits_in_the_order_in_which_it_came(tmp_path: Path) -> None:
    async with serving_with_a_full_lane(tmp_path) as (running, full, other):
        stream = running.stream()
        await stream.open()
        await stream.batch(1, 0, QUOTE.SerializeToString(), envelope())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await running.publish_batch(Batch(envelopes=[QUOTE.SerializeToString(), *[envelope()] * 3]))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "scripted is" in (refused.value.details() or "")
        assert full.gate
        full.gate.set()
        assert (await stream.acknowledged(1)).published == 2
        assert [name.partition(":")[0] for name in full.stored[::10]] == [
            *("waits0", "waits1", "waits2", "waits3", "waits4", "s")
        ]
        assert other.stored == ["s:0"]


async def test_a_call_that_is_closed_while_it_waits_leaves_nothing_behind(tmp_path: Path) -> None:
    async with serving_with_a_full_lane(tmp_path) as (running, full, _):
        for number in range(20):
            stream = running.stream()
            await stream.open(stream_id=f"closed{number}")
            await stream.batch(1, 0, envelope())
            await asyncio.sleep(0.005)
            stream.call.cancel()
        single = asyncio.create_task(running.publish_batch(Batch(envelopes=[envelope()])))
        await asyncio.sleep(0.05)
        single.cancel()
        while running.service.open_streams > 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert full.gate
        full.gate.set()
        while running.service.is_taking or running.lanes[0].events:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert {name.partition(":")[0] for name in full.stored} == {f"waits{number}" for number in range(5)}
