"""`bronze-sidecar run`: the sidecar itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bronze_cli.given import without_secrets

from bronze_sidecar.configuration.config import NAMES, PROCESS_OPTIONS, load
from bronze_sidecar.telemetry.logs import set_up_logging

DESCRIPTION = """
Takes events from producers and publishes them to every configured back end until SIGTERM or SIGINT. Then it
delivers what it has accepted, within --grace-seconds.

Options may also be set as environment variables or in a YAML file (--config). A flag beats its variable,
which beats the file. `bronze-sidecar help options` also lists the options of the back ends.

Exit status: 0 stopped with everything delivered · 1 cannot serve · 2 wrong configuration · 3 stopped with
events undelivered · 130 stopped at once by a second signal.
"""
OPTIONS = PROCESS_OPTIONS

__all__ = ["DESCRIPTION", "NAMES", "OPTIONS", "run"]


def run(arguments: Sequence[str]) -> int:
    """Serve until told to stop; return the exit status."""
    config = load(arguments, os.environ)
    _hide_secrets(arguments)
    set_up_logging(config.log_level, config.log_format)
    # Imported here: the other commands need neither gRPC nor an event loop.
    import uvloop  # noqa: PLC0415

    from bronze_sidecar.app import Sidecar  # noqa: PLC0415
    from bronze_sidecar.workers.supervisor import Supervisor  # noqa: PLC0415

    async def serve() -> int:
        return await (Supervisor(config, arguments) if config.workers > 1 else Sidecar(config)).run()

    return uvloop.run(serve())


def _hide_secrets(arguments: Sequence[str]) -> None:
    """Restart with secrets in the environment instead of on the command line, which every user can read."""
    kept, secrets = without_secrets(arguments, NAMES)
    if not secrets:
        return
    environment = {**os.environ, **secrets}
    for variable in secrets:
        # The flag beats the file that a variable names; as a variable it would conflict with it.
        environment.pop(f"{variable}_FILE", None)
    program = [sys.executable, "-m", "bronze_sidecar", "run", *kept]
    os.execve(sys.executable, program, environment)  # noqa: S606 - ourselves
