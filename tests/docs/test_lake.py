"""The commands, queries and notebook of docs/lakehouse.md, on tables made of a small market."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import missing
from demo_lake import missing_java
from doc_pages import ROOT, blocks, commands
from market import replay
from pipeline_jobs import PROGRAM as PIPELINE
from quick_java import quick_java
from servers import NatsServer, Unavailable
from sidecar_process import PROGRAM as SIDECAR
from sidecar_process import sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

LAKEHOUSE = ROOT / "docs/lakehouse.md"
NOTEBOOK = ROOT / "examples/query-tables.ipynb"
MESSAGES = 600
SERVER = "nats://localhost:4222"
RESULTS = """
import json
print(json.dumps({
    "rows": row_counts,
    "trades": int(by_symbol["trades"].sum()),
    "symbols": len(by_symbol),
    "bars": int(bars["trades"].sum()),
    "volumes": [str(volume) for volume in volumes[0]],
    "narrowest": float(spreads["narrowest"].min()),
    "messages": int(spreads["messages"].sum()),
    "lines": len(chart.lines),
}))
"""


@pytest.fixture
def nats_server_with_market(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a NATS server whose stream BRONZE has a small market."""
    reason = missing_java()
    if reason is not None:
        missing(Unavailable(reason))
    with ExitStack() as stack:
        try:
            server = NatsServer(tmp_path / "nats")
        except Unavailable as unavailable:
            missing(unavailable)
        stack.callback(server.stop)
        server.start()
        flags = (
            "--nats-servers",
            server.url,
            "--nats-stream=BRONZE",
            "--nats-subject=bronze.{{payloadCase}}",
        )
        with sidecar(*flags) as process:
            market = tmp_path / "market.ndjson"
            market.write_bytes(b"\n".join(replay(MESSAGES)))
            command = [SIDECAR, "send", str(market), "--to", process.address]
            subprocess.run(command, capture_output=True, timeout=60, check=True)
        yield server.url


def test_what_the_page_shows_works(nats_server_with_market: str, tmp_path: Path) -> None:
    """One test for all of it: the tables take half a minute."""
    for words in pipeline_commands(nats_server_with_market):
        run(tmp_path, PIPELINE, *words)
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")

    kinds = Counter(json.loads(line)["type"] for line in replay(MESSAGES))
    script = tmp_path / "notebook.py"
    script.write_text("\n".join(notebook_code()) + RESULTS)
    results = json.loads(run(tmp_path, sys.executable, str(script)))
    assert results["rows"]["trades"] == results["trades"] == kinds["trade"]
    assert results["rows"]["book_top"] == kinds["book_change"] >= results["messages"] > 0
    assert results["symbols"] > 5
    assert results["bars"] > 0
    assert len(set(results["volumes"])) == 1
    assert results["narrowest"] > 0
    assert results["lines"] == 2

    for example in (*quick_examples(), spark_examples()):
        script = tmp_path / "example.py"
        script.write_text(example)
        printed = run(tmp_path, sys.executable, str(script))
        assert "XBTUSD" in printed or "trades, the highest at" in printed or "spread" in printed, example


def pipeline_commands(server: str) -> Iterator[list[str]]:
    """Yield the page's commands, with the server that runs, the notebook's bars, and an end."""
    for block, words in commands("bronze-pipeline"):
        # Tests of the pipeline try it with a bucket.
        if block.page == LAKEHOUSE and not any("s3://" in word for word in words):
            command = [word.replace(SERVER, server) for word in words]
            if "--bars" in command:
                command[command.index("--bars") + 1] = "2s"
            if command[0] in {"bronze", "silver"}:
                command.append("--available-now")
            yield command


def notebook_code() -> Iterator[str]:
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def quick_examples() -> Iterator[str]:
    for block in blocks("python", LAKEHOUSE):
        if "pyspark" not in block.text:
            yield block.text


def spark_examples() -> str:
    """Return the examples with Spark as one script, and the function of the second applied to an envelope."""
    pages = (LAKEHOUSE, ROOT / "docs/reading-events.md")
    query, udf = (block.text for block in blocks("python", *pages) if "pyspark" in block.text)
    return f"""{query}
{udf}
from bronze_client.schema import Trade

event = NormalizedEvent(symbol="XBTUSD", meta={{"event_id": "s:0"}}, trade=Trade(price_str="1"))
records = spark.createDataFrame([(bytearray(event.SerializeToString()),)], "value binary")
(row,) = trades(records).collect()
assert (row.symbol, row.price) == ("XBTUSD", "1")
"""


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={
            **os.environ,
            "MPLBACKEND": "agg",
            "PYSPARK_PYTHON": sys.executable,
            "SILVER": str(folder / "lake/silver"),
            "SPARK_SUBMIT_OPTS": quick_java(),
        },
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
