"""Sends prepared batches to a sidecar over plain gRPC, and measures; its own work per batch is small.

`load.py PID SERVER_PID` reads scenarios from standard input, one JSON object a line with the arguments of
`Load`, and answers each with its findings, in the same form.
"""

from __future__ import annotations

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
from bronze_sidecar.mapping.mapper import Mapper
from bronze_sidecar.mapping.mapper import StreamContext as MapperContext
from machine import cpu_seconds, percentiles
from shapes import SHAPES

METHOD = "/bronze.sidecar.v1.SidecarService/Publish"
WARM_SECONDS = 0.5
WINDOW_SECONDS = 0.5
PREPARED_MESSAGES = 8_192


def envelopes(messages: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the messages as envelopes, as a producer would write them: without id and time of receipt."""
    mapper = Mapper(MapperContext(stream_id="bench", source="bench/1", origin=Origin.ORIGIN_REPLAY))
    for position, message in enumerate(messages):
        for mapped in mapper.events(message, position, b""):
            envelope = NormalizedEvent.FromString(mapped.envelope)
            del envelope.meta["event_id"]
            yield envelope.SerializeToString()


class Prepared:
    """Messages of all kinds, to be cut into batches."""

    def __init__(self) -> None:
        self._messages: dict[str, list[bytes]] = {}

    def _of_kind(self, kind: str) -> list[bytes]:
        if kind not in self._messages:
            messages = SHAPES.get(kind, market.replay)(PREPARED_MESSAGES)
            self._messages[kind] = list(envelopes(messages) if kind == "envelopes" else messages)
        return self._messages[kind]

    def bodies(self, kind: str, batch: int) -> list[bytes]:
        """Return encoded batches that lack only their numbers."""
        events = self._of_kind(kind)
        cuts = [events[start : start + batch] for start in range(0, len(events) - batch + 1, batch)]
        if kind != "envelopes":
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

    prepared: Prepared
    pid: int
    """Of the sidecar."""
    server_pid: int | None
    address: str
    seconds: float
    kind: str = "envelopes"
    batch: int = 256
    window: int = 16
    """Most batches on the way."""
    rate: float = 0.0
    """Events a second; 0 means as many as possible."""

    published: int = 0
    latencies: list[float] = field(default_factory=list)
    _due: dict[int, float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> dict[str, float]:
        """Send for the time that was given, and return what was measured."""
        bodies = self.prepared.bodies(self.kind, self.batch)
        free = threading.Semaphore(self.window)
        channel = grpc.insecure_channel(self.address, [("grpc.max_receive_message_length", -1)])
        publish: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(METHOD)
        acknowledged = 0
        begin = end = mark = None
        best = 0.0
        began = time.monotonic()
        for answer in publish(self._requests(free, bodies)):
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
                begin = (now, acknowledged, self.published, *self._processor_times())
                mark = (now, self.published)
            if mark and now - mark[0] > WINDOW_SECONDS:
                best = max(best, (self.published - mark[1]) / (now - mark[0]))
                mark = (now, self.published)
            if begin and end is None and now - begin[0] > self.seconds:
                end = (now, acknowledged, self.published, *self._processor_times())
                self._over.set()
        channel.close()
        assert begin
        assert end
        seconds, batches, events, cpu, server = (last - first for first, last in zip(begin, end, strict=True))
        rate = events / seconds
        findings = {"rate": rate, "best": max(best, rate), "cpu": cpu / events * 1e6}
        findings["messages"] = batches * self.batch / seconds
        findings |= {"busy": cpu / seconds, "server_busy": server / seconds}
        if self.latencies:
            findings |= percentiles(self.latencies)
        return findings

    def _processor_times(self) -> tuple[float, float]:
        return cpu_seconds(self.pid), cpu_seconds(self.server_pid)

    def _requests(self, free: threading.Semaphore, bodies: Sequence[bytes]) -> Iterator[bytes]:
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
            yield request(sequence, position, bodies[sequence % len(bodies)])
            position += self.batch


def main() -> None:
    prepared = Prepared()
    pid, server_pid = (int(text) if text else None for text in sys.argv[1:])
    assert pid
    for line in sys.stdin:
        findings = Load(prepared, pid, server_pid, **json.loads(line)).run()
        print(json.dumps(findings), flush=True)


if __name__ == "__main__":
    main()
