"""`bronze-sidecar health`: what a supervisor learns from its exit status."""

from __future__ import annotations

import contextlib
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from bronze_sidecar.cli.alive import DEFAULT_ADDRESS, plain_address, plainly_alive
from bronze_sidecar.cli.main import main
from bronze_sidecar.configuration.config import Config, load
from servers import HOST, free_port


class Well(http.server.BaseHTTPRequestHandler):
    """Answers as a sidecar that is alive, and nothing else than what it is asked."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def answering(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer((HOST, 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def well() -> Iterator[int]:
    with answering(Well) as port:
        yield port


@pytest.fixture
def ailing() -> Iterator[int]:
    """Return the port of something that answers, but with an error."""
    with answering(http.server.BaseHTTPRequestHandler) as port:
        yield port


@pytest.fixture
def mumbling() -> Iterator[int]:
    """Return the port of something that speaks no HTTP, and hangs up."""
    with socket.create_server((HOST, 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"-ERR unknown command")

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["health", "--admin-listen", f"{HOST}:{port}"]) == 1
    assert f"bronze-sidecar: nothing answers at {HOST}:{port}: " in capsys.readouterr().err


def test_something_else_answers(ailing: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--admin-listen", f"{HOST}:{ailing}"]) == 1
    assert f"{HOST}:{ailing} answers with status 501." in capsys.readouterr().err


def test_wrong_options_are_refused_as_by_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--admin-listn", "x"]) == 2
    assert "Did you mean --admin-listen?" in capsys.readouterr().err


def test_something_answers_that_is_no_sidecar(mumbling: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--admin-listen", f"{HOST}:{mumbling}"]) == 1
    assert f"{HOST}:{mumbling} does not answer as a sidecar does." in capsys.readouterr().err


def test_it_answers(well: int, ailing: int) -> None:
    assert main(["health", "--admin-listen", f"{HOST}:{well}"]) == 0
    assert plainly_alive([], {"SIDECAR_ADMIN_LISTEN": f"0.0.0.0:{well}"})
    assert not plainly_alive([], {"SIDECAR_ADMIN_LISTEN": f"{HOST}:{ailing}"})
    assert not plainly_alive([], {"SIDECAR_ADMIN_LISTEN": f"{HOST}:{free_port()}"})
    assert not plainly_alive([], {"SIDECAR_ADMIN_LISTEN": f"{HOST}:99999"})


HEALTH = "from bronze_sidecar.__main__ import entry\nentry()\n"
MODULES = "import sys\nprint(*sys.modules)\n"


def python(
    program: str, environ: Mapping[str, str], arguments: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, "health", *arguments]
    return subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("variables", "flags", "file"),
    [
        ({"SIDECAR_ADMIN_LISTEN": "ADDRESS", "SIDECAR_NATS_SERVERS": HOST}, [], ""),
        ({}, ["--admin-listen", "ADDRESS"], ""),
        ({"SIDECAR_ADMIN_LISTEN": "127.0.0.1:1"}, ["--admin-listen=ADDRESS"], ""),
        ({"SIDECAR_CONFIG": "FILE"}, [], "admin_listen: ADDRESS\n"),
        ({"SIDECAR_CONFIG": "/nowhere"}, ["--config", "FILE"], "admin_listen: ADDRESS\n"),
        ({}, ["--config=FILE", "--admin-listen", "ADDRESS"], "admin_listen: 127.0.0.1:1\n"),
    ],
)
def test_what_is_well_is_found_out_with_next_to_no_imports(
    variables: Mapping[str, str], flags: Sequence[str], file: str, well: int, tmp_path: Path
) -> None:
    """Asked every few seconds, on nodes that have nothing to spare."""

    def meant(text: str) -> str:
        return text.replace("ADDRESS", f"{HOST}:{well}").replace("FILE", str(tmp_path / "sidecar.yaml"))

    (tmp_path / "sidecar.yaml").write_text(meant(file))
    environ = {name: meant(value) for name, value in variables.items()}
    done = python(HEALTH + MODULES, environ, [meant(flag) for flag in flags])
    assert done.returncode == 0, done.stderr
    bare = python("import socket, encodings.idna\n" + MODULES, environ)
    assert set(done.stdout.split()) - set(bare.stdout.split()) == {
        "bronze_sidecar",
        "bronze_sidecar.__main__",
        "bronze_sidecar.cli",
        "bronze_sidecar.cli.alive",
    }


@pytest.mark.parametrize(
    "flags",
    [
        ["--admin-listn", "127.0.0.1:1"],
        ["--admin-listen"],
        ["--admin-listen="],
        ["--admin-listen", "--config"],
        ["--admin-listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:2"],
        ["127.0.0.1:1"],
        ["--nats-servers", "127.0.0.1"],
        ["--help"],
    ],
)
def test_flags_that_are_not_plain_are_read_as_by_run(flags: Sequence[str]) -> None:
    assert plain_address(flags, {}) is None


def test_what_is_not_plain_is_read_as_by_run(well: int, tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(f"'admin_listen': '{HOST}:{well}'\n")
    assert not plainly_alive([], {"SIDECAR_CONFIG": str(file)})
    done = python(HEALTH, {"SIDECAR_CONFIG": str(file)})
    assert (done.returncode, done.stderr) == (0, "")
    file.write_text("admin_listn: x\n")
    done = python(HEALTH, {"SIDECAR_CONFIG": str(file)})
    assert done.returncode == 2
    assert "Did you mean 'admin_listen'?" in done.stderr


def test_the_default_is_that_of_the_option() -> None:
    assert Config().admin_listen == DEFAULT_ADDRESS


@pytest.mark.parametrize(
    ("file", "variable", "plain"),
    [
        (None, None, "127.0.0.1:9464"),
        (None, "", "127.0.0.1:9464"),
        (None, "0.0.0.0:1234", "0.0.0.0:1234"),
        (None, "[::1]:1234", "[::1]:1234"),
        (None, "9464", None),
        (None, "localhost:port", None),
        ("", None, "127.0.0.1:9464"),
        ("nats:\n  servers: n1:4222\n  subject: s\n", None, "127.0.0.1:9464"),
        ("listen: 127.0.0.1:1\nadmin_listen: 0.0.0.0:99\nnats:\n", None, "0.0.0.0:99"),
        ("admin_listen: 0.0.0.0:99\n", "127.0.0.1:1234", "127.0.0.1:1234"),
        ("admin_listen: 0.0.0.0:99 # the admin port\n", None, None),
        ("admin-listen: 0.0.0.0:99\n", None, None),
        ("Admin_Listen: 0.0.0.0:99\n", None, None),
        ("{admin_listen: 0.0.0.0:99}\n", None, None),
        ("admin_listen:\n  0.0.0.0:99\n", None, None),
        ("# admin_listen: 0.0.0.0:98\nadmin_listen: 0.0.0.0:99\n", None, None),
        ('"\\x61dmin_listen": 0.0.0.0:99\n', None, None),
        ("nats:\n  static_headers:\n    admin_listen: 0.0.0.0:99\n", None, None),
    ],
)
def test_an_address_is_plain_only_if_every_reader_would_find_it(
    file: str | None, variable: str | None, plain: str | None, tmp_path: Path
) -> None:
    environ = {}
    if file is not None:
        environ["SIDECAR_CONFIG"] = str(tmp_path / "sidecar.yaml")
        (tmp_path / "sidecar.yaml").write_text(file)
    if variable is not None:
        environ["SIDECAR_ADMIN_LISTEN"] = variable
    assert plain_address([], environ) == plain
    if plain:
        assert load([], environ).admin_listen == plain


def test_a_file_that_cannot_be_read_is_not_plain(tmp_path: Path) -> None:
    assert plain_address([], {"SIDECAR_CONFIG": str(tmp_path / "none.yaml")}) is None
    (tmp_path / "bytes.yaml").write_bytes(b"\xff")
    assert plain_address([], {"SIDECAR_CONFIG": str(tmp_path / "bytes.yaml")}) is None
