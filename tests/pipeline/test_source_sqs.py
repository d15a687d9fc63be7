"""The reader of SQS, on an emulator and without Spark."""

from __future__ import annotations

import asyncio
import uuid
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from aws_servers import REGION, aws_client, fault_proxy
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.sources.sqs.bus import SqsQueue, SqsStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows
from servers import Endpoint
from source_readers import ALL, problems_of, rows, rows_from_the_start, source_options, values

pytestmark = pytest.mark.usefixtures("aws_credentials")


@pytest.fixture
def client(aws_emulator: Endpoint) -> Iterator[Any]:
    connection = aws_client("sqs", aws_emulator.url)
    yield connection
    connection.close()


@pytest.fixture
def queue(client: Any) -> str:
    """Return the name of a new standard queue."""
    return create(client)


def create(client: Any, *, fifo: bool = False) -> str:
    name = f"bronze-{uuid.uuid4().hex}{'.fifo' if fifo else ''}"
    client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if fifo else {})
    return name


def options(server: Endpoint, queue: str, **more: str) -> dict[str, str]:
    return {"queue": queue, "endpointUrl": server.url, "region": REGION} | more


def reader(server: Endpoint, queue: str, **more: str) -> SqsStreamReader:
    return SqsStreamReader(SqsQueue(options(server, queue, **more)))


def send(client: Any, queue: str, *values: str) -> list[str]:
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    bodies = [b64encode(value.encode()).decode() for value in values]
    return [client.send_message(QueueUrl=url, MessageBody=body)["MessageId"] for body in bodies]


def send_fifo(client: Any, queue: str, group: str, values: Sequence[str]) -> None:
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    for value in values:
        body = b64encode(value.encode()).decode()
        client.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=value
        )


def left(client: Any, queue: str) -> int:
    """Return how many messages a queue has, hidden ones included."""
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[name]) for name in names)


@pytest.mark.servers
def test_messages_arrive_with_their_ids_and_receipts(aws_emulator: Endpoint, client: Any, queue: str) -> None:
    ids = send(client, queue, "a", "b", "c")
    source = reader(aws_emulator, queue)
    start = source.initialOffset()
    assert start == {"queue": queue, "received": 0}
    end = source.latestOffset(start, ALL)
    assert end == {"queue": queue, "received": 3}
    found = sorted(rows(source, start, end), key=lambda row: row["value"])
    assert [(row["destination"], row["bus_position"], row["value"], row["loss"]) for row in found] == [
        (queue, ids[0], b"a", None),
        (queue, ids[1], b"b", None),
        (queue, ids[2], b"c", None),
    ]
    assert len({row["receipt"] for row in found}) == 3
    # A task that is tried again gets the same messages.
    assert sorted(rows(source, start, end), key=lambda row: row["value"]) == found
    assert source.latestOffset(end, ALL) == end


@pytest.mark.servers
def test_messages_are_there_until_they_are_settled(aws_emulator: Endpoint, client: Any, queue: str) -> None:
    send(client, queue, *[f"{number:02d}" for number in range(25)])
    source = reader(aws_emulator, queue)
    found = rows_from_the_start(source)
    assert sorted(filter(None, values(found))) == [f"{number:02d}" for number in range(25)]
    source.commit({"queue": queue, "received": 25})
    assert left(client, queue) == 25
    assert SqsQueue(options(aws_emulator, queue)).delete([row["receipt"] for row in found]) == 0
    assert left(client, queue) == 0


@pytest.mark.servers
async def test_what_cannot_be_deleted_is_counted(aws_emulator: Endpoint, client: Any, queue: str) -> None:
    send(client, queue, "a", "b")
    async with fault_proxy(aws_emulator.url) as proxy:
        proxy.refuses = lambda entry: entry["Id"] == "1"
        given = options(aws_emulator, queue, endpointUrl=proxy.url)

        def read_and_delete() -> int:
            found = rows_from_the_start(SqsStreamReader(SqsQueue(given)))
            return SqsQueue(given).delete([row["receipt"] for row in found])

        assert await asyncio.to_thread(read_and_delete) == 1
    assert left(client, queue) == 1


@pytest.mark.servers
def test_messages_that_were_not_stored_come_again(aws_emulator: Endpoint, client: Any, queue: str) -> None:
    send(client, queue, "a")
    first = reader(aws_emulator, queue, visibilitySeconds="1")
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    # Another run, after a crash: the batch of the checkpoint is empty, and the message comes in a later one.
    again = reader(aws_emulator, queue)
    assert again.partitions(start, end) == []
    later = end
    while later == end:
        later = again.latestOffset(end, ALL)
    assert values(rows(again, end, later)) == ["a"]
    assert later == {"queue": queue, "received": 2}


@pytest.mark.servers
def test_a_limit_is_kept(aws_emulator: Endpoint, client: Any, queue: str) -> None:
    send(client, queue, *[str(number) for number in range(45)])
    source = reader(aws_emulator, queue, maxRecordsPerBatch="20")
    assert source.getDefaultReadLimit() == ReadMaxRows(20)
    counts = [0]
    offset = source.initialOffset()
    while (end := source.latestOffset(offset, ReadMaxRows(20))) != offset:
        offset = end
        counts.append(end["received"])
    assert all(later - earlier <= 20 for earlier, later in pairwise(counts))
    assert counts[-1] == 45


@pytest.mark.servers
def test_a_fifo_queue_keeps_the_order_of_groups(aws_emulator: Endpoint, client: Any) -> None:
    queue = create(client, fifo=True)
    send_fifo(client, queue, "g1", [f"x{number:02d}" for number in range(12)])
    send_fifo(client, queue, "g2", ["y0", "y1"])
    source = reader(aws_emulator, queue)
    source.prepareForTriggerAvailableNow()
    by_group: dict[str, list[str]] = {"g1": [], "g2": []}
    positions: list[int] = []
    offset = source.initialOffset()
    while (end := source.latestOffset(offset, ALL)) != offset:
        found = rows(source, offset, end)
        for row in found:
            by_group[row["bus_partition"]].append(row["value"].decode())
            positions.append(int(row["bus_position"]))
        assert SqsQueue(options(aws_emulator, queue)).delete([row["receipt"] for row in found]) == 0
        offset = end
    assert by_group == {"g1": [f"x{number:02d}" for number in range(12)], "g2": ["y0", "y1"]}
    assert len(set(positions)) == 14
    assert left(client, queue) == 0


@pytest.mark.servers
def test_available_now_ends_while_messages_keep_coming(
    aws_emulator: Endpoint, client: Any, queue: str
) -> None:
    send(client, queue, "a")
    source = reader(aws_emulator, queue)
    source.prepareForTriggerAvailableNow()
    # As if the queue's clock were past the moment of the trigger from here on.
    offset, batches = source.initialOffset(), 0
    while (end := source.latestOffset(offset, ALL)) != offset:
        offset, batches = end, batches + 1
        source._until_ms = 0.0
        send(client, queue, f"later {batches}")
        assert batches < 5
    assert batches == 2


@pytest.mark.servers
def test_a_body_that_is_no_base64_is_kept_as_it_is(aws_emulator: Endpoint, client: Any, queue: str) -> None:
    client.send_message(QueueUrl=client.get_queue_url(QueueName=queue)["QueueUrl"], MessageBody="{no base64}")
    source = reader(aws_emulator, queue)
    assert values(rows_from_the_start(source)) == ["{no base64}"]


@pytest.mark.servers
def test_another_queue_needs_another_checkpoint(aws_emulator: Endpoint, queue: str) -> None:
    with pytest.raises(OptionError, match="the checkpoint belongs to the queue 'other'"):
        reader(aws_emulator, queue).latestOffset({"queue": "other", "received": 1}, ALL)


# -- options


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "bronze.sqs: queue: is missing"),
        ({"queue": "q", "start": "latest"}, "start: must be earliest: a queue has no other place"),
        ({"queue": "q", "visibilitySeconds": "0"}, "visibilitySeconds: 0 is out of range"),
        (
            {"queue": "q", "visibilitySeconds": "43201"},
            "visibilitySeconds: 43201 is out of range. It must be a whole number from 1 to 43200",
        ),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        SqsQueue(given)


@pytest.mark.parametrize(
    ("url", "arguments", "expected"),
    [
        ("sqs://bronze.fifo?region=eu-west-1", (), {"queue": "bronze.fifo", "region": "eu-west-1"}),
        (
            "sqs://sqs.eu-west-1.amazonaws.com/123456789012/bronze",
            ("--sqs-visibility-seconds", "60", "--sqs-region", "eu-west-1"),
            {
                "queue": "https://sqs.eu-west-1.amazonaws.com/123456789012/bronze",
                "region": "eu-west-1",
                "visibilitySeconds": "60",
            },
        ),
    ],
)
def test_the_command_line_becomes_options(
    url: str, arguments: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert source_options(url, *arguments) == expected


@pytest.mark.parametrize("url", ["sqs://", "sqs://a?zone=b", "sqs://key:secret@a"])
def test_a_wrong_url_is_refused(url: str) -> None:
    assert "--from: does not name the queue. Write sqs://queue" in problems_of(url)
