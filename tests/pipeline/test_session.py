"""The session that a job starts by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
from bronze_pipeline.running.session import open_session

session = open_session("test", cores=1)
rows = session.createDataFrame([(1,)], "number int")
print(rows.mapInArrow(lambda batches: batches, "number int").collect())
session.stop()
"""


@pytest.mark.servers
def test_workers_import_nothing_from_the_folder_that_a_job_is_started_in(java: None, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not this one')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", JOB], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[Row(number=1)]\n", done.stderr
