"""Containers for tests, where a Docker engine has their images, or gets them at once."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import time
import urllib.parse
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import Any

ENGINE_SECONDS = 2.0
PULL_SECONDS = 10.0
CHOICES = {"auto", "containers", "native"}


def serves(image: str) -> bool:
    """Tell whether a container of this image is the server; raise RuntimeError if it should be and cannot."""
    choice = os.environ.get("TEST_SERVERS") or "auto"
    if choice not in CHOICES:
        raise RuntimeError(f"TEST_SERVERS is '{choice}', not auto, containers or native")
    if choice == "native":
        return False
    reason = hindrance(image)
    if reason and choice == "containers":
        raise RuntimeError(f"TEST_SERVERS asks for containers, but {reason}")
    return reason is None


def remark(image: str) -> str:
    """Return why there is an engine and no container of it, in brackets; nothing if that needs no words."""
    choice = os.environ.get("TEST_SERVERS") or "auto"
    reason = hindrance(image) if choice == "auto" else None
    return f" ({reason})" if reason and reason != NO_ENGINE else ""


NO_ENGINE = "no Docker engine answers"


@cache
def hindrance(image: str) -> str | None:
    """Return why there can be no container of an image; None if there can."""
    try:
        if _ask("GET", "/_ping", ENGINE_SECONDS) != HTTPStatus.OK:
            return NO_ENGINE
    except (OSError, http.client.HTTPException):
        return NO_ENGINE
    try:
        # Ports are published through it.
        if _ask("GET", "/networks/bridge", ENGINE_SECONDS) != HTTPStatus.OK:
            return "the Docker engine has no bridge network"
        if _has(image):
            return None
        repository, _, tag = image.rpartition(":")
        query = urllib.parse.urlencode({"fromImage": repository, "tag": tag})
        _ask("POST", f"/images/create?{query}", PULL_SECONDS)
        # That it was asked for is not that it came.
        if _has(image):
            return None
    except (OSError, http.client.HTTPException):
        pass
    return f"the Docker engine has no {image}, and does not get it within {PULL_SECONDS:.0f} s"


def _has(image: str) -> bool:
    return _ask("GET", f"/images/{urllib.parse.quote(image)}/json", ENGINE_SECONDS) == HTTPStatus.OK


def _ask(method: str, path: str, seconds: float) -> int:
    """Ask the engine, without loading a library for it; raise OSError if the answer takes longer in all."""
    address = urllib.parse.urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    if address.scheme not in {"unix", "tcp"}:
        raise OSError(f"an engine at {address.scheme} is not asked")
    deadline = time.monotonic() + seconds
    connection = http.client.HTTPConnection(
        address.hostname or "localhost", address.port or 2375, timeout=seconds
    )
    try:
        if address.scheme == "unix":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(seconds)
            connection.sock.connect(address.path)
        connection.request(method, path)
        answer = connection.getresponse()
        # A pull tells how it goes until it has ended.
        while answer.read1():
            if time.monotonic() > deadline:
                raise TimeoutError
        return answer.status
    finally:
        connection.close()


def container(image: str) -> Any:
    """Return a container of Testcontainers, to be configured and entered."""
    # It would pull an image of its own, which removes containers whose tests were killed, and mounts the
    # engine's socket into it. Who wants that sets this variable to false.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    # Its import takes seconds and complains where there is no engine.
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415

    return DockerContainer(image)


def wait_until(answers: Callable[[], object], image: str, seconds: float) -> None:
    """Return when the server in a container answers."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if answers():
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{image} does not answer")
        time.sleep(0.05)
