"""The commands of `bronze-pipeline`, each a module in `commands`: THE place to add one."""

from __future__ import annotations

from collections.abc import Sequence

from bronze_cli.program import Command, Program

EXAMPLE = """
from a bus to tables, bars and a chart:
  bronze-pipeline bronze --from nats://localhost:4222/BRONZE --to lake --available-now
  bronze-pipeline verify --table lake/bronze
  bronze-pipeline report --table lake/bronze --out report.html
  bronze-pipeline silver --from lake/bronze --to lake/silver --available-now
  bronze-pipeline chart --from lake/silver --exchange bitmex --symbol XBTUSD --out chart.png

Without --available-now, bronze and silver run until stopped."""

PROGRAM = Program(
    name="bronze-pipeline",
    description="Loads bronze envelopes from a bus into lakehouse tables.",
    commands=(
        Command(
            "bronze",
            "--from URL --to PLACE",
            "read a bus into the bronze tables",
            "bronze_pipeline.commands.bronze",
        ),
        Command(
            "silver",
            "--from PLACE --to PLACE",
            "make typed tables, bars and books from the bronze table",
            "bronze_pipeline.commands.silver",
        ),
        Command(
            "verify",
            "--table PLACE",
            "show whether the bronze table is complete",
            "bronze_pipeline.commands.verify",
        ),
        Command(
            "report",
            "--table PLACE --out FILE",
            "write a page about the bronze table",
            "bronze_pipeline.commands.report",
        ),
        Command(
            "maintain",
            "--table PLACE",
            "compact a table, and remove what it no longer needs",
            "bronze_pipeline.commands.maintain",
        ),
        Command(
            "chart",
            "--from PLACE --out FILE",
            "draw the trades and bars of one symbol",
            "bronze_pipeline.commands.chart",
        ),
    ),
    more_help=EXAMPLE,
)


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    return PROGRAM.main(arguments)
