"""The back ends. To add one, write its package and list it here."""

from bronze_sidecar.sinks.base import Backend
from bronze_sidecar.sinks.kafka.options import Kafka
from bronze_sidecar.sinks.kinesis.options import Kinesis
from bronze_sidecar.sinks.nats.options import Nats
from bronze_sidecar.sinks.redis.options import Redis
from bronze_sidecar.sinks.sqs.options import Sqs

BACKENDS: tuple[type[Backend], ...] = (Kafka, Nats, Kinesis, Redis, Sqs)

__all__ = ["BACKENDS", "Backend"]
