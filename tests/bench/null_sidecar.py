"""The sidecar with a back end that takes everything and does nothing: only the sidecar's own cost is left."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import uvloop
from bronze_sidecar.app import Sidecar
from bronze_sidecar.config import load
from bronze_sidecar.problems import Fault
from bronze_sidecar.routes import Route
from bronze_sidecar.sinks.base import Backend, Failed, Limits, Record, Rules, Sink
from bronze_sidecar.sinks.nats import SUBJECT
from bronze_sidecar.telemetry import set_up_logging
from bronze_sidecar.template import Template, parse


@dataclass(frozen=True)
class Null(Backend):
    """A back end without a server."""

    name = "null"
    title = "Null"
    max_batch_size: int = 1024
    max_batch_delay_ms: int = 2

    @asynccontextmanager
    async def open(self, route: Route) -> AsyncIterator[Sink]:
        yield NullSink()

    def rules(self) -> Rules:
        template = parse("bronze.{{exchange}}.{{symbol}}.{{payloadCase}}", SUBJECT)
        assert isinstance(template, Template)
        return Rules(destination=template)

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from ()


class NullSink:
    """Forgets what it is given."""

    limits = Limits(records=100_000, bytes=16 << 20)
    forgets_ids_after: float | None = None

    async def ping(self) -> None:
        """Answer."""

    async def write(self, batch: Sequence[Record]) -> Sequence[Failed]:
        """Say that everything was stored."""
        return ()


async def run() -> int:
    config = replace(load(sys.argv[1:], {}), backends=(Null(),))
    set_up_logging(config.log_level, config.log_format)
    return await Sidecar(config).run()


if __name__ == "__main__":
    sys.exit(uvloop.run(run()))
