"""The buses that can be read: THE place to add one. `base.py` says what a source must do."""

from __future__ import annotations

from bronze_pipeline.sources.base import Bus
from bronze_pipeline.sources.kafka.bus import KafkaBus
from bronze_pipeline.sources.kinesis.bus import KinesisBus
from bronze_pipeline.sources.nats.bus import NatsBus
from bronze_pipeline.sources.redis.bus import RedisBus
from bronze_pipeline.sources.sqs.bus import SqsBus

BUSES: tuple[Bus, ...] = (NatsBus(), KafkaBus(), KinesisBus(), RedisBus(), SqsBus())
BUS_BY_SCHEME: dict[str, Bus] = {scheme: bus for bus in BUSES for scheme in bus.schemes}

__all__ = ["BUSES", "BUS_BY_SCHEME", "Bus"]
