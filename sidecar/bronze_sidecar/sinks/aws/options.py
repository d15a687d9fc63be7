"""What the options of Kinesis and SQS have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bronze_buses.aws import AwsEndpoint, Region
from bronze_cli.options import option
from bronze_cli.problems import Fault
from bronze_cli.values import Secret

from bronze_sidecar.sinks.base import Backend, both_or_neither, flag


@dataclass(frozen=True)
class AwsBackend(AwsEndpoint, Backend):
    """An AWS back end: where it is, and whose credentials to use."""

    region: str = option(Region(), "AWS region.", required=True)
    access_key: str | None = option(
        Secret(), "Access key; the default AWS credential chain if not given.", secret=True
    )
    secret_key: str | None = option(Secret(), "Secret key for the access key.", secret=True)
    session_token: str | None = option(Secret(), "Session token for temporary credentials.", secret=True)

    def faults(self) -> Iterator[tuple[str, Fault]]:
        yield from both_or_neither(self, "access_key", "secret_key")
        if self.session_token is not None and self.access_key is None:
            yield "session_token", Fault("has no effect on its own.", f"Add {flag(self, 'access_key')}.")
