"""The sidecar with a back end that takes everything and does nothing: only the sidecar's own cost is left."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import uvloop
from bronze_cli.problems import Fault
from bronze_sidecar.app import Sidecar
from bronze_sidecar.configuration.config import load
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record, Rules
from bronze_sidecar.routing.template import Template, parse
from bronze_sidecar.sinks.base import Backend, Failed, Limits, Sink
from bronze_sidecar.sinks.nats.options import SUBJECT
from bronze_sidecar.telemetry.logs import set_up_logging


@dataclass(frozen=True)
class Null(Backend):
    """A back end without a server."""

    name = "null"
    title = "Null"
    max_batch_size: int = 1024
    max_batch_delay_ms: int = 0

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
    order = "strict"
    has_one_path = True
    advice = ""

    async def ping(self) -> None:
        """Answer."""

    def prepare(self, batch: Sequence[Record]) -> None:
        """There is nothing to make."""

    async def write(self, batch: Sequence[Record], prepared: object = None) -> Sequence[Failed]:
        """Say that everything was stored."""
        return ()


async def run() -> int:
    config = replace(load(sys.argv[1:], {}), backends=(Null(),))
    set_up_logging(config.log_level, config.log_format)
    return await Sidecar(config).run()


if __name__ == "__main__":
    sys.exit(uvloop.run(run()))
