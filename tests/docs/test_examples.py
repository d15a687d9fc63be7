"""Python examples of sending and reading, as they stand, with a real sidecar and a real NATS server."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest
from bronze_client import connect_sync
from bronze_client.schema import NormalizedEvent
from conftest import missing
from doc_pages import PAGES, README, ROOT, Block, blocks, commands
from servers import NatsServer, Unavailable
from sidecar_process import PROGRAM, SidecarProcess, sidecar

SOCKET = "127.0.0.1:50051"
SERVER = "nats://127.0.0.1:4222"
CLIENTS, READING = ROOT / "docs/clients.md", ROOT / "docs/reading-events.md"
TRADE = (
    b'{"type":"trade","exchange":"bitmex","symbol":"XBTUSD","id":"1","price":7996.5,"amount":50,"side":"sell",'
    b'"timestamp":"2019-10-23T10:32:49.669Z","localTimestamp":"2019-10-23T10:32:49.740Z"}'
)
TO_RUN = [block for block in blocks("python", README, CLIENTS, READING) if "pyspark" not in block.text]


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_every_example_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@dataclass(frozen=True)
class Running:
    """A sidecar with the README's configuration, and its NATS server, which has one trade."""

    sidecar: SidecarProcess
    nats: NatsServer

    def at_home(self, text: str) -> str:
        """Put the addresses of the running servers in place of those of the examples."""
        return text.replace(SOCKET, self.sidecar.address).replace(SERVER, self.nats.url)

    def run(self, block: Block, folder: Path) -> str:
        script = folder / "example.py"
        script.write_text(self.at_home(block.text))
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("examples")
    try:
        server = NatsServer(folder / "nats")
    except Unavailable as reason:
        missing(reason)
    server.start()
    try:
        (shown,) = blocks("yaml", README)
        file = folder / "sidecar.yaml"
        file.write_text(shown.text.replace(SERVER, server.url))
        with sidecar("--config", str(file)) as process:
            with connect_sync(process.address, source="tests/1", stream_id="first") as publisher:
                publisher.publish(TRADE)
            yield Running(process, server)
    finally:
        server.stop()


def test_all_pages_with_examples_are_covered() -> None:
    pages = {block.page for block in blocks("python", *PAGES)}
    assert pages <= {README, CLIENTS, READING, ROOT / "docs/lakehouse.md"}


@pytest.mark.servers
@pytest.mark.parametrize("block", TO_RUN, ids=str)
def test_every_example_runs(block: Block, running: Running, tmp_path: Path) -> None:
    before = running.sidecar.metric("bronze_events_published_total")
    printed = running.run(block, tmp_path)
    published = running.sidecar.metric("bronze_events_published_total") - before
    # A stream has its end as well.
    assert published == (0 if SOCKET not in block.text else 1 if "PublishBatch" in block.text else 2)
    if "FromString(message.data)" in block.text:
        assert "first:0" in printed
        assert "7996.5" in printed
    if "PublishBatch" in block.text:
        assert printed == "1 published, 0 failed\n"


@pytest.mark.servers
def test_a_file_is_sent_as_the_examples_say(running: Running, tmp_path: Path) -> None:
    sending = [words for _, words in commands("bronze-sidecar") if words[0] == "send"]
    assert len(sending) > 1
    (tmp_path / "replay.ndjson.gz").write_bytes(gzip.compress(TRADE + b"\n" + TRADE))
    for words in sending:
        command = [running.at_home(word) for word in words]
        done = subprocess.run([PROGRAM, *command], cwd=tmp_path, capture_output=True, timeout=60, check=True)
        assert json.loads(done.stdout)["published"] == 2


@pytest.mark.servers
def test_functions_that_are_shown_decode_what_is_on_the_bus(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    async def first_message() -> bytes:
        client = await nats.connect(running.nats.url)
        try:
            message = await client.jetstream().get_msg("BRONZE", 1)
            return message.data or b""
        finally:
            await client.close()

    names: dict[str, Any] = {}
    for block in TO_RUN:
        if block.page == READING and "asyncio" not in block.text:
            exec(compile(block.text, str(block), "exec"), names)  # noqa: S102 - the documentation's own code
    value = asyncio.run(first_message())
    event = NormalizedEvent.FromString(value)
    assert event.trade.price_str == "7996.5"
    assert names["decode"](value) == event
    # As the registry's libraries write it: a zero, four bytes of an id, and the first message of the file.
    assert names["decode"](b"\x00\x00\x00\x00\x07\x00" + value) == event
    names["show"](value)
    assert capsys.readouterr().out.count("7996.5") == 2
