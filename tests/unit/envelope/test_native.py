"""The compiled scanner of envelopes finds what the Python code finds, and refuses what that refuses."""

from __future__ import annotations

import os
import random
import runpy
import shutil
import sys
from types import SimpleNamespace

import pytest
from bronze_client.schema import NormalizedEvent
from bronze_sidecar.envelope import native
from fuzz_native import CONTEXTS, OPTIONS, Comparison, intake
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


@pytest.mark.parametrize("found", [None, SimpleNamespace(), SimpleNamespace(INTERFACE=native.INTERFACE + 1)])
def test_a_package_that_cannot_be_used_is_as_if_it_were_not_there(
    found: SimpleNamespace | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bronze_sidecar_native", found)  # type: ignore[arg-type]
    assert not runpy.run_path(native.__file__)["IS_INSTALLED"]


@needs_it
def test_events_alike_share_their_meta() -> None:
    scanner = intake(OPTIONS["with meta"], CONTEXTS[1], native=True)._scanner
    assert scanner
    other = USUAL + NormalizedEvent(meta={"another": "x"}).SerializeToString()
    own_id = USUAL + NormalizedEvent(meta={"event_id": "x"}).SerializeToString()
    events, _ = scanner.scan([USUAL, other, own_id], 0, [], b"")
    assert [event.meta for event in events] == [
        {"request_id": "r", "k": "v", "other": "", "data_type": "trade"},
        {"request_id": "r", "k": "v", "other": "", "data_type": "trade", "another": "x"},
        {"request_id": "r", "k": "v", "other": "", "data_type": "trade"},
    ]
    assert events[0].meta is events[2].meta
