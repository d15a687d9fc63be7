"""The sidecar as a process: sockets, encryption, health, secrets and exit statuses."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import pytest
import trustme
from bronze_client import Publisher, PublishError, connect
from doc_pages import ROOT
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from servers import NatsServer, free_port
from sidecar_process import PROGRAM, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]

TRADE = {
    "type": "trade",
    "symbol": "XBTUSD",
    "exchange": "bitmex",
    "id": "1",
    "price": 1,
    "amount": 1,
    "side": "buy",
    "timestamp": "2024-01-01T00:00:00.000Z",
    "localTimestamp": "2024-01-01T00:00:00.000Z",
}


def nats_options(server: NatsServer) -> list[str]:
    return [
        "--nats-servers",
        f"127.0.0.1:{server.port}",
        "--nats-stream",
        "S",
        "--nats-subject",
        "bronze.all",
    ]


async def publish_one(address: str, **options: object) -> None:
    async with connect(address, **options) as publisher:  # type: ignore[arg-type]
        assert publisher.publish(TRADE)
        await publisher.flush(timeout=60)


async def test_serves_tcp_and_unix_sockets_at_once_and_publishing_off_acknowledges_as_filtered() -> None:
    port = free_port()
    with sidecar("--listen", f"127.0.0.1:{port}") as process:
        process.wait_until_ready()
        assert process.status()["publishing"] == "off: no back end is configured"
        assert process.status()["version"] == "0.1.0"
        assert "PUBLISHING IS OFF: no back end is configured" in process.log.read_text()
        for address in (process.address, f"127.0.0.1:{port}"):
            async with connect(address) as publisher:
                publisher.publish(TRADE)
                await publisher.flush(timeout=60)
                assert (publisher.stats.filtered, publisher.stats.published) == (1, 0)
        assert process.metric("bronze_events_filtered_total") == 2
        process.terminate()
        assert process.wait() == 0


def test_a_unix_socket_is_its_owners_alone_unless_told(tmp_path: Path) -> None:
    with sidecar() as process:
        path = Path(process.address.removeprefix("unix://"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    with sidecar("--socket-mode", "660") as process:
        path = Path(process.address.removeprefix("unix://"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_a_stale_socket_is_replaced_and_a_living_one_or_another_file_is_not() -> None:
    with sidecar() as process:
        process.kill()
        assert Path(process.address.removeprefix("unix://")).exists()
        process.start()
        second = run("--listen", process.address, "--admin-listen", f"127.0.0.1:{free_port()}")
        assert second.returncode == 1
        assert "another process serves" in second.stderr
        process.stop()
        Path(process.address.removeprefix("unix://")).write_text("precious")
        third = run("--listen", process.address, "--admin-listen", f"127.0.0.1:{free_port()}")
        assert third.returncode == 1
        assert "is not a socket" in third.stderr
        assert Path(process.address.removeprefix("unix://")).read_text() == "precious"


def test_a_taken_port_ends_with_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("--listen", "--admin-listen"):
            ended = run(option, address)
            assert ended.returncode == 1
            assert address.partition(":")[2] in ended.stderr


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "run", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment or None,
        check=False,
    )


def test_an_open_address_without_encryption_is_refused() -> None:
    ended = run("--listen", "0.0.0.0:50051")
    assert ended.returncode == 2
    assert "'0.0.0.0:50051' is not a loopback address, and TLS is off" in ended.stderr
    assert "--insecure" in ended.stderr


@pytest.fixture
def certificates(tmp_path: Path) -> Iterator[dict[str, str]]:
    authority = trustme.CA()
    paths = {"ca": tmp_path / "ca.pem"}
    authority.cert_pem.write_to_path(str(paths["ca"]))
    for name, host in (("server", "localhost"), ("client", "producer")):
        issued = authority.issue_cert(host)
        paths |= {f"{name}_cert": tmp_path / f"{name}.pem", f"{name}_key": tmp_path / f"{name}.key"}
        issued.cert_chain_pems[0].write_to_path(str(paths[f"{name}_cert"]))
        issued.private_key_pem.write_to_path(str(paths[f"{name}_key"]))
    return {name: str(path) for name, path in paths.items()}  # type: ignore[return-value]


async def test_an_open_address_is_encrypted_and_may_ask_for_certificates(
    certificates: dict[str, str],
) -> None:
    port = free_port()
    tls = ["--tls-cert-file", certificates["server_cert"], "--tls-key-file", certificates["server_key"]]
    listen = ["--listen", f"0.0.0.0:{port}"]
    with sidecar(*listen, *tls):
        await publish_one(f"localhost:{port}", tls_ca_file=certificates["ca"])
        with pytest.raises(PublishError):
            await publish_one_soon(f"localhost:{port}")
    with sidecar(*listen, *tls, "--tls-client-ca-file", certificates["ca"]):
        await publish_one(
            f"localhost:{port}",
            tls_ca_file=certificates["ca"],
            tls_cert_file=certificates["client_cert"],
            tls_key_file=certificates["client_key"],
        )
        with pytest.raises(PublishError):
            await publish_one_soon(f"localhost:{port}", tls_ca_file=certificates["ca"])


async def publish_one_soon(address: str, **options: object) -> None:
    async with connect(address, close_timeout=0.1, **options) as publisher:  # type: ignore[arg-type]
        publisher.publish(TRADE)
        await publisher.flush(timeout=1.5)


async def test_health_and_reflection_answer(start_nats: Callable[..., NatsServer]) -> None:
    server = start_nats()
    with sidecar(*nats_options(server)) as process:
        process.wait_until_ready()
        with grpc.insecure_channel(process.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for service in ("", "bronze.sidecar.v1.SidecarService"):
                answer = health.Check(  # type: ignore[attr-defined]
                    health_pb2.HealthCheckRequest(service=service), timeout=60
                )
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            services = ProtoReflectionDescriptorDatabase(channel).get_services()
            assert "bronze.sidecar.v1.SidecarService" in services


def test_wrong_credentials_end_the_process_and_name_the_option(start_nats: Callable[..., NatsServer]) -> None:
    server = start_nats("--user", "right", "--pass", "hidden-word")
    ended = run(
        *nats_options(server),
        *("--nats-user", "right", "--nats-pass", "wrong-word"),
        *("--listen", f"127.0.0.1:{free_port()}", "--admin-listen", f"127.0.0.1:{free_port()}"),
    )
    assert ended.returncode == 1
    assert "--nats-pass" in ended.stderr
    assert "wrong-word" not in ended.stderr + ended.stdout


def test_a_missing_stream_that_may_not_be_created_ends_the_process(
    start_nats: Callable[..., NatsServer],
) -> None:
    server = start_nats()
    options = [option for option in nats_options(server) if option not in {"--nats-stream", "S"}]
    ended = run(
        *options, "--listen", f"127.0.0.1:{free_port()}", "--admin-listen", f"127.0.0.1:{free_port()}"
    )
    assert ended.returncode == 1
    assert "--nats-stream" in ended.stderr


async def test_a_secret_on_the_command_line_is_not_visible_in_the_process_list(
    start_nats: Callable[..., NatsServer],
) -> None:
    server = start_nats("--user", "right", "--pass", "hidden-word")
    with sidecar(*nats_options(server), "--nats-user", "right", "--nats-pass=hidden-word") as process:
        process.wait_until_ready()
        assert "hidden-word" not in command_line(process.pid)
        await publish_one(process.address)
        assert "hidden-word" not in process.log.read_text()


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_undelivered_events_and_a_second_signal_show_in_the_exit_status(
    start_nats: Callable[..., NatsServer],
) -> None:
    server = start_nats()
    for grace, second, expected in ((1, None, 3), (60, signal.SIGINT, 130)):
        with sidecar(*nats_options(server), "--grace-seconds", str(grace)) as process:
            process.wait_until_ready()
            server.freeze()
            async with undelivered(process.address) as publisher:
                publisher.publish(TRADE)
                while not process.status()["backends"]["nats"]["waiting_events"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                process.terminate()
                if second:
                    await asyncio.sleep(0.3)
                    process.terminate(second)
                assert await asyncio.to_thread(process.wait) == expected
            server.thaw()
            (line,) = [each for each in process.log_lines() if "undelivered" in each]
            assert line["undelivered"] == {"nats": 1}


@contextlib.asynccontextmanager
async def undelivered(address: str) -> AsyncIterator[Publisher]:
    """A publisher whose events are known not to arrive."""
    with contextlib.suppress(PublishError):
        async with connect(address, close_timeout=0.1) as publisher:
            yield publisher


async def test_ten_thousand_garbage_batches_are_answered_and_good_events_between_them_arrive(
    start_nats: Callable[..., NatsServer],
) -> None:
    import random  # noqa: PLC0415

    from bronze_client.schema import (  # noqa: PLC0415
        Batch,
        NormalizedEvent,
        PublishBatchRequest,
        PublishBatchResponse,
        StreamContext,
    )

    chance = random.Random(11)  # noqa: S311
    good = NormalizedEvent(exchange="bitmex", symbol="XBTUSD")
    good.trade.price_str = "1"
    whole = good.SerializeToString()

    def garbage() -> Batch:
        kind = chance.randrange(4)
        if kind == 0:
            return Batch(envelopes=[chance.randbytes(chance.randrange(1, 200)) for _ in range(3)])
        if kind == 1:
            return Batch(envelopes=[whole[: chance.randrange(1, len(whole))]])
        if kind == 2:
            return Batch(
                json=[chance.randbytes(50).replace(b"\n", b" "), b'{"type":"trade"}', b"[[[[", b"\xff"]
            )
        return Batch(json=[b'{"type":"trade","exchange":"x","price":"1"}', b'{"type":7,"exchange":"x"}'])

    server = start_nats()
    with sidecar(*nats_options(server)) as process:
        process.wait_until_ready()
        async with grpc.aio.insecure_channel(process.address) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/bronze.sidecar.v1.SidecarService/PublishBatch"
            )
            context = StreamContext(stream_id="garbage")

            async def answer(batch: Batch) -> PublishBatchResponse:
                request = PublishBatchRequest(context=context, batch=batch)
                return PublishBatchResponse.FromString(await call(request.SerializeToString(), timeout=60))

            published = 0
            for _ in range(100):
                batches = [garbage() for _ in range(100)]
                answers = await asyncio.gather(*(answer(batch) for batch in batches))
                for batch, response in zip(batches, answers, strict=True):
                    count = len(batch.envelopes) or len(batch.json)
                    outcome = response.outcome
                    # Some truncated envelopes are whole messages by chance; every other event has a reason.
                    assert outcome.published + len(outcome.failures) == count
                    assert all(failure.reason for failure in outcome.failures)
                    published += outcome.published
                assert (await answer(Batch(envelopes=[whole]))).outcome.published == 1
                published += 1
        assert process.metric("bronze_events_published_total") == published
        assert process.get("/healthz")[0] == 200


async def test_a_message_larger_than_any_event_is_refused_alone_and_the_stream_goes_on() -> None:
    with sidecar() as process:
        async with connect(process.address, batch_bytes=1024) as publisher:
            publisher.publish({**TRADE, "id": "x" * 8_000_000})
            publisher.publish(TRADE)
            with pytest.raises(PublishError) as caught:
                await publisher.flush(timeout=30)
            assert (caught.value.unacknowledged, caught.value.dropped) == (0, 1)
            assert caught.value.reason == "The event is larger than the sidecar accepts."
            assert publisher.stats.filtered == 1


def test_the_example_of_the_readme_starts_without_warnings(start_nats: Callable[..., NatsServer]) -> None:
    bus = start_nats()
    config = ("--config", str(ROOT / "examples/nats.yaml"), f"--nats-servers=nats://127.0.0.1:{bus.port}")
    with sidecar(*config) as process:
        process.wait_until_ready()
        assert [line for line in process.log_lines() if line["level"] != "info"] == []
        # Nor does it complain when there was an outage in which nothing was in doubt.
        bus.kill()
        while process.get("/readyz")[0] == 200:
            time.sleep(0.05)
        bus.start()
        process.wait_until_ready()
        assert not [line for line in process.log_lines() if "twice" in line["event"]]
        (first, again) = (line for line in process.log_lines() if line["event"] == "connected")
    for line in (first, again):
        assert line["away_seconds"] >= 0
        assert (line["waiting"], line["waiting_bytes"]) == (0, 0)
