"""`bronze-sidecar health`: asks a running sidecar if it is alive, for callers that only start programs."""

from __future__ import annotations

import http.client
import os
from collections.abc import Sequence
from http import HTTPStatus

from bronze_cli.program import CommandFailed

from bronze_sidecar.configuration.config import NAMES, PROCESS_OPTIONS, Config, load

DESCRIPTION = """
Asks the sidecar running with these options if it is alive. Only --admin-listen matters; it may come from any
source. Exit status: 0 it answers · 1 it does not.
"""
OPTIONS = [each for each in PROCESS_OPTIONS if each.name in {"admin_listen", "config"}]
TIMEOUT_SECONDS = 5

__all__ = ["DESCRIPTION", "NAMES", "OPTIONS", "run"]


def run(arguments: Sequence[str]) -> int:
    """Ask; raise CommandFailed if there is no good answer."""
    fault = fault_of(load(arguments, os.environ))
    if fault:
        raise CommandFailed(fault)
    return 0


def fault_of(config: Config) -> str | None:
    """Return why the sidecar with this configuration is not alive; None if it is."""
    # Connecting to the wildcard address reaches this machine.
    host, _, port = config.admin_listen.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"nothing answers at {config.admin_listen}: {error}."
    finally:
        connection.close()
    return None if status == HTTPStatus.OK else f"{config.admin_listen} answers with status {status}."
