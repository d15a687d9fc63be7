"""`bronze-sidecar tap`: events as they pass through a running sidecar, decoded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from bronze_cli.given import Names, from_flags, parsed
from bronze_cli.options import option, options_of
from bronze_cli.problems import ConfigError, printable
from bronze_cli.program import CommandFailed
from bronze_cli.values import Choice, Integer, ListenAddress, ListOf, Switch, Text
from bronze_client.schema import FailureKind, NormalizedEvent, TappedEvent, TapRequest, TapResponse
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from bronze_sidecar.configuration.config import OPTIONS as SIDECAR_OPTIONS
from bronze_sidecar.configuration.config import configure
from bronze_sidecar.envelope.payloads import PAYLOAD_CASES, fold
from bronze_sidecar.ingest.server import SERVICE
from bronze_sidecar.routing.values import Cases
from bronze_sidecar.sinks import BACKENDS

DESCRIPTION = """
Shows events as they pass through a sidecar on this machine: records that a back end has confirmed, with
destination, key and headers, and events that were rejected or given up, with the reason. It ends with Ctrl-C,
or with the sidecar.

It is a sample: at most 300 records and 100 failures a second, so that the stream is not slowed down. How many
others passed is said. A sidecar that runs with --no-tap shows nothing.

Without --to, it asks the sidecar running with these options, from all sources.

Exit status: 0 it was ended, or the limit is reached · 1 the sidecar does not answer, or shows no events ·
2 the command line is wrong.
"""
LONGEST_LINE = 400
"""As text; JSON has everything."""


@dataclass(frozen=True)
class TapOptions:
    """What only this command takes."""

    to: str | None = option(
        ListenAddress(unix=True),
        "The sidecar: unix:///path or host:port; that of --listen if not given, a unix socket first.",
    )
    exchange: tuple[str, ...] = option(ListOf(Text()), "Only events of these exchanges.", default=())
    symbol: tuple[str, ...] = option(ListOf(Text()), "Only events of these symbols.", default=())
    kind: frozenset[str] | None = option(Cases(), "Only events of these payload cases.")
    backend: tuple[str, ...] = option(
        ListOf(Choice(*(each.name for each in BACKENDS))),
        "Only what these back ends got or refused.",
        default=(),
    )
    rejected: bool = option(Switch(), "Only events that were rejected or given up.", default=False)
    limit: int | None = option(Integer(1, 1_000_000_000), "End after so many events.")
    json: bool = option(Switch(), "Print JSON, one object per line.", default=False)


OPTIONS = options_of(TapOptions)
NAMES = Names((*OPTIONS, *SIDECAR_OPTIONS), listed_by="bronze-sidecar tap --help")


def run(arguments: Sequence[str]) -> int:
    """Show events until the limit or Ctrl-C; raise CommandFailed if the sidecar does not show any."""
    given = from_flags(arguments, NAMES)
    own = {each.path: given.values.pop(each.path) for each in OPTIONS if each.path in given.values}
    options = TapOptions(**parsed(own, NAMES, given.problems))
    if options.to:
        if given.problems:
            raise ConfigError(given.problems)
        address = options.to
    else:
        # Those of a unix socket come first, for a sidecar may want TLS on its other addresses.
        listen = configure(given, os.environ).listen
        address = min(listen, key=lambda each: not each.startswith("unix:"))
    shown = 0
    try:
        for event, skipped in _events(address, options):
            print(_as_json(event, skipped) if options.json else _as_text(event, skipped), flush=True)
            shown += 1
            if shown == options.limit:
                break
    except KeyboardInterrupt:
        pass
    return 0


def _events(address: str, options: TapOptions) -> Iterator[tuple[TappedEvent, int]]:
    """Yield each event, and how many passed unseen before it."""
    request = TapRequest(
        exchanges=options.exchange,
        symbols=options.symbol,
        payload_cases=options.kind or (),
        backends=options.backend,
        failures_only=options.rejected,
    )
    skipped = 0
    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        call: grpc.UnaryStreamMultiCallable[TapRequest, bytes] = channel.unary_stream(
            f"/{SERVICE}/Tap", request_serializer=TapRequest.SerializeToString
        )
        try:
            for response in call(request):
                news = TapResponse.FromString(response)
                skipped += news.skipped
                for event in news.events:
                    if _is_wanted(event, options):
                        yield event, skipped
                        skipped = 0
        except grpc.RpcError as error:
            raise CommandFailed(_why(error, address)) from None
    raise CommandFailed(f"the sidecar at {address} has stopped.")


def _why(error: Any, address: str) -> str:
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            return f"no sidecar answers at {address}: {printable(str(error.details()))}."
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"the sidecar at {address} is too old to show events."
    return f"the sidecar at {address} does not show events: {printable(str(error.details()))}."


# -- what an event is


def _decoded(event: TappedEvent) -> tuple[str, dict[str, Any]] | None:
    """Return an event's payload case and fields; None if it is not an envelope."""
    if not event.HasField("envelope"):
        return None
    try:
        envelope = NormalizedEvent.FromString(event.envelope)
    except DecodeError:
        return None
    return envelope.WhichOneof("payload") or "", MessageToDict(envelope)


def _is_wanted(event: TappedEvent, options: TapOptions) -> bool:
    """Choose among failures as the sidecar does among records; what an event does not say, it may be."""
    if not event.failure:
        return True
    decoded = _decoded(event)
    if decoded:
        case, fields = decoded
    else:
        try:
            fields = json.loads(event.json or event.envelope)
        except ValueError:
            return True
        if not isinstance(fields, dict):
            return True
        case = str(fields.get("type", ""))
    kinds = {fold(each) for each in options.kind or ()}
    return all(
        not wanted or not has or str(has) in wanted
        for wanted, has in (
            (options.exchange, fields.get("exchange")),
            (options.symbol, fields.get("symbol")),
            (kinds, fold(case)),
        )
    )


# -- how it is shown


def _facts(event: TappedEvent) -> dict[str, Any]:
    """Return all that is known of an event, in the order in which it is shown."""
    decoded = _decoded(event)
    facts: dict[str, Any] = {"eventId": event.event_id}
    if event.failure:
        is_rejected = event.failure == FailureKind.FAILURE_KIND_REJECTED
        facts |= {"failure": "rejected" if is_rejected else "given up", "reason": event.reason}
    known = {"backend": event.backend, "destination": event.destination, "key": event.key}
    facts |= {name: value for name, value in known.items() if value}
    if event.headers:
        facts["headers"] = [{"name": each.name, "value": each.value} for each in event.headers]
    if decoded:
        facts["event"] = decoded[1]
    else:
        facts["message"] = (event.json or event.envelope).decode(errors="backslashreplace")
    return facts


def _as_json(event: TappedEvent, skipped: int) -> str:
    return json.dumps({"skippedBefore": skipped, **_facts(event)}, ensure_ascii=False)


def _as_text(event: TappedEvent, skipped: int) -> str:
    facts = _facts(event)
    what = facts.get("failure", "")
    place = " → ".join(filter(None, (event.backend, event.destination)))
    lines = [f"… {skipped:,} more"] if skipped else []
    lines.append("  ".join(filter(None, (event.event_id, what, place))))
    if what:
        lines.append(f"  because  {event.reason}")
    if event.key and event.key != event.destination:
        lines.append(f"  key      {event.key}")
    if event.headers:
        lines.append(f"  headers  {' '.join(f'{each.name}={each.value}' for each in event.headers)}")
    if "event" in facts:
        lines += _event_lines(facts["event"])
    else:
        lines.append(f"  message  {facts['message']}")
    return "\n".join(
        printable(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…") for line in lines
    )


def _event_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield an event's payload on a line, and the rest of the envelope on others."""
    case = next((each for each in PAYLOAD_CASES if each in fields), "")
    names = " ".join(filter(None, (case, fields.get("exchange"), fields.get("symbol"))))
    yield f"  {names}  {_flat(fields.get(case, {}))}"
    rest = {name: fields[name] for name in ("localTs", "ingestTs", "source", "origin") if name in fields}
    yield f"  from     {_flat(rest)}"
    meta = {name: value for name, value in fields.get("meta", {}).items() if name != "event_id"}
    if meta:
        yield f"  meta     {_flat(meta)}"


def _flat(fields: Mapping[str, Any]) -> str:
    return " ".join(
        f"{name}={value if isinstance(value, str | int | float) else json.dumps(value)}"
        for name, value in fields.items()
    )


__all__ = ["DESCRIPTION", "NAMES", "OPTIONS", "run"]
