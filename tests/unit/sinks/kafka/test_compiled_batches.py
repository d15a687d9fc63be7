"""Record batches made by compiled code have the bytes of those that the library makes."""

from __future__ import annotations

import os
import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.kafka.batches import CODECS, COMPRESS, LibraryBatch, MoreHeaders, prepare

BATCHES = int(os.environ.get("BATCHES", "300"))
TIME = 1_700_000_000_123
SIZES = (0, 1, 62, 63, 64, 127, 128, 200, 8190, 8192, 20_000)
TEXTS = ("", "x", "é" * 40, "日本" * 30, "k" * 127, "k" * 8192)
pytestmark = pytest.mark.skipif(not native.IS_INSTALLED, reason="there was no Rust compiler to build it")


def record(chance: random.Random, address: Address) -> Record:
    envelope = (
        chance.randbytes(chance.choice(SIZES)) if chance.random() < 0.5 else bytes(chance.choice(SIZES))
    )
    meta = {chance.choice(TEXTS): chance.choice(TEXTS) for _ in range(chance.randrange(3))}
    event_id = f"s:{chance.getrandbits(chance.randrange(1, 62))}"
    return Record(address, Event(envelope, event_id, "trade", "x", "A", "trade", "", "replay", meta))


def address(chance: random.Random) -> Address:
    headers = tuple((chance.choice(TEXTS), chance.choice(TEXTS)) for _ in range(chance.randrange(4)))
    made = Address("t", chance.choice(TEXTS), headers)
    prepare(made)
    return made


def encoded(  # noqa: PLR0917 - both ways alike
    name: str, records: list[Record], start: int, most_bytes: int, frame: bytes, more: MoreHeaders | None
) -> list[tuple[int, bytes]]:
    """Return where a batch of each maker ends, and its bytes."""
    made = []
    for batch in (
        native.compiled.RecordBatch(CODECS[name], COMPRESS[name], most_bytes, TIME),
        LibraryBatch(CODECS[name], most_bytes, TIME),
    ):
        end = batch.fill(records, start, frame, "eventId", more)
        made.append((end, bytes(batch.build(2**40 + 7, 2**15 - 1, 2**31 - 1))))
    return made


@pytest.mark.parametrize("codec", ["none", "snappy", "lz4", "zstd"])
def test_both_make_the_same_of_any_records(codec: str) -> None:
    chance = random.Random(codec)  # noqa: S311 - not a secret
    splits = 0
    for _ in range(BATCHES):
        addresses = [address(chance) for _ in range(3)]
        records = [record(chance, chance.choice(addresses)) for _ in range(chance.choice((1, 2, 70, 150)))]
        start = chance.choice((0, len(records) - 1))
        more = (lambda event: list(event.meta.items())) if chance.random() < 0.5 else None
        frame = chance.choice((b"", b"\0\0\0\0\7\0"))
        compiled, library = encoded(
            codec, records, start, chance.choice((100, 30_000, 1_000_000)), frame, more
        )
        assert compiled == library
        splits += compiled[0] < len(records)
    assert 0 < splits < BATCHES


def test_what_gzip_makes_unpacks_to_the_same() -> None:
    chance = random.Random(1)  # noqa: S311 - not a secret
    records = [record(chance, address(chance)) for _ in range(20)]
    batches = [DefaultRecordBatch(data) for _, data in encoded("gzip", records, 0, 10**6, b"", None)]
    compiled, library = ([(each.key, each.value, each.headers) for each in batch] for batch in batches)
    assert compiled == library
    assert [batch.compression_type for batch in batches] == [1, 1]
