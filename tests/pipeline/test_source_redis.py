"""The reader of Redis Streams, on a real server and without Spark."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import redis
from bronze_buses.errors import Refused
from bronze_pipeline.sources.base import DataLoss
from bronze_pipeline.sources.options import OptionError
from bronze_pipeline.sources.redis.bus import RedisBatchReader, RedisBus, RedisStreamReader
from bronze_pipeline.sources.redis.streams import Streams
from pyspark.sql.streaming.datasource import ReadMaxRows
from servers import Certificates, Endpoint, RedisCluster, RedisServer, tls_proxy
from source_readers import ALL, problems_of, rows, rows_from_the_start, source_options, values


@pytest.fixture
def client(redis_server: Endpoint) -> Iterator[Any]:
    connection = redis.Redis(host=redis_server.host, port=redis_server.port)
    yield connection
    connection.close()


@pytest.fixture
def key() -> str:
    return f"bronze:{uuid.uuid4().hex}"


def reader(server: Endpoint | RedisServer, keys: str, **options: str) -> RedisStreamReader:
    return RedisStreamReader(Streams({"url": server.url, "keys": keys} | options))


def add(client: Any, key: str, *values: str, at: int | None = None) -> list[str]:
    """Add entries as the sidecar does; `at` gives the first its time, each other one millisecond more."""
    ids = []
    for place, value in enumerate(values):
        entry = f"{at + place}-0" if at is not None else "*"
        fields = {"data": value.encode(), "eventId": "s:1", "payloadCase": "trade"}
        ids.append(client.xadd(key, fields, id=entry).decode())
    return ids


def losses(found: list[dict[str, Any]]) -> list[str]:
    return [row["loss"] for row in found if row["loss"]]


# -- reading


@pytest.mark.servers
def test_entries_arrive_in_order_with_their_ids(redis_server: Endpoint, client: Any, key: str) -> None:
    ids = add(client, key, "a", "b", "c")
    stream = reader(redis_server, key)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert end == {"keys": {key: {"id": ids[2], "added": 3}}}
    assert rows(stream, start, end) == [
        {
            "destination": key,
            "bus_partition": key,
            "bus_position": ids[place],
            "value": value,
            "loss": None,
            "receipt": None,
        }
        for place, value in enumerate([b"a", b"b", b"c"])
    ]
    assert stream.latestOffset(end, ALL) == end
    assert stream.partitions(end, end) == []


@pytest.mark.servers
def test_the_envelope_is_found_by_its_field(redis_server: Endpoint, client: Any, key: str) -> None:
    client.xadd(key, {"eventId": "s:1", "data": "a"})
    client.xadd(key, {"other": "b"})
    stream = reader(redis_server, key)
    assert values(rows_from_the_start(stream)) == ["a", None]


@pytest.mark.servers
def test_a_limit_cuts_exactly_and_the_same_offsets_give_the_same_rows(
    redis_server: Endpoint, client: Any, key: str
) -> None:
    add(client, key, *"abcdefg")
    stream = reader(redis_server, key, maxRecordsPerBatch="3")
    assert stream.getDefaultReadLimit() == ReadMaxRows(3)
    offsets = [stream.initialOffset()]
    for _ in range(4):
        offsets.append(stream.latestOffset(offsets[-1], ReadMaxRows(3)))
    again = reader(redis_server, key)
    add(client, key, "later")
    found = [values(rows(again, *pair)) for pair in pairwise(offsets)]
    assert found == [list("abc"), list("def"), ["g"], []]


@pytest.mark.servers
def test_a_limit_is_shared_among_streams(redis_server: Endpoint, client: Any, key: str) -> None:
    add(client, f"{key}:1", "a")
    add(client, f"{key}:2", *"bcdefgh")
    add(client, f"{key}:3", *"ijklmno")
    stream = reader(redis_server, f"{key}:*")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(7))
    assert sorted(filter(None, values(rows(stream, start, end)))) == list("abcdijk")


@pytest.mark.servers
def test_a_large_limit_is_met_about(redis_server: Endpoint, client: Any, key: str) -> None:
    pipeline = client.pipeline(transaction=False)
    # Twenty in a millisecond, and from the middle on four.
    times = [place // 20 for place in range(30_000)] + [1_500 + place // 4 for place in range(30_000)]
    for place, ms in enumerate(times):
        pipeline.xadd(key, {"data": b"x"}, id=f"{1_000_000 + ms}-{place}")
    pipeline.execute()
    stream = reader(redis_server, key)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(40_000))
    count = len(rows(stream, start, end))
    assert 32_000 < count < 48_000
    rest = stream.latestOffset(end, ALL)
    assert len(rows(stream, end, rest)) == 60_000 - count


@pytest.mark.servers
def test_a_long_range_is_divided_among_tasks(redis_server: Endpoint, client: Any, key: str) -> None:
    pipeline = client.pipeline(transaction=False)
    for place in range(25_000):
        pipeline.xadd(key, {"data": str(place)}, id=f"{1_000 + place // 10}-{place % 10}")
    pipeline.execute()
    stream = reader(redis_server, key, partitions="3")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    parts = [
        [value for batch in stream.read(part) for value in values(batch.to_pylist())]
        for part in stream.partitions(start, end)
    ]
    assert [len(part) for part in parts] == [8_330, 8_330, 8_340]
    assert [value for part in parts for value in part] == [str(place) for place in range(25_000)]


@pytest.mark.servers
def test_streams_that_appear_are_read_from_their_beginning(
    redis_server: Endpoint, client: Any, key: str
) -> None:
    add(client, f"{key}:1", "a")
    client.set(f"{key}:text", "no stream")
    stream = reader(redis_server, f"{key}:*,{key}-named", start="latest")
    start = stream.initialOffset()
    add(client, f"{key}:2", "b")
    add(client, f"{key}-named", "c")
    end = stream.latestOffset(start, ALL)
    assert sorted(filter(None, values(rows(stream, start, end)))) == ["b", "c"]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("position", "expected"),
    [("earliest", "abc"), ("latest", ""), ("1001", "bc"), ("1001-0", "bc"), ("1001-1", "c"), ("0", "abc")],
)
def test_where_a_new_checkpoint_begins(
    redis_server: Endpoint, client: Any, key: str, position: str, expected: str
) -> None:
    add(client, key, "a", "b", "c", at=1000)
    stream = reader(redis_server, key, start=position)
    assert values(rows_from_the_start(stream)) == list(expected)


@pytest.mark.servers
def test_available_now_ends_where_the_streams_ended(redis_server: Endpoint, client: Any, key: str) -> None:
    add(client, key, *"abc")
    stream = reader(redis_server, f"{key}*")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    add(client, key, "later")
    add(client, f"{key}:new", "later")
    middle = stream.latestOffset(start, ReadMaxRows(2))
    end = stream.latestOffset(middle, ReadMaxRows(2))
    assert values(rows(stream, start, middle)) == ["a", "b"]
    assert values(rows(stream, middle, end)) == ["c"]
    assert stream.latestOffset(end, ReadMaxRows(2)) == end


@pytest.mark.servers
def test_a_batch_reads_what_is_there(redis_server: Endpoint, client: Any, key: str) -> None:
    add(client, key, *"abc")
    batch = RedisBatchReader(Streams({"url": redis_server.url, "keys": key}))
    assert values(rows(batch)) == list("abc")


# -- loss


@pytest.mark.servers
def test_entries_trimmed_before_they_were_read_are_counted(
    redis_server: Endpoint, client: Any, key: str
) -> None:
    ids = add(client, key, *"abcdefgh")
    stream = reader(redis_server, key)
    start = stream.latestOffset(stream.initialOffset(), ReadMaxRows(2))
    client.xtrim(key, minid=ids[5], approximate=False)
    end = stream.latestOffset(start, ALL)
    expected = f"3 entries of the stream {key} after {ids[1]} were trimmed"
    with pytest.raises(DataLoss, match=expected):
        stream.partitions(start, end)
    going_on = reader(redis_server, key, onDataLoss="continue")
    found = rows(going_on, start, end)
    assert losses(found) == [expected]
    assert values(found) == [None, "f", "g", "h"]


@pytest.mark.servers
def test_trimming_what_was_read_is_no_loss(redis_server: Endpoint, client: Any, key: str) -> None:
    add(client, key, *"abcd")
    stream = reader(redis_server, key)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    added = add(client, key, "e", "f")
    client.xtrim(key, minid=added[0], approximate=False)
    assert values(rows(stream, start, stream.latestOffset(start, ALL))) == ["e", "f"]
    client.xtrim(key, maxlen=0, approximate=False)
    end = stream.latestOffset(start, ALL)
    with pytest.raises(DataLoss, match="2 entries"):
        stream.partitions(start, end)


@pytest.mark.servers
def test_what_was_trimmed_before_the_job_began_is_no_loss(
    redis_server: Endpoint, client: Any, key: str
) -> None:
    ids = add(client, key, *"abcd")
    client.xtrim(key, minid=ids[2], approximate=False)
    stream = reader(redis_server, key)
    assert values(rows_from_the_start(stream)) == ["c", "d"]


@pytest.mark.servers
def test_entries_deleted_singly_are_a_loss(redis_server: Endpoint, client: Any, key: str) -> None:
    ids = add(client, key, *"abcd")
    stream = reader(redis_server, key, onDataLoss="continue")
    start = stream.latestOffset(stream.initialOffset(), ReadMaxRows(1))
    client.xdel(key, ids[2])
    found = rows(stream, start, stream.latestOffset(start, ALL))
    assert losses(found) == [f"entries of the stream {key} after {ids[0]} and up to {ids[2]} were deleted"]
    assert values(found) == [None, "b", "d"]


@pytest.mark.servers
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_stream_that_was_deleted_is_a_loss(
    redis_server: Endpoint, client: Any, key: str, comes_back: bool
) -> None:
    ids = add(client, key, *"abc")
    stream = reader(redis_server, key)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    client.delete(key)
    if comes_back:
        add(client, key, "new")
    end = stream.latestOffset(start, ALL)
    expected = (
        f"the stream {key} was deleted{' and recreated' if comes_back else ''}; entries after {ids[2]} may"
    )
    with pytest.raises(DataLoss, match=expected):
        stream.partitions(start, end)
    going_on = reader(redis_server, key, onDataLoss="continue")
    assert values(rows(going_on, start, end)) == ([None, "new"] if comes_back else [None])
    assert going_on.latestOffset(end, ALL) == end


@pytest.mark.servers
def test_entries_trimmed_while_they_are_read_are_a_loss(
    redis_server: Endpoint, client: Any, key: str
) -> None:
    ids = add(client, key, *"abcd")
    stream = reader(redis_server, key, onDataLoss="continue")
    start = stream.initialOffset()
    (part,) = stream.partitions(start, stream.latestOffset(start, ALL))
    client.xtrim(key, minid=ids[2], approximate=False)
    found = [row for batch in stream.read(part) for row in batch.to_pylist()]
    assert losses(found) == [f"entries of the stream {key} from {ids[0]} on were removed while being read"]
    assert values(found) == [None, "c", "d"]
    with pytest.raises(DataLoss):
        list(reader(redis_server, key).read(part))


@pytest.mark.servers
def test_a_stream_no_longer_asked_for_keeps_its_place(redis_server: Endpoint, client: Any, key: str) -> None:
    add(client, f"{key}:1", "a")
    add(client, f"{key}:2", "b")
    both = reader(redis_server, f"{key}:?")
    start = both.latestOffset(both.initialOffset(), ALL)
    add(client, f"{key}:1", "c")
    add(client, f"{key}:2", "d")
    end = reader(redis_server, f"{key}:[2-3]").latestOffset(start, ALL)
    assert values(rows(both, start, end)) == ["d"]
    assert values(rows(both, end, both.latestOffset(end, ALL))) == ["c"]


# -- access


@pytest.mark.servers
async def test_user_password_and_tls(
    start_redis: Callable[..., RedisServer], certificates: Certificates, tmp_path: Path
) -> None:
    rights = ("on", ">correct-horse", "~*", "+@connection", "+xinfo", "+xrange", "+scan")
    server = start_redis("--user", "reader", *rights)
    with redis.Redis(port=server.port) as client:
        add(client, "bronze", "a")
    password = tmp_path / "password"
    password.write_text("correct-horse\n")
    async with tls_proxy(server.port, certificates.server_context(ask_clients=True)) as port:
        options = {
            "url": f"rediss://127.0.0.1:{port}",
            "keys": "bronze*",
            "username": "reader",
            "passwordFile": str(password),
            "tlsCaFile": str(certificates.ca_file),
            "tlsCertFile": str(certificates.client_cert_file),
            "tlsKeyFile": str(certificates.client_key_file),
        }

        def read() -> list[str | None]:
            stream = RedisStreamReader(Streams(options))
            return values(rows_from_the_start(stream))

        assert await asyncio.to_thread(read) == ["a"]
        options["tlsCaFile"] = str(certificates.other_ca_file)
        with pytest.raises(Refused, match="certificate"):
            await asyncio.to_thread(read)


@pytest.mark.servers
def test_a_cluster(start_redis_cluster: Callable[..., RedisCluster]) -> None:
    cluster = start_redis_cluster()
    client = redis.RedisCluster.from_url(cluster.url)
    for place in range(20):
        add(client, f"bronze:{place}", f"{place:02d}")
    client.close()
    stream = RedisStreamReader(Streams({"url": cluster.url, "keys": "bronze:*", "cluster": "true"}))
    found = rows_from_the_start(stream)
    assert sorted(filter(None, values(found))) == [f"{place:02d}" for place in range(20)]


# -- options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"keys": ""}, "bronze.redis: keys: is missing"),
        ({"start": "first"}, "start: 'first' is not a valid start. Use earliest, latest or an entry id"),
        (
            {"url": "redis://me:secret@host"},
            "url: is invalid; it is not shown because it may hold credentials",
        ),
        ({"url": "http://host"}, "url: is not a server URL. It looks like redis://host:6379/0"),
        ({"url": "redis://host:port"}, "url: has no valid port"),
        ({"url": "redis://host/3", "cluster": "true"}, "a cluster has only 0"),
        (
            {"onDataLoss": "ignore"},
            "onDataLoss: 'ignore' is not one of the choices. Choose from fail, continue.",
        ),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as caught:
        Streams({"url": "redis://host", "keys": "bronze"} | options)
    assert "secret" not in str(caught.value)


def test_the_command_line_becomes_options(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch()
    flags = ("--redis-username", "me", "--redis-password-file", str(file), "--redis-tls-ca-file", str(file))
    assert source_options("rediss://host:7000/2?keys=bronze:*,control", *flags, "--redis-cluster=false") == {
        "url": "rediss://host:7000/2",
        "keys": "bronze:*,control",
        "username": "me",
        "passwordFile": str(file),
        "tlsCaFile": str(file),
        "cluster": "false",
    }


@pytest.mark.parametrize(
    ("url", "arguments", "problem"),
    [
        (
            "redis://host",
            (),
            "--from: does not name the server and the keys. Write redis://host:6379/0?keys=",
        ),
        ("redis://me:secret@host?keys=a", (), "--from: holds credentials. Use --redis-username and"),
        ("redis://host?keys=a&other=b", (), "--from: does not name the server and the keys"),
        (
            "redis://host?keys=a",
            ("--redis-tls-key-file", __file__),
            "--redis-tls-key-file: has no effect on its own. Add --redis-tls-cert-file.",
        ),
    ],
)
def test_a_wrong_command_line_is_named(url: str, arguments: tuple[str, ...], problem: str) -> None:
    said = problems_of(url, *arguments)
    assert problem in said
    assert "secret" not in said


def test_lag_counts_entries_not_read() -> None:
    latest = {"keys": {"a": {"id": "9-0", "added": 12}, "new": {"id": "9-0", "added": 3}}}
    assert RedisBus().lag({"keys": {"a": {"id": "7-0", "added": 10}}}, latest) == 5
    assert RedisBus().lag({"keys": {"a": {"id": "7-0", "added": -1}}}, latest) is None
