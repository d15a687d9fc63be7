"""What answers of a Redis server mean."""

from __future__ import annotations

import pytest
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.sinks.redis.link import ANSWER_SECONDS, classify, classify_text, pack
from redis import exceptions


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("WRONGTYPE Operation against a key holding the wrong kind of value", Permanent),
        ("NOPERM No permissions to access a key", Permanent),
        ("NOPERM User writer has no permissions to run the 'evalsha' command", Disconnected),
        ("NOPERM this user has no permissions to run the 'eval' command", Disconnected),
        ("READONLY You can't write against a read only replica.", Disconnected),
        ("MASTERDOWN Link with MASTER is down", Disconnected),
        ("NOAUTH Authentication required.", Disconnected),
        ("OOM command not allowed when used memory > 'maxmemory'.", Transient),
        ("BUSY Redis is busy running a script.", Transient),
        ("CLUSTERDOWN The cluster is down", Transient),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Transient),
        ("NOREPLICAS Not enough good replicas to write.", Transient),
        ("MISCONF Errors writing to the AOF file", Transient),
        ("ERR something that nobody has heard of", Transient),
    ],
)
def test_answers(answer: str, kind: type[DeliveryError]) -> None:
    assert type(classify_text(answer)) is kind
    assert str(classify_text(answer)) == answer


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (exceptions.ConnectionError("closed by server"), Disconnected, "closed by server"),
        (exceptions.TimeoutError("Timeout reading"), Disconnected, "Timeout reading"),
        (exceptions.BusyLoadingError("in memory", status_code="LOADING"), Disconnected, "LOADING in memory"),
        (exceptions.ReadOnlyError("read only", status_code="READONLY"), Disconnected, "READONLY read only"),
        (exceptions.ResponseError("ERR what?"), Transient, "ERR what?"),
        (Transient("known already"), Transient, "known already"),
    ],
)
def test_errors_of_the_library(error: Exception, kind: type[DeliveryError], text: str) -> None:
    assert type(classify(error)) is kind
    assert str(classify(error)) == text


def test_a_command_as_it_is_sent() -> None:
    assert pack(b"SET", b"a\r\nb", b"") == b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n"


def test_a_silent_server_is_given_up_within_ten_seconds() -> None:
    assert ANSWER_SECONDS <= 10
