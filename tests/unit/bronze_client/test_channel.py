"""Publishers of one process share a connection."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from clients import ClientUnderTest, PublisherUnderTest, until_inside
from scripted_sidecar import ScriptedSidecar, frozen, in_loop, obliging, until

LONG = 20.0


@pytest.fixture(autouse=True)
def _quick(client: ClientUnderTest) -> Iterator[None]:
    """Make pauses between attempts too short to matter."""
    with client.timing(first_pause=0.01, longest_pause=0.05):
        yield


async def publish_one_each(publishers: list[PublisherUnderTest]) -> None:
    for publisher in publishers:
        await publisher.publish(b"a")
    for publisher in publishers:
        await publisher.flush(LONG)


@in_loop
async def test_publishers_share_a_connection_until_the_last_is_closed(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with contextlib.AsyncExitStack() as stack:
            publishers = [await stack.enter_async_context(client.connect(sidecar.address)) for _ in range(5)]
            await publish_one_each(publishers)
            assert sidecar.connections == 1
            first, *others = publishers
            await first.close()
            await publish_one_each(others)
            stats = [await publisher.stats() for publisher in others]
            assert [(each.published, each.reconnects) for each in stats] == [(2, 0)] * 4
            assert sidecar.connections == 1
        await until(lambda: sidecar.connections == 0)


@in_loop
async def test_all_that_share_a_connection_resume_when_the_sidecar_restarts(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as sidecar:
        async with contextlib.AsyncExitStack() as stack:
            publishers = [await stack.enter_async_context(client.connect(sidecar.address)) for _ in range(5)]
            await publish_one_each(publishers)
            sidecar.stop()
            for publisher in publishers:
                await publisher.publish(b"b")
            sidecar.start(sidecar.address)
            for publisher in publishers:
                await publisher.flush(LONG)
            stats = [await publisher.stats() for publisher in publishers]
            assert [(each.published, each.reconnects) for each in stats] == [(2, 1)] * 5


@in_loop
async def test_another_address_has_a_connection_of_its_own(client: ClientUnderTest) -> None:
    with ScriptedSidecar(obliging) as one, ScriptedSidecar(obliging) as two:
        async with client.connect(one.address) as first, client.connect(two.address) as second:
            await publish_one_each([first, second])
            assert (one.connections, two.connections) == (1, 1)


@in_loop
async def test_a_stream_that_the_sidecar_does_not_read_holds_up_no_other(client: ClientUnderTest) -> None:
    with ScriptedSidecar(frozen, obliging) as sidecar:
        async with client.connect(sidecar.address, batch_bytes=1 << 20) as stuck:
            await until_inside(stuck, lambda inside: inside.is_open)
            assert all(await stuck.publish_all([b"a" * (1 << 20)] * 20))
            async with client.connect(sidecar.address) as other:
                for _ in range(20):
                    await other.publish_all([b"b" * 1000] * 500)
                    await other.flush(LONG)
                assert sidecar.connections == 1
            assert (await stuck.stats()).acknowledged == 0
            sidecar.release.set()
            await stuck.flush(LONG)


def make_certificate(certificate: Path, key: Path) -> None:
    """Make a certificate for this host that signs itself, and its key."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    )
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
@in_loop
async def test_replaced_certificates_hold_for_the_next_stream(
    client: ClientUnderTest, tmp_path: Path
) -> None:
    """Also for one that resumes, while others still have the connection from before."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    files = {"tls_ca_file": certificate, "tls_cert_file": certificate, "tls_key_file": key}

    def credentials() -> grpc.ServerCredentials:
        make_certificate(certificate, key)
        trusted = certificate.read_bytes()
        return grpc.ssl_server_credentials([(key.read_bytes(), trusted)], trusted, require_client_auth=True)

    sidecar = ScriptedSidecar(obliging)
    sidecar.start("127.0.0.1:0", credentials())
    address = sidecar.address.replace("127.0.0.1", "localhost")
    async with client.connect(address, **files) as first, client.connect(address, **files) as second:
        await publish_one_each([first, second])
        assert sidecar.connections == 1
        sidecar.stop()
        sidecar.start(sidecar.address, credentials())
        await publish_one_each([first, second])
        async with client.connect(address, **files) as third:
            await publish_one_each([third])
    sidecar.stop()
