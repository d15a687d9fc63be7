"""The topics that records go to: whether they exist, and their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from aiokafka import errors

from bronze_sidecar.errors import DeliveryError
from bronze_sidecar.sinks.kafka.answers import NO_TOPIC, by_code
from bronze_sidecar.sinks.kafka.batches import Topic
from bronze_sidecar.sinks.kafka.connection import KafkaConnection
from bronze_sidecar.sinks.kafka.numbering import Numbering
from bronze_sidecar.sinks.kafka.registry import Registry

RETRY_SECONDS = 0.1
# How long a topic may be missing, or a partition refuse batches, before the lane is told. Creating a topic on
# first use, or changing leaders, takes less.
PATIENCE_SECONDS = 2.0


class Topics:
    """The topics that records go to, as far as known."""

    def __init__(self, connection: KafkaConnection, registry: Registry | None, numbering: Numbering) -> None:
        self.known: dict[str, Topic] = {}
        self._connection = connection
        self._numbering = numbering
        self._registry = registry
        self._missing_since: dict[str, float] = {}
        connection.cluster.add_listener(self._look)

    def _look(self, cluster: Any) -> None:
        """Follow changes in the number of partitions, as reported by brokers."""
        for name, topic in self.known.items():
            partitions = cluster.partitions_for_topic(name)
            if partitions:
                topic.have(len(partitions))

    async def learn(self, names: Collection[str]) -> dict[str, DeliveryError]:
        """Find out about topics; return why some of them cannot be written to."""
        await self._find(names)
        cluster = self._connection.cluster
        reasons: dict[str, DeliveryError] = {}
        for name in names:
            if cluster.partitions_for_topic(name):
                self._missing_since.pop(name, None)
                try:
                    frame = await self._registry.frame(name) if self._registry else b""
                except DeliveryError as error:
                    reasons[name] = error
                else:
                    self.known[name] = Topic(name, frame, self._numbering)
                    self.known[name].have(len(cluster.partitions_for_topic(name)))
            elif name in cluster.unauthorized_topics:
                reasons[name] = by_code(errors.TopicAuthorizationFailedError.errno).error(name)
            else:
                # It may be created later: events wait for it instead of being lost.
                reasons[name] = NO_TOPIC.error(name)
        return reasons

    async def _find(self, names: Collection[str]) -> None:
        """Ask for topics; give those asked for the first time a moment to be created."""
        clock = asyncio.get_running_loop().time
        cluster = self._connection.cluster
        while True:
            await self._connection.refresh(names)
            missing = {
                name
                for name in names
                if not cluster.partitions_for_topic(name) and name not in cluster.unauthorized_topics
            }
            patience = [self._missing_since.setdefault(name, clock()) + PATIENCE_SECONDS for name in missing]
            if max(patience, default=0.0) <= clock():
                return
            await asyncio.sleep(RETRY_SECONDS)
