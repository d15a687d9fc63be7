"""`--storage-option`: how the stores of tables and checkpoints are reached."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bronze_cli.given import Given
from bronze_cli.options import Raw, ValueType, option
from bronze_cli.problems import ConfigError, Fault, Problem

from bronze_pipeline.tables.storage import VARIABLE, given_options, parsed

FLAG = "--storage-option"
SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|SAS|_KEY$|account\.key|SERVICE_ACCOUNT_KEY", re.IGNORECASE)


class StorageOptionLines(ValueType[Mapping[str, str]]):
    """Options of stores: one, or a file's lines."""

    metavar = "KEY=VALUE"

    def parse(self, raw: Raw) -> Mapping[str, str] | list[Fault]:
        try:
            return parsed(raw if isinstance(raw, str) else "")
        except ValueError as error:
            return [Fault(str(error))]

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def show(self, value: Any) -> str:
        return ", ".join(value)

    def combined(self, earlier: Raw, later: Raw) -> Raw | None:
        return f"{earlier}\n{later}" if isinstance(earlier, str) and isinstance(later, str) else None


@dataclass(frozen=True)
class StorageOptions:
    """What every command takes that reads or writes tables."""

    storage_option: Mapping[str, str] | None = option(
        StorageOptionLines(),
        "Option of the store that the tables and the checkpoint are in, such as AWS_REGION=eu-central-1."
        " The flag may be repeated. Without it, the store's usual environment variables count.",
        secret=True,
    )


def hide_secrets(arguments: Sequence[str]) -> ConfigError | None:
    """Restart with secrets in the environment instead of on the command line, which every user can read.

    Under `spark-submit` that is of no use: its own command line has them. They are refused there.
    """
    kept: list[str] = []
    secrets: list[str] = []
    pending = list(reversed(arguments))
    while pending:
        word = pending.pop()
        words = [word, pending.pop()] if word == FLAG and pending else [word]
        value = words[-1].removeprefix(f"{FLAG}=") if word.partition("=")[0] == FLAG else ""
        if SECRET.search(value.partition("=")[0]):
            secrets.append(value)
        else:
            kept += words
    if not secrets:
        return None
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        what = "holds a secret, which everyone on this machine can read in the list of processes."
        return ConfigError([Problem(FLAG, what, f"Use {FLAG}-file, or an environment variable.")])
    lines = "\n".join([*os.environ.get(VARIABLE, "").splitlines(), *secrets])
    program = [sys.executable, "-m", "bronze_pipeline", *kept]
    return os.execve(sys.executable, program, {**os.environ, VARIABLE: lines})  # noqa: S606 - ourselves


def use_storage_options(given: Given) -> None:
    """Make the given options those of this process, before anything looks at a table."""
    _, raw = given.values.get("storage_option", ("", None))
    if not isinstance(raw, str):
        return
    try:
        options = given_options() | parsed(raw)
    except ValueError:
        return  # reported with everything else that is wrong
    os.environ[VARIABLE] = "\n".join(f"{key}={value}" for key, value in options.items())
