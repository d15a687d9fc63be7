"""The jobs under `spark-submit`, with executors in processes of their own as on a cluster.

They share nothing but a bucket: the tables and the checkpoints are there. The package comes to them as an
archive, the credentials with the tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import bronze_pipeline.__main__
import pyspark
import pytest
from aws_servers import SECRET_KEY, keys_in
from bronze_client.schema import NormalizedEvent
from bronze_pipeline.tables.lake import Lake
from pipeline_jobs import publish
from quick_java import OPTIONS
from servers import HOST, Endpoint, NatsServer
from silver_frames import Bronze, at, change, event, stored, trade

pytestmark = pytest.mark.timeout(600)

# A cluster of two workers with a core each; executors are processes of their own.
MASTER = "local-cluster[2,1,1024]"
# What workers import.
ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("sidecar/bronze_buses", "sidecar/bronze_cli"),
    *("client/python/bronze_client", "pipeline/bronze_pipeline"),
)


@dataclass(frozen=True)
class Cluster:
    """Where jobs are submitted, and where their tables are."""

    home: Path
    """Spark's programs."""
    archive: Path
    jars: Sequence[Path]
    place: str
    storage: Sequence[str]
    """The flags that reach the bucket."""

    def submit(self, *arguments: str) -> dict[str, object]:
        """Run a command to its end, and return its summary."""
        settings = {
            "spark.executor.extraJavaOptions": OPTIONS,
            "spark.log.level": "ERROR",
            # Each of them costs a task, and for state a worker and files.
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.enabled": "false",
        }
        flags = [f"--conf={name}={value}" for name, value in settings.items()]
        flags += [f"--py-files={self.archive}", f"--jars={','.join(map(str, self.jars))}"]
        # On one machine, whatever its other networks are.
        environment = {"SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        program = str(self.home / "bin" / "spark-submit")
        done = subprocess.run(
            [
                program,
                "--master",
                MASTER,
                *flags,
                bronze_pipeline.__main__.__file__,
                *arguments,
                *self.storage,
            ],
            env=inherited | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert SECRET_KEY not in done.stdout + done.stderr
        summary: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return summary


@pytest.fixture
def cluster(  # noqa: PLR0917 - fixtures
    java: None,
    jars: str,
    aws_emulator: Endpoint,
    bucket: str,
    s3_options: list[str],
    s3_environment: None,
    tmp_path: Path,
) -> Iterator[Cluster]:
    home = tmp_path / "spark"
    home.mkdir()
    # Workers of such a cluster write beside Spark's programs.
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).with_name(name))
    archive = tmp_path / "bronze.zip"
    subprocess.run([sys.executable, "-m", "zipfile", "-c", archive, *PACKAGES], cwd=ROOT, check=True)
    place = f"s3a://{bucket}/lake"
    yield Cluster(home, archive, sorted(Path(jars).glob("*.jar")), place, s3_options)
    keys = keys_in(aws_emulator.url, bucket)
    assert any("/_checkpoints/" in key for key in keys)
    assert not [key for key in keys if key.endswith("/")], "objects that stand for folders"


def trade_envelope(position: int) -> bytes:
    envelope = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    envelope.local_ts.FromJsonString("2024-01-01T00:00:00Z")
    envelope.trade.trade_id = str(position)
    envelope.trade.price_str = f"{position}.5"
    envelope.trade.qty_str = "2"
    envelope.meta["event_id"] = f"r:{position}"
    return envelope.SerializeToString()


def test_bronze_on_executors(cluster: Cluster, start_nats: Callable[..., NatsServer]) -> None:
    server = start_nats()
    asyncio.run(publish(server.url, "S", *map(trade_envelope, range(20))))
    flags = ["--to", cluster.place, "--partitions", "2", "--available-now"]
    summary = cluster.submit("bronze", "--from", f"{server.url}/S", *flags)
    assert (summary["events"], summary["duplicates"]) == (20, 0)
    found = stored(Lake(cluster.place), "bronze", ["event_id", "bus_position"])
    assert sorted(found, key=lambda row: int(row[1])) == [(f"r:{each}", str(each + 1)) for each in range(20)]


def test_silver_on_executors(cluster: Cluster) -> None:
    bronze = Bronze(f"{cluster.place}/bronze")
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
    flags = ["--from", bronze.url, "--to", f"{cluster.place}/silver", "--available-now", "--bars", "1m,1h"]
    found = cluster.submit("silver", *flags)
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
    lake = Lake(f"{cluster.place}/silver")
    assert stored(lake, "bars_1h", ["open", "close", "volume"]) == [(Decimal(10), Decimal(12), Decimal(3))]
