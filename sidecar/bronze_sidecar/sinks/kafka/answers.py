"""What a broker's answer to a record batch means."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from aiokafka import errors

from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient


class Fate(Enum):
    """What became of a record batch, which decides what to do next."""

    STORED = auto()
    OBJECTIONABLE = auto()
    """Some record in it was refused for its content; the others can be stored."""
    FORBIDDEN = auto()
    """The broker will never accept it."""
    NOT_NOW = auto()
    """It was not stored; the cluster is changing, and will accept it soon."""
    NOT_STORED = auto()
    """It was not stored, for another reason."""
    UNKNOWN = auto()
    """It may have been stored. Only the same batch under the same number is safe to send again."""
    NUMBERS_LOST = auto()
    """We and the broker disagree on the batch numbers; numbering must start over."""


# https://kafka.apache.org/protocol#protocol_error_codes. The library knows only some of them.
FATES = {
    0: Fate.STORED,
    46: Fate.STORED,  # DUPLICATE_SEQUENCE_NUMBER: an earlier attempt was stored
    10: Fate.OBJECTIONABLE,  # MESSAGE_TOO_LARGE
    18: Fate.OBJECTIONABLE,  # RECORD_LIST_TOO_LARGE
    87: Fate.OBJECTIONABLE,  # INVALID_RECORD
    17: Fate.FORBIDDEN,  # INVALID_TOPIC_EXCEPTION
    21: Fate.FORBIDDEN,  # INVALID_REQUIRED_ACKS
    29: Fate.FORBIDDEN,  # TOPIC_AUTHORIZATION_FAILED
    31: Fate.FORBIDDEN,  # CLUSTER_AUTHORIZATION_FAILED
    3: Fate.NOT_NOW,  # UNKNOWN_TOPIC_OR_PARTITION
    5: Fate.NOT_NOW,  # LEADER_NOT_AVAILABLE
    6: Fate.NOT_NOW,  # NOT_LEADER_OR_FOLLOWER
    8: Fate.NOT_NOW,  # BROKER_NOT_AVAILABLE
    9: Fate.NOT_NOW,  # REPLICA_NOT_AVAILABLE
    19: Fate.NOT_NOW,  # NOT_ENOUGH_REPLICAS
    56: Fate.NOT_NOW,  # KAFKA_STORAGE_ERROR
    74: Fate.NOT_NOW,  # FENCED_LEADER_EPOCH
    75: Fate.NOT_NOW,  # UNKNOWN_LEADER_EPOCH
    -1: Fate.UNKNOWN,  # UNKNOWN_SERVER_ERROR
    7: Fate.UNKNOWN,  # REQUEST_TIMED_OUT
    13: Fate.UNKNOWN,  # NETWORK_EXCEPTION
    20: Fate.UNKNOWN,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    45: Fate.NUMBERS_LOST,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    47: Fate.NUMBERS_LOST,  # INVALID_PRODUCER_EPOCH
    49: Fate.NUMBERS_LOST,  # INVALID_PRODUCER_ID_MAPPING
    59: Fate.NUMBERS_LOST,  # UNKNOWN_PRODUCER_ID
    90: Fate.NUMBERS_LOST,  # PRODUCER_FENCED
}
TEXTS = {
    3: "the topic or partition does not exist: create it, or check the topic's name (see --kafka-topic)",
    5: "the partition has no leader",
    6: "the partition has another leader now",
    10: "larger than the topic's max.message.bytes",
    18: "larger than the topic's segment.bytes",
    19: "fewer replicas are in sync than the topic's min.insync.replicas",
    21: "the broker does not support --kafka-acks",
    29: "the user may not write to the topic: check its access control list",
    31: "the user may not write idempotently: allow IdempotentWrite, or set --kafka-idempotent=false",
    87: "the broker considers it invalid",
}


class Answer(NamedTuple):
    """The fate of a record batch, and an explanation."""

    fate: Fate
    text: str

    def error(self, topic: str) -> DeliveryError:
        """Return what the lane is told."""
        text = f"topic '{topic}': {self.text}"
        if self.fate in {Fate.FORBIDDEN, Fate.OBJECTIONABLE}:
            return Permanent(text)
        if self.fate in {Fate.UNKNOWN, Fate.NUMBERS_LOST}:
            return Disconnected(text)
        return Transient(text)


STORED = Answer(Fate.STORED, "")
NO_TOPIC = Answer(Fate.NOT_NOW, TEXTS[3])
NO_LEADER = Answer(Fate.NOT_NOW, TEXTS[5])


def by_code(code: int) -> Answer:
    """Return what a broker's code means."""
    if code == 0:
        return STORED
    text = TEXTS.get(code) or f"{errors.for_code(code).__name__} (error {code})"
    return Answer(FATES.get(code, Fate.NOT_STORED), text)


def by_failure(error: BaseException, broker: str) -> Answer:
    """Return what a failed request means."""
    text = str(error) or type(error).__name__
    if isinstance(error, errors.NodeNotReadyError):
        return Answer(Fate.NOT_NOW, f"the partition's leader, {broker}, cannot be reached")
    if isinstance(error, TimeoutError | errors.RequestTimedOutError):
        return Answer(Fate.UNKNOWN, f"the partition's leader, {broker}, does not answer")
    return Answer(Fate.UNKNOWN, f"the partition's leader, {broker}: {text}")
