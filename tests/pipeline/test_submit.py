"""The jobs under `spark-submit`, with executors in processes of their own as on a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import bronze_pipeline.__main__
import pyspark
import pytest
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.tables.lake import Lake
from pipeline_jobs import publish, rows
from quick_java import OPTIONS
from servers import HOST, NatsServer
from silver_frames import Bronze, at, change, event, stored, trade

pytestmark = pytest.mark.timeout(600)

# A cluster with one worker of two cores; executors are processes of their own.
MASTER = "local-cluster[1,2,1024]"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Return a folder with Spark's programs: workers of such a cluster write beside them."""
    home = tmp_path / "spark"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).with_name(name))
    return home


def submit(home: Path, *arguments: str) -> dict[str, object]:
    """Run a command to its end, and return its summary."""
    settings = {
        "spark.executor.extraJavaOptions": OPTIONS,
        "spark.log.level": "ERROR",
        # Each of them costs a task, and for state a worker and files.
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    flags = [f"--conf={name}={value}" for name, value in settings.items()]
    # On one machine, whatever its other networks are.
    environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            "--master",
            MASTER,
            *flags,
            bronze_pipeline.__main__.__file__,
            *arguments,
        ],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return summary


def trade_envelope(position: int) -> bytes:
    envelope = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    envelope.local_ts.FromJsonString("2024-01-01T00:00:00Z")
    envelope.trade.trade_id = str(position)
    envelope.trade.price_str = f"{position}.5"
    envelope.trade.qty_str = "2"
    envelope.meta["event_id"] = f"r:{position}"
    return envelope.SerializeToString()


def test_bronze_on_executors(
    java: None, spark_home: Path, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    asyncio.run(publish(server.url, "S", *map(trade_envelope, range(20))))
    lake = tmp_path / "lake"
    flags = ["--to", str(lake), "--partitions", "2", "--available-now"]
    summary = submit(spark_home, "bronze", "--from", f"{server.url}/S", *flags)
    assert (summary["events"], summary["duplicates"]) == (20, 0)
    assert [row["event_id"] for row in rows(lake)] == [f"r:{position}" for position in range(20)]


def test_silver_on_executors(java: None, spark_home: Path, tmp_path: Path) -> None:
    bronze = Bronze(tmp_path / "bronze")
    bronze.add(
        trade("r:0", "10", "1", 0),
        trade("r:1", "12", "2", 61),
        change("r:2.0", "BUY", "9", "1", snapshot=True),
        event(
            "book_snapshot",
            "r:3",
            {"depth": 1, "bids": [{"price_str": "9.0", "qty_str": "1"}], "asks": [], "event_ts": at(3)},
            meta=[("data_name", "book_snapshot_1_0ms")],
        ),
        trade("r:4", "?", "1", 61),
    )
    flags = ["--from", bronze.url, "--to", str(tmp_path / "silver"), "--available-now", "--bars", "1m,1h"]
    found = submit(spark_home, "silver", *flags)
    assert found.pop("seconds")
    assert found == {
        "batches": 4,
        "rows": {
            "bars_1h": 1,
            "bars_1m": 2,
            "book_changes": 1,
            "book_snapshots": 1,
            "book_top": 1,
            "trades": 3,
        },
        "duplicates": 0,
        "faults": 1,
        "late": 0,
        "book_checks": [
            {
                "exchange": "x",
                "symbol": "A",
                "data_name": "book_snapshot_1_0ms",
                "matches": 1,
                "mismatches": 0,
            }
        ],
    }
    lake = Lake(str(tmp_path / "silver"))
    assert stored(lake, "bars_1h", ["open", "close", "volume"]) == [(Decimal(10), Decimal(12), Decimal(3))]
