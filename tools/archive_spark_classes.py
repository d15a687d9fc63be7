"""Writes an archive of the classes that Spark loads: with it, a session starts in half the time.

    python tools/archive_spark_classes.py ARCHIVE

Java writes it when a session ends that has done a little of everything; see `quick_java.py` for its use.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from bronze_pipeline.running.session import NoJava, open_session, require_java
from bronze_pipeline.silver.queries import STATE_STORE
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in Spark
from quick_java import OPTIONS

WRITE_SECONDS = 120


def run_a_little(checkpoint: str) -> None:
    """Run a stream with state and workers, to its end."""
    spark = open_session("archive", cores=2)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    sums = (
        rows.mapInArrow(lambda batches: batches, rows.schema)
        .withWatermark("timestamp", "1 minute")
        .groupBy(F.window("timestamp", "1 minute"))
        .agg(F.sum("value"))
    )
    writer = sums.writeStream.outputMode("update").foreachBatch(lambda frame, _: frame.toArrow())
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - Java would go on until this process ends
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(WRITE_SECONDS)


def main(archive: Path) -> None:
    """Write the archive, or say why there is none; sessions do without."""
    try:
        require_java()
    except NoJava as reason:
        print(f"setup: no archive of Spark's classes: {reason}", file=sys.stderr)
        return
    print(f"setup: writing an archive of Spark's classes into {archive}")
    archive.parent.mkdir(parents=True, exist_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{OPTIONS} -XX:ArchiveClassesAtExit={archive.absolute()}"
    with tempfile.TemporaryDirectory() as folder:
        run_a_little(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
