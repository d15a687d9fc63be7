"""The reader of Kinesis, on an emulator and without Spark."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator
from aws_servers import REGION, Call, Refusal, aws_client, fault_proxy, reach
from bronze_pipeline.sources.base import DataLoss
from bronze_pipeline.sources.kinesis import ends
from bronze_pipeline.sources.kinesis.aggregates import MAGIC, DamagedAggregateError, events_in
from bronze_pipeline.sources.kinesis.bus import KinesisBatchReader, KinesisStreamReader
from bronze_pipeline.sources.kinesis.calls import MOST_IN_CALL, ShardAnswer, ShardCalls
from bronze_pipeline.sources.kinesis.stream import KinesisStream, Shard
from bronze_pipeline.sources.options import OptionError
from bronze_sidecar.routing.route import Route
from configurations import backend_of
from contract.contract import records, trade
from pyspark.sql.streaming.datasource import ReadMaxRows
from servers import Endpoint
from source_readers import ALL, problems_of, rows, source_options, values

pytestmark = pytest.mark.usefixtures("aws_credentials")


@pytest.fixture
def client(aws_emulator: Endpoint) -> Iterator[Any]:
    connection = aws_client("kinesis", aws_emulator.url)
    yield connection
    connection.close()


@pytest.fixture
def stream(client: Any) -> str:
    """Return a new stream with one shard."""
    return create(client, 1)


def create(client: Any, shards: int) -> str:
    name = f"bronze-{uuid.uuid4().hex}"
    client.create_stream(StreamName=name, ShardCount=shards)
    client.get_waiter("stream_exists").wait(StreamName=name)
    return name


def options(server: Endpoint, stream: str, **more: str) -> dict[str, str]:
    return {"stream": stream, "endpointUrl": server.url, "region": REGION} | more


def reader(server: Endpoint, stream: str, **more: str) -> KinesisStreamReader:
    return KinesisStreamReader(KinesisStream(options(server, stream, **more)))


def put(client: Any, stream: str, *values: str) -> list[str]:
    answers = [client.put_record(StreamName=stream, Data=each.encode(), PartitionKey=each) for each in values]
    return [answer["SequenceNumber"] for answer in answers]


@pytest.mark.servers
def test_records_arrive_in_order_with_their_sequence_numbers(
    aws_emulator: Endpoint, client: Any, stream: str
) -> None:
    numbers = put(client, stream, "a", "b", "c")
    source = reader(aws_emulator, stream)
    start = source.initialOffset()
    assert start["shards"] == {"shardId-000000000000": ""}
    end = source.latestOffset(start, ALL)
    assert end == {**start, "shards": {"shardId-000000000000": numbers[2]}}
    assert rows(source, start, end) == [
        {
            "destination": stream,
            "bus_partition": "shardId-000000000000",
            "bus_position": numbers[place],
            "value": value,
            "loss": None,
            "receipt": None,
        }
        for place, value in enumerate([b"a", b"b", b"c"])
    ]
    assert source.latestOffset(end, ALL) == end
    assert source.partitions(end, end) == []


@pytest.mark.servers
def test_the_same_offsets_give_the_same_rows_to_another_run(
    aws_emulator: Endpoint, client: Any, stream: str
) -> None:
    put(client, stream, *"abcde")
    source = reader(aws_emulator, stream)
    offsets = [source.initialOffset()]
    for _ in range(3):
        offsets.append(source.latestOffset(offsets[-1], ReadMaxRows(2)))
    put(client, stream, "later")
    again = reader(aws_emulator, stream)
    assert [values(rows(again, *pair)) for pair in pairwise(offsets)] == [["a", "b"], ["c", "d"], ["e"]]
    going_on = again.latestOffset(offsets[-1], ALL)
    assert values(rows(again, offsets[-1], going_on)) == ["later"]


@pytest.mark.servers
def test_all_shards_are_read_within_the_limit(aws_emulator: Endpoint, client: Any) -> None:
    stream = create(client, 3)
    put(client, stream, *[f"{number:02d}" for number in range(60)])
    source = reader(aws_emulator, stream, maxRecordsPerBatch="30")
    assert source.getDefaultReadLimit() == ReadMaxRows(30)
    offset, found = source.initialOffset(), []
    while (end := source.latestOffset(offset, ReadMaxRows(30))) != offset:
        batch = rows(source, offset, end)
        assert 0 < len(batch) <= 30
        found += batch
        offset = end
    assert sorted(filter(None, values(found))) == [f"{number:02d}" for number in range(60)]
    assert {row["bus_partition"] for row in found} == set(offset["shards"])


@pytest.mark.servers
def test_the_driver_finds_the_end_without_reading_everything(
    aws_emulator: Endpoint, client: Any, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, stream, *[f"{number:03d}" for number in range(100)])
    monkeypatch.setattr(ends, "SAMPLE", 10)
    monkeypatch.setattr(ends, "TIP_MS", 5)
    read: list[int] = []
    call = ShardCalls.call

    def counted(self: ShardCalls, most_records: int = MOST_IN_CALL) -> ShardAnswer:
        answer = call(self, most_records)
        read.append(len(answer.records))
        return answer

    monkeypatch.setattr(ShardCalls, "call", counted)
    source = reader(aws_emulator, stream)
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    assert sum(read) < 60
    assert values(rows(source, start, end)) == [f"{number:03d}" for number in range(100)]
    assert source.latestOffset(end, ALL) == end


@pytest.mark.servers
def test_ends_that_are_found_by_time_leave_nothing_out(
    aws_emulator: Endpoint, client: Any, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, stream, *[f"{number:03d}" for number in range(100)])
    monkeypatch.setattr(ends, "SAMPLE", 5)
    source = reader(aws_emulator, stream)
    source.prepareForTriggerAvailableNow()
    offset, found, batches = source.initialOffset(), [], 0
    while (end := source.latestOffset(offset, ReadMaxRows(20))) != offset:
        found += rows(source, offset, end)
        offset, batches = end, batches + 1
    assert values(found) == [f"{number:03d}" for number in range(100)]
    assert batches > 1


@pytest.mark.servers
def test_the_end_of_a_closed_shard_is_found_by_time(
    aws_emulator: Endpoint, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = create(client, 2)
    for value in "abc":
        client.put_record(StreamName=stream, Data=value, PartitionKey=value, ExplicitHashKey="1")
    monkeypatch.setattr(ends, "SAMPLE", 1)
    source = KinesisStreamReader(Resharded(options(aws_emulator, stream)))
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    assert end["shards"] == {"shardId-000000000000": "end", "shardId-000000000001": ""}
    assert values(rows(source, start, end)) == ["a", "b", "c"]


# -- aggregated records


def aggregated(*values: bytes) -> bytes:
    """Return a record as Amazon's own library writes it."""
    aggregator = RecordAggregator()
    for place, value in enumerate(values):
        aggregator.add_user_record(f"key {place}", value)
    _, _, data = aggregator.clear_and_get().get_contents()
    return bytes(data)


@pytest.mark.servers
def test_each_event_of_an_aggregated_record_is_a_row(
    aws_emulator: Endpoint, client: Any, stream: str
) -> None:
    whole = aggregated(b"a", b"b", b"")
    records = [b"first", whole, whole[:-1] + b"?", whole[:10], b"last"]
    answers = [client.put_record(StreamName=stream, Data=each, PartitionKey="k") for each in records]
    numbers = [answer["SequenceNumber"] for answer in answers]
    found = rows(KinesisBatchReader(KinesisStream(options(aws_emulator, stream))))
    damaged = "the aggregated record is damaged: it has another digest"
    assert [(row["bus_position"], row["value"], row["loss"]) for row in found] == [
        (numbers[0], b"first", None),
        (f"{numbers[1]}.0", b"a", None),
        (f"{numbers[1]}.1", b"b", None),
        (f"{numbers[1]}.2", b"", None),
        (numbers[2], records[2], damaged),
        (numbers[3], records[3], damaged),
        (numbers[4], b"last", None),
    ]


def test_an_aggregated_record_of_something_else_is_damaged() -> None:
    body = b"\x1a\x05not it"
    with pytest.raises(DamagedAggregateError, match="it is no AggregatedRecord"):
        events_in(MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest())


@pytest.mark.servers
def test_each_event_that_the_sidecar_aggregated_is_a_row_with_its_id(
    aws_emulator: Endpoint, stream: str
) -> None:
    backend = backend_of(
        f"--kinesis-stream={stream}", "--kinesis-aggregation", *reach("kinesis", aws_emulator.url)
    )
    written = records(backend, [trade("K0", 0), trade("K1", 1), trade("K0", 2), trade("K0", 3)])

    async def write() -> None:
        async with backend.open(Route(backend.rules())) as sink:
            assert not await sink.write(written)

    asyncio.run(write())
    found = rows(KinesisBatchReader(KinesisStream(options(aws_emulator, stream))))
    assert [row["value"] for row in found] == [written[place].event.envelope for place in (0, 2, 3, 1)]
    assert len({row["bus_position"] for row in found}) == 4
    assert [row["bus_position"].partition(".")[2] for row in found] == ["0", "1", "2", ""]


class Resharded(KinesisStream):
    """A stream of two shards, the first of which is closed, and the parent of the second.

    The emulator forgets a shard that is split, with its records; AWS keeps both until they expire.
    """

    def shards(self, client: Any) -> dict[str, Shard]:
        parent, child = super().shards(client)
        return {child: Shard(child, (parent,), is_closed=False), parent: Shard(parent, (), is_closed=True)}


@pytest.mark.servers
def test_children_follow_when_their_parent_is_read_completely(aws_emulator: Endpoint, client: Any) -> None:
    stream = create(client, 2)
    # The shards have a half of the hash keys each.
    for value, key in [("a", 1), ("b", 2), ("c", 3), ("d", 1 << 127), ("e", (1 << 127) + 1)]:
        client.put_record(StreamName=stream, Data=value, PartitionKey=value, ExplicitHashKey=str(key))
    source = KinesisStreamReader(Resharded(options(aws_emulator, stream)))
    start = source.initialOffset()
    first = source.latestOffset(start, ReadMaxRows(2))
    assert values(rows(source, start, first)) == ["a", "b"]
    second = source.latestOffset(first, ALL)
    assert values(rows(source, first, second)) == ["c"]
    assert second["shards"] == {"shardId-000000000000": "end", "shardId-000000000001": ""}
    third = source.latestOffset(second, ALL)
    assert values(rows(source, second, third)) == ["d", "e"]
    again = KinesisStreamReader(Resharded(options(aws_emulator, stream)))
    assert values(rows(again, first, second)) == ["c"]
    assert values(rows(again, second, third)) == ["d", "e"]


@pytest.mark.servers
def test_shards_that_appear_are_read_from_their_beginning(
    aws_emulator: Endpoint, client: Any, stream: str
) -> None:
    source = reader(aws_emulator, stream, start="latest", onDataLoss="continue")
    start = source.initialOffset()
    half = str(1 << 127)
    client.split_shard(StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=half)
    client.get_waiter("stream_exists").wait(StreamName=stream)
    put(client, stream, *"abcd")
    end = source.latestOffset(start, ALL)
    assert set(end["shards"]) >= {"shardId-000000000001", "shardId-000000000002"}
    assert sorted(filter(None, values(rows(source, start, end)))) == list("abcd")


@pytest.mark.servers
def test_where_a_new_checkpoint_begins(aws_emulator: Endpoint, client: Any, stream: str) -> None:
    numbers = put(client, stream, "a", "b")
    time.sleep(0.01)

    def begins(start: str) -> list[str | None]:
        source = reader(aws_emulator, stream, start=start)
        offset = source.initialOffset()
        return values(rows(source, offset, source.latestOffset(offset, ALL)))

    assert begins("earliest") == ["a", "b"]
    assert begins("latest") == []
    assert begins("2020-01-01T00:00:00Z") == ["a", "b"]
    assert begins("2100-01-01T00:00:00Z") == []
    assert begins(f"shardId-000000000000:{numbers[0]}") == ["b"]


@pytest.mark.servers
def test_latest_does_not_move_until_something_was_read(
    aws_emulator: Endpoint, client: Any, stream: str
) -> None:
    put(client, stream, "old")
    time.sleep(0.01)
    start = reader(aws_emulator, stream, start="latest").initialOffset()
    put(client, stream, "new")
    source = reader(aws_emulator, stream, start="latest")
    assert values(rows(source, start, source.latestOffset(start, ALL))) == ["new"]


@pytest.mark.servers
def test_available_now_ends(aws_emulator: Endpoint, client: Any, stream: str) -> None:
    put(client, stream, *"abc")
    source = reader(aws_emulator, stream)
    source.prepareForTriggerAvailableNow()
    start = source.initialOffset()
    middle = source.latestOffset(start, ReadMaxRows(2))
    end = source.latestOffset(middle, ReadMaxRows(2))
    assert values(rows(source, middle, end)) == ["c"]
    put(client, stream, "later")
    assert source.latestOffset(end, ReadMaxRows(2)) == end


@pytest.mark.servers
def test_a_batch_reads_what_is_there(aws_emulator: Endpoint, client: Any, stream: str) -> None:
    put(client, stream, *"abc")
    assert values(rows(KinesisBatchReader(KinesisStream(options(aws_emulator, stream))))) == list("abc")


# -- loss


@pytest.mark.servers
def test_a_position_that_expired_is_a_loss(aws_emulator: Endpoint, client: Any, stream: str) -> None:
    numbers = put(client, stream, "b", "c")
    source = reader(aws_emulator, stream)
    # The record before the oldest, as if it had been read, and had expired since.
    before = str(int(numbers[0]) - 1).zfill(len(numbers[0]))
    start = {**source.initialOffset(), "shards": {"shardId-000000000000": before}}
    with pytest.raises(DataLoss, match=f"the record {before} of the shard shardId-000000000000 of {stream}"):
        source.latestOffset(start, ALL)
    going_on = reader(aws_emulator, stream, onDataLoss="continue")
    end = going_on.latestOffset(start, ALL)
    found = rows(going_on, start, end)
    assert values(found) == [None, "b", "c"]
    assert found[0]["loss"] == (
        f"the record {before} of the shard shardId-000000000000 of {stream} has expired;"
        " records after it may be lost"
    )


@pytest.mark.servers
@pytest.mark.parametrize("position", ["1", "end"])
def test_a_shard_that_is_no_more_is_a_loss_unless_it_was_read(
    aws_emulator: Endpoint, client: Any, stream: str, position: str
) -> None:
    put(client, stream, "a")
    start = reader(aws_emulator, stream).initialOffset()
    start["shards"]["shardId-000000000009"] = position
    source = reader(aws_emulator, stream, onDataLoss="continue")
    end = source.latestOffset(start, ALL)
    lost = [row["loss"] for row in rows(source, start, end) if row["loss"]]
    assert lost == ([] if position == "end" else [f"the shard shardId-000000000009 of {stream} is gone"])
    failing = reader(aws_emulator, stream)
    if position != "end":
        with pytest.raises(DataLoss, match="is gone, and it was read only up to '1'"):
            failing.partitions(start, end)


@pytest.mark.servers
def test_a_stream_created_anew_is_refused(aws_emulator: Endpoint, stream: str) -> None:
    source = reader(aws_emulator, stream)
    start = source.initialOffset()
    with pytest.raises(OptionError, match=f"the stream {stream} was recreated"):
        source.latestOffset({**start, "created": "2020-01-01T00:00:00+00:00"}, ALL)
    with pytest.raises(OptionError, match="the checkpoint belongs to the stream 'other'"):
        source.latestOffset({**start, "stream": "other"}, ALL)


# -- faults


@pytest.mark.servers
async def test_throttling_and_expired_iterators_are_overcome(
    aws_emulator: Endpoint, client: Any, stream: str
) -> None:
    put(client, stream, *"abcdef")
    refusals = [Refusal("ExpiredIteratorException"), Refusal("ProvisionedThroughputExceededException")]

    def judge(call: Call) -> Refusal | None:
        return refusals.pop() if call.operation == "GetRecords" and refusals else None

    async with fault_proxy(aws_emulator.url) as proxy:
        proxy.judge = judge
        source = KinesisStreamReader(
            KinesisStream({"stream": stream, "endpointUrl": proxy.url, "region": REGION})
        )

        def read() -> list[str | None]:
            start = source.initialOffset()
            middle = source.latestOffset(start, ReadMaxRows(3))
            found = rows(source, start, middle)
            refusals.append(Refusal("ExpiredIteratorException"))
            end = source.latestOffset(middle, ALL)
            return values(found + rows(source, middle, end))

        assert await asyncio.to_thread(read) == list("abcdef")
    assert refusals == []


# -- options


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "bronze.kinesis: stream: is missing"),
        (
            {"stream": "s", "start": "first"},
            "start: 'first' is not a valid start. Use earliest, latest, a",
        ),
        ({"stream": "s", "start": "2026-01-31T12:00:00"}, "a time such as 2026-01-31T12:00:00Z"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        KinesisStream(given)


def test_the_command_line_becomes_options() -> None:
    flags = ("--kinesis-profile", "me", "--kinesis-endpoint-url", "http://localhost:1")
    assert source_options("kinesis://Bronze?region=eu-west-1", *flags) == {
        "stream": "Bronze",
        "region": "eu-west-1",
        "profile": "me",
        "endpointUrl": "http://localhost:1",
    }


@pytest.mark.parametrize("url", ["kinesis://", "kinesis://a/b", "kinesis://a?zone=b", "kinesis://key:x@a"])
def test_a_wrong_url_is_refused(url: str) -> None:
    assert "--from: does not name the stream. Write kinesis://stream" in problems_of(url)
