"""NATS and Redis under attack."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import nats
import redis.asyncio
from buses import SYMBOLS, NatsBus, RedisBus
from chaos.targets import FILLER, Stored, Target
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StreamConfig
from redis_groups import DURABLE, NAME, RedisSentinels, ReplicatedCluster
from servers import HOST, NativeServer, NatsCluster, NatsServer, RedisServer

FILLERS = 5000
PROBE_MS = 500
FULL_SUBJECT = "bronze.bitmex.XBTUSD"


class Nats(Target):
    """One server."""

    copies = 1

    async def start(self, stack: AsyncExitStack) -> None:
        server = NatsServer(self.folder / "nats")
        stack.callback(server.stop)
        self._nodes = [await asyncio.to_thread(server.start)]
        await self._create()

    async def _create(self) -> None:
        async with self._jetstream() as stream:
            await stream.add_stream(self._settings())

    def _settings(self, **more: Any) -> StreamConfig:
        settings: dict[str, Any] = {"name": "BRONZE", "subjects": ["bronze.>"], "allow_batched": True}
        return StreamConfig(**settings | {"num_replicas": self.copies, "discard": DiscardPolicy.NEW} | more)

    @asynccontextmanager
    async def _jetstream(self) -> AsyncIterator[JetStreamContext]:
        client = await nats.connect([node.url for node in self._nodes])
        try:
            yield client.jetstream(timeout=60)
        finally:
            await client.close()

    def options(self, port: int | None = None) -> list[str]:
        ports = [port] if port else [node.port for node in self._nodes]
        return [
            *("--nats-servers", ",".join(f"{HOST}:{each}" for each in ports), "--nats-stream", "BRONZE"),
            *("--nats-subject", "bronze.{{exchange}}.{{symbol}}"),
        ]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        async for each in NatsBus(self._nodes[0]).read():
            if not each[1].startswith(FILLER):
                yield each

    async def probe(self) -> None:
        async with self._jetstream() as stream:
            await stream.publish("bronze.probe", b"", headers={"Nats-Msg-Id": f"{FILLER}:probe"})

    @property
    def port(self) -> int:
        return self._nodes[0].port

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        return self._nodes

    async def fill(self) -> None:
        async with self._jetstream() as stream:
            held = (await stream.stream_info("BRONZE")).state.messages
            await stream.update_stream(self._settings(max_msgs=held + 100))

    async def make_room(self) -> None:
        async with self._jetstream() as stream:
            await stream.update_stream(self._settings(max_msgs=-1))

    async def refuse_some(self) -> None:
        async with self._jetstream() as stream:
            for number in range(FILLERS):
                await stream.publish_async(
                    FULL_SUBJECT, b"", headers={"Nats-Msg-Id": f"{FILLER}:{number}"}, wait_stall=30
                )
            await stream.publish_async_completed()
            # Beside what is there already: an update would drop what is beyond the limit.
            state = (await stream.stream_info("BRONZE", subjects_filter=FULL_SUBJECT)).state
            held = (state.subjects or {})[FULL_SUBJECT]
            limits = {"max_msgs_per_subject": held + 100, "discard_new_per_subject": True}
            await stream.update_stream(self._settings(max_msgs=10_000_000, **limits))

    async def refuse_none(self) -> None:
        async with self._jetstream() as stream:
            await stream.update_stream(self._settings(max_msgs_per_subject=-1))

    async def delete(self) -> None:
        async with self._jetstream() as stream:
            await stream.delete_stream("BRONZE")


class ReplicatedNats(Nats):
    """Three servers with three copies: one may be lost; without two of them nothing is stored."""

    copies = 3

    async def start(self, stack: AsyncExitStack) -> None:
        self._cluster = NatsCluster(self.folder / "nats")
        stack.callback(self._cluster.stop)
        await asyncio.to_thread(self._cluster.start)
        self._nodes = self._cluster.nodes
        for _ in range(100):
            try:
                return await self._create()
            except Exception:  # noqa: BLE001 - the servers may still have to find each other
                await asyncio.sleep(0.1)
        raise RuntimeError("the stream could not be made")

    async def stored(self) -> Stored:
        async with asyncio.timeout(60):
            while True:
                # Until the server that was away has caught up.
                with contextlib.suppress(nats.errors.Error):
                    return await super().stored()
                await asyncio.sleep(0.5)

    @property
    def port(self) -> int:
        return super(Nats, self).port

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        return [await self._cluster.leader("BRONZE")]

    async def victims_of_freeze(self) -> Sequence[NativeServer]:
        leader = await self._cluster.leader("BRONZE")
        return [leader, next(node for node in self._nodes if node is not leader)]


class Redis(Target):
    """One server, which confirms what was written to its append-only file."""

    nodes: Sequence[RedisServer]
    confirmation: tuple[str, ...] = ("WAITAOF", "1", "0")
    """Answers with a count when what was written is safe."""

    async def start(self, stack: AsyncExitStack) -> None:
        server = RedisServer(self.folder / "redis", *DURABLE, "--proto-max-bulk-len", "1mb")
        stack.callback(server.stop)
        self.nodes = [await asyncio.to_thread(server.start)]

    def options(self, port: int | None = None) -> list[str]:
        stream = ("--redis-stream", "bronze:{{exchange}}:{{symbol}}", "--redis-max-batch-size", "10000")
        return [*self._reach(port or self.nodes[0].port), *stream]

    def _reach(self, port: int) -> list[str]:
        return ["--redis-host", HOST, "--redis-port", str(port), "--redis-wait-aof"]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        async for each in RedisBus(self._primary()).read():
            yield each

    async def probe(self) -> None:
        primary = await asyncio.to_thread(self._primary)
        client: Any = redis.asyncio.Redis(port=primary.port, single_connection_client=True)
        async with client:
            await client.xadd("probe", {"a": "b"})
            self._expect(await client.execute_command(*self.confirmation, PROBE_MS))

    def _expect(self, count: Any) -> None:
        wanted = int(self.confirmation[1])
        assert (count[0] if isinstance(count, list) else count) >= wanted, count

    def _primary(self) -> RedisServer:
        return self.nodes[0]

    @property
    def port(self) -> int:
        return self.nodes[0].port

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        return [self._primary()]

    async def fill(self) -> None:
        for node in self.nodes:
            node.tell("CONFIG SET maxmemory 1000000")

    async def make_room(self) -> None:
        for node in self.nodes:
            node.tell("CONFIG SET maxmemory 0")

    async def delete(self) -> None:
        for node in self._primaries():
            node.tell("FLUSHALL")

    def _primaries(self) -> Sequence[RedisServer]:
        return [self._primary()]


class RedisWithSentinels(Redis):
    """A primary with two replicas, both of which must have what is confirmed."""

    # Both: of two replicas, the sentinels may choose the one that did not confirm.
    confirmation = ("WAIT", "2")

    async def start(self, stack: AsyncExitStack) -> None:
        self._group = RedisSentinels(self.folder / "redis")
        stack.callback(self._group.stop)
        await asyncio.to_thread(self._group.start)
        self.nodes = self._group.nodes
        for node in self.nodes:
            node.tell("CONFIG SET proto-max-bulk-len 1mb")

    def _reach(self, port: int) -> list[str]:
        watched = ("--redis-sentinels", self._group.addresses, "--redis-sentinel-name", NAME)
        return [*watched, "--redis-wait-replicas", self.confirmation[1]]

    def _primary(self) -> RedisServer:
        return self._group.primary()

    @property
    def port(self) -> int:
        return super(Redis, self).port


class RedisCluster(Redis):
    """Three primaries with a replica each, which must have what is confirmed."""

    confirmation = ("WAIT", "1")

    async def start(self, stack: AsyncExitStack) -> None:
        self._cluster = ReplicatedCluster(self.folder / "redis", "--proto-max-bulk-len", "1mb")
        stack.callback(self._cluster.stop)
        await asyncio.to_thread(self._cluster.start)
        self.nodes = [*self._cluster.nodes, *self._cluster.replicas]

    def _reach(self, port: int) -> list[str]:
        return ["--redis-url", self.nodes[0].url, "--redis-wait-replicas", self.confirmation[1]]

    async def probe(self) -> None:
        client: Any = redis.asyncio.RedisCluster(host=HOST, port=self.nodes[0].port)
        async with client:
            for symbol in SYMBOLS:
                # Spread over the nodes as the streams are.
                key = f"{{bronze:bitmex:{symbol}}}probe"
                await client.xadd(key, {"a": "b"})
                node = client.get_node_from_key(key)
                self._expect(await client.execute_command(*self.confirmation, PROBE_MS, target_nodes=node))

    @property
    def port(self) -> int:
        return super(Redis, self).port

    async def victims_of_kill(self) -> Sequence[NativeServer]:
        # Not the node that the options name: the sidecar must be able to start as well.
        return [self.nodes[1]]

    def _primaries(self) -> Sequence[RedisServer]:
        return [node for node in self.nodes if b"role:master" in node.tell("INFO replication")]

    async def read(self) -> AsyncIterator[tuple[str, str]]:
        client: Any = redis.asyncio.RedisCluster(host=HOST, port=self.nodes[0].port)
        for key in sorted(await client.keys("bronze:*", target_nodes=client.PRIMARIES)):
            for _, fields in await client.xrange(key):
                yield key.decode(), fields[b"eventId"].decode()
        await client.aclose()
