"""What Kinesis and SQS share: how to reach AWS, and data that the driver has read already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from bronze_buses.aws_codes import CREDENTIAL_CODES, DENIAL_CODES, MISSING_CODES
from pyspark.sql.datasource import InputPartition

from bronze_pipeline.sources.base import Refused, SourceOptions, Unreachable
from bronze_pipeline.sources.refusals import certificate_fault

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
class AwsAccess:
    """How to reach a service. Credentials are found where the AWS tools find them."""

    region: str | None
    profile: str | None
    endpoint_url: str | None
    tls_ca_file: str | None

    @classmethod
    def of(cls, options: SourceOptions) -> AwsAccess:
        return cls(
            options.text("region"),
            options.text("profile"),
            options.text("endpointUrl"),
            options.text("tlsCaFile"),
        )


@contextmanager
def service(name: str, access: AwsAccess, calls_at_once: int = 1) -> Iterator[Any]:
    """Yield a client of a service; close it on leaving."""
    import boto3  # noqa: PLC0415 - only where AWS is used
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    from botocore.session import Session  # noqa: PLC0415

    def refuse_certificate(caught_exception: Exception | None = None, **_: Any) -> None:
        # The library takes it for a broken connection, and would go on trying for a minute.
        if caught_exception is not None and certificate_fault(caught_exception, f"--{name}"):
            raise caught_exception

    settings = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        max_pool_connections=calls_at_once,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    try:
        core = Session()
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
        session = boto3.Session(botocore_session=core, profile_name=access.profile, region_name=access.region)
        client = session.client(
            name, endpoint_url=access.endpoint_url, verify=access.tls_ca_file, config=settings
        )
        client.meta.events.register_first(f"needs-retry.{name}", refuse_certificate)
        try:
            yield client
        finally:
            client.close()
    except (BotoCoreError, ClientError) as error:
        raise meaning(error, name) from error


def _time(value: Any) -> datetime:
    """Read a time of an answer. The library's own way costs more than all the rest of a record."""
    from botocore.utils import parse_timestamp  # noqa: PLC0415 - only where AWS is used

    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    found: datetime = parse_timestamp(value)
    return found


def meaning(error: Exception, service_name: str) -> Refused | Unreachable:
    """Return what a client's error means for the job."""
    from botocore import exceptions  # noqa: PLC0415 - only where AWS is used

    code = error_code(error)
    if code in CREDENTIAL_CODES:
        # What AWS writes about it may hold parts of the request.
        return Refused(f"{service_name}: AWS refuses the credentials ({code}): check {_where(service_name)}.")
    if code in DENIAL_CODES:
        return Refused(f"{service_name}: the credentials do not permit what reading takes: {error}")
    if code in MISSING_CODES:
        return Refused(f"{service_name}: check the name in --from, and --{service_name}-region: {error}")
    unusable = (
        exceptions.NoCredentialsError,
        exceptions.NoRegionError,
        exceptions.PartialCredentialsError,
        exceptions.ProfileNotFound,
        exceptions.SSOError,
    )
    if isinstance(error, unusable):
        return Refused(f"{service_name}: {error}: check {_where(service_name)}.")
    fault = certificate_fault(error, f"--{service_name}")
    return Refused(f"{service_name}: {fault}") if fault else Unreachable(f"{service_name}: {error}")


def _where(service_name: str) -> str:
    return f"--{service_name}-region, --{service_name}-profile and the variables and files of the AWS tools"


def error_code(error: Exception) -> str:
    """Return the code that AWS gave an error, without the name space that some services write before it."""
    answer: Mapping[str, Any] = getattr(error, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", "")).rpartition(".")[2].rpartition("#")[2]
