"""What is compared with the sidecar: what it is sent, how it is built, and how the findings are shown."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import peers
import pytest
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.rules import Address, Record
from chaos.cell import Findings as Outcome
from disk import waiting
from machine import percentiles
from routers import BufferedConnect, Connect, Dapr, Router, calls_of

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "tests/bench"
PINNED = {
    "raw": ["github.com/nats-io/nats.go", "github.com/redis/go-redis/v9", "github.com/twmb/franz-go"],
    "dapr": ["github.com/dapr/dapr", "github.com/dapr/components-contrib"],
    "connect": [
        *("github.com/redpanda-data/connect/v4", "github.com/redpanda-data/benthos/v4"),
        "modernc.org/sqlite",
    ],
}


def record(destination: str) -> Record:
    event = Event(b"E", "s:0", "trade", "bitmex", "XBTUSD", "t", "source/1", "replay", {})
    return Record(Address(destination, "k", (("payloadCase", "trade"),)), event)


def destinations(names: str, **how: bool) -> list[str]:
    calls = calls_of(map(record, names), 2, **how)
    return ["".join(each.address.destination for each in call) for call in calls]


def test_calls_are_cut_in_order_and_only_full_ones_are_measured() -> None:
    assert destinations("abaab", is_sorted=False) == ["ab", "aa"]


def test_a_sorted_call_has_one_destination() -> None:
    assert destinations("abaabcb", is_sorted=True, with_rest=True) == ["aa", "bb", "a", "c", "b"]


def test_dapr_gets_an_entry_for_each_event(tmp_path: Path) -> None:
    router = Dapr(tmp_path, Path("dapr"), "nats", "127.0.0.1:1", in_order=True)
    pubsub, topic = b"\x0a\x03bus", b"\x12\x01d"
    entries = b"\x1a\x06\x0a\x010\x12\x01E", b"\x1a\x06\x0a\x011\x12\x01E"
    raw = b"\x22\x12\x0a\x0arawPayload\x12\x04true"
    assert router.prepared([record("d"), record("d")]) == b"".join([pubsub, topic, *entries, raw])


def test_dapr_gets_key_and_headers_for_kafka(tmp_path: Path) -> None:
    router = Dapr(tmp_path, Path("dapr"), "kafka", "127.0.0.1:1", in_order=True)
    key = b"\x22\x11\x0a\x0cpartitionKey\x12\x01k"
    header = b"\x22\x14\x0a\x0bpayloadCase\x12\x05trade"
    assert b"\x1a\x2f\x0a\x010\x12\x01E" + key + header in router.prepared([record("d")])


def test_connect_is_told_where_each_event_belongs(tmp_path: Path) -> None:
    router = Connect(tmp_path, Path("connect"), "redis", "127.0.0.1:1", in_order=True)
    message = b"\x00\x00\x00\x0dd\tk\ttrade\tt\nE"
    assert router.prepared([record("d"), record("d")]) == b"\x00\x00\x00\x02" + message + message


@pytest.mark.parametrize(
    ("bus", "output", "most"), [("redis", "redis_streams", 64), ("nats", "nats_jetstream", 1024)]
)
def test_connect_has_one_write_in_flight_where_order_is_kept(
    tmp_path: Path, bus: str, output: str, most: int
) -> None:
    for in_order, expected in ((True, 1), (False, most)):
        router = Connect(tmp_path, Path("connect"), bus, "127.0.0.1:1", in_order=in_order)
        config = json.loads(Path(router.command()[-1]).read_text())
        assert config["output"][output]["max_in_flight"] == expected


@pytest.mark.parametrize(("in_order", "most"), [(True, 1), (False, 1024)])
def test_connect_with_a_queue_on_disk_writes_again_before_what_follows(
    tmp_path: Path, in_order: bool, most: int
) -> None:
    router = BufferedConnect(tmp_path, Path("connect"), "nats", "127.0.0.1:1", in_order=in_order)
    config = json.loads(Path(router.command()[-1]).read_text())
    assert config["buffer"]["sqlite"]["path"].startswith(f"{router.disk}/")
    assert config["buffer"]["sqlite"]["post_processors"] == [{"split": {}}]
    output = config["output"]["retry"]["output"]["nats_jetstream"]
    assert output["max_in_flight"] == most
    assert output["headers"] == {"Nats-Msg-Id": "${! @id }"}


def test_connect_takes_an_event_apart_before_it_is_on_disk(tmp_path: Path) -> None:
    router = BufferedConnect(tmp_path, Path("connect"), "nats", "127.0.0.1:1", in_order=True)
    config = json.loads(Path(router.command()[-1]).read_text())
    _, taken_apart = config["input"]["processors"]
    assert "meta id = $told.4" in taken_apart["mapping"]
    assert config["pipeline"]["processors"] == []
    message = b"\x00\x00\x00\x11d\tk\ttrade\tt\ts:0\nE"
    assert router.prepared([record("d")]) == b"\x00\x00\x00\x01" + message


@pytest.mark.parametrize(("kind", "ports"), [(Dapr, 3), (Connect, 1)])
def test_routers_listen_on_this_machine_alone(tmp_path: Path, kind: type[Router], ports: int) -> None:
    router = kind(tmp_path, Path("router"), "kafka", "127.0.0.1:1", in_order=True)
    command = [*router.command()]
    written = [path.read_text() for path in tmp_path.rglob("*.yaml")]
    said = " ".join([*command, *written])
    assert kind.port_count == ports
    assert "0.0.0.0" not in said  # noqa: S104 - it must not be there
    if kind is Dapr:
        for option in ("--dapr-listen-addresses", "--dapr-internal-grpc-listen-address"):
            assert command[command.index(option) + 1] == "127.0.0.1"


@pytest.mark.parametrize("name", [*PINNED])
def test_programs_in_go_are_built_of_pinned_modules(name: str) -> None:
    lines = (BENCH / name / "go.mod").read_text().splitlines()
    for module in PINNED[name]:
        assert any(re.fullmatch(rf"\t{re.escape(module)} v\d+\.\d+\.\d+", line) for line in lines), module
    hashes = (BENCH / name / "go.sum").read_text()
    assert all(f"{module} v" in hashes for module in PINNED[name])


def test_without_go_nothing_is_built_and_one_line_says_so(tmp_path: Path) -> None:
    left = tmp_path / "peers" / "dapr"
    left.parent.mkdir()
    left.touch()
    done = subprocess.run(
        ["/bin/bash", "tools/build-peers.sh", str(left.parent)],
        cwd=ROOT,
        env={"PATH": str(tools_alone(tmp_path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "bench-peers: there is no Go, so nothing that needs it is compared\n"
    assert not left.exists()


def test_what_cannot_be_built_is_left_out_in_one_line(tmp_path: Path) -> None:
    folder = tools_alone(tmp_path)
    go = folder / "go"
    go.write_text('#!/bin/sh\necho "no such module"\ncase "$PWD" in *dapr) exit 1;; esac\n')
    go.chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "tools/build-peers.sh", str(tmp_path / "peers")],
        cwd=ROOT,
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line for line in done.stderr.splitlines() if "cannot" in line]
    log = tmp_path / "peers" / "dapr.log"
    assert said == [f"bench-peers: dapr cannot be built (see {log}), and is left out"]
    assert log.read_text() == "no such module\n"


def tools_alone(tmp_path: Path) -> Path:
    """Return a folder of programs without Go."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mkdir", "rm", "nice", "sh"):
        (folder / name).symlink_to(
            f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}"
        )
    return folder


def test_a_row_says_what_was_not_built_and_what_could_not_keep_up() -> None:
    loop = {"rate": 200_000.0, "cpu": 2.0, "p50": 1.0, "p99": 2.0, "paced": 5_000.0}
    slow = {"rate": 4_000.0, "cpu": 125.04, "p50": 1862.0, "p99": 3624.0, "paced": 3_900.0}
    assert peers.row("Redis", "x", slow, loop) == (
        *("Redis", "x", "4,000", "0.02", "125.0", "1,862.0 (only 3,900/s)", "3,624.0"),
    )
    assert peers.row("Redis", "x", "not built", loop) == ("Redis", "x", "not built", "", "", "", "")
    assert peers.row("Redis", "x", loop, "not built")[3] == ""


def test_a_row_of_a_queue_on_disk_says_how_it_fills_and_how_it_empties() -> None:
    found = {"rate": 20_000.0, "cpu": 9.96, "waiting": 30_000.0, "size": 512.4}
    found |= {"delivered": 1_500.0, "delivered_cpu": 80.04}
    row = peers.disk_row("x", found)
    assert row == ("x", "20,000", "10.0", "30,000", "512", "1,500", "80.0")
    assert len(row) == len(peers.DISK_HEADS) == len(peers.disk_row("x", "not built"))
    assert peers.told(found) == "20,000 events/s, 10.0 µs, then 1,500 events/s"


def test_a_queue_on_disk_has_all_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "queue").write_bytes(b"12345")
    (tmp_path / "queue-wal").write_bytes(b"123")
    assert waiting(2, tmp_path) == {"waiting": 2, "size": 4}


def test_a_peer_that_fails_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> Outcome:
        raise RuntimeError("two\nlines")

    assert peers.attempted("Redis", "x", fail) == "failed: RuntimeError: two lines"
    assert capsys.readouterr().err == "Redis: x: failed: RuntimeError: two lines (0 s)\n"


def test_tables_are_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    peers.show("Title", ("a", "b"), [("1", "2")])
    assert capsys.readouterr().out == "\nTitle:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_losses_are_counted() -> None:
    found = Outcome(sent=12_500, lost=1, duplicates=2, reordered=3, unsettled=4)
    assert peers.killed_row("Redis", "x", found) == ("Redis", "x", "12,500", "1", "2", "3", "4")


def test_percentiles_are_in_milliseconds() -> None:
    assert percentiles([number / 1000 for number in range(100)]) == {"p50": 50.0, "p99": 99.0}
