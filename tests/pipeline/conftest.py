"""One Spark session for all tests of a process: starting one takes many seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import aws_servers
import pytest
from bronze_pipeline.session import NoJava, open_session, require_java
from pyspark.sql import SparkSession


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
def spark(java: None) -> Iterator[SparkSession]:
    # Spark's own processes inherit what is set when it starts.
    os.environ["AWS_ACCESS_KEY_ID"] = aws_servers.ACCESS_KEY
    os.environ["AWS_SECRET_ACCESS_KEY"] = aws_servers.SECRET_KEY
    session = open_session("tests", cores=2)
    yield session
    session.stop()
