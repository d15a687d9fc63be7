"""The Spark session.

Under `spark-submit`, the master and all other settings come from there; a session that this program starts
itself runs in this process, on this machine's cores.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bronze_cli.program import CommandFailed
from pyspark.sql import SparkSession

from bronze_pipeline.tables.storage import VARIABLE

LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # A source without changes makes no batches.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Otherwise each column operation looks up its source line, which doubles the time to build a plan.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Spark's own, and the keys of Azure's accounts.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|account[.]?key",
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
    """This machine has no Java for Spark."""


def require_java() -> None:
    """Raise NoJava, with what to do, if Spark could not start."""
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
        # They import nothing from the folder in which the job happens to start.
        os.environ["PYTHONSAFEPATH"] = "1"
        builder = builder.master(f"local[{cores or '*'},{ATTEMPTS}]")
        for key, value in LOCAL_SETTINGS.items():
            builder = builder.config(key, value)
        if jars:
            # Not with ADD JAR: the driver could not read errors from classes in the jars.
            builder = builder.config("spark.jars", ",".join(map(str, dict.fromkeys(jars))))
    session = builder.getOrCreate()
    if VARIABLE in os.environ:
        # For every worker, wherever it runs; no plan or log shows it.
        session.sparkContext.environment[VARIABLE] = os.environ[VARIABLE]
    return session


def _is_submitted() -> bool:
    # spark-submit sets this for the program it starts.
    return "PYSPARK_GATEWAY_PORT" in os.environ
