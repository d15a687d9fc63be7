"""Starts the command line, or says what to install where only the client is."""

import os
import sys


def entry() -> None:
    """Run `bronze-sidecar` as the console script does."""
    if sys.argv[1:2] == ["health"]:
        from bronze_sidecar.cli.alive import plainly_alive  # noqa: PLC0415 - without what all others need

        if plainly_alive(sys.argv[2:], os.environ):
            return
    try:
        from bronze_sidecar.cli.main import main  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "bronze_sidecar":
            raise
        sys.exit(
            f"bronze-sidecar: the package '{error.name}' is missing: pip install 'bronze-sidecar[server]'"
        )
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
