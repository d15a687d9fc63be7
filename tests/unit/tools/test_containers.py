"""When a Docker engine counts: what it must have, and what is said if it has not."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import containers
import pytest
import servers

IMAGE = "nats:2.12-alpine"


class Engine(socketserver.ThreadingUnixStreamServer):
    """Answers a few questions as an engine does."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Answers)
        self.has_bridge = True
        self.images: set[str] = set()
        self.registry: set[str] = set()
        self.hangs = False
        """Whether a pull goes on and on."""
        self.asked: list[str] = []
        self.end = threading.Event()


class Answers(http.server.BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self.server.asked.append(f"GET {self.path}")
        image = self.path.removeprefix("/images/").removesuffix("/json").replace("%3A", ":")
        known = {"/_ping", *(["/networks/bridge"] if self.server.has_bridge else [])}
        self.answer(200 if self.path in known or image in self.server.images else 404)

    def do_POST(self) -> None:
        self.server.asked.append(f"POST {self.path}")
        self.send_response(200)
        self.end_headers()
        if self.server.hangs:
            while not self.server.end.wait(0.01):
                try:
                    self.wfile.write(b"{}\n")
                except OSError:
                    return
        self.server.images |= self.server.registry

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def address_string(self) -> str:
        return "a unix socket"

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.delenv("TEST_SERVERS", raising=False)
    monkeypatch.delenv("TEST_NATS_URL", raising=False)
    containers.hindrance.cache_clear()
    with Engine(tmp_path / "docker.sock") as engine:
        thread = threading.Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        yield engine
        engine.end.set()
        engine.shutdown()
        thread.join()
    containers.hindrance.cache_clear()


def test_an_engine_with_the_image_counts_and_pulls_nothing(engine: Engine) -> None:
    engine.images.add(IMAGE)
    assert containers.serves(IMAGE)
    assert servers.NATS.description() == f"nats: container {IMAGE}"
    assert not [each for each in engine.asked if each.startswith("POST")]


def test_an_image_that_comes_at_once_counts(engine: Engine) -> None:
    engine.registry.add(IMAGE)
    assert containers.serves(IMAGE)
    assert [each for each in engine.asked if each.startswith("POST")] == [
        "POST /images/create?fromImage=nats&tag=2.12-alpine"
    ]


def test_without_the_image_it_is_one_line_and_native_programs(engine: Engine) -> None:
    assert not containers.serves(IMAGE)
    assert servers.NATS.provider() == "native"
    line = servers.NATS.description()
    assert line.startswith("nats: native nats-server (the Docker engine has no nats:2.12-alpine")
    assert len(line.splitlines()) == 1
    # Asked once, by however many tests.
    assert len([each for each in engine.asked if each.startswith("POST")]) == 1


def test_a_pull_that_takes_long_is_not_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.registry.add(IMAGE)
    engine.hangs = True
    monkeypatch.setattr(containers, "PULL_SECONDS", 0.05)
    assert not containers.serves(IMAGE)


def test_an_engine_without_a_bridge_is_not_asked_for_images(engine: Engine) -> None:
    engine.images.add(IMAGE)
    engine.has_bridge = False
    assert not containers.serves(IMAGE)
    assert "(the Docker engine has no bridge network)" in servers.NATS.description()
    assert engine.asked == ["GET /_ping", "GET /networks/bridge"]


def test_who_asks_for_containers_is_told_why_there_are_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_SERVERS", "containers")
    with pytest.raises(
        RuntimeError, match=r"asks for containers, but the Docker engine has no nats:2\.12-alpine"
    ):
        containers.serves(IMAGE)
    monkeypatch.setenv("TEST_SERVERS", "native")
    engine.images.add(IMAGE)
    assert not containers.serves(IMAGE)
    monkeypatch.setenv("TEST_SERVERS", "container")
    with pytest.raises(RuntimeError, match="TEST_SERVERS is 'container', not auto, containers or native"):
        containers.serves(IMAGE)


def test_without_an_engine_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containers.hindrance.cache_clear()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.delenv("TEST_SERVERS", raising=False)
    assert not containers.serves(IMAGE)
    assert containers.remark(IMAGE) == ""
    containers.hindrance.cache_clear()


@pytest.mark.parametrize(
    ("answer", "ready"),
    [
        (b"+PONG\r\n", True),
        (b"-NOAUTH Authentication required.\r\n", True),
        (b"-DENIED Redis is running in protected mode\r\n", False),
        (b"-LOADING Redis is loading the dataset in memory\r\n", False),
        (b"-NOPERM User default has no permissions to run the 'ping' command\r\n", False),
        (b"-ERR max number of clients reached\r\n", False),
    ],
)
def test_a_redis_server_is_ready_if_it_serves_this_address(answer: bytes, ready: bool) -> None:
    class Redis(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(100)
            self.request.sendall(answer)

    with socketserver.TCPServer((servers.HOST, 0), Redis) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert servers.redis_answers(servers.HOST, server.server_address[1]) is ready
        thread.join()
