"""The commands for NATS and Redis, by compiled code and by Python."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.rules import Address, Record
from bronze_sidecar.sinks.nats import commands
from bronze_sidecar.sinks.redis import entries

BATCHES = int(os.environ.get("BATCHES", "300"))
MAKERS = ["compiled", "python"]
Maker = Callable[..., Any]


def maker(which: str, name: str, python: Maker) -> Maker:
    if which == "python":
        return python
    if not native.IS_INSTALLED:
        pytest.skip("there was no Rust compiler to build it")
    found: Maker = getattr(native.compiled, name)
    return found


@pytest.fixture(params=MAKERS)
def publish_commands(request: pytest.FixtureRequest) -> Maker:
    return maker(request.param, "publish_commands", commands.publish_commands)


@pytest.fixture(params=MAKERS)
def script_entries(request: pytest.FixtureRequest) -> Maker:
    return maker(request.param, "script_entries", entries.script_entries)


def record(address: Address, number: int, envelope: bytes, meta: dict[str, str] | None = None) -> Record:
    event = Event(envelope, f"s:{number}", "trade", "x", "A", "trade", "", "replay", meta or {})
    return Record(address, event)


def address(destination: str = "a.b") -> Address:
    return Address(destination, "k", (("payloadCase", "trade"), ("e\nnv", "é\r")))


def test_commands_of_a_batch(publish_commands: Maker) -> None:
    records = [record(address(), 1, b"xyz"), record(address("c"), 22, b"", {"k": "v"})]
    made, oversized = publish_commands(
        records, b"i.%d.0", b"i.%d.1", 1000, commands.prepare, lambda event: b"more" * len(event.meta)
    )
    assert oversized == []
    # The headers that they share have 45 bytes, `Nats-Msg-Id: ` 13, and the ends of two lines 4.
    headers = b"NATS/1.0\r\npayloadCase: trade\r\ne%0Anv: \xc3\xa9%0D\r\n"
    assert made == (
        b"HPUB a.b i.1.0 65 68\r\n" + headers + b"Nats-Msg-Id: s:1\r\n\r\nxyz\r\n"
        b"HPUB c i.2.1 70 70\r\n" + headers + b"Nats-Msg-Id: s:22\r\nmore\r\n\r\n"
    )


def test_commands_without_a_reply(publish_commands: Maker) -> None:
    made, _ = publish_commands(
        [record(Address("a", "", ()), 1, b"x")], b"", b"", 1000, commands.prepare, None
    )
    assert made == b"HPUB a 30 31\r\nNATS/1.0\r\nNats-Msg-Id: s:1\r\n\r\nx\r\n"


def test_what_is_too_large_is_left_out_and_not_counted(publish_commands: Maker) -> None:
    records = [
        record(Address("a", "", ()), number, bytes(size)) for number, size in enumerate((11, 10, 500, 0))
    ]
    made, oversized = publish_commands(records, b"%d", b"%d", 40, commands.prepare, None)
    assert oversized == [(0, 41), (2, 530)]
    assert [line.split()[2] for line in made.split(b"\r\n") if line.startswith(b"HPUB")] == [b"1", b"2"]


def test_entries_name_the_number_of_what_they_share(script_entries: Maker) -> None:
    one, other, meta = address(), address(), {"k": "v"}
    asked = []

    def number_of(record: Record) -> bytes:
        asked.append(record)
        return b"$1\r\n%d\r\n" % len(asked)

    records = [
        record(one, 1, b"abc", meta),
        record(one, 2, b"", meta),
        record(one, 3, b"d", {"k": "v"}),
        record(other, 4, b"e\r\n", meta),
    ]
    made, count = script_entries(records, number_of, True)
    assert asked == [records[0], records[2], records[3]]
    assert count == 4
    assert made == (
        b"$1\r\n1\r\n$3\r\nabc\r\n$3\r\ns:1\r\n$1\r\n1\r\n$0\r\n\r\n$3\r\ns:2\r\n"
        b"$1\r\n2\r\n$1\r\nd\r\n$3\r\ns:3\r\n$1\r\n3\r\n$3\r\ne\r\n\r\n$3\r\ns:4\r\n"
    )
    asked.clear()
    script_entries(records, number_of, False)
    assert asked == [records[0], records[3]]


@pytest.mark.skipif(not native.IS_INSTALLED, reason="there was no Rust compiler to build it")
def test_both_make_the_same_of_any_records() -> None:
    chance = random.Random(0)  # noqa: S311 - not a secret
    for _ in range(BATCHES):
        addresses = [address("x" * chance.randrange(1, 200)) for _ in range(3)]
        metas = [{"k": "v" * number} for number in range(3)]
        records = [
            record(
                chance.choice(addresses),
                chance.getrandbits(chance.randrange(1, 62)),
                chance.randbytes(chance.choice((0, 9, 10, 99, 100, 999, 1000, 5000))),
                chance.choice(metas),
            )
            for _ in range(chance.choice((0, 1, 12, 120)))
        ]
        reply = chance.choice((b"", b"inbox.7-1.500.fail.%d.1.$FI"))
        more = chance.choice((None, lambda event: b"k: " + event.meta["k"].encode() + b"\r\n"))
        given = (records, reply, reply, chance.choice((100, 1100, 10_000)), commands.prepare, more)
        assert native.compiled.publish_commands(*given) == commands.publish_commands(*given)

        def number_of(record: Record) -> bytes:
            return b"%s;%s\r\n" % (record.address.destination.encode(), record.event.meta["k"].encode())

        has_meta = chance.random() < 0.5
        both = [
            each(records, number_of, has_meta)
            for each in (native.compiled.script_entries, entries.script_entries)
        ]
        assert both[0] == both[1]
