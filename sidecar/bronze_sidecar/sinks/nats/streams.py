"""The JetStream stream that takes our subjects: found, checked, or created."""

from __future__ import annotations

from typing import NamedTuple

import nats.errors
import nats.js.errors
from bronze_buses.nats import CONNECT_SECONDS
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import StreamConfig, StreamInfo

from bronze_sidecar.envelope.payloads import PAYLOAD_CASES
from bronze_sidecar.errors import Permanent, Transient
from bronze_sidecar.routing.template import Template
from bronze_sidecar.sinks.nats.options import Nats

FIRST_WITH_BATCHES = (2, 14)


class StreamFacts(NamedTuple):
    """What the sink must know of the stream."""

    duplicate_window: float | None = None
    """How many seconds it drops repeated ids for; None if more than one stream takes our subjects."""
    allows_batches: bool = False
    is_one: bool = False
    """Whether one stream takes all our subjects."""


async def check_stream(options: Nats, client: Client) -> StreamFacts:
    """Check that a stream accepts our subjects, or create it."""
    stream = client.jetstream(timeout=CONNECT_SECONDS)
    subjects = sorted({subject_filter(template) for template in _destinations(options)})
    try:
        if options.stream is None:
            info = await _found(stream, subjects)
        else:
            info = await _named(stream, options.stream, subjects, client)
    except nats.js.errors.NotFoundError as error:
        raise Permanent(
            f"no JetStream stream accepts {' and '.join(subjects)}: create one, or set --nats-stream to have"
            " it created"
        ) from error
    except nats.js.errors.ServiceUnavailableError as error:
        if error.description is None:
            raise Permanent(
                "JetStream is not enabled on the server or for this account: enable it, or set"
                " --nats-jetstream=false"
            ) from error
        raise Transient(f"JetStream is not available: {error.description}") from error
    except nats.js.errors.APIError as error:
        raise Permanent(f"--nats-stream {options.stream}: {error.description} ({error.err_code})") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise Transient(f"JetStream does not answer: {error or type(error).__name__}") from error
    if info is None:
        return StreamFacts()
    missing = _missing(info, subjects)
    if missing and options.stream is not None:
        raise Permanent(
            f"--nats-stream {options.stream}: the stream does not accept {' and '.join(missing)}; it accepts"
            f" {' and '.join(info.config.subjects or ['nothing'])}"
        )
    if info.config.no_ack:
        raise Permanent(f"the stream {info.config.name} confirms nothing (no_ack): change it, or use another")
    # A batch belongs to one stream.
    allows_batches = bool(info.config.allow_batched) and not missing and options.batching == "auto"
    return StreamFacts(info.config.duplicate_window, allows_batches, is_one=not missing)


async def _found(stream: JetStreamContext, subjects: list[str]) -> StreamInfo | None:
    """Return the stream that takes our subjects; None if there are several."""
    names = {await stream.find_stream_name_by_subject(subject) for subject in subjects}
    return await stream.stream_info(names.pop()) if len(names) == 1 else None


async def _named(stream: JetStreamContext, name: str, subjects: list[str], client: Client) -> StreamInfo:
    try:
        return await stream.stream_info(name)
    except nats.js.errors.NotFoundError:
        version = client.connected_server_version
        # A server that does not know the option may refuse it.
        allow_batched = True if (version.major, version.minor) >= FIRST_WITH_BATCHES else None
        return await stream.add_stream(
            StreamConfig(name=name, subjects=subjects, allow_batched=allow_batched)
        )


def _missing(info: StreamInfo, subjects: list[str]) -> list[str]:
    taken = info.config.subjects or []
    return [each for each in subjects if not any(covers(accepted, each) for accepted in taken)]


def _destinations(options: Nats) -> list[Template]:
    rules = options.rules()
    used = [
        rules.template_of(case) for case in PAYLOAD_CASES if rules.include is None or case in rules.include
    ]
    return [*used, rules.dead_letter] if rules.dead_letter else used


def subject_filter(template: Template) -> str:
    """Return the subjects that a template can render, with a wildcard for each token that has a value."""
    marked = "\0".join(template.literals)
    return ".".join("*" if "\0" in token else token for token in marked.split("."))


def covers(taken: str, subject: str) -> bool:
    """Return whether a stream's subject filter includes every subject of another filter."""
    wide, narrow = taken.split("."), subject.split(".")
    for index, part in enumerate(wide):
        if part == ">":
            return len(narrow) > index
        if index >= len(narrow) or part not in {"*", narrow[index]}:
            return False
    return len(wide) == len(narrow)
