"""The back ends. To add one, write its module and name it here."""

from bronze_sidecar.sinks.base import Backend
from bronze_sidecar.sinks.kafka import Kafka
from bronze_sidecar.sinks.kinesis import Kinesis
from bronze_sidecar.sinks.nats import Nats
from bronze_sidecar.sinks.redis import Redis
from bronze_sidecar.sinks.sqs import Sqs

BACKENDS: tuple[type[Backend], ...] = (Kafka, Nats, Kinesis, Redis, Sqs)

__all__ = ["BACKENDS", "Backend"]
