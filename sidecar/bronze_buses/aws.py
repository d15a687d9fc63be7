"""The options that every AWS service has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bronze_cli.options import option
from bronze_cli.problems import Fault, shorten
from bronze_cli.values import File, Scalar, Url


class Region(Scalar):
    """An AWS region."""

    metavar = "REGION"

    def read(self, text: str) -> str | list[Fault]:
        if re.fullmatch(r"[a-z]{2,}(-[a-z]+)+-[0-9]+", text):
            return text
        return [Fault(f"'{shorten(text)}' is not a region.", "It looks like eu-central-1.")]


@dataclass(frozen=True)
class AwsEndpoint:
    """Where a service is."""

    endpoint_url: str | None = option(Url(), "Endpoint to use instead of the region's default.")
    tls_ca_file: Path | None = option(File(), "CA certificates to trust instead of botocore's.")
