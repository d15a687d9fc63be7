"""What Kinesis and SQS share: how to reach AWS, and data that the driver has read already."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.base import SourceOptions, Unreachable

ACCESS_FLAGS = {
    "region": ("REGION", "AWS region; by default that of the AWS tools"),
    "profile": ("NAME", "profile of the AWS tools; by default their usual credentials"),
    "endpoint_url": ("URL", "endpoint instead of the region's own"),
    "tls_ca_file": ("FILE", "certificates to trust"),
}
CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
# Also after being throttled; the waits between them grow to 20 seconds.
ATTEMPTS = 10


@dataclass
class Carried(InputPartition):
    """Records that the driver read, on their way to a task."""

    batches: list[pa.RecordBatch] = field(default_factory=list)


@dataclass(frozen=True)
class Access:
    """How to reach a service. Credentials are found where the AWS tools find them."""

    region: str | None
    profile: str | None
    endpoint_url: str | None
    tls_ca_file: str | None

    @classmethod
    def of(cls, options: SourceOptions) -> Access:
        return cls(
            options.text("region"),
            options.text("profile"),
            options.text("endpointUrl"),
            options.text("tlsCaFile"),
        )


@contextmanager
def service(name: str, access: Access, calls_at_once: int = 1) -> Iterator[Any]:
    """Yield a client of a service; close it on leaving."""
    import boto3  # noqa: PLC0415 - only where AWS is used
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    settings = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        max_pool_connections=calls_at_once,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    try:
        session = boto3.Session(profile_name=access.profile, region_name=access.region)
        client = session.client(
            name, endpoint_url=access.endpoint_url, verify=access.tls_ca_file, config=settings
        )
        try:
            yield client
        finally:
            client.close()
    except (BotoCoreError, ClientError) as error:
        raise Unreachable(f"{name}: {error}") from error


def add_access_flags(parser: argparse.ArgumentParser, bus: str, title: str) -> argparse._ArgumentGroup:
    group = parser.add_argument_group(title)
    for name, (metavar, text) in ACCESS_FLAGS.items():
        group.add_argument(f"--{bus}-{name.replace('_', '-')}", metavar=metavar, help=text)
    return group


def access_options(flags: argparse.Namespace, bus: str) -> dict[str, str]:
    names = {
        "region": "region",
        "profile": "profile",
        "endpoint_url": "endpointUrl",
        "tls_ca_file": "tlsCaFile",
    }
    given = {option: getattr(flags, f"{bus}_{name}") for name, option in names.items()}
    return {option: value for option, value in given.items() if value is not None}


def error_code(error: Exception) -> str:
    """Return the code that AWS gave an error."""
    answer: Mapping[str, Any] = getattr(error, "response", {})
    return str(answer.get("Error", {}).get("Code", ""))
