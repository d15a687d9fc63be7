"""What a broker's answer to a record batch means."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

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
    BROKEN_OFF = auto()
    """As UNKNOWN: the broker closed the connection instead of answering, maybe because of this very batch."""
    UNKNOWN = auto()
    """It may have been stored. Only the same batch under the same number is safe to send again."""
    NUMBERS_LOST = auto()
    """We and the broker disagree on the batch numbers; numbering must start over."""


# https://kafka.apache.org/protocol#protocol_error_codes: the answers to a record batch that belongs to no
# transaction. The library knows only some of them. An unknown one is NOT_STORED.
FATES = {
    0: Fate.STORED,
    46: Fate.STORED,  # DUPLICATE_SEQUENCE_NUMBER: an earlier attempt was stored
    10: Fate.OBJECTIONABLE,  # MESSAGE_TOO_LARGE
    18: Fate.OBJECTIONABLE,  # RECORD_LIST_TOO_LARGE
    42: Fate.OBJECTIONABLE,  # INVALID_REQUEST
    44: Fate.OBJECTIONABLE,  # POLICY_VIOLATION
    87: Fate.OBJECTIONABLE,  # INVALID_RECORD
    17: Fate.FORBIDDEN,  # INVALID_TOPIC_EXCEPTION
    21: Fate.FORBIDDEN,  # INVALID_REQUIRED_ACKS
    29: Fate.FORBIDDEN,  # TOPIC_AUTHORIZATION_FAILED
    31: Fate.FORBIDDEN,  # CLUSTER_AUTHORIZATION_FAILED
    43: Fate.FORBIDDEN,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    76: Fate.FORBIDDEN,  # UNSUPPORTED_COMPRESSION_TYPE
    2: Fate.NOT_STORED,  # CORRUPT_MESSAGE: damaged on its way
    32: Fate.NOT_STORED,  # INVALID_TIMESTAMP: our clock's, which each attempt reads anew
    89: Fate.NOT_STORED,  # THROTTLING_QUOTA_EXCEEDED
    3: Fate.NOT_NOW,  # UNKNOWN_TOPIC_OR_PARTITION: it may be made again
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
    2: "the batch was damaged on its way to the broker",
    3: "the topic or partition does not exist: create it, or check the topic's name (see --kafka-topic)",
    5: "the partition has no leader",
    6: "the partition has another leader now",
    10: "larger than the topic's max.message.bytes",
    18: "larger than the topic's segment.bytes",
    19: "fewer replicas are in sync than the topic's min.insync.replicas",
    21: "the broker does not support --kafka-acks",
    29: "the user may not write to the topic: check its access control list",
    31: "the user may not write idempotently: allow IdempotentWrite, or set --kafka-idempotent=false",
    32: "this machine's time is outside what the topic accepts: check the clock, and the topic's"
    " message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    42: "the broker considers the request invalid",
    43: "the topic's message format is too old",
    44: "against the broker's policy",
    76: "the broker does not support --kafka-compression",
    87: "the broker considers it invalid",
}
DETAILED = {32, 42, 44, 87}
"""Codes for which the broker's own words say more."""


class Answer(NamedTuple):
    """The fate of a record batch, and an explanation."""

    fate: Fate
    text: str

    def error(self, topic: str) -> DeliveryError:
        """Return what the lane is told."""
        text = f"topic '{topic}': {self.text}"
        if self.fate in {Fate.FORBIDDEN, Fate.OBJECTIONABLE}:
            return Permanent(text)
        if self.fate in {Fate.UNKNOWN, Fate.BROKEN_OFF, Fate.NUMBERS_LOST}:
            return Disconnected(text)
        return Transient(text)


STORED = Answer(Fate.STORED, "")
NO_TOPIC = Answer(Fate.NOT_NOW, TEXTS[3])
NO_LEADER = Answer(Fate.NOT_NOW, TEXTS[5])
NO_ANSWER = Answer(Fate.UNKNOWN, "the broker's answer does not mention the partition")


def by_code(code: int, details: Sequence[Any] = ()) -> Answer:
    """Return what a broker's code means; `details` is what follows it in the answer."""
    if code == 0:
        return STORED
    text = TEXTS.get(code) or f"{errors.for_code(code).__name__} (error {code})"
    if code in DETAILED and (said := _words_of(details)):
        text = f"{text} ({said})"
    return Answer(FATES.get(code, Fate.NOT_STORED), text)


def _words_of(details: Sequence[Any]) -> str:
    """Return what the broker says about the first record at fault, or about the batch."""
    *_, by_record, about_batch = details or ((), None)
    if not isinstance(by_record, list):
        return ""  # a broker of a version that says nothing
    words = [words for _, words in by_record if words]
    return words[0] if words else about_batch or ""


def by_failure(error: BaseException, broker: str) -> Answer:
    """Return what a failed request means."""
    text = str(error) or type(error).__name__
    if isinstance(error, errors.NodeNotReadyError):
        return Answer(Fate.NOT_NOW, f"the partition's leader, {broker}, cannot be reached")
    if isinstance(error, TimeoutError | errors.RequestTimedOutError):
        return Answer(Fate.UNKNOWN, f"the partition's leader, {broker}, does not answer")
    fate = Fate.BROKEN_OFF if isinstance(error, errors.KafkaConnectionError) else Fate.UNKNOWN
    return Answer(fate, f"the partition's leader, {broker}: {text}")
