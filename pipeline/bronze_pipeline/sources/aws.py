"""What Kinesis and SQS share: how to reach AWS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bronze_buses.aws import AwsEndpoint, Region
from bronze_buses.errors import Refused, Unreachable
from bronze_buses.tls import certificate_fault
from bronze_cli.options import option
from bronze_cli.values import Text

CONNECT_SECONDS = 10
ANSWER_SECONDS = 60
# Also after throttling; the waits between them grow to 20 seconds.
ATTEMPTS = 10


@dataclass(frozen=True)
class AwsAccess(AwsEndpoint):
    """How to reach a service. Credentials are found where the AWS tools find them."""

    region: str | None = option(Region(), "AWS region; the AWS tools' default if not given.")
    profile: str | None = option(Text(), "Profile of the AWS tools; their default credentials if not given.")


@contextmanager
def service(name: str, access: AwsAccess, calls_at_once: int = 1) -> Iterator[Any]:
    """Yield a client for a service; close it on leaving."""
    import boto3  # noqa: PLC0415 - only where AWS is used
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    from botocore.session import Session  # noqa: PLC0415

    def refuse_certificate(caught_exception: Exception | None = None, **_: Any) -> None:
        # The library treats it as a broken connection, and would keep trying for a minute.
        if caught_exception is not None and certificate_fault(caught_exception, f"--{name}-tls"):
            raise caught_exception

    ca_file = str(access.tls_ca_file) if access.tls_ca_file else None
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
            name,
            endpoint_url=access.endpoint_url,
            verify=ca_file,
            config=settings,
        )
        client.meta.events.register_first(f"needs-retry.{name}", refuse_certificate)
        try:
            yield client
        finally:
            client.close()
    except (BotoCoreError, ClientError) as error:
        raise meaning(error, name) from error


def _time(value: Any) -> datetime:
    """Parse a time in an answer. The library's own parser costs more than the rest of a record."""
    from botocore.utils import parse_timestamp  # noqa: PLC0415 - only where AWS is used

    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    found: datetime = parse_timestamp(value)
    return found


def meaning(error: Exception, service_name: str) -> Refused | Unreachable:
    """Return what a client's error means for the job."""
    from bronze_buses.aws_errors import Meaning, error_code, meaning_of  # noqa: PLC0415 - only where AWS is used

    flags = f"--{service_name}"
    where = f"{flags}-region, {flags}-profile and the variables and files of the AWS tools"
    match meaning_of(error):
        case Meaning.CREDENTIALS_REFUSED:
            # The text from AWS may contain parts of the request.
            code = error_code(getattr(error, "response", {}))
            return Refused(f"{service_name}: AWS refuses the credentials ({code}): check {where}")
        case Meaning.NO_CREDENTIALS:
            return Refused(f"{service_name}: {error}: check {where}")
        case Meaning.DENIED:
            return Refused(f"{service_name}: the credentials lack a permission that reading needs: {error}")
        case Meaning.MISSING:
            return Refused(f"{service_name}: check the name in --from, and {flags}-region: {error}")
    fault = certificate_fault(error, f"{flags}-tls")
    return Refused(f"{service_name}: {fault}") if fault else Unreachable(f"{service_name}: {error}")
