"""Throws odd bytes, HTTP/2 frames, Protobuf messages and JSON at the port of a real sidecar.

Whatever comes, the process must live, answer for its health, take an honest batch now and then, and not grow.
Every input follows from the seed and its number alone, so that one that fails can be sent again by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from bronze_client.schema import (
    Batch,
    Open,
    Origin,
    PublishBatchRequest,
    PublishBatchResponse,
    PublishRequest,
    StreamContext,
)
from sidecar_process import SidecarProcess, sidecar

PUBLISH = "/bronze.sidecar.v1.SidecarService/Publish"
PUBLISH_BATCH = "/bronze.sidecar.v1.SidecarService/PublishBatch"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TRADE = b'{"type":"trade","symbol":"S","exchange":"x","price":1,"amount":2,"side":"buy"}'
WORDS = (
    b"type",
    b"trade",
    b"book_change",
    b"bids",
    b"price",
    b"null",
    b"1e400",
    b"-0",
    b"\xff",
    b"{}",
    b"[[",
    b'"',
)
LOOK_EVERY = 200
MOST_GROWTH_MIB = 64
MEBIBYTE = 1 << 20


class Port:
    """A running sidecar under fire."""

    def __init__(self, process: SidecarProcess) -> None:
        self.process = process
        self._channel = grpc.insecure_channel(process.address)
        self._batch: Any = self._channel.unary_unary(PUBLISH_BATCH)
        self._stream: Any = self._channel.stream_stream(PUBLISH)

    def raw(self, content: bytes) -> None:
        """Send bytes to the socket; whatever comes back does not matter."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            with contextlib.suppress(OSError):
                connection.connect(self.process.address.removeprefix("unix://"))
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)

    def single(self, request: bytes) -> None:
        with contextlib.suppress(grpc.RpcError):
            self._batch(request, timeout=10)

    def stream(self, requests: list[bytes]) -> None:
        with contextlib.suppress(grpc.RpcError):
            for _ in self._stream(iter(requests), timeout=10):
                pass

    def looks_well(self) -> str:
        """Say what is wrong, if anything is."""
        try:
            status, _ = self.process.get("/healthz")
        except OSError as error:
            return f"health does not answer: {error}"
        if status != 200:
            return f"health answers {status}"
        request = PublishBatchRequest(
            context=StreamContext(stream_id="honest"), batch=Batch(json=[TRADE] * 10)
        )
        try:
            answer = self._batch(request.SerializeToString(), timeout=30)
        except grpc.RpcError as error:
            return f"an honest batch is refused: {error}"
        outcome = PublishBatchResponse.FromString(answer).outcome
        return "" if outcome.filtered + outcome.published == 10 else f"an honest batch became {outcome}"


# -- inputs


def some_bytes(chance: random.Random, most: int = 200) -> bytes:
    return chance.randbytes(chance.randrange(most))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Change, drop, repeat or insert a few bytes."""
    piece = bytearray(content)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(piece) + 1)
        match chance.randrange(4):
            case 0:
                piece[place : place + 1] = bytes((chance.randrange(256),))
            case 1:
                del piece[place : place + chance.randrange(8)]
            case 2:
                piece[place:place] = piece[place : place + chance.randrange(32)]
            case _:
                piece[place:place] = chance.choice(WORDS)
    return bytes(piece)


def frames(chance: random.Random) -> bytes:
    """HTTP/2 frames of odd kinds, lengths and streams."""
    content = PREFACE if chance.random() < 0.9 else some_bytes(chance)
    for _ in range(chance.randrange(1, 12)):
        body = some_bytes(chance, 64)
        length = len(body) if chance.random() < 0.8 else chance.randrange(1 << 24)
        stream = chance.choice((0, 1, 2, 3, 2**31 - 1, chance.randrange(2**32)))
        content += length.to_bytes(3) + bytes((chance.randrange(12), chance.randrange(256)))
        content += stream.to_bytes(4) + body
    return content


def line(chance: random.Random) -> bytes:
    """A message that is more or less JSON."""
    levels = b",".join([b'{"price":1,"amount":0}'] * chance.randrange(40))
    book = b'{"type":"book_change","exchange":"x","symbol":"S","bids":[%b]}' % levels
    return damaged(chance.choice((TRADE, book)), chance) if chance.random() < 0.8 else some_bytes(chance)


def opening(chance: random.Random) -> PublishRequest:
    meta = {f"k{number}": "v" * chance.randrange(20) for number in range(chance.randrange(4))}
    context = StreamContext(
        stream_id=chance.choice(("s", "", "x" * 70, "a b")),
        origin=chance.choice(Origin.keys()),
        meta=meta,
    )
    producer = "p" * chance.choice((1, 8, 200))
    return PublishRequest(open=Open(producer_id=producer, context=context))


def batch(chance: random.Random) -> Batch:
    made = Batch(
        sequence=chance.choice((1, 2, 0, chance.randrange(2**64))),
        first_position=chance.choice((0, 7, 2**64 - 1, chance.randrange(2**64))),
    )
    if chance.random() < 0.7:
        made.json.extend(line(chance) for _ in range(chance.randrange(8)))
    if chance.random() < 0.3:
        made.envelopes.extend(some_bytes(chance) for _ in range(chance.randrange(8)))
    if chance.random() < 0.2:
        made.mixed.extend(chance.choice((line, some_bytes))(chance) for _ in range(chance.randrange(8)))
    return made


def shot(port: Port, chance: random.Random) -> Callable[[], None]:
    match chance.randrange(5):
        case 0:
            content = some_bytes(chance, 2000) if chance.random() < 0.3 else frames(chance)
            return lambda: port.raw(content)
        case 1:
            request = PublishBatchRequest(context=opening(chance).open.context, batch=batch(chance))
            return lambda: port.single(request.SerializeToString())
        case 2:
            request = PublishBatchRequest(context=StreamContext(stream_id="s"), batch=batch(chance))
            broken = damaged(request.SerializeToString(), chance)
            return lambda: port.single(broken)
        case _:
            requests = [opening(chance).SerializeToString()]
            requests += [
                PublishRequest(batch=batch(chance)).SerializeToString() for _ in range(chance.randrange(4))
            ]
            if chance.random() < 0.5:
                requests = [damaged(each, chance) for each in requests]
            return lambda: port.stream(requests)


def run(numbers: Iterator[int] | range | list[int], seed: int) -> list[str]:
    """Send the inputs; return what went wrong."""
    faults: list[str] = []
    with sidecar("--log-level=error") as process:
        process.wait_until_ready()
        port = Port(process)
        first = 0
        for count, number in enumerate(numbers, 1):
            shot(port, random.Random(f"{seed}:{number}"))()  # noqa: S311 - no secret
            if count % LOOK_EVERY and count != 1:
                continue
            fault = port.looks_well()
            if fault:
                faults.append(f"after input {number}: {fault}")
                break
            # What is made once may stay.
            first = first or (process.resident_bytes() if count >= LOOK_EVERY else 0)
        grown = (process.resident_bytes() - first) // MEBIBYTE if first else 0
        if not faults and grown > MOST_GROWTH_MIB:
            faults.append(f"the process grew by {grown} MiB")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, metavar="N", help="how many to try")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which ones to try")
    parser.add_argument("--only", type=int, metavar="N", help="try this one alone")
    options = parser.parse_args()
    start = time.perf_counter()
    faults = run([options.only] if options.only is not None else range(options.inputs), options.seed)
    for fault in faults:
        print(fault, file=sys.stderr)
    count = 1 if options.only is not None else options.inputs
    seconds = time.perf_counter() - start
    print(f"{count} inputs to the port (seed {options.seed}): {len(faults)} failures, {seconds:.1f} seconds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
