"""Asks a running sidecar whether it lives, for supervisors that can only start a program."""

from __future__ import annotations

import http.client
from http import HTTPStatus

from bronze_sidecar.configuration.config import Config

TIMEOUT_SECONDS = 5


def fault_of(config: Config) -> str | None:
    """Return why the sidecar with this configuration does not live, or None if it does."""
    # Connecting to an address that stands for all of them reaches this machine.
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
