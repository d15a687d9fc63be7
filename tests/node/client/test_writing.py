"""Writes that wait for room, and the stream that a source is piped into."""
# ruff: noqa: PT012 - leaving a block is what raises

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from bronze_client import PublishError, Stats
from bronze_client.schema import Outcome, PublishRequest, PublishResponse
from clients import NodeClient
from scripted_sidecar import ScriptedSidecar, acknowledged, count, in_loop, obliging, opened

Requests = Iterator[PublishRequest]
Responses = Iterator[PublishResponse]


LONG = 20.0


@pytest.fixture
def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@in_loop
async def test_writes_wait_for_room_whatever_is_done_when_it_is_full(node_client: NodeClient) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with node_client.connect(sidecar.address, buffer_events=10, batch_events=5) as publisher:
            await publisher.write_all([b"%d" % number for number in range(200)])
            with pytest.raises(TypeError):
                await publisher.write_all([1])
            await publisher.flush(LONG)
            assert await publisher.stats() == Stats(accepted=200, acknowledged=200, published=200)
        events = [event for batch in sidecar.batches() for event in batch.envelopes]
    assert events == [b"%d" % number for number in range(200)]


@in_loop
async def test_writes_are_rejected_if_the_event_is_dropped(
    node_client: NodeClient, free_address: str
) -> None:
    with pytest.raises(PublishError, match=r"1 dropped\. The buffer is full"):
        async with node_client.connect(
            free_address, buffer_events=1, max_wait=0.05, close_timeout=0
        ) as publisher:
            await publisher.write_all([b"a", b"b"])
    with pytest.raises(PublishError, match=r"1 dropped\. The publisher is closed"):
        async with node_client.connect(free_address) as publisher:
            await publisher.close()
            await publisher.write_all([b"a"])
    async with node_client.connect(None) as publisher:
        await publisher.write_all([b"a"])


@in_loop
async def test_a_fast_source_is_piped_into_a_slow_sidecar_without_loss(node_client: NodeClient) -> None:
    def slow(requests: Requests) -> Responses:
        next(requests)
        yield opened()
        for request in requests:
            time.sleep(0.002)
            yield acknowledged(request.batch.sequence, Outcome(published=count(request.batch)))

    with ScriptedSidecar(slow) as sidecar:
        async with node_client.connect(sidecar.address, buffer_events=10, batch_events=5) as publisher:
            read_ahead = await publisher.pipe([{"n": number} for number in range(500)], high_water_mark=3)
            # It ends when everything is acknowledged, and the publisher is still open.
            assert await publisher.stats() == Stats(accepted=500, acknowledged=500, published=500)
            assert await publisher.publish(b"x")
        lines = [line for batch in sidecar.batches() for block in batch.json for line in block.split(b"\n")]
    assert lines == [b'{"n":%d}' % number for number in range(500)]
    # The publisher's buffer, the stream's own, and what is on its way between them and the source.
    assert 10 <= read_ahead <= 10 + 3 + 5
