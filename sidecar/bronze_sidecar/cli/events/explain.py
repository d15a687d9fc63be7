"""`bronze-sidecar explain`: what would become of each message of a file, and which option decides that."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from bronze_cli.given import Names, from_flags, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import Problem, printable
from bronze_cli.program import CommandFailed
from bronze_cli.values import Choice, Switch, Text
from bronze_client.options import Origin
from bronze_client.schema import Batch

from bronze_sidecar.cli.lines import Broken, Lines
from bronze_sidecar.cli.send import file_problems
from bronze_sidecar.cli.transfer import Entry
from bronze_sidecar.configuration.config import OPTIONS as SIDECAR_OPTIONS
from bronze_sidecar.configuration.config import Config, configure
from bronze_sidecar.delivery.batch import OutcomeListener
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.payloads import ORIGINS
from bronze_sidecar.errors import Rejected
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.ingest.failures import Failures, StreamFailures
from bronze_sidecar.ingest.intake import Admission, Contents, Intake
from bronze_sidecar.mapping.mapper import StreamContext
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import TRACE_HEADERS, Address, Record
from bronze_sidecar.routing.template import Template
from bronze_sidecar.sinks import Backend
from bronze_sidecar.sinks.base import flag
from bronze_sidecar.telemetry.metrics import Metrics

DESCRIPTION = """
Shows what would become of each normalized message of a file, one JSON object per line: its destination, key
and headers on each back end, and which option decides that; or the option that filters it; or why it is
rejected. FILE may be compressed with gzip or zstd; `-` is standard input. It connects to nothing, and goes on
after a message that is rejected.

It takes all options of `run`, from all sources. Empty lines are ignored.

Exit status: 0 every message can be published or is filtered · 1 some are rejected, or there are none · 2 the
command line or the configuration is wrong.
"""
STREAM_ID = "explain"
EXIT_REJECTED = 1


@dataclass(frozen=True)
class ExplainOptions:
    """What only this command takes."""

    json: bool = option(Switch(), "Print JSON, one object per line.", default=False)
    source: str = option(Text(), "Producing program, as name/version.", default="bronze-sidecar-explain")
    origin: str = option(Choice(*get_args(Origin)), "How the producer got the messages.", default="replay")
    meta: Mapping[str, str] | None = option(
        Entry(), "Entry that the stream adds to the meta of every event; may be given several times."
    )


OPTIONS = options_of(ExplainOptions)
NAMES = Names((*OPTIONS, *SIDECAR_OPTIONS), listed_by="bronze-sidecar help options", takes_operands=True)


def run(arguments: Sequence[str]) -> int:
    """Explain every message; raise ConfigError with everything that is wrong with the command line."""
    given = from_flags(arguments, NAMES)
    own = {each.path: given.values.pop(each.path) for each in OPTIONS if each.path in given.values}
    options = ExplainOptions(**parsed(own, NAMES, given.problems))
    given.problems += file_problems(given.operands)
    context = _context(options, given.problems)
    config = configure(given, os.environ)
    path = given.operands[0]
    return asyncio.run(_explain_file(Explainer(config, context), Lines(path), path, as_json=options.json))


def _context(options: ExplainOptions, problems: list[Problem]) -> StreamContext:
    try:
        return StreamContext(
            STREAM_ID, options.source, ORIGINS.index(options.origin), meta=dict(options.meta or {})
        )
    except Rejected as error:
        problems.append(Problem(f"--{error.field}", f"{error.reason}."))
        return StreamContext(STREAM_ID)


async def _explain_file(explainer: Explainer, lines: Lines, path: str, *, as_json: bool) -> int:
    number = position = rejected = 0
    if not explainer.lanes and not as_json:
        print("No back end is configured: publishing is off.")
    try:
        for block in lines.blocks():
            for number, line in enumerate(block, number + 1):  # noqa: B020 - it goes on counting
                if not line or line.isspace():
                    continue
                for found in await explainer.explain(line, position):
                    rejected += "rejected" in found
                    shown = {"line": number, **found}
                    print(json.dumps(shown, ensure_ascii=False) if as_json else as_text(shown, path))
                position += 1
    except Broken as error:
        raise CommandFailed(str(error)) from None
    if not position:
        raise CommandFailed(f"{lines.name} contains no messages.")
    return EXIT_REJECTED if rejected else 0


class _Heard(Failures):
    """Hears what is rejected, and tells nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[DeadLetter] = []

    def add(self, letter: DeadLetter, payload_case: str) -> None:  # noqa: ARG002
        self.letters.append(letter)


class _Shown:
    """Stands in for a lane: what is put into it is only looked at."""

    def __init__(self, backend: Backend, max_events: int) -> None:
        self.backend = backend
        self.max_events = max_events
        self.on_room: Callable[[], None] = lambda: None
        self.route = Route(backend.rules())
        self.records: list[Record] = []

    def has_room(self, events: int, size: int) -> bool:  # noqa: ARG002
        return True

    def put(self, ticket: OutcomeListener, records: Sequence[Record], size: int) -> None:  # noqa: ARG002
        self.records += records


class Explainer:
    """Takes messages in as the sidecar does, up to where they would wait for their back ends."""

    def __init__(self, config: Config, context: StreamContext) -> None:
        self.lanes = [_Shown(backend, config.max_queue_events) for backend in config.backends]
        self._heard = _Heard()
        self._events: list[Event] = []
        admission = Admission(self.lanes, config)
        admission.watch = self._events.extend
        self._turns = admission.turns
        operators = StreamFailures(self._heard, context, producer_id="")
        self._intake = Intake(context, admission, config.max_event_bytes, Metrics(), operators)

    async def explain(self, message: bytes, position: int) -> list[dict[str, Any]]:
        """Return what would become of the events of a message, once for all that go the same way."""
        self._events.clear()
        self._heard.letters.clear()
        for lane in self.lanes:
            lane.records.clear()
        contents = Contents(Batch(first_position=position, json=[message]))
        async with self._turns.turn(frozenset) as turn:
            await self._intake.take(turn, contents, message, lambda _: None)
        addresses = [{record.event.id: record.address for record in lane.records} for lane in self.lanes]

        def way(event: Event) -> list[Address | None]:
            return [known.get(event.id) for known in addresses]

        return [
            *(_published([*alike], self.lanes, ways) for ways, alike in groupby(self._events, way)),
            *({"rejected": letter.reason} for letter in self._heard.letters),
        ]


def _published(
    events: Sequence[Event], lanes: Sequence[_Shown], addresses: Sequence[Address | None]
) -> dict[str, Any]:
    event = events[0]
    return {
        "eventId": event.id,
        "events": len(events),
        "payloadCase": event.payload_case,
        "exchange": event.exchange,
        "symbol": event.symbol,
        "backends": {
            lane.backend.name: _on_backend(lane, event, address)
            for lane, address in zip(lanes, addresses, strict=True)
        },
    }


def _on_backend(lane: _Shown, event: Event, address: Address | None) -> dict[str, Any]:
    """Return where an event goes on a back end, and why; the address is None if it is filtered."""
    backend, rules = lane.backend, lane.route.rules
    if address is None:
        return {"filtered": True, "by": _by(backend, rules.include)}
    template = rules.template_of(event.payload_case)
    found = {
        "filtered": False,
        "destination": {"value": address.destination, "by": _by(backend, template, event.payload_case)},
        "key": {
            "value": address.key,
            "by": _by(backend, rules.key) if rules.key else "the destination itself",
        },
    }
    if rules.dead_letter:
        where = rules.dead_letter.renderer()(event)
        found["deadLetters"] = {"value": where, "by": _by(backend, rules.dead_letter)}
    found[rules.headers_noun] = [
        {"name": name, "value": value, "by": _header_by(lane, name)}
        for name, value in lane.route.headers(event, address)
    ]
    return found


def _by(backend: Backend, value: object, case: str = "") -> str:
    """Name the option that a value is from; a routing entry is that of a payload case."""
    for each in options_of(type(backend), backend.name):
        given = getattr(backend, each.attribute)
        if isinstance(given, dict) and (value is given or (case and given.get(case) is value)):
            return each.flag if value is given else f"{each.flag}, {case}:{_text(value)}"
        if given is value:
            default = "the default of " if given is each.default else ""
            return default + (f"{each.flag}={_text(value)}" if isinstance(value, Template) else each.flag)
    return f"the default, {_text(value)}"


def _text(value: object) -> str:
    return value.text if isinstance(value, Template) else str(value)


def _header_by(lane: _Shown, name: str) -> str:
    """Say why a record has a header. No two rules can give one of the same name."""
    rules = lane.route.rules
    if name in rules.static_headers:
        return _by(lane.backend, rules.static_headers)
    if name in rules.templated_headers:
        return f"{_by(lane.backend, rules.templated_headers)}, {name}:{rules.templated_headers[name].text}"
    if rules.meta_prefix and name.startswith(rules.meta_prefix):
        return f"{flag(lane.backend, 'meta_headers_prefix')}={rules.meta_prefix}"
    return "the stream's trace context (--meta)" if name in TRACE_HEADERS else "the sidecar itself"


def as_text(found: Mapping[str, Any], path: str) -> str:
    """Format an explanation for a person."""
    place = f"{path}:{found['line']}: "
    if "rejected" in found:
        return printable(f"{place}rejected: {found['rejected']}")
    count = f" ({found['events']} events)" if found["events"] > 1 else ""
    what = " ".join(filter(None, (found["payloadCase"], found["exchange"], found["symbol"])))
    lines = [f"{place}{what}{count}"]
    for name, row in found["backends"].items():
        lines.append(f"  {name}: filtered by {row['by']}" if row["filtered"] else f"  {name}")
        cells = [*_cells(row)]
        width = max((len(value) for _, value, _ in cells), default=0)
        lines += [f"    {what:<12} {value:<{width}}  by {by}" for what, value, by in cells]
    return "\n".join(map(printable, lines))


def _cells(row: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what, value and reason of each line about one back end."""
    for what, cell in row.items():
        if isinstance(cell, dict):
            yield {"deadLetters": "dead letters"}.get(what, what), cell["value"], cell["by"]
        elif isinstance(cell, list):
            yield from ((what.rstrip("s"), f"{each['name']}={each['value']}", each["by"]) for each in cell)
