"""The command line: `bronze-pipeline <command> …`.

Exit status: 0 done or stopped · 1 the work failed · 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bronze_pipeline.commands import COMMANDS
from bronze_pipeline.commands.base import CommandFailed, UsageError
from bronze_pipeline.running.session import NoJava

PROGRAM = "bronze-pipeline"
EXAMPLE = """\
from a bus to tables, bars and a chart:
  bronze-pipeline bronze --from nats://localhost:4222/BRONZE --to lake --available-now
  bronze-pipeline verify --table lake/bronze
  bronze-pipeline silver --from lake/bronze --to lake/silver --available-now
  bronze-pipeline chart --from lake/silver --exchange bitmex --symbol XBTUSD --out chart.png

without --available-now, bronze and silver go on until they are stopped
"""


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Bronze envelopes from a bus to lakehouse tables.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    by_name = {}
    for command in COMMANDS:
        command.add_flags(
            commands.add_parser(
                command.name, help=command.summary, description=command.summary, allow_abbrev=False
            )
        )
        by_name[command.name] = command
    flags = parser.parse_args(arguments)
    try:
        return by_name[flags.command].run(flags)
    except UsageError as error:
        for problem in error.problems:
            print(f"{PROGRAM} {flags.command}: {problem}", file=sys.stderr)
        return 2
    except (CommandFailed, NoJava) as error:
        print(f"{PROGRAM} {flags.command}: {error}", file=sys.stderr)
        return 1
