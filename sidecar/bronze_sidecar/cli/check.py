"""`bronze-sidecar check`: shows where every kind of event would go."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bronze_cli.given import Names, from_flags, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import printable
from bronze_cli.values import Switch

from bronze_sidecar.configuration.config import OPTIONS as SIDECAR_OPTIONS
from bronze_sidecar.configuration.config import Config, configure
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.payloads import PAYLOADS
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Rules
from bronze_sidecar.sinks import Backend

DESCRIPTION = """
Validates the options from all sources and shows where every kind of event would go: destination, key and
headers on each back end, and where what is refused for good goes instead. It connects to nothing. It also
takes all options of `run`. `bronze-sidecar explain` shows it for your own messages, and why.
"""


@dataclass(frozen=True)
class CheckOptions:
    """What only this command takes."""

    json: bool = option(Switch(), "Print JSON instead of a table.", default=False)


OPTIONS = options_of(CheckOptions)
NAMES = Names((*OPTIONS, *SIDECAR_OPTIONS), listed_by="bronze-sidecar help options")


def run(arguments: Sequence[str]) -> int:
    """Print where events would go; raise ConfigError with everything that is wrong."""
    given = from_flags(arguments, NAMES)
    own = {each.path: given.values.pop(each.path) for each in OPTIONS if each.path in given.values}
    options = CheckOptions(**parsed(own, NAMES, given.problems))
    config = configure(given, os.environ)
    rows = report(config, sample_events())
    print(as_json(rows) if options.json else as_table(config, rows))
    return 0


def sample_events() -> list[Event]:
    """Return one event of each payload case, as a Deribit replay would produce."""
    return [
        Event(
            envelope=b"",
            id=f"sample:{position}" + (".0" if case.name == "bookChange" else ""),
            payload_case=case.name,
            exchange="deribit",
            symbol="BTC-PERPETUAL",
            data_type=case.data_types[0],
            source="sample",
            origin="replay",
            meta={"data_type": case.data_types[0], "request_id": "sample-request"},
        )
        for position, case in enumerate(PAYLOADS)
    ]


def report(config: Config, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return what would become of each event on each back end."""
    return [
        _row(backend, route, event)
        for backend in config.backends
        for route in [Route(backend.rules())]
        for event in events
    ]


def _row(backend: Backend, route: Route, event: Event) -> dict[str, Any]:
    address = route.address(event)
    row: dict[str, Any] = {"backend": backend.name, "payloadCase": event.payload_case, "eventId": event.id}
    if address is None:
        return row | {"filtered": True}
    return row | {
        "filtered": False,
        "destination": address.destination,
        "key": address.key,
        **({"deadLetters": route.rules.dead_letter.renderer()(event)} if route.rules.dead_letter else {}),
        route.rules.headers_noun: dict(route.headers(event)),
    }


def as_json(rows: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"routes": rows}, indent=2, ensure_ascii=False)


def as_table(config: Config, rows: Sequence[dict[str, Any]]) -> str:
    """Format the report for a person: one table for each back end."""
    if not config.backends:
        return "The configuration is valid. No back end is configured: publishing is off."
    parts = []
    for backend in config.backends:
        mine = [row for row in rows if row["backend"] == backend.name]
        parts += [backend.title, _table(backend.rules(), mine), ""]
    parts.append("The configuration is valid.")
    return "\n".join(parts)


def _cells(row: dict[str, Any], columns: Sequence[str]) -> Sequence[str]:
    if row["filtered"]:
        return row["payloadCase"], "(filtered)", *[""] * (len(columns) - 2)
    shown = [row[column] for column in columns]
    return [*shown[:-1], printable(" ".join(f"{name}={value}" for name, value in shown[-1].items()))]


def _table(rules: Rules, found: Sequence[dict[str, Any]]) -> str:
    columns = {"payloadCase": "payload case", "destination": "destination"}
    if rules.key is not None:
        # Otherwise the destination is the key, which would only be repeated.
        columns["key"] = "key"
    if rules.dead_letter:
        columns["deadLetters"] = "dead letters"
    columns[rules.headers_noun] = rules.headers_noun
    rows = [[*columns.values()], *(_cells(row, [*columns]) for row in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = []
    for index, row in enumerate(rows):
        cells = [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        lines.append("  " + "  ".join(cells).rstrip())
        if index == 0:
            lines.append("  " + "  ".join("-" * len(cell) for cell in cells))
    return "\n".join(lines)
