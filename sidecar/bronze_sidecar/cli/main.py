"""The commands of `bronze-sidecar`, each a module in this folder: THE place to add one."""

from __future__ import annotations

from collections.abc import Sequence

from bronze_cli.program import Command, Program


def _options() -> str:
    from bronze_sidecar.configuration.documentation import help_text  # noqa: PLC0415 - only for this page

    return help_text()


def _build() -> str:
    from bronze_sidecar.envelope.native import IS_INSTALLED  # noqa: PLC0415 - only for the version

    return f" ({'compiled' if IS_INSTALLED else 'python'} hot path)"


PROGRAM = Program(
    name="bronze-sidecar",
    description=(
        "Routes normalized market-data events from a local gRPC stream to Kafka, NATS, Kinesis, Redis Streams"
        " and SQS."
    ),
    commands=(
        Command("run", "[OPTIONS]", "serve until told to stop", "bronze_sidecar.cli.run"),
        Command(
            "check",
            "[OPTIONS]",
            "validate the options; show where every event would go",
            "bronze_sidecar.cli.check",
        ),
        Command(
            "explain",
            "FILE [OPTIONS]",
            "show what would become of your own messages, and why",
            "bronze_sidecar.cli.events.explain",
        ),
        Command("top", "[OPTIONS]", "show what a running sidecar does, live", "bronze_sidecar.cli.live.top"),
        Command("tap", "[OPTIONS]", "show events as they pass through it", "bronze_sidecar.cli.live.tap"),
        Command(
            "send",
            "FILE --to ADDRESS",
            "send normalized messages to a running sidecar",
            "bronze_sidecar.cli.send",
        ),
        Command(
            "dead-letters",
            "show|send FILE",
            "list what was not published, or publish it again",
            "bronze_sidecar.cli.dead_letters",
        ),
        Command(
            "health",
            "[OPTIONS]",
            "ask the sidecar running with these options if it is alive",
            "bronze_sidecar.cli.health",
        ),
        Command("schema", "", "print the JSON Schema of the YAML file", "bronze_sidecar.cli.schema"),
    ),
    more_help="`bronze-sidecar help options` lists every option of the sidecar and its back ends.",
    topics={"options": _options},
    build=_build,
)


def main(arguments: Sequence[str]) -> int:
    """Run one command; return the exit status."""
    return PROGRAM.main(arguments)
