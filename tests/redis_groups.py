"""Groups of Redis servers that replace a lost primary: by sentinels, or as a cluster with replicas."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from servers import HOST, START_SECONDS, RedisCluster, RedisServer

NAME = "bronze"
# A server that is silent for so long is replaced.
DOWN_AFTER_MS = 1500
DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0")


class Sentinel(RedisServer):
    """A sentinel that watches one primary; what it learns, it writes into its own file."""

    def __init__(self, directory: Path, primary: RedisServer, *lines: str) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / "sentinel.conf"
        settings = (
            f"sentinel monitor {NAME} {HOST} {primary.port} 2",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 5000",
            *lines,
        )
        self._file.write_text("\n".join((f"port {self.port}", f"bind {HOST}", *settings, "")))

    def command(self) -> list[str]:
        return [self._program, str(self._file), "--sentinel"]


class RedisSentinels:
    """A primary, two replicas, and three sentinels of which two must agree."""

    def __init__(self, directory: Path, *sentinel_lines: str) -> None:
        self.nodes = [RedisServer(directory / f"r{number}", *DURABLE) for number in range(3)]
        self._directory = directory
        self._lines = sentinel_lines
        self.sentinels: list[Sentinel] = []

    @property
    def addresses(self) -> str:
        return ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)

    def start(self) -> Self:
        """Start all; return when the sentinels know of each other and of both replicas."""
        primary, *replicas = self.nodes
        primary.start()
        for replica in replicas:
            replica.start().tell(f"REPLICAOF {HOST} {primary.port}")
        until(lambda: primary.tell("INFO replication").count(b"state=online") == 2, "replicate")
        self.sentinels = [
            Sentinel(self._directory / f"s{number}", primary, *self._lines).start() for number in range(3)
        ]
        until(lambda: all(map(_is_complete, self.sentinels)), "be watched")
        return self

    def stop(self) -> None:
        for server in (*self.sentinels, *self.nodes):
            server.stop()

    def primary(self) -> RedisServer:
        """Return the primary, as the first sentinel sees it."""
        answer = self.sentinels[0].tell(f"SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}").split()
        return next(node for node in self.nodes if str(node.port).encode() in answer)


def _is_complete(sentinel: Sentinel) -> bool:
    facts = sentinel.tell("INFO sentinel")
    return b"status=ok" in facts and b"slaves=2,sentinels=3" in facts


class ReplicatedCluster(RedisCluster):
    """Three primaries that share the slots, and a replica of each."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__(directory, *DURABLE, "--cluster-node-timeout", str(DOWN_AFTER_MS), *arguments)
        self.replicas = [
            self._node(directory / f"replica-{number}", (*DURABLE, *arguments)) for number in range(3)
        ]

    def start(self) -> Self:
        """Start all; return when each primary has its replica."""
        super().start()
        for primary, replica in zip(self.nodes, self.replicas, strict=True):
            bus = replica.start().tell("CONFIG GET cluster-port").split()[-1].decode()
            self.nodes[0].tell(f"CLUSTER MEET {HOST} {replica.port} {bus}")
            name = primary.tell("CLUSTER MYID").split()[-1]
            until(partial(_says, replica, "CLUSTER NODES", name), "meet")
            replica.tell(f"CLUSTER REPLICATE {name.decode()}")
        for node in self.nodes:
            until(partial(_says, node, "INFO replication", b"state=online"), "replicate")
        everyone = [*self.nodes, *self.replicas]
        until(lambda: all(node.tell("CLUSTER NODES").count(b"slave") == 3 for node in everyone), "meet")
        return self

    def stop(self) -> None:
        super().stop()
        for replica in self.replicas:
            replica.stop()


def _says(server: RedisServer, command: str, words: bytes) -> bool:
    return words in server.tell(command)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"the servers did not {what}")
        time.sleep(0.05)
