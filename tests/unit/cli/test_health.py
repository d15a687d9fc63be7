"""`bronze-sidecar health`: what a supervisor learns from its exit status."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from bronze_sidecar.cli.main import main
from servers import HOST, free_port


@pytest.fixture
def ailing() -> Iterator[int]:
    """Return the port of something that answers, but with an error."""
    server = http.server.HTTPServer((HOST, 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    yield server.server_address[1]
    thread.join()
    server.server_close()


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
