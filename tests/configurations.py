"""Configurations for tests: the least that each back end needs, and short ways to load them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bronze_cli.problems import ConfigError
from bronze_sidecar.configuration.config import Config, load

KAFKA = ("--kafka-brokers=localhost:9092", "--kafka-topic=bronze")
NATS = ("--nats-servers=nats://localhost:4222", "--nats-subject=bronze")
KINESIS = ("--kinesis-stream=bronze", "--kinesis-region=eu-central-1")
REDIS = ("--redis-host=localhost", "--redis-stream=bronze")
SQS = (
    "--sqs-queue-url=https://sqs.eu-central-1.amazonaws.com/123456789012/bronze",
    "--sqs-region=eu-central-1",
)
MINIMAL = {"kafka": KAFKA, "nats": NATS, "kinesis": KINESIS, "redis": REDIS, "sqs": SQS}


def without(flags: tuple[str, ...], *given: str) -> tuple[str, ...]:
    """Leave out the flags that `given` gives another value."""
    names = {each.partition("=")[0] for each in given}
    return tuple(flag for flag in flags if flag.partition("=")[0] not in names)


def backend_of(*flags: str, environ: Mapping[str, str] | None = None) -> Any:
    """Load a configuration of one back end, and return that."""
    (backend,) = load(flags, environ or {}).backends
    return backend


def with_minimum(*flags: str) -> Any:
    """Load the back end that the flags belong to, with what else it needs."""
    group = flags[0].removeprefix("--").partition("-")[0]
    return backend_of(*without(MINIMAL[group], *flags), *flags)


def problems_of(*flags: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return what is wrong with a configuration, one text for each problem; nothing if it loads."""
    try:
        load(flags, environ or {})
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def problems_with_minimum(*flags: str) -> list[str]:
    """Return what is wrong with the flags of one back end, which has what else it needs."""
    group = flags[0].removeprefix("--").partition("-")[0]
    return problems_of(*without(MINIMAL[group], *flags), *flags)


class ConfigFile:
    """A YAML file in a test's own folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sidecar.yaml"

    def flag(self, text: str | bytes) -> str:
        """Write the file, and return the flag that names it."""
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return f"--config={self.path}"

    def load(self, text: str | bytes, *flags: str, environ: Mapping[str, str] | None = None) -> Config:
        return load([self.flag(text), *flags], environ or {})

    def problems(self, text: str | bytes, *flags: str, environ: Mapping[str, str] | None = None) -> list[str]:
        """Return what is wrong, with the file's name in place of its path."""
        found = problems_of(self.flag(text), *flags, environ=environ)
        return [problem.replace(str(self.path), self.path.name) for problem in found]
