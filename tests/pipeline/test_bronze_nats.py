"""From JetStream to the bronze tables, with a real server, a real sidecar and real Spark."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import nats
import pytest
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.decoding.schema import PAYLOADS
from bronze_pipeline.tables.lake import FORMATS
from pipeline_jobs import publish, rows, run
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from servers import Certificates, NatsServer
from sidecar_process import PROGRAM, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]

AT = '"timestamp":"2024-01-01T00:00:00.000Z","localTimestamp":"2024-01-01T00:00:00.000123Z"'
EVENT_TS = datetime(2024, 1, 1, tzinfo=UTC)

MESSAGES = f"""\
{{"type":"trade","symbol":"BTC/USD","exchange":"ftx","id":"17","price":9469.10,"amount":5e-8,"side":"sell",{AT}}}
{{"type":"book_change","symbol":"A","exchange":"x","isSnapshot":true,"bids":[{{"price":1,"amount":0}}],"asks":[{{"price":2.50,"amount":3}}],{AT}}}
{{"type":"book_snapshot","symbol":"A","exchange":"x","name":"book_snapshot_2_100ms","depth":2,"interval":100,"bids":[{{"price":1,"amount":2}}],"asks":[{{"price":3,"amount":4}},{{}}],{AT}}}
{{"type":"grouped_book_snapshot","symbol":"A","exchange":"x","name":"g","depth":1,"interval":0,"grouping":10,"bids":[{{"price":1,"amount":2}}],"asks":[],{AT}}}
{{"type":"quote","symbol":"A","exchange":"x","bidPrice":1.5,"bidAmount":2,"askPrice":3,{AT}}}
{{"type":"derivative_ticker","symbol":"A","exchange":"x","markPrice":7.25,"indexPrice":7,"fundingRate":-0.0001,{AT}}}
{{"type":"liquidation","symbol":"A","exchange":"x","id":"o1","price":5,"amount":6,"side":"buy",{AT}}}
{{"type":"option_summary","symbol":"A","exchange":"x","markIV":0.5,"delta":0.1,"gamma":0.2,"theta":-0.3,"vega":0.4,"openInterest":12,{AT}}}
{{"type":"book_ticker","symbol":"A","exchange":"x","bidPrice":1,"bidAmount":2,"askPrice":3,"askAmount":4,{AT}}}
{{"type":"trade_bar","symbol":"A","exchange":"x","name":"trade_bar_1m","kind":"time","interval":60000,"open":1,"high":4,"low":0.5,"close":2,"volume":100.10,"trades":7,"openTimestamp":"2024-01-01T00:00:00.000Z","closeTimestamp":"2024-01-01T00:00:59.999Z",{AT}}}
{{"type":"error","exchange":"x","details":"boom","subSequentErrorsCount":2,"localTimestamp":"2024-01-01T00:00:00.000123Z"}}
{{"type":"disconnect","exchange":"x","symbols":["A","B"],"localTimestamp":"2024-01-01T00:00:00.000123Z"}}
"""

# Payload column, event id, and the payload, by hand; in the order of the messages.
LEVELS = {"bids": [{"price_str": "1", "qty_str": "2"}], "event_ts": EVENT_TS, "sequence": 0}
PRICES = {"event_ts": EVENT_TS, "sequence": 0}
EXPECTED: list[tuple[str, str, dict[str, Any]]] = [
    (
        "trade",
        "r:0",
        {"trade_id": "17", "price_str": "9469.10", "qty_str": "5e-8", "side": "SIDE_SELL", **PRICES},
    ),
    (
        "book_change",
        "r:1.0",
        {
            "side": "SIDE_BUY",
            "action": "ACTION_DELETE",
            "price_str": "1",
            "qty_str": "0",
            "level": 0,
            **PRICES,
        },
    ),
    (
        "book_change",
        "r:1.1",
        {
            "side": "SIDE_SELL",
            "action": "ACTION_UPSERT",
            "price_str": "2.50",
            "qty_str": "3",
            "level": 0,
            **PRICES,
        },
    ),
    (
        "book_snapshot",
        "r:2",
        {
            "depth": 2,
            "asks": [{"price_str": "3", "qty_str": "4"}, {"price_str": "", "qty_str": ""}],
            "grouping": 0,
            "interval_ms": 100,
            "remove_crossed_levels": True,
            **LEVELS,
        },
    ),
    (
        "grouped_book_snapshot",
        "r:3",
        {"depth": 1, "asks": [], "grouping": 10, "interval_ms": 0, "remove_crossed_levels": True, **LEVELS},
    ),
    (
        "quote",
        "r:4",
        {
            "bid_price_str": "1.5",
            "bid_qty_str": "2",
            "ask_price_str": "3",
            "ask_qty_str": "",
            "event_ts": EVENT_TS,
        },
    ),
    (
        "derivative_ticker",
        "r:5",
        {
            "mark_price_str": "7.25",
            "index_price_str": "7",
            "funding_rate_str": "-0.0001",
            "event_ts": EVENT_TS,
        },
    ),
    (
        "liquidation",
        "r:6",
        {"side": "SIDE_BUY", "price_str": "5", "qty_str": "6", "order_id": "o1", "event_ts": EVENT_TS},
    ),
    (
        "option_summary",
        "r:7",
        {
            "iv_str": "0.5",
            "delta_str": "0.1",
            "gamma_str": "0.2",
            "theta_str": "-0.3",
            "vega_str": "0.4",
            "oi_str": "12",
            "event_ts": EVENT_TS,
        },
    ),
    (
        "book_ticker",
        "r:8",
        {
            "best_bid_price_str": "1",
            "best_bid_qty_str": "2",
            "best_ask_price_str": "3",
            "best_ask_qty_str": "4",
            "event_ts": EVENT_TS,
        },
    ),
    (
        "trade_bar",
        "r:9",
        {
            "kind": "BAR_KIND_TIME",
            "interval": Decimal(60000),
            "interval_ms": 60000,
            "open_str": "1",
            "high_str": "4",
            "low_str": "0.5",
            "close_str": "2",
            "volume_str": "100.10",
            "trade_count": Decimal(7),
            "event_ts": EVENT_TS,
            "end_ts": datetime(2024, 1, 1, 0, 0, 59, 999_000, tzinfo=UTC),
        },
    ),
    ("error", "r:10", {"details": "boom", "subsequent_errors": 2, "code": "ERROR_CODE_UNSPECIFIED"}),
    ("disconnect", "r:11", {"reason": "stream_disconnected", "close_code": 0}),
]


def trade(event_id: str) -> bytes:
    event = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    event.local_ts.seconds = 1_704_067_200
    event.trade.price_str = "1"
    event.meta["event_id"] = event_id
    return event.SerializeToString()


def options(server: NatsServer, stream: str = "S", **more: str) -> dict[str, str]:
    return {"servers": server.url, "stream": stream, **more}


def failure(spark: SparkSession, given: dict[str, str], place: Path, format_: str = FORMATS[0]) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        run(spark, "nats", given, place, format_=format_)
    return str(raised.value)


@pytest.fixture
def server(start_nats: Callable[..., NatsServer]) -> NatsServer:
    return start_nats()


def test_every_kind_of_event_through_the_sidecar(
    spark: SparkSession, server: NatsServer, tmp_path: Path
) -> None:
    stream = [
        "--nats-servers",
        server.url,
        "--nats-stream",
        "S",
        "--nats-subject",
        "bronze.{{exchange}}.{{symbol}}",
    ]
    with sidecar(*stream) as process:
        process.wait_until_ready()
        send = [PROGRAM, "send", "-", "--to", process.address, "--stream-id", "r", "--source", "test/1"]
        subprocess.run(send, input=MESSAGES.encode(), check=True, capture_output=True)
    [report] = run(spark, "nats", options(server), tmp_path)
    assert (report.events, report.duplicates, report.quarantined) == (14, 0, 0)
    *found, end = rows(tmp_path)
    assert (end["event_id"], end["disconnect"]["reason"]) == ("r~end:12", "stream_ended")
    assert [row["bus_position"] for row in found] == [str(number) for number in range(1, 14)]
    for row, (column, event_id, payload) in zip(found, EXPECTED, strict=True):
        assert (row["payload_case"], row["event_id"]) == (PAYLOADS[column], event_id)
        assert {name for name in PAYLOADS if row[name] is not None} == {column}
        assert row[column] == payload
    assert {
        (
            row["source"],
            row["origin"],
            row["bus"],
            row["bus_partition"],
            row["date"],
            row["local_ts"],
            row["raw"],
        )
        for row in found
    } == {
        (
            "test/1",
            "ORIGIN_REPLAY",
            "nats",
            "S",
            date(2024, 1, 1),
            datetime(2024, 1, 1, 0, 0, 0, 123, tzinfo=UTC),
            None,
        )
    }
    trade_row = found[0]
    assert (trade_row["exchange"], trade_row["symbol"], trade_row["destination"]) == (
        "ftx",
        "BTC/USD",
        "bronze.ftx.BTC%2FUSD",
    )
    assert (trade_row["stream_id"], trade_row["position"], trade_row["level"]) == ("r", 0, None)
    assert dict(trade_row["meta"])["data_type"] == "trade"
    assert (found[2]["position"], found[2]["level"]) == (1, 1)


def test_duplicates_malformed_values_and_newer_schemas(
    spark: SparkSession, server: NatsServer, tmp_path: Path
) -> None:
    newer = NormalizedEvent(exchange="x").SerializeToString() + b"\xc2\x07\x03\x0a\x01z"
    values = [trade("s:0"), trade("s:1"), trade("s:0"), b"\xff\xff", newer, trade("s:2") + b"\x92\x03\x02hi"]
    asyncio.run(publish(server.url, "S", *values))
    [report] = run(spark, "nats", options(server), tmp_path)
    assert (report.events, report.duplicates, report.quarantined) == (4, 1, 1)
    assert [(row["event_id"], row["payload_case"], row["raw"]) for row in rows(tmp_path)] == [
        ("s:0", "trade", None),
        ("s:1", "trade", None),
        (None, "unknown", newer),
        ("s:2", "trade", None),
    ]
    [refused] = rows(tmp_path, "quarantine")
    assert (refused["bus"], refused["bus_partition"], refused["bus_position"]) == ("nats", "S", "4")
    assert (refused["raw"], refused["reason"]) == (b"\xff\xff", "not an envelope: Wire format was corrupt")

    # New data from the old checkpoint, and all of it again by a new one.
    asyncio.run(publish(server.url, "S", trade("s:3"), trade("s:1")))
    [report] = run(spark, "nats", options(server), tmp_path)
    assert (report.batch, report.events, report.duplicates) == (1, 1, 1)
    [report] = run(
        spark, "nats", options(server, maxRecordsPerBatch="3", start="6"), tmp_path, checkpoint="new"
    )
    assert (report.events, report.duplicates) == (0, 3)
    assert len(rows(tmp_path)) == 5


def test_a_crash_between_the_two_commits_stores_nothing_twice(
    spark: SparkSession, server: NatsServer, tmp_path: Path
) -> None:
    # Events without an id, so that nothing but the number of the batch can tell.
    anonymous = NormalizedEvent(exchange="x")
    anonymous.trade.price_str = "1"
    asyncio.run(publish(server.url, "S", *[anonymous.SerializeToString()] * 4, b"\xff"))
    reports = run(spark, "nats", options(server, maxRecordsPerBatch="3"), tmp_path)
    assert [(report.events, report.quarantined) for report in reports] == [(3, 0), (1, 1)]
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    [report] = run(spark, "nats", options(server, maxRecordsPerBatch="3"), tmp_path)
    assert (report.batch, report.repeated) == (1, True)
    assert (len(rows(tmp_path)), len(rows(tmp_path, "quarantine"))) == (4, 1)


def test_lost_messages_stop_the_job_or_are_noted(
    spark: SparkSession, server: NatsServer, tmp_path: Path
) -> None:
    async def lose() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().purge_stream("S", seq=4)
        await client.jetstream().delete_msg("S", 6)
        await client.close()

    asyncio.run(publish(server.url, "S", trade("s:0")))
    run(spark, "nats", options(server), tmp_path)
    asyncio.run(publish(server.url, "S", *[trade(f"s:{number}") for number in range(1, 8)]))
    asyncio.run(lose())
    assert "sequence numbers 2 to 3 are no longer in the stream S" in failure(
        spark, options(server), tmp_path
    )
    [report] = run(spark, "nats", options(server, onDataLoss="continue"), tmp_path)
    assert (report.events, report.quarantined) == (4, 2)
    assert [row["event_id"] for row in rows(tmp_path)] == ["s:0", "s:3", "s:4", "s:6", "s:7"]
    assert [row["reason"] for row in rows(tmp_path, "quarantine")] == [
        "sequence numbers 2 to 3 are no longer in the stream S",
        "sequence numbers 6 to 6 were deleted from the stream S",
    ]


def test_a_stream_made_anew_is_noticed(spark: SparkSession, server: NatsServer, tmp_path: Path) -> None:
    async def delete() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().delete_stream("S")
        await client.close()

    asyncio.run(publish(server.url, "S", trade("s:0")))
    run(spark, "nats", options(server), tmp_path)
    asyncio.run(delete())
    asyncio.run(publish(server.url, "S", trade("t:0"), trade("t:1")))
    assert "the stream S was recreated" in failure(spark, options(server), tmp_path)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_made_anew_is_noticed(
    spark: SparkSession, server: NatsServer, tmp_path: Path, format_: str
) -> None:
    """Otherwise it would have what is new, and nobody would say that the rest is missing."""
    asyncio.run(publish(server.url, "S", trade("s:0")))
    run(spark, "nats", options(server), tmp_path, format_=format_)
    shutil.rmtree(tmp_path / "bronze")
    asyncio.run(publish(server.url, "S", trade("s:1")))
    refused = "does not have what this checkpoint has stored"
    assert refused in failure(spark, options(server), tmp_path, format_)
    # As it says: by a new checkpoint.
    [report] = run(spark, "nats", options(server), tmp_path, checkpoint="new", format_=format_)
    assert report.events == 2


def test_a_batch_read_with_log_in_and_tls_shows_no_secret(
    spark: SparkSession, start_nats: Callable[..., NatsServer], certificates: Certificates, tmp_path: Path
) -> None:
    config = f"""
        authorization {{ user: reader, password: "s3cr3t-word" }}
        tls {{ cert_file: "{certificates.server_cert_file}", key_file: "{certificates.server_key_file}" }}
    """
    server = start_nats(config=config)
    password = tmp_path / "password"
    password.write_text("s3cr3t-word\n")
    given = {
        "servers": server.url.replace("nats://", "tls://"),
        "stream": "S",
        "user": "reader",
        "passwordFile": str(password),
        "tlsCaFile": str(certificates.ca_file),
    }

    async def fill() -> None:
        import ssl  # noqa: PLC0415

        context = ssl.create_default_context(cafile=str(certificates.ca_file))
        client = await nats.connect(given["servers"], user="reader", password="s3cr3t-word", tls=context)  # noqa: S106
        await client.jetstream().add_stream(name="S", subjects=["s"])
        await client.jetstream().publish("s", trade("s:0"))
        await client.close()

    asyncio.run(fill())
    from bronze_pipeline.sources.nats.bus import NatsSource  # noqa: PLC0415

    spark.dataSource.register(NatsSource)
    frame = spark.read.format("bronze.nats").options(**given).load()
    assert [bytes(row["value"]) for row in frame.collect()] == [trade("s:0")]
    plan = frame._jdf.queryExecution().toString()
    assert "bronze.nats" in plan
    assert "s3cr3t-word" not in plan
