"""Sends prepared batches to a sidecar over plain gRPC, and measures; its own work per batch is small.

Prints its findings as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import grpc
import market
from bronze_client.identity import unique_id
from bronze_client.schema import (
    Batch,
    NormalizedEvent,
    Open,
    Origin,
    PublishRequest,
    PublishResponse,
    StreamContext,
)
from bronze_sidecar.mapping import Mapper
from bronze_sidecar.mapping import StreamContext as MapperContext
from machine import cpu_seconds

METHOD = "/bronze.sidecar.v1.SidecarService/Publish"
WARM_SECONDS = 0.5
PREPARED_MESSAGES = 16_384
# Within the sidecar's default credits, also when each message becomes several events.
MOST_ON_THE_WAY = 40_000


def envelopes(messages: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the messages as envelopes, as a producer would write them: without id and time of receipt."""
    mapper = Mapper(MapperContext(stream_id="bench", source="bench/1", origin=Origin.ORIGIN_REPLAY))
    for position, message in enumerate(messages):
        for mapped in mapper.events(message, position, b""):
            envelope = NormalizedEvent.FromString(mapped.envelope)
            del envelope.meta["event_id"]
            yield envelope.SerializeToString()


def prepared_bodies(kind: str, batch: int) -> list[bytes]:
    """Return encoded batches that lack only their numbers."""
    messages = market.replay(PREPARED_MESSAGES)
    events = list(messages if kind == "json" else envelopes(messages))
    cuts = [events[start : start + batch] for start in range(0, len(events) - batch + 1, batch)]
    if kind == "json":
        return [Batch(json=[b"\n".join(cut)]).SerializeToString() for cut in cuts]
    return [Batch(envelopes=cut).SerializeToString() for cut in cuts]


def request(sequence: int, position: int, body: bytes) -> bytes:
    """Return a PublishRequest with a batch; the numbers come in front of the prepared rest."""
    numbered = b"\x08" + varint(sequence) + b"\x10" + varint(position) + body
    return b"\x12" + varint(len(numbered)) + numbered


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


@dataclass
class Load:
    """One stream: as many batches as the window lets through, or one at each due time."""

    address: str
    bodies: Sequence[bytes]
    batch: int
    window: int
    pid: int
    seconds: float
    rate: float = 0.0
    """Events a second; 0 means as many as possible."""

    published: int = 0
    latencies: list[float] = field(default_factory=list)
    _due: dict[int, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> dict[str, float]:
        """Send for the time that was given, and return what was measured."""
        free = threading.Semaphore(self.window)
        channel = grpc.insecure_channel(self.address, [("grpc.max_receive_message_length", -1)])
        call = channel.stream_stream(METHOD)(self._requests(free))
        acknowledged = 0
        begin = end = None
        began = time.monotonic()
        for answer in call:
            response = PublishResponse.FromString(answer)
            if response.WhichOneof("kind") != "acknowledgement":
                continue
            now = time.monotonic()
            self.published += response.acknowledgement.outcome.published
            assert not response.acknowledgement.outcome.failures, response
            for sequence in range(acknowledged + 1, response.acknowledgement.sequence + 1):
                free.release()
                due = self._due.pop(sequence, None)
                if due is not None and begin and not end:
                    self.latencies.append(now - due)
            acknowledged = response.acknowledgement.sequence
            if begin is None and now - began > WARM_SECONDS:
                begin = (now, self.published, cpu_seconds(self.pid))
            elif begin and end is None and now - begin[0] > self.seconds:
                end = (now, self.published, cpu_seconds(self.pid))
                self._over.set()
        assert begin
        assert end
        seconds, events, cpu = (last - first for first, last in zip(begin, end, strict=True))
        findings = {"rate": events / seconds, "cpu": cpu / events * 1e6, "busy": cpu / seconds}
        if self.latencies:
            self.latencies.sort()
            findings["p50"] = self.latencies[len(self.latencies) // 2] * 1000
            findings["p99"] = self.latencies[int(len(self.latencies) * 0.99)] * 1000
        return findings

    def _requests(self, free: threading.Semaphore) -> Iterator[bytes]:
        context = StreamContext(stream_id=unique_id(), source="bench/1", origin=Origin.ORIGIN_REPLAY)
        yield PublishRequest(open=Open(producer_id=unique_id(), context=context)).SerializeToString()
        sequence = position = 0
        interval = self.batch / self.rate if self.rate else 0.0
        due = time.monotonic()
        while not self._over.is_set():
            due += interval
            if interval:
                time.sleep(max(0.0, due - time.monotonic()))
            if not free.acquire(timeout=0.5):
                continue
            sequence += 1
            if interval:
                self._due[sequence] = due
            yield request(sequence, position, self.bodies[sequence % len(self.bodies)])
            position += self.batch


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("address")
    arguments.add_argument("--kind", choices=("envelopes", "json"), default="envelopes")
    arguments.add_argument("--batch", type=int, default=256)
    arguments.add_argument("--window", type=int, default=0)
    arguments.add_argument("--pid", type=int, required=True)
    arguments.add_argument("--seconds", type=float, required=True)
    arguments.add_argument("--rate", type=float, default=0.0)
    chosen = arguments.parse_args()
    load = Load(
        chosen.address,
        prepared_bodies(chosen.kind, chosen.batch),
        chosen.batch,
        chosen.window or (MOST_ON_THE_WAY // chosen.batch if chosen.rate else 16),
        chosen.pid,
        chosen.seconds,
        chosen.rate,
    )
    json.dump(load.run(), sys.stdout)


if __name__ == "__main__":
    main()
