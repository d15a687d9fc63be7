"""One Spark session for all tests of a process: starting one takes many seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import aws_servers
import pytest
from bronze_pipeline.running.session import NoJava, open_session, require_java
from pyspark.sql import SparkSession
from quick_java import quick_java
from servers import Endpoint

JARS = Path(__file__).parents[2] / ".cache/spark-jars/libs"

os.environ.setdefault("SPARK_SUBMIT_OPTS", quick_java())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Spark: that is no quick test, though it needs no server."""
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.servers)


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where Spark cannot start; fail where real servers are required."""
    try:
        require_java()
    except NoJava as reason:
        if os.environ.get("REQUIRE_REAL_SERVERS") == "1":
            pytest.fail(f"REQUIRE_REAL_SERVERS is set, and {reason}", pytrace=False)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def jars(java: None) -> str:
    """Return the folder of the connectors' jars; skip where they are not there."""
    if not list(JARS.glob("*.jar")):
        pytest.skip("there are no connectors in .cache/spark-jars: run tools/install-spark-jars.sh")
    return str(JARS)


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", aws_servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", aws_servers.SECRET_KEY)


@pytest.fixture
def bucket(aws_emulator: Endpoint) -> str:
    """Return a new bucket."""
    return aws_servers.create_bucket(aws_emulator.url)


@pytest.fixture
def s3_environment(aws_emulator: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that reach the emulator of S3."""
    for name, value in aws_servers.delta_options(aws_emulator.url).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_options(aws_emulator: Endpoint, tmp_path: Path) -> list[str]:
    """Return the flags that reach the emulator of S3, its secrets in a file."""
    secrets = tmp_path / "storage-options"
    options = aws_servers.delta_options(aws_emulator.url)
    secrets.write_text(
        "".join(f"{key}={options[key]}\n" for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    )
    return [
        *("--storage-option", f"AWS_ENDPOINT_URL={aws_emulator.url}"),
        *("--storage-option", f"AWS_REGION={aws_servers.REGION}"),
        *("--storage-option-file", str(secrets)),
    ]


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    # Spark's own processes inherit what is set when it starts.
    os.environ["AWS_ACCESS_KEY_ID"] = aws_servers.ACCESS_KEY
    os.environ["AWS_SECRET_ACCESS_KEY"] = aws_servers.SECRET_KEY
    session = open_session("tests", cores=2, jars=sorted(JARS.glob("*.jar")))
    # Each part of a shuffle costs a task, and for state a worker and files, however little is in it.
    session.conf.set("spark.sql.shuffle.partitions", "1")
    yield session
    session.stop()
