"""The sidecar as an operator runs it: a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from servers import HOST, NativeServer, free_port

PROGRAM = str(Path(sysconfig.get_path("scripts"), "bronze-sidecar"))


class SidecarProcess(NativeServer):
    """`bronze-sidecar run` with a unix socket; it may be killed and started again."""

    scheme = "http"

    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__(directory)
        self.address = f"unix://{directory / 's'}"
        self._arguments = arguments

    def command(self) -> Sequence[str]:
        listen = ["--listen", self.address, "--admin-listen", f"{HOST}:{self.port}"]
        return [PROGRAM, "run", *listen, *self._arguments]

    def answers(self) -> bool:
        return self.get("/healthz")[0] == 200

    def get(self, path: str) -> tuple[int, str]:
        """Ask the admin port."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.get("/status")[1])
        return status

    def metric(self, name: str) -> float:
        """Return a metric's value, added up over its labels."""
        lines = self.get("/metrics")[1].splitlines()
        values = [float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        assert values, f"there is no metric {name}"
        return sum(values)

    def resident_bytes(self) -> int:
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 60
        while self.get("/readyz")[0] != 200:
            assert time.monotonic() < deadline, self.get("/readyz")[1] + self.log.read_text()
            time.sleep(0.02)

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop, and do not wait."""
        self._signal(number)

    def wait(self, seconds: float = 60) -> int:
        """Return the exit status."""
        assert self._process is not None
        status = self._process.wait(seconds)
        self._process = None
        return status

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@contextlib.contextmanager
def sidecar(
    *arguments: str, kind: Callable[..., SidecarProcess] = SidecarProcess
) -> Iterator[SidecarProcess]:
    """Run a sidecar for a test; its folder is short, for a socket's path must be."""
    directory = Path(tempfile.mkdtemp(prefix="bs-"))
    process = kind(directory, *arguments)
    try:
        yield process.start()
    finally:
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):
            process.stop()
        shutil.rmtree(directory, ignore_errors=True)


__all__ = ["SidecarProcess", "free_port", "sidecar"]
