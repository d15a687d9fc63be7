"""Who may look at events: callers on the same machine, by what gRPC says of them."""

from __future__ import annotations

import pytest
from bronze_sidecar.ingest.failures import Failures
from bronze_sidecar.tap.service import TapService, is_here


@pytest.mark.parametrize(
    "peer",
    [
        "unix:",
        "unix:/run/sidecar.sock",
        "ipv4:127.0.0.1:50000",
        "ipv4:127.1.2.3:50000",
        "ipv6:%5B::1%5D:50000",
        "ipv6:[::1]:50000",
        # By an IPv6 address that takes IPv4 as well.
        "ipv6:%5B::ffff:127.0.0.1%5D:50000",
    ],
)
def test_callers_on_this_machine(peer: str) -> None:
    assert is_here(peer)


@pytest.mark.parametrize(
    "peer",
    [
        "",
        "ipv4:10.0.0.1:50000",
        "ipv4:10.127.0.0:1",
        "ipv4:127.0.0.1.example.org:1",
        "ipv6:%5B::ffff:10.0.0.1%5D:50000",
        "ipv6:%5Bfe80::1%5D:50000",
        "ipv6:%5B::11%5D:50000",
        "vsock:1:2",
    ],
)
def test_all_others(peer: str) -> None:
    assert not is_here(peer)


async def test_whoever_hears_of_the_beginning_misses_nothing_from_then_on() -> None:
    failures = Failures()
    tap = TapService([], failures, is_on=True)
    watched = []

    class Caller:
        def peer(self) -> str:
            return "unix:"

        async def write(self, _: bytes) -> None:
            watched.append(failures.watch is not None)
            tap.close()

    await tap.tap(b"", Caller())  # type: ignore[arg-type]
    assert watched == [True]
    assert failures.watch is None
