"""What is made of the server's answers to a batch."""

from __future__ import annotations

import json

from bronze_sidecar.sinks.nats.batches import BatchConfirmation, reply_of
from scripted import record


def batch_of(*subjects: str) -> BatchConfirmation:
    records = [record(str(number), subject) for number, subject in enumerate(subjects)]
    return BatchConfirmation(7, reply_of("_INBOX.a", "b", 7), records)


def settle(confirmation: BatchConfirmation, number: int, **answer: object) -> None:
    confirmation.settle([b"7"], [b"%d" % number], [json.dumps(answer, separators=(",", ":")).encode()])


def test_all_is_stored() -> None:
    batch = batch_of("a", "b")
    settle(batch, 1, type="ack", seq=1, msgs=2)
    assert not batch.finished.is_set()
    settle(batch, 3, stream="S", seq=12, batch="x", count=2)
    assert batch.finished.is_set()
    assert (batch.stored, batch.is_in_log) == (2, True)


def test_a_refusal_beats_a_count_that_says_more() -> None:
    """What comes after a refused message was not stored, whatever the count."""
    batch = batch_of("a", "b", "c")
    error = {"code": 503, "err_code": 10077, "description": "maximum messages exceeded"}
    settle(batch, 2, type="err", seq=2, error=error)
    settle(batch, 4, stream="S", seq=12, batch="x", count=3)
    assert batch.stored == 1
    index, answer = batch.refused()
    assert (index, b"maximum messages exceeded" in answer) == (1, True)


def test_only_messages_that_the_server_knew_are_not_in_its_log() -> None:
    batch = batch_of("a")
    settle(batch, 2, stream="S", seq=0, batch="x", count=1)
    assert (batch.stored, batch.is_in_log) == (1, False)


def test_answers_of_another_window_mean_nothing() -> None:
    batch = batch_of("a")
    batch.settle([b"6"], [b"2"], [b'{"stream":"S","seq":3,"batch":"x","count":1}'])
    assert (batch.stored, batch.finished.is_set()) == (None, False)


def test_an_unknown_batch_means_that_its_first_message_is_missing() -> None:
    batch = batch_of("a", "b")
    error = {"code": 400, "err_code": 10208, "description": "batch publish ID unknown"}
    settle(batch, 2, error=error)
    assert batch.refused() == (0, b"")


def test_the_end_goes_to_a_subject_that_may_be_published_to() -> None:
    batch = batch_of("a", "b")
    assert batch.end_command() == b"PUB b _INBOX.a.b-7.500.fail.3.3.$FI 0\r\n\r\n"
    batch.forbid("b")
    assert batch.must_end_anew
    assert batch.end_command() == b"PUB a _INBOX.a.b-7.500.fail.3.3.$FI 0\r\n\r\n"
    batch.forbid("a")
    assert batch.end_command() == b""
