"""What Kinesis and SQS share: credentials, region and endpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bronze_cli.problems import Fault, shorten
from bronze_cli.values import Scalar

from bronze_sidecar.sinks.base import Backend, both_or_neither, flag


class Region(Scalar):
    """An AWS region."""

    metavar = "REGION"

    def read(self, text: str) -> str | list[Fault]:
        if re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-[0-9]+", text):
            return text
        return [Fault(f"'{shorten(text)}' is no region.", "It looks like eu-central-1.")]


def credential_faults(backend: Backend) -> Iterator[tuple[str, Fault]]:
    yield from both_or_neither(backend, "access_key", "secret_key")
    if getattr(backend, "session_token", None) is not None and getattr(backend, "access_key", None) is None:
        yield "session_token", Fault("is of no use alone.", f"Add {flag(backend, 'access_key')}.")
