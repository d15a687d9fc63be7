"""What real servers refuse for good ends up in the dead-letter file, and can be sent again from there."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import nats
import pytest
import redis.asyncio
from bronze_client import PublishError, connect
from bronze_client.schema import (
    Batch,
    NormalizedEvent,
    Outcome,
    PublishBatchRequest,
    PublishBatchResponse,
    StreamContext,
)
from bronze_sidecar.ingest.dead_letters import DeadLetter, read_line
from buses import NatsBus, RedisBus, trade
from nats.js.api import StreamConfig
from servers import NatsServer, RedisServer
from sidecar_process import PROGRAM, SidecarProcess, sidecar
from spooling import on_disk, spilling, until
from spooling import publish as publish_trades

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

PUBLISH_BATCH = "/bronze.sidecar.v1.SidecarService/PublishBatch"
LIMIT = 2000


def large(position: int) -> bytes:
    """Write a trade that is larger than the stream allows."""
    return trade(position).replace(b'"id":"', b'"id":"' + b"9" * LIMIT)


def book(levels: int, *, filler: int = 0) -> bytes:
    bids = b",".join(b'{"price":%d,"amount":2}' % (level + 1) for level in range(levels))
    symbol = b"BOOK" + b"K" * filler
    return (
        b'{"type":"book_change","symbol":"%b","exchange":"bitmex","isSnapshot":false,"bids":[%b],"asks":[],'
        b'"timestamp":"2024-01-01T00:00:00.000Z","localTimestamp":"2024-01-01T00:00:00.000Z"}'
        % (symbol, bids)
    )


async def limit_messages(server: NatsServer, size: int = LIMIT) -> None:
    client = await nats.connect(server.url)
    stream = StreamConfig(name="BRONZE", subjects=["bronze.>"], max_msg_size=size, allow_batched=True)
    await client.jetstream().add_stream(stream)
    await client.close()


async def allow_large(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    stream = StreamConfig(name="BRONZE", subjects=["bronze.>"], max_msg_size=-1, allow_batched=True)
    await client.jetstream().update_stream(stream)
    await client.close()


async def ids_of(bus: NatsBus | RedisBus) -> list[str]:
    return [event_id async for _, event_id in bus.read()]


def letters_of(process: SidecarProcess, path: Path, count: int) -> list[DeadLetter]:
    """Return the letters of a file once a sidecar has written so many."""
    while process.metric("bronze_dead_letters_total") < count:
        time.sleep(0.02)
    letters = [read_line(line) for line in path.read_bytes().splitlines()]
    assert len(letters) == count
    return letters


async def publish(process: SidecarProcess, batch: Batch, **context: Any) -> Outcome:
    request = PublishBatchRequest(context=StreamContext(stream_id="s", **context), batch=batch)
    async with grpc.aio.insecure_channel(process.address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PUBLISH_BATCH)
        return PublishBatchResponse.FromString(await call(request.SerializeToString())).outcome


def dead_letters(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command; return its status and what it wrote to standard output and error."""
    done = subprocess.run(
        [PROGRAM, "dead-letters", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def counts(output: str) -> tuple[int, ...]:
    summary = json.loads(output)
    names = ("sent", "acknowledged", "published", "filtered", "rejected", "failed", "passed_over")
    return tuple(summary[name] for name in names)


@pytest.fixture
def bus(start_nats: Callable[..., NatsServer]) -> NatsBus:
    return NatsBus(start_nats())


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    return tmp_path / "letters"


@pytest.fixture
def process(bus: NatsBus, letters: Path) -> Iterator[SidecarProcess]:
    """Run a sidecar on a stream that takes small messages only."""
    asyncio.run(limit_messages(bus.server))
    with sidecar(*bus.options(), "--dead-letter-file", str(letters)) as process:
        process.wait_until_ready()
        yield process


def test_what_jetstream_finds_too_large_is_kept_with_all_that_is_known(
    process: SidecarProcess, bus: NatsBus, letters: Path
) -> None:
    async def publish_some() -> None:
        async with connect(process.address, stream_id="s", source="test/1", origin="replay") as publisher:
            for message in (trade(0), large(1), b'{"type":"trade"}', trade(3)):
                publisher.publish(message)
            await publisher.close(ended=False)

    with pytest.raises(PublishError, match="2 failed"):
        asyncio.run(publish_some())
    refused, rejected = sorted(letters_of(process, letters, 2), key=lambda letter: letter.position)
    assert (refused.kind, refused.backend, refused.event_id) == ("failed", "nats", "s:1")
    assert refused.destination == "bronze.bitmex." + json.loads(trade(1))["symbol"]
    assert "max" in refused.reason or "exceed" in refused.reason
    assert (refused.source, refused.origin, refused.form) == ("test/1", "replay", "envelope")
    assert len(refused.producer_id) > 0
    event = NormalizedEvent.FromString(refused.content)
    assert (event.trade.price_str, event.meta["event_id"]) == ("1.5", "s:1")
    assert (rejected.kind, rejected.backend, rejected.event_id) == ("rejected", "", "s:2")
    assert (rejected.form, rejected.content) == ("json", b'{"type":"trade"}')
    assert rejected.producer_id == refused.producer_id
    shown = sorted(process.status()["last_failures"], key=lambda each: each["position"])
    facts = [(each["stream_id"], each["position"], each.get("backend"), each["reason"]) for each in shown]
    assert facts == [("s", 1, "nats", refused.reason), ("s", 2, None, rejected.reason)]
    logged = [each for each in process.log_lines() if each["event"] in {"events given up", "events rejected"}]
    assert sorted((each["event"], each["count"], each["position"]) for each in logged) == [
        ("events given up", 1, 1),
        ("events rejected", 1, 2),
    ]
    assert asyncio.run(ids_of(bus)) == ["s:0", "s:3"]


async def test_what_redis_refuses_is_kept_and_every_failure_counted(
    start_redis: Callable[..., RedisServer], letters: Path
) -> None:
    redis_bus = RedisBus(start_redis())
    symbol = json.loads(trade(0))["symbol"]
    client: Any = redis.asyncio.Redis(port=redis_bus.server.port)
    await client.set(f"bronze:bitmex:{symbol}", "not a stream")
    with sidecar(*redis_bus.options(), "--dead-letter-file", str(letters)) as process:
        process.wait_until_ready()
        outcome = await publish(process, Batch(json=[trade(0)] * 50))
        assert len(outcome.failures) == 50
        kept = letters_of(process, letters, 50)
        assert {(letter.kind, letter.backend, letter.destination) for letter in kept} == {
            ("failed", "redis", f"bronze:bitmex:{symbol}")
        }
        assert all("WRONGTYPE" in letter.reason for letter in kept)
        process.terminate()
        assert process.wait() == 0
        logged = [each for each in process.log_lines() if each["event"] == "events given up"]
        assert sum(each["count"] for each in logged) == 50
        assert len(logged) == 2
        assert {(each["backend"], each["stream_id"]) for each in logged} == {("redis", "s")}
    await client.delete(f"bronze:bitmex:{symbol}")
    await client.aclose()


async def test_a_path_that_becomes_unwritable_loses_letters_but_no_events(
    start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    bus = NatsBus(start_nats())
    folder = tmp_path / "folder"
    folder.mkdir()
    with sidecar(*bus.options(), "--dead-letter-file", str(folder / "dead")) as process:
        process.wait_until_ready()
        folder.rmdir()
        outcome = await publish(process, Batch(json=[trade(0), b"{}", trade(2)]))
        assert (outcome.published, [each.position for each in outcome.failures]) == (2, [1])
        while process.metric("bronze_dead_letters_lost_total") < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        (lost,) = [each for each in process.log_lines() if each["event"] == "dead letters are lost"]
        assert lost["reason"] == "No such file or directory"
        assert process.get("/readyz")[0] == 200


def test_a_folder_that_does_not_exist_is_refused_at_start(tmp_path: Path) -> None:
    command = [PROGRAM, "run", "--dead-letter-file", str(tmp_path / "none" / "dead")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"--dead-letter-file: the folder '{tmp_path}/none' does not exist." in done.stderr


def test_events_are_sent_again_with_their_ids_once_the_stream_takes_them(
    process: SidecarProcess, bus: NatsBus, letters: Path
) -> None:
    wide = book(3).replace(b'"BOOK"', b'"BOOK%d"' % 1)
    messages = [trade(0), large(1), large(2), wide, large(4)]
    asyncio.run(publish(process, Batch(first_position=10, json=messages), request_id="r" * 200))
    letters_of(process, letters, 3)
    status, output, _ = dead_letters("send", letters, "--to", process.address)
    assert (status, counts(output)) == (1, (3, 3, 0, 0, 0, 3, 0))
    assert json.loads(output)["failures"][0].startswith("s:11 failed by nats: ")
    # What is refused once more is written once more, behind what was read.
    again = letters_of(process, letters, 6)
    assert [letter.event_id for letter in again] == ["s:11", "s:12", "s:14"] * 2
    asyncio.run(allow_large(bus.server))
    status, output, _ = dead_letters("send", letters, "--to", process.address)
    assert (status, counts(output)[:4]) == (0, (3, 3, 3, 0))
    ids = asyncio.run(ids_of(bus))
    assert sorted(ids) == ["s:10", "s:11", "s:12", "s:13.0", "s:13.1", "s:13.2", "s:14"]
    events = asyncio.run(events_of(bus))
    assert events["s:11"].meta["event_id"] == "s:11"
    assert events["s:11"].meta["request_id"] == "r" * 200
    assert events["s:12"].trade.price_str == "2.5"


async def test_what_is_refused_after_the_disk_had_it_is_sent_again(
    start_redis: Callable[..., RedisServer], letters: Path, tmp_path: Path
) -> None:
    """Its producer was told that it is safe, and the sidecar was killed since: the file alone has it."""
    redis_bus = RedisBus(start_redis("--proto-max-bulk-len", "1mb", append_only=True))
    refused = {70, 150, 151, 299}

    def some_large(position: int) -> bytes:
        size = 1_500_000 if position in refused else 0
        return trade(position).replace(b'"id":"', b'"id":"' + b"9" * size)

    more = ("--max-event-bytes", "4194304", "--dead-letter-file", str(letters))
    with sidecar(*spilling(redis_bus, tmp_path, 200), *more) as process:
        process.wait_until_ready()
        redis_bus.server.kill()
        # Over a connection that is not known to be lost, an event of this size is refused at once.
        await until(lambda: process.get("/readyz")[0] == 503)
        await publish_trades(process.address, 0, 300, some_large)
        process.kill()
        await asyncio.to_thread(process.start)
        await asyncio.to_thread(redis_bus.server.start)
        await until(lambda: on_disk(process) == 0)
        kept = await asyncio.to_thread(letters_of, process, letters, len(refused))
        assert [letter.event_id for letter in kept] == [f"s:{position}" for position in sorted(refused)]
        client: Any = redis.asyncio.Redis(port=redis_bus.server.port)
        await client.config_set("proto-max-bulk-len", "512mb")
        await client.aclose()
        # What a server allows is asked when it is connected to.
        process.kill()
        await asyncio.to_thread(process.start)
        status, output, _ = await asyncio.to_thread(dead_letters, "send", letters, "--to", process.address)
        assert (status, counts(output)[:3]) == (0, (4, 4, 4))
        await until(lambda: on_disk(process) == 0)
        ids = await ids_of(redis_bus)
        assert sorted(ids) == sorted({f"s:{position}" for position in range(300)})


async def events_of(bus: NatsBus) -> dict[str, NormalizedEvent]:
    client = await nats.connect(bus.server.url)
    stream = client.jetstream()
    found = {}
    for sequence in range(1, (await stream.stream_info("BRONZE")).state.messages + 1):
        message = await stream.get_msg("BRONZE", sequence)
        assert message.headers is not None
        found[message.headers["Nats-Msg-Id"]] = NormalizedEvent.FromString(message.data or b"")
    await client.close()
    return found


def test_levels_of_a_book_change_keep_their_ids(start_nats: Callable[..., NatsServer], letters: Path) -> None:
    bus = NatsBus(start_nats())
    asyncio.run(limit_messages(bus.server, 300))
    with sidecar(*bus.options(), "--dead-letter-file", str(letters)) as process:
        process.wait_until_ready()
        request_id = "r" * 250
        asyncio.run(publish(process, Batch(first_position=7, json=[book(3), book(2)]), request_id=request_id))
        kept = letters_of(process, letters, 5)
        assert [letter.event_id for letter in kept] == ["s:7.0", "s:7.1", "s:7.2", "s:8.0", "s:8.1"]
        asyncio.run(allow_large(bus.server))
        status, output, _ = dead_letters("send", letters, "--to", process.address)
        assert (status, counts(output)) == (0, (5, 5, 5, 0, 0, 0, 0))
        events = asyncio.run(events_of(bus))
        assert {key: event.book_change.price_str for key, event in events.items()} == {
            "s:7.0": "1",
            "s:7.1": "2",
            "s:7.2": "3",
            "s:8.0": "1",
            "s:8.1": "2",
        }
        assert {event.meta["request_id"] for event in events.values()} == {request_id}


def test_rejected_messages_are_sent_again_with_their_context(
    process: SidecarProcess, bus: NatsBus, letters: Path
) -> None:
    asyncio.run(
        publish(process, Batch(first_position=5, json=[b"{}", b"nonsense"]), source="test/1", meta={"a": "b"})
    )
    letters_of(process, letters, 2)
    # As after an upgrade that knows the message.
    text = letters.read_text()
    mapped = base64.b64encode(trade(5)).decode()
    letters.write_text(text.replace(base64.b64encode(b"{}").decode(), mapped))
    status, output, _ = dead_letters("send", letters, "--to", process.address)
    assert (status, counts(output)) == (1, (2, 2, 1, 0, 1, 0, 0))
    event = asyncio.run(events_of(bus))["s:5"]
    assert (event.source, event.meta["a"], event.trade.price_str) == ("test/1", "b", "5.5")


def test_only_what_is_asked_for_is_shown_and_sent(
    process: SidecarProcess, bus: NatsBus, letters: Path
) -> None:
    asyncio.run(publish(process, Batch(json=[large(0), b"{}", large(2), b'{"type":"trade"}'])))
    letters_of(process, letters, 4)
    status, output, _ = dead_letters("show", letters)
    assert status == 0
    assert output.startswith("2 given up by nats: the message is larger than the stream allows")
    assert "\n  s:0  bronze.bitmex." in output
    assert "1 rejected: trade: field 'exchange': is missing or empty" in output
    assert output.endswith("\n4 letters, 0 passed over.\n")
    status, output, _ = dead_letters("show", letters, "--json", "--reason", "EXCHANGE")
    shown = json.loads(output)
    assert (shown["letters"], shown["passed_over"], shown["unreadable"]) == (1, 3, [])
    assert shown["groups"][0]["samples"] == [{"event_id": "s:3", "content": '{"type":"trade"}'}]
    assert dead_letters("send", letters, "--dry-run", "--backend", "nats")[1].endswith(
        "2 letters, 2 passed over.\n"
    )
    asyncio.run(allow_large(bus.server))
    status, output, _ = dead_letters("send", letters, "--to", process.address, "--backend", "nats")
    assert (status, counts(output)) == (0, (2, 2, 2, 0, 0, 0, 2))
    assert sorted(asyncio.run(ids_of(bus))) == ["s:0", "s:2"]


def test_a_line_that_is_no_letter_is_named_and_the_others_are_sent(
    process: SidecarProcess, letters: Path
) -> None:
    letters.write_text("nonsense\n\n")
    asyncio.run(publish(process, Batch(json=[b"{}"])))
    while process.metric("bronze_dead_letters_total") < 1:
        time.sleep(0.02)
    status, output, errors = dead_letters("send", letters, "--to", process.address)
    assert (status, counts(output)[:2], json.loads(output)["unreadable"]) == (1, (1, 1), 1)
    assert f"{letters}:1: JSON is malformed" in errors
    assert dead_letters("show", letters)[0] == 1


def test_without_a_sidecar_it_gives_up(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("")
    nobody = f"unix://{tmp_path}/nobody"
    status, output, errors = dead_letters(
        "send", tmp_path / "letters", "--to", nobody, "--connect-timeout", "0.5"
    )
    reason = f"gave up: no sidecar has answered at {nobody} for 0.5 seconds."
    assert (status, json.loads(output)["error"]) == (1, reason)
    assert reason in errors


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "dead-letters: the action is missing."),
        (["sent", "FILE"], "there is no action 'sent'. Did you mean 'send'?"),
        (["show"], "FILE: is missing."),
        (["show", "/nowhere"], "FILE: the file '/nowhere' does not exist."),
        (["send", "FILE"], "--to: is missing."),
        (["send", "FILE", "--to=unix:///x", "--tls"], "--tls: a unix socket is not encrypted."),
        (["show", "FILE", "--backend=rabbit"], "--backend: 'rabbit' is not one of the choices."),
    ],
)
def test_a_wrong_command_line_is_explained(arguments: list[str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("")
    replaced = [text.replace("FILE", str(tmp_path / "letters")) for text in arguments]
    status, _, errors = dead_letters(*replaced)
    assert status == 2
    assert problem in errors
