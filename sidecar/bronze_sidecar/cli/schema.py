"""`bronze-sidecar schema`: what the YAML file may contain, for editors and other tools."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bronze_cli.given import Names, from_flags
from bronze_cli.options import Option
from bronze_cli.problems import ConfigError

from bronze_sidecar.configuration.documentation import json_schema

DESCRIPTION = "Prints the JSON Schema of the YAML file that --config names."
OPTIONS: Sequence[Option[object]] = ()
NAMES = Names(OPTIONS, listed_by="bronze-sidecar schema --help")


def run(arguments: Sequence[str]) -> int:
    """Print the schema."""
    given = from_flags(arguments, NAMES)
    if given.problems:
        raise ConfigError(given.problems)
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
