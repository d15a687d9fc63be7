"""What a broker's answers to record batches mean."""

from __future__ import annotations

import pytest
from aiokafka import errors
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.sinks.kafka.answers import Fate, by_code, by_failure

# Written after the list of codes in the protocol's description.
CODES = [
    (10, "MESSAGE_TOO_LARGE", Permanent),
    (17, "INVALID_TOPIC_EXCEPTION", Permanent),
    (18, "RECORD_LIST_TOO_LARGE", Permanent),
    (21, "INVALID_REQUIRED_ACKS", Permanent),
    (29, "TOPIC_AUTHORIZATION_FAILED", Permanent),
    (31, "CLUSTER_AUTHORIZATION_FAILED", Permanent),
    (42, "INVALID_REQUEST", Permanent),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Permanent),
    (44, "POLICY_VIOLATION", Permanent),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", Permanent),
    (87, "INVALID_RECORD", Permanent),
    (2, "CORRUPT_MESSAGE", Transient),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", Transient),
    (5, "LEADER_NOT_AVAILABLE", Transient),
    (6, "NOT_LEADER_OR_FOLLOWER", Transient),
    (8, "BROKER_NOT_AVAILABLE", Transient),
    (9, "REPLICA_NOT_AVAILABLE", Transient),
    (19, "NOT_ENOUGH_REPLICAS", Transient),
    (32, "INVALID_TIMESTAMP", Transient),
    (56, "KAFKA_STORAGE_ERROR", Transient),
    (74, "FENCED_LEADER_EPOCH", Transient),
    (75, "UNKNOWN_LEADER_EPOCH", Transient),
    (89, "THROTTLING_QUOTA_EXCEEDED", Transient),
    (9999, "a code of the future", Transient),
    (-1, "UNKNOWN_SERVER_ERROR", Disconnected),
    (7, "REQUEST_TIMED_OUT", Disconnected),
    (13, "NETWORK_EXCEPTION", Disconnected),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Disconnected),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Disconnected),
    (47, "INVALID_PRODUCER_EPOCH", Disconnected),
    (49, "INVALID_PRODUCER_ID_MAPPING", Disconnected),
    (59, "UNKNOWN_PRODUCER_ID", Disconnected),
    (90, "PRODUCER_FENCED", Disconnected),
]


@pytest.mark.parametrize(("code", "name", "kind"), CODES)
def test_codes(code: int, name: str, kind: type[DeliveryError]) -> None:
    error = by_code(code).error("bronze")
    assert type(error) is kind, name
    assert str(error).startswith("topic 'bronze': ")


@pytest.mark.parametrize("code", [10, 18, 42, 44, 87])
def test_what_may_be_one_record_s_fault_is_not_held_against_its_batch(code: int) -> None:
    assert by_code(code).fate is Fate.OBJECTIONABLE


@pytest.mark.parametrize("code", [0, 46])
def test_a_batch_that_came_twice_is_stored(code: int) -> None:
    assert by_code(code).fate is Fate.STORED


def test_the_broker_s_own_words_are_shown_where_they_say_more() -> None:
    ordinary = (-1, -1, -1)
    assert by_code(87, (*ordinary, [(3, "no key")], "some were rejected")).text == (
        "the broker considers it invalid (no key)"
    )
    assert by_code(87, (*ordinary, [(3, None)], "some were rejected")).text == (
        "the broker considers it invalid (some were rejected)"
    )
    assert by_code(87, (*ordinary, [], None)).text == "the broker considers it invalid"
    assert by_code(87, ordinary).text == "the broker considers it invalid"
    assert by_code(10, (*ordinary, [], "too large")).text == "larger than the topic's max.message.bytes"


@pytest.mark.parametrize(
    ("error", "fate", "text"),
    [
        (errors.NodeNotReadyError("no"), Fate.NOT_NOW, "the partition's leader, b:1, cannot be reached"),
        (TimeoutError(), Fate.UNKNOWN, "the partition's leader, b:1, does not answer"),
        (errors.RequestTimedOutError(), Fate.UNKNOWN, "the partition's leader, b:1, does not answer"),
        (errors.KafkaConnectionError("closed"), Fate.BROKEN_OFF, "b:1: KafkaConnectionError: closed"),
        (OSError("what?"), Fate.UNKNOWN, "the partition's leader, b:1: what?"),
    ],
)
def test_requests_without_an_answer(error: Exception, fate: Fate, text: str) -> None:
    answer = by_failure(error, "b:1")
    assert answer.fate is fate
    assert text in answer.text
