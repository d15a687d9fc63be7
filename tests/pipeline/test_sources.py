"""What sources share, and what NATS sends, without a server."""

from __future__ import annotations

import pytest
from bronze_pipeline.sources.base import split
from bronze_pipeline.sources.nats.connection import DeliveringTransport
from bronze_pipeline.sources.nats.stream import NatsOptions
from bronze_pipeline.sources.options import OptionError, read_options


def test_a_range_is_split_without_gaps() -> None:
    assert split(1, 30_001, 3) == [(1, 10_001), (10_001, 20_001), (20_001, 30_001)]
    assert split(5, 100_006, 2) == [(5, 50_005), (50_005, 100_006)]


def test_a_short_range_is_not_worth_several_tasks() -> None:
    assert split(1, 10_001, 8) == [(1, 10_001)]
    assert split(7, 8, 8) == [(7, 8)]
    assert split(7, 7, 8) == []


def test_options_say_everything_that_is_wrong_at_once() -> None:
    given = {"maxrecordsperbatch": "-1", "onDataLoss": "ignore", "servers": "nats://a"}
    with pytest.raises(OptionError) as caught:
        read_options(NatsOptions, "bronze.x", given)
    assert str(caught.value).split("; ") == [
        "bronze.x: maxRecordsPerBatch: -1 is out of range. It must be a whole number from 1 to 1000000000.",
        "bronze.x: onDataLoss: 'ignore' is not one of the choices. Choose from fail, continue.",
        "bronze.x: stream: is missing.",
    ]


def test_options_are_read_in_any_case_and_others_are_left_alone() -> None:
    given = {
        "SERVERS": "nats://a,nats://b",
        "stream": "S",
        "maxrecordsperbatch": "7",
        "path": "x",
        "user": "",
    }
    options = read_options(NatsOptions, "bronze.x", given)
    assert (options.servers, options.stream, options.max_records_per_batch, options.user) == (
        ("nats://a", "nats://b"),
        "S",
        7,
        None,
    )


MESSAGES = (
    b"PING\r\n"
    b"HMSG s.a bronze $JS.ACK.S.c.1.41.1.1700000000.3 12 15\r\nNATS/1.0\r\n\r\nabc\r\n"
    b"MSG s.b bronze $JS.ACK._.hash.S.c.1.42.2.1700000000.2.rnd 4\r\nx\r\ny\r\n"
    b"MSG _INBOX.other 1 2\r\nhi\r\n"
    b"HMSG in.1 bronze 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n"
    b"+OK\r\n"
)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
async def test_our_messages_are_taken_out_and_the_rest_is_the_librarys(size: int) -> None:
    transport = DeliveringTransport()
    transport.expect(5, b"in.1")
    pieces = [MESSAGES[start : start + size] for start in range(0, len(MESSAGES), size)]
    rest = b""
    for piece in pieces:
        rest += transport.take(piece)
    assert rest == b"PING\r\nMSG _INBOX.other 1 2\r\nhi\r\n+OK\r\n"
    found = await transport.delivery()
    assert found.subjects == ["s.a", "s.b"]
    assert found.sequences == [41, 42]
    assert found.values == [b"abc", b"x\r\ny"]
    assert found.status == b"404 No Messages"


async def test_the_end_of_an_earlier_request_is_not_that_of_this_one() -> None:
    transport = DeliveringTransport()
    transport.expect(1, b"in.2")
    transport.take(b"HMSG in.1 bronze 32 32\r\nNATS/1.0 409 Batch Completed\r\n\r\n\r\n")
    transport.take(b"MSG s.a bronze $JS.ACK.S.c.1.7.1.1700000000.9 1\r\nz\r\n")
    found = await transport.delivery()
    assert (found.sequences, found.left, found.status) == ([7], 9, b"")
