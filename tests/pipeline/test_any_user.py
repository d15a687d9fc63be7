"""Spark as a user that nobody has given a name, as in containers, with the files of the image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from charts import ROOT, TOOLS
from conftest import missing
from other_user import as_user, can_switch
from quick_java import quick_java
from servers import Unavailable

NOBODY_KNOWS = 23456
PROGRAM = """
import sys
from bronze_pipeline.running.session import open_session

spark = open_session("any user", cores=1)
spark.range(7).write.parquet(sys.argv[1] + "/table")
print(spark.read.parquet(sys.argv[1] + "/table").count())
user = spark._jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
print(user.getShortUserName())
print(spark._jvm.java.lang.System.getProperty("user.home"))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder that everybody may use; pytest keeps its own for its user alone."""
    with tempfile.TemporaryDirectory(prefix="bronze-any-user-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_spark_runs_as_a_user_without_a_name(java: None, home: Path) -> None:
    libraries = list((TOOLS / "names").rglob("libnss_unknown.so.2"))
    if not libraries:
        missing(Unavailable("libnss-unknown is not there: `make test` fetches it where it can be had"))
    if not can_switch() or shutil.which("unshare") is None:
        missing(Unavailable("another user and a mount of its own take root"))
    with_files = ["sh", "-ec", 'mount --bind "$0" /etc/nsswitch.conf && exec "$@"']
    done = subprocess.run(
        [
            *("unshare", "--mount", *with_files, str(ROOT / "tools/nsswitch.conf")),
            *as_user(sys.executable, "-c", PROGRAM, str(home), user=NOBODY_KNOWS, group=NOBODY_KNOWS),
        ],
        env={
            **{name: value for name, value in os.environ.items() if name in {"PATH", "JAVA_HOME"}},
            "HOME": str(home),
            "LD_LIBRARY_PATH": str(libraries[0].parent),
            "SPARK_SUBMIT_OPTS": quick_java(),
        },
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["7", f"uid-{NOBODY_KNOWS}", str(home)]
