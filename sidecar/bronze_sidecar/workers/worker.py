"""One of several processes that take events; `supervisor.py` starts it, with its post and the options."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import uvloop
from bronze_cli.problems import ConfigError
from bronze_cli.program import EXIT_USAGE
from bronze_cli.values import UNIX

from bronze_sidecar.app import Sidecar
from bronze_sidecar.configuration.bounds import worker_memory
from bronze_sidecar.configuration.config import Config, load
from bronze_sidecar.telemetry.logs import set_up_logging
from bronze_sidecar.workers.relay import Relay


class Post(msgspec.Struct, frozen=True):
    """What one worker is told that is not in the options."""

    number: int
    folder: str
    """For sockets of its own."""
    ports: list[str]
    """Addresses to share by their ports."""
    has_unix: bool
    """Whether connections to unix sockets are handed to it."""
    told_by: int = -1
    """A socket by which the supervisor hands them over; it ends when the supervisor does."""

    @property
    def admin(self) -> Path:
        return Path(self.folder, f"admin-{self.number}")

    @property
    def own_socket(self) -> Path:
        return Path(self.folder, f"worker-{self.number}")

    def config(self, whole: Config) -> Config:
        """Return this worker's part of the configuration."""
        letters = whole.dead_letter_file
        return replace(
            whole,
            listen=(*self.ports, *([f"{UNIX}{self.own_socket}"] if self.has_unix else [])),
            admin_listen=f"{UNIX}{self.admin}",
            memory_limit=worker_memory(whole.memory_limit, whole.workers),
            dead_letter_file=letters and letters.with_name(f"{letters.stem}-{self.number}{letters.suffix}"),
            dead_letter_max_bytes=whole.dead_letter_max_bytes // whole.workers,
        )


async def _serve(post: Post, config: Config) -> int:
    sidecar = Sidecar(config)
    running = asyncio.create_task(sidecar.run())
    serving = asyncio.create_task(sidecar.serving.wait())
    await asyncio.wait({running, serving}, return_when=asyncio.FIRST_COMPLETED)
    serving.cancel()
    relay = Relay(socket.socket(fileno=post.told_by), post.own_socket, sidecar.abandon)
    relay.start()
    status = await running
    await relay.finish()
    return status


def main(arguments: Sequence[str]) -> int:
    """Serve until told to stop; return the exit status."""
    post = msgspec.json.decode(arguments[0], type=Post)
    try:
        config = post.config(load(arguments[1:], os.environ))
    except ConfigError as error:
        # The supervisor could use it; the file has changed since, or cannot be read twice.
        print(f"bronze-sidecar: worker {post.number}: {error}", file=sys.stderr)
        return EXIT_USAGE
    set_up_logging(config.log_level, config.log_format, worker=post.number)
    return uvloop.run(_serve(post, config))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
