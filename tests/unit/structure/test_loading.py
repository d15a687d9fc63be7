"""What a process of the sidecar loads: nothing that it does not use, for loading is most of its start."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bronze_sidecar.sinks import BACKENDS

# The libraries that back ends bring, each with those that need it.
LIBRARIES = {
    "aiobotocore": {"kinesis", "sqs"},
    "aiohttp": {"kinesis", "sqs", "nats"},  # the library for NATS loads it for WebSockets
    "aiokafka": {"kafka"},
    "aws_msk_iam_sasl_signer": set(),
    "boto3": set(),
    "botocore": {"kinesis", "sqs"},
    "cramjam": {"kafka"},
    "hiredis": {"redis"},
    "nacl": set(),
    "nats": {"nats"},
    "redis": {"redis"},
}
# What only other commands, or rare options, need.
NEVER = {"bronze_sidecar.cli.send", "bronze_sidecar.cli.check", "jsonschema", "pyspark", "zstandard"}


def loaded(*modules: str) -> set[str]:
    program = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_process_loads_no_library_of_a_back_end_that_is_off() -> None:
    found = loaded("bronze_sidecar.cli.main", "bronze_sidecar.cli.run", "bronze_sidecar.app")
    assert not found & (LIBRARIES.keys() | NEVER)


@pytest.mark.parametrize("name", [each.name for each in BACKENDS])
def test_a_back_end_loads_its_own_library_alone(name: str) -> None:
    found = loaded("bronze_sidecar.app", f"bronze_sidecar.sinks.{name}.sink")
    assert found & LIBRARIES.keys() == {library for library, users in LIBRARIES.items() if name in users}
    assert not found & NEVER


def test_options_are_read_without_grpc_and_protobuf() -> None:
    found = loaded("bronze_sidecar.cli.main", "bronze_sidecar.cli.run", "bronze_sidecar.configuration.config")
    assert not found & {"grpc", "google.protobuf", "uvloop", "prometheus_client", "http.client"}
