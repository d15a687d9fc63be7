"""The compiled scanner of envelopes finds what the Python code finds, and refuses what that refuses."""

from __future__ import annotations

import os
import random
import shutil

import pytest
from bronze_client.schema import NormalizedEvent, Trade
from bronze_sidecar.envelope import native
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.envelope.payloads import ORIGINS
from fuzz_native import Comparison
from odd_envelopes import USUAL, odd_envelope, varint

BATCHES = int(os.environ.get("BATCHES", "2000"))
needs_it = pytest.mark.skipif(not native.IS_INSTALLED, reason="there was no Rust compiler to build it")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Comparison()


def test_it_is_installed_where_there_is_a_compiler() -> None:
    assert native.IS_INSTALLED or not shutil.which("cargo")


@needs_it
def test_both_make_the_same_of_odd_envelopes(comparison: Comparison) -> None:
    rnd = random.Random(0)  # noqa: S311 - not a secret
    events = 0
    for _ in range(BATCHES):
        envelopes = [odd_envelope(rnd) for _ in range(rnd.choice((1, 1, 4)))]
        found, count = comparison.differs(envelopes=envelopes)
        assert not found, f"{[envelope.hex() for envelope in envelopes]}: {found}"
        events += count
    # Enough of them are envelopes, and enough are not.
    assert 0.05 < events / BATCHES < 1


@needs_it
@pytest.mark.parametrize(
    "envelope",
    [
        USUAL,
        NormalizedEvent(exchange="x").SerializeToString(),
        NormalizedEvent(symbol="x").SerializeToString(),
        USUAL + varint(6 << 3) + varint(3),  # another origin
        USUAL + varint(6 << 3) + varint(77),  # an origin that is not known
        USUAL + varint(6 << 3) + varint(2**64 - 1),
        USUAL + varint(3 << 3 | 2) + varint(506) + "é".encode() * 253,
        USUAL + varint(3 << 3 | 2) + varint(1024) + "é".encode() * 512,
        USUAL + varint(151 << 3 | 2) + b"\0",  # another payload
        USUAL + varint(2 << 3 | 2) + b"\0",  # no exchange any more
        b"",
    ],
)
def test_both_make_the_same_of_an_envelope(comparison: Comparison, envelope: bytes) -> None:
    assert comparison.differs(envelopes=[USUAL, envelope, USUAL])[0] == ""
    assert comparison.differs(envelopes=[USUAL, envelope, USUAL], levels=(0, 5, 2**32 - 1))[0] == ""


@needs_it
def test_events_with_the_same_meta_share_it() -> None:
    """So sinks that write it as fields encode it once for all of them."""
    scanner = native.scanner_type()(
        Event,
        id_prefix="s:",
        source=("own", b""),
        origin=(0, b""),
        context_meta=[("route", "replay", b"")],
        needs_meta=True,
        longest_name=100,
        origins=ORIGINS,
    )
    metas = [{"a": "1", "b": "2"}, {"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"a": "1", "b": "2"}]
    envelopes = [
        NormalizedEvent(exchange="x", meta=meta, trade=Trade()).SerializeToString(deterministic=True)
        for meta in metas
    ]
    events, faults = scanner.scan(envelopes, 0, [], b"")
    assert not faults
    assert [event.meta for event in events] == [{"route": "replay", **meta} for meta in metas]
    assert [event.meta is events[0].meta for event in events] == [True, True, False, True]
