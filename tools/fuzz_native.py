"""Throws odd envelopes and odd messages at compiled code and at Python: both must make the same of them."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

from bronze_client.schema import Batch, Origin, PublishRequest
from bronze_sidecar.configuration.config import load
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.wire import timestamp_field
from bronze_sidecar.ingest.failures import StreamFailures
from bronze_sidecar.ingest.intake import Admission, Contents, Intake, Ticket
from bronze_sidecar.mapping.mapper import StreamContext
from bronze_sidecar.telemetry.metrics import Metrics
from odd_envelopes import odd_envelope
from odd_messages import odd_message

MOST_SHOWN = 10
INGEST_FIELD = timestamp_field(5, 1_700_000_000, 1)
OPTIONS = {
    "without meta": ("--nats-servers=a:1", "--nats-subject=x"),
    "with meta": ("--nats-servers=a:1", "--nats-subject=x", "--nats-meta-headers-prefix=m-"),
}
CONTEXTS = (
    StreamContext(stream_id="s", source="me/1", origin=Origin.ORIGIN_REPLAY),
    StreamContext(stream_id="s", request_id="r", meta={"k": "v", "other": ""}),
)


def intake(options: Sequence[str], context: StreamContext, *, native: bool) -> Intake:
    config = load((*options, f"--native={str(native).lower()}"), {})
    metrics = Metrics()
    lanes = [Lane(backend, config, metrics.lane(backend.name)) for backend in config.backends]
    return Intake(context, Admission(lanes, config), 1 << 20, metrics, Mock(StreamFailures))


class Comparison:
    """Streams with and without compiled code."""

    def __init__(self) -> None:
        self._pairs = [
            (intake(options, context, native=True), intake(options, context, native=False))
            for options in OPTIONS.values()
            for context in CONTEXTS
        ]

    def differs(self, **contents: Any) -> tuple[str, int]:
        """Return in what they differ, empty if in nothing, and how many events there were."""
        batch = Batch(sequence=1, first_position=7, **contents)
        request = PublishRequest(batch=batch).SerializeToString()
        taken = 0
        # What becomes of JSON depends on no option.
        for compiled, plain in self._pairs if batch.envelopes else self._pairs[: len(CONTEXTS)]:
            made, expected = _made(compiled, batch, request), _made(plain, batch, request)
            taken = len(expected[0])
            if made != expected:
                return f"{made} is not {expected}", taken
        return "", taken


def _made(each: Intake, batch: Batch, request: bytes) -> tuple[list[Any], list[Any]]:
    contents = Contents(batch)
    ticket = Ticket(contents, each.operators, Mock())
    slices = each._slices(contents, request, INGEST_FIELD, ticket)  # noqa: SLF001
    events = [event for groups in slices for group in groups for event in group]
    return events, [(failure.position, failure.reason) for failure in ticket.failures]


def odd_contents(rnd: random.Random) -> dict[str, list[bytes]]:
    """Return what a batch carries: mostly one message, so that what is at fault stands alone."""
    count = rnd.choice((1,) * 20 + (2, 40))
    (kind,) = rnd.choices(("envelopes", "json", "mixed"), (8, 24, 1))
    if kind == "envelopes":
        return {kind: [odd_envelope(rnd) for _ in range(count)]}
    messages = [odd_message(rnd) for _ in range(count)]
    if kind == "json":
        # A line feed would make it two.
        return {kind: [message.replace(b"\n", b" ") for message in messages]}
    return {kind: [message if rnd.random() < 0.5 else odd_envelope(rnd) for message in messages]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="how many to try")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones to try")
    options = parser.parse_args()
    if not native.IS_INSTALLED:
        print("bronze-sidecar-native is not installed: there is nothing to compare", file=sys.stderr)
        return 0
    rnd = random.Random(options.seed)  # noqa: S311 - not a secret
    start, comparison = time.perf_counter(), Comparison()
    events = different = 0
    for _ in range(options.inputs):
        contents = odd_contents(rnd)
        found, count = comparison.differs(**contents)
        events += count
        if found:
            different += 1
            if different <= MOST_SHOWN:
                print(f"{contents}: {found}")
    print(
        f"{options.inputs} batches (seed {options.seed}): {events} events,"
        f" {different} different, {time.perf_counter() - start:.1f} seconds"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
