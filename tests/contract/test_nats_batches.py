"""Batched publishing to JetStream: one confirmation for a write, and strict order whatever is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import nats.errors
import pytest
from bronze_sidecar.errors import Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.nats import sink as nats_sink
from contract.contract import event, price, records, trade, write_all
from contract.test_nats import StartNats, backend, client, reach, read_subject
from nats.js.api import DiscardPolicy, StreamConfig
from servers import NatsCluster

pytestmark = pytest.mark.servers

SUBJECT = ("--nats-stream=S", "--nats-subject=x.{{symbol}}")


async def add_stream(url: str | list[str], **settings: Any) -> None:
    async with client(url) as connected:
        usual: dict[str, Any] = {"name": "S", "subjects": ["x.*"], "allow_batched": True}
        await connected.jetstream().add_stream(StreamConfig(**usual | settings))


async def prices(url: str | list[str], subject: str) -> list[int]:
    async with client(url) as connected:
        return [price(each) for each in await read_subject(connected, subject)]


async def test_a_stream_that_we_create_allows_batches_and_keeps_strict_order(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(reach(server.port), *SUBJECT)
    async with made.open(Route(made.rules())) as sink:
        assert sink.order == "strict"
    async with client(server.url) as connected:
        assert (await connected.jetstream().stream_info("S")).config.allow_batched


@pytest.mark.parametrize(
    ("settings", "more"), [({"allow_batched": False}, ()), ({}, ("--nats-batching=off",))]
)
async def test_without_batches_each_message_is_confirmed_and_the_order_is_said(
    start_nats: StartNats, settings: dict[str, Any], more: tuple[str, ...]
) -> None:
    server = start_nats()
    await add_stream(server.url, **settings)
    made = backend(reach(server.port), *SUBJECT, *more)
    async with made.open(Route(made.rules())) as sink:
        assert sink.order.startswith("a refused message may be stored after later ones of its subject")
        assert not await sink.write(records(made, [trade("A", number) for number in range(100)]))
    assert await prices(server.url, "x.A") == list(range(100))


async def test_an_operators_stream_is_published_to_in_batches_where_it_takes_all_subjects(
    start_nats: StartNats,
) -> None:
    server = start_nats()
    await add_stream(server.url)
    await add_stream(server.url, name="OTHER", subjects=["y.*"])
    for template, expected in (("x.{{symbol}}", True), ("y.{{symbol}}", False)):
        # Errors go to a stream of their own in the second case: a batch belongs to one stream.
        made = backend(
            reach(server.port),
            f"--nats-subject={template}",
            "--nats-subject-routing=error:x.errors",
        )
        async with made.open(Route(made.rules())) as sink:
            assert (sink.order == "strict") is expected
            assert not await sink.write(records(made, [trade("A", 1), trade("B", 2)]))


async def test_nothing_is_stored_behind_a_refused_message(start_nats: StartNats) -> None:
    server = start_nats()
    await add_stream(
        server.url, max_msgs_per_subject=2, discard=DiscardPolicy.NEW, discard_new_per_subject=True
    )
    made = backend(reach(server.port), *SUBJECT)
    batch = [trade(symbol, number) for number, symbol in enumerate("AABAAB")]
    async with made.open(Route(made.rules())) as sink:
        failures = await sink.write(records(made, batch))
    # The third of A is refused; the third of B, which would fit, is not tried.
    assert [(each.place, type(each.error)) for each in failures] == [
        (3, Transient),
        (4, NotTried),
        (5, NotTried),
    ]
    assert "maximum messages per subject exceeded" in str(failures[0].error)
    assert await prices(server.url, "x.A") == [0, 1]
    assert await prices(server.url, "x.B") == [2]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("batching", ["auto", "off"])
async def test_a_message_larger_than_the_stream_allows_fails_alone(
    start_nats: StartNats, place: int, batching: str
) -> None:
    server = start_nats()
    await add_stream(server.url, max_msg_size=1000)
    made = backend(reach(server.port), *SUBJECT, f"--nats-batching={batching}")
    batch = [trade("A", number) for number in range(3)]
    batch[place] = event("A", place, b"x" * 2000)
    errors = await write_all(made, records(made, batch))
    assert {each: type(error) for each, error in errors.items()} == {place: Permanent}
    assert await prices(server.url, "x.A") == [number for number in range(3) if number != place]


@pytest.mark.parametrize("batching", ["auto", "off"])
async def test_headers_that_are_too_large_fail_alone(start_nats: StartNats, batching: str) -> None:
    server = start_nats()
    made = backend(
        reach(server.port), *SUBJECT, f"--nats-batching={batching}", "--nats-meta-headers-prefix=m-"
    )
    batch = [trade("A", 0), event("A", 1, b"data", meta={"k": "v" * 70_000}), trade("A", 2)]
    errors = await write_all(made, records(made, batch))
    assert {place: str(error) for place, error in errors.items()} == {
        1: "the headers are larger than the server allows: header size exceeds maximum allowed of 64k"
    }
    assert await prices(server.url, "x.A") == [0, 2]


async def test_repeated_messages_are_confirmed_and_stored_once(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(reach(server.port), *SUBJECT)
    batch = records(made, [trade("A", number) for number in range(10)])
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(batch[:4])
        assert not await sink.write(batch[:1])
        assert not await sink.write(batch[2:8])
        assert not await sink.write(batch)
        assert not await sink.write(batch)
    assert await prices(server.url, "x.A") == list(range(10))


async def test_a_full_stream_is_transient_and_goes_on_where_it_stopped(start_nats: StartNats) -> None:
    server = start_nats()
    await add_stream(server.url, max_msgs=2, discard=DiscardPolicy.NEW)
    made = backend(reach(server.port), *SUBJECT)
    async with made.open(Route(made.rules())) as sink:
        batch = records(made, [trade("A", number) for number in range(4)])
        failures = await sink.write(batch)
        assert [(each.place, type(each.error)) for each in failures] == [(2, Transient), (3, NotTried)]
        assert "maximum messages exceeded" in str(failures[0].error)
        failures = await sink.write(batch[2:])
        assert [(each.place, type(each.error)) for each in failures] == [(0, Transient), (1, NotTried)]
        async with client(server.url) as connected:
            await connected.jetstream().purge_stream("S")
        assert not await sink.write(batch[2:])


async def test_a_deleted_stream_is_created_again(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(reach(server.port), *SUBJECT)
    async with made.open(Route(made.rules())) as sink, client(server.url) as connected:
        assert not await sink.write(records(made, [trade("A", 1)]))
        await connected.jetstream().delete_stream("S")
        failures = await sink.write(records(made, [trade("A", 2), trade("B", 3)]))
        assert [(each.place, type(each.error)) for each in failures] == [(0, Transient), (1, NotTried)]
        assert "no JetStream stream accepts the subject" in str(failures[0].error)
        assert not await sink.write(records(made, [trade("A", 2), trade("B", 3)]))
    assert await prices(server.url, "x.A") == [2]


async def test_a_deleted_stream_that_an_operator_made_is_waited_for(start_nats: StartNats) -> None:
    server = start_nats()
    await add_stream(server.url)
    made = backend(reach(server.port), "--nats-subject=x.{{symbol}}")
    async with made.open(Route(made.rules())) as sink, client(server.url) as connected:
        await connected.jetstream().delete_stream("S")
        assert await sink.write(records(made, [trade("A", 1)]))
        with pytest.raises(Transient, match="no JetStream stream accepts"):
            await sink.write(records(made, [trade("A", 1)]))
        await add_stream(server.url)
        assert not await sink.write(records(made, [trade("A", 1)]))
    assert await prices(server.url, "x.A") == [1]


async def test_a_stream_that_allows_batches_no_more_is_opened_anew(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(reach(server.port), *SUBJECT)
    async with made.open(Route(made.rules())) as sink, client(server.url) as connected:
        stream = connected.jetstream()
        config = (await stream.stream_info("S")).config
        config.allow_batched = False
        await stream.update_stream(config)
        with pytest.raises(Disconnected, match="allows no batches any more"):
            await sink.write(records(made, [trade("A", 1)]))
    assert await write_all(made, records(made, [trade("A", 1)])) == {}
    assert await prices(server.url, "x.A") == [1]


async def test_too_many_batches_at_once_are_waited_for(start_nats: StartNats) -> None:
    server = start_nats(config="jetstream: { limits: { batch: { max_inflight_per_stream: 1 } } }")
    made = backend(reach(server.port), *SUBJECT)
    async with made.open(Route(made.rules())) as sink, client(server.url) as connected:
        # Somebody else's batch, which is never ended.
        await connected.publish("x.B", b"", reply="elsewhere.other.500.fail.1.0.$FI")
        await connected.flush()
        failures = await sink.write(records(made, [trade("A", 1), trade("A", 2)]))
        assert [type(each.error) for each in failures] == [Transient, NotTried]
        assert "too many inflight" in str(failures[0].error)


@pytest.mark.parametrize("symbols", ["ABA", "AAB", "BAA", "BBB", "AaA", "aAA"])
async def test_a_subject_that_the_user_may_not_publish_to_is_named(
    start_nats: StartNats, symbols: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_sink, "ASK_AGAIN_SECONDS", 0.5)
    allowed = 'publish: ["$JS.API.>", "x.A"], subscribe: ["_INBOX.>"]'
    server = start_nats(
        config=f"authorization: {{ users: [ {{ user: w, password: p, permissions: {{ {allowed} }} }} ] }}"
    )
    made = backend(reach(server.port), "--nats-user=w", "--nats-pass=p", *SUBJECT)
    batch = records(made, [trade(symbol, number) for number, symbol in enumerate(symbols)])
    errors = await write_all(made, batch)
    assert sorted(errors) == [place for place, symbol in enumerate(symbols) if symbol != "A"]
    assert {type(error) for error in errors.values()} == {Permanent}
    assert all("--nats-user" in str(error) for error in errors.values())


async def test_messages_to_a_forbidden_subject_do_not_cost_a_write_each(start_nats: StartNats) -> None:
    allowed = 'publish: ["$JS.API.>", "x.A"], subscribe: ["_INBOX.>"]'
    server = start_nats(
        config=f"authorization: {{ users: [ {{ user: w, password: p, permissions: {{ {allowed} }} }} ] }}"
    )
    made = backend(reach(server.port), "--nats-user=w", "--nats-pass=p", *SUBJECT)
    batch = records(made, [trade("AB"[number % 2], number) for number in range(1000)])
    async with made.open(Route(made.rules())) as sink:
        failures = {failure.place: failure.error for failure in await sink.write(batch)}
        refused = [place for place, error in failures.items() if isinstance(error, Permanent)]
        assert refused == list(range(1, 1000, 2))
        assert {type(error) for error in failures.values()} == {Permanent, NotTried}
        left = [place for place in sorted(failures) if place not in refused]
        assert await sink.write([batch[place] for place in left]) == []
    assert 0 not in failures


# -- three servers


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until there is an answer: servers that find each other have none for a while."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.2)


@pytest.fixture
def cluster(start_nats_cluster: Callable[[], NatsCluster]) -> NatsCluster:
    return start_nats_cluster()


async def test_order_holds_and_nothing_is_lost_when_leaders_are_killed(cluster: NatsCluster) -> None:
    """Batches one after the other, as a lane writes them, while two leaders are killed in turn."""
    await patiently(lambda: add_stream(cluster.urls, num_replicas=3))
    flags = [f"--nats-servers={','.join(f'127.0.0.1:{node.port}' for node in cluster.nodes)}", *SUBJECT]
    made = backend(*flags)

    async def kill_leaders() -> None:
        for _ in range(2):
            await asyncio.sleep(1)
            leader = await cluster.leader("S")
            leader.kill()
            await asyncio.sleep(1)
            await asyncio.to_thread(leader.start)
            await asyncio.sleep(3)

    async def write() -> int:
        written = 0
        while not killing.done():
            batch = [trade("ABC"[number % 3], number) for number in range(written, written + 300)]
            async with asyncio.timeout(60):
                assert await write_all_patiently(batch) == {}
            written += 300
            await asyncio.sleep(0.05)
        return written

    async def write_all_patiently(batch: list[Any]) -> dict[int, Exception]:
        left = records(made, batch)
        while left:
            try:
                async with made.open(Route(made.rules())) as sink:
                    while left:
                        failures = await sink.write(left)
                        assert not any(isinstance(each.error, Permanent) for each in failures)
                        left = [left[each.place] for each in failures]
                        await asyncio.sleep(0.1 if left else 0)
            except Transient:
                await asyncio.sleep(0.1)
        return {}

    killing = asyncio.create_task(kill_leaders())
    written = await write()
    await killing
    assert written >= 600
    for first, symbol in enumerate("ABC"):
        stored = await patiently(partial(prices, cluster.urls, f"x.{symbol}"))
        assert stored == list(range(first, written, 3))


async def test_messages_on_their_way_to_a_quorum_are_not_taken_for_stored(
    cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader without followers gets messages twice; when it is gone, so are they, as everybody was told."""
    monkeypatch.setattr(nats_sink, "ANSWER_SECONDS", 2)
    monkeypatch.setattr(nats_sink, "ASK_AGAIN_SECONDS", 1)
    await patiently(lambda: add_stream(cluster.urls, num_replicas=3))
    leader = await cluster.leader("S")
    followers = [node for node in cluster.nodes if node is not leader]
    made = backend(f"--nats-servers=127.0.0.1:{leader.port}", *SUBJECT)
    batch = records(made, [trade("A", number) for number in range(10)])
    stored: list[int] = []
    for node in followers:
        node.kill()
    for _ in range(2):
        with contextlib.suppress(Transient):
            async with made.open(Route(made.rules())) as sink:
                failed = {each.place for each in await sink.write(batch)}
                stored = [place for place in range(10) if place not in failed]
    leader.kill()
    for node in followers:
        await asyncio.to_thread(node.start)
    assert await patiently(partial(prices, [node.url for node in followers], "x.A")) == stored == []


@pytest.mark.parametrize("batching", ["auto", "off"])
async def test_a_stream_may_have_any_name(start_nats: StartNats, batching: str) -> None:
    server = start_nats()
    made = backend(
        reach(server.port), "--nats-stream=error", "--nats-subject=x", f"--nats-batching={batching}"
    )
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(records(made, [trade("A", 1), trade("A", 2)]))


async def test_a_stream_that_confirms_nothing_is_refused(start_nats: StartNats) -> None:
    server = start_nats()
    await add_stream(server.url, no_ack=True, allow_batched=False)
    made = backend(reach(server.port), *SUBJECT)
    with pytest.raises(Permanent, match="no_ack"):
        async with made.open(Route(made.rules())):
            pass
