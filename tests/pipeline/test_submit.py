"""The bronze job under `spark-submit`, with executors in processes of their own as on a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import bronze_pipeline.__main__
import pyspark
import pytest
from bronze_client.schema import NormalizedEvent
from pipeline_jobs import publish, rows
from quick_java import OPTIONS
from servers import HOST, NatsServer

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


def trade(position: int) -> bytes:
    event = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    event.local_ts.FromJsonString("2024-01-01T00:00:00Z")
    event.trade.trade_id = str(position)
    event.trade.price_str = f"{position}.5"
    event.trade.qty_str = "2"
    event.meta["event_id"] = f"r:{position}"
    return event.SerializeToString()


def test_a_job_on_executors(
    java: None, spark_home: Path, start_nats: Callable[..., NatsServer], tmp_path: Path
) -> None:
    server = start_nats()
    asyncio.run(publish(server.url, "S", *map(trade, range(20))))
    lake = tmp_path / "lake"
    flags = ["--to", str(lake), "--partitions", "2", "--available-now"]
    summary = submit(spark_home, "bronze", "--from", f"{server.url}/S", *flags)
    assert (summary["events"], summary["duplicates"]) == (20, 0)
    assert [row["event_id"] for row in rows(lake)] == [f"r:{position}" for position in range(20)]
