"""Blocks of lines, which only the Node client takes, and what else only it has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from bronze_client import PublishError, Stats
from bronze_client.schema import PublishRequest, PublishResponse
from clients import NodeClient, Told, until_inside
from scripted_sidecar import ScriptedSidecar, acknowledged, frozen, in_loop, obliging, opened

LONG = 20.0


@in_loop
async def test_a_block_is_passed_on_as_it_is(node_client: NodeClient) -> None:
    gathered = threading.Event()

    def patient(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        # On an open stream the first block would be sent at once, by itself.
        gathered.wait(LONG)
        yield from obliging(requests)

    with ScriptedSidecar(patient) as sidecar:
        async with node_client.connect(sidecar.address, batch_events=4, batch_delay=60.0) as publisher:
            assert await publisher.publish_lines('{"a": 1}\n{"b":"ü"}\n{}', 3)
            assert await publisher.publish_lines(b'{"d":4}', 1)
            await publisher.publish({"e": 5})
            gathered.set()
            await publisher.flush(LONG)
            assert await publisher.stats() == Stats(accepted=5, acknowledged=5, published=5)
        batches = sidecar.batches()
    assert [batch.first_position for batch in batches] == [0, 4]
    assert [list(batch.json) for batch in batches] == [
        ['{"a": 1}\n{"b":"ü"}\n{}\n{"d":4}'.encode()],
        [b'{"e":5}'],
    ]


@in_loop
async def test_a_block_is_cut_where_the_credits_are_less(node_client: NodeClient) -> None:
    def stingy(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened(events=2)
        for request in requests:
            yield acknowledged(request.batch.sequence)

    with ScriptedSidecar(stingy) as sidecar:
        async with node_client.connect(sidecar.address) as publisher:
            await publisher.publish_lines(b"{1}\n{2}\n{3}\n{4}\n{5}", 5)
            await publisher.flush(LONG)
        batches = sidecar.batches()
    assert [(batch.first_position, list(batch.json)) for batch in batches] == [
        (0, [b"{1}\n{2}"]),
        (2, [b"{3}\n{4}"]),
        (4, [b"{5}"]),
    ]


@in_loop
async def test_a_block_without_room_is_dropped_as_a_whole(node_client: NodeClient) -> None:
    on_drop = Told()
    with ScriptedSidecar(frozen, obliging) as sidecar:
        async with node_client.connect(sidecar.address, buffer_events=3, on_drop=on_drop) as publisher:
            assert await publisher.publish_lines(b"{1}\n{2}", 2)
            assert not await publisher.publish_lines(b"{3}\n{4}", 2)
            sidecar.release.set()
            with pytest.raises(PublishError, match="2 dropped"):
                await publisher.flush(LONG)
            assert await publisher.publish_lines(b"{5}", 1)
        assert on_drop.told == [(2, "The buffer is full.")]
        last = sidecar.batches()[-1]
        assert (last.first_position, list(last.json)) == (4, [b"{5}"])


@in_loop
async def test_what_is_wrong_about_a_block_is_told_and_leaves_a_gap(node_client: NodeClient) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with node_client.connect(sidecar.address) as publisher:
            for count in (0, -1, 1.5):
                with pytest.raises(ValueError, match="count: must be 1 or more"):
                    await publisher.publish_lines(b"{}", count)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="The block is empty"):
                await publisher.publish_lines(b"", 2)
            with pytest.raises(ValueError, match="unpaired surrogate"):
                await publisher.publish_lines('{"a":"\ud800"}', 1)
            await publisher.publish_lines(b"{}", 1)
        assert [batch.first_position for batch in sidecar.batches()] == [3]


@in_loop
async def test_positions_may_be_large(node_client: NodeClient) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with node_client.connect(sidecar.address, batch_events=1) as publisher:
            await publisher.skip(2**45 + 3)
            await publisher.publish_lines(b"{}", 1)
            await publisher.publish(b"envelope")
        assert [batch.first_position for batch in sidecar.batches()] == [2**45 + 3, 2**45 + 4]


@in_loop
async def test_the_event_loop_goes_on_while_the_sidecar_stands_still(node_client: NodeClient) -> None:
    with ScriptedSidecar(frozen) as sidecar:
        async with node_client.connect(sidecar.address, batch_events=10, close_timeout=0.0) as publisher:
            await until_inside(publisher, lambda inside: inside.is_open)
            await publisher.publish_all([b"a" * 1000] * 5000)
            flush = asyncio.create_task(publisher.flush(LONG))
            for _ in range(10):
                assert (await publisher.stats()).buffered_events == 5000
            assert not flush.done()
            with pytest.raises(PublishError, match="5000 not acknowledged"):
                await publisher.close()
            with pytest.raises(PublishError, match="5000 not acknowledged"):
                await flush


@in_loop
async def test_closing_may_be_given_another_time(node_client: NodeClient) -> None:
    with ScriptedSidecar(frozen) as sidecar:
        async with node_client.connect(sidecar.address, close_timeout=3600.0) as publisher:
            await publisher.publish(b"a")
            with pytest.raises(PublishError, match="1 not acknowledged"):
                await publisher.close(0.05)


@in_loop
async def test_an_envelope_message_has_to_be_encoded_first(node_client: NodeClient) -> None:
    with pytest.raises(TypeError, match=r"not a message lakehouse\.bronze.*; encode it with toBinary"):
        node_client.encode({"$typeName": "lakehouse.bronze.v1.NormalizedEvent", "source": "a"})


@in_loop
async def test_what_happens_to_the_stream_is_told(node_client: NodeClient) -> None:
    release = threading.Event()

    def brief(requests: Iterator[PublishRequest]) -> Iterator[PublishResponse]:
        next(requests)
        yield opened()
        release.wait()

    on_connect, on_disconnect = Told(), Told()
    with ScriptedSidecar(brief, obliging) as sidecar, node_client.timing(first_pause=0.01):
        listeners = {"on_connect": on_connect, "on_disconnect": on_disconnect}
        async with node_client.connect(sidecar.address, **listeners) as publisher:
            await until_inside(publisher, lambda inside: inside.is_open)
            release.set()
            await publisher.publish(b"a")
            await publisher.flush(LONG)
    assert on_connect.told == [(), ()]
    assert on_disconnect.told == ["The sidecar ended the stream."]
    assert node_client.logged() == []
