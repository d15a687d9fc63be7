"""The Spark session.

Under `spark-submit` the master and everything else come from there; a session that this program starts by
itself runs in this process, on the cores of this machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bronze_cli.program import CommandFailed
from pyspark.sql import SparkSession

LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A source that changes nothing makes no batches.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Otherwise each column operation looks for the line that it stands in, which doubles the time for a plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
}
OLDEST_JAVA = 17
# A task is tried again this often: a connection to a bus may break.
ATTEMPTS = 4


class NoJava(CommandFailed):
    """There is no Java for Spark on this machine."""


def require_java() -> None:
    """Raise NoJava, with what to do, where Spark could not start."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None or not Path(program).exists():
        raise NoJava(f"Spark needs Java {OLDEST_JAVA} or newer: install it, or set JAVA_HOME.")


def open_session(name: str, *, cores: int | None = None, jars: Sequence[Path] = ()) -> SparkSession:
    """Return the session of `spark-submit`, or start a local one with these jars; raise NoJava."""
    builder = SparkSession.builder.appName(name)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if not _is_submitted():
        require_java()
        # Workers run the same Python, with the same packages.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # And import nothing from the folder that the job happens to be started in.
        os.environ["PYTHONSAFEPATH"] = "1"
        builder = builder.master(f"local[{cores or '*'},{ATTEMPTS}]")
        for key, value in LOCAL_SETTINGS.items():
            builder = builder.config(key, value)
        if jars:
            # Not by ADD JAR: the driver could not read the errors of the classes in them.
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
    return builder.getOrCreate()


def _is_submitted() -> bool:
    # Set by spark-submit for the program that it starts.
    return "PYSPARK_GATEWAY_PORT" in os.environ
