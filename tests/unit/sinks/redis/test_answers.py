"""What error answers of a Redis server mean."""

from __future__ import annotations

import pytest
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.sinks.redis.answers import KeyRefused, classify, classify_text
from redis import exceptions


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("WRONGTYPE Operation against a key holding the wrong kind of value", KeyRefused),
        ("NOPERM No permissions to access a key", KeyRefused),
        ("NOPERM User writer has no permissions to run the 'xadd' command", KeyRefused),
        ("NOPERM User writer has no permissions to run the 'evalsha' command", Disconnected),
        ("NOPERM this user has no permissions to run the 'eval' command", Disconnected),
        ("ERR The stream has exhausted the last possible ID, unable to add more items", KeyRefused),
        ("ERR The ID specified in XADD is equal or smaller than the target stream top item", KeyRefused),
        ("ERR Elements are too large to be stored", Permanent),
        ("READONLY You can't write against a read only replica.", Disconnected),
        (
            "READONLY You can't write against a read only replica. script: 7f, on @user_script:14.",
            Disconnected,
        ),
        ("LOADING Redis is loading the dataset in memory", Disconnected),
        ("MASTERDOWN Link with MASTER is down", Disconnected),
        ("NOAUTH Authentication required.", Disconnected),
        ("ERR Protocol error: invalid multibulk length", Disconnected),
        ("Protocol error: unauthenticated bulk length", Disconnected),
        ("OOM command not allowed when used memory > 'maxmemory'.", Transient),
        ("BUSY Redis is busy running a script.", Transient),
        ("CLUSTERDOWN The cluster is down", Transient),
        ("CROSSSLOT Keys in request don't hash to the same slot", Transient),
        ("MOVED 3999 127.0.0.1:6381", Transient),
        ("ASK 3999 127.0.0.1:6381", Transient),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Transient),
        ("NOREPLICAS Not enough good replicas to write.", Transient),
        ("NOSCRIPT No matching script. Please use EVAL.", Transient),
        ("MISCONF Errors writing to the AOF file", Transient),
        ("ERR user_script:1: not enough memory script: 7f, on @user_script:1.", Transient),
        ("ERR max number of clients reached", Transient),
        ("ERR something that nobody has heard of", Transient),
        ("", Transient),
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
