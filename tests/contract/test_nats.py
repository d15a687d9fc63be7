"""NATS: the contract, and what is NATS' own."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import bronze_buses.nats
import nats
import nkeys
import pytest
from bronze_sidecar.errors import DeliveryError, Disconnected, Permanent, Transient
from bronze_sidecar.routing.route import Route
from bronze_sidecar.sinks.base import Backend
from bronze_sidecar.sinks.nats import sink as nats_sink
from bronze_sidecar.sinks.nats.streams import covers
from configurations import backend_of
from contract.contract import Peer, SinkContract, Stored, event, headed_event, price, records, trade
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, StreamConfig
from nats.js.errors import NotFoundError
from servers import Certificates, Endpoint, NatsServer, free_port

pytestmark = pytest.mark.servers

StartNats = Callable[..., NatsServer]


@asynccontextmanager
async def client(url: str | list[str], **options: Any) -> AsyncIterator[Client]:
    """Connect by the library's ordinary means."""
    connected = await nats.connect(url, **options)
    try:
        yield connected
    finally:
        await connected.close()


async def read_subject(connected: Client, subject: str) -> list[Stored]:
    stream = connected.jetstream()
    unconfirmed = ConsumerConfig(ack_policy=AckPolicy.NONE)
    try:
        consumer = await stream.pull_subscribe(subject, config=unconfirmed)
    except NotFoundError:
        return []
    count = (await consumer.consumer_info()).num_pending or 0
    stored: list[Stored] = []
    while len(stored) < count:
        messages = await consumer.fetch(min(1000, count - len(stored)), timeout=60)
        stored += [Stored(message.data, dict(message.headers or {})) for message in messages]
    return stored


def peer_at(url: str, flags: tuple[str, ...], *, reading: dict[str, Any] | None = None, **facts: Any) -> Peer:
    async def read_all(subject: str) -> list[Stored]:
        async with client(url, **(reading or {})) as connected:
            return await read_subject(connected, subject)

    return Peer(flags, read_all, **facts)


def reach(port: int, scheme: str = "nats") -> str:
    return f"--nats-servers={scheme}://127.0.0.1:{port}"


def addressing(prefix: str) -> tuple[str, ...]:
    template = f"{prefix}.{{{{symbol}}}}"
    return f"--nats-subject={template}", f"--nats-stream={prefix.replace('.', '-')}"


class TestNats(SinkContract):
    """The contract, with JetStream."""

    headers = {  # noqa: RUF012 - it is declared as a class attribute
        "payloadCase": "tradeBar",
        "dataType": "trade_bar_1m",
        "env": "prod",
        "Nats-Msg-Id": "stream:42",
        "m-request_id": "r-1",
        "m-city": "Zürich",
    }
    header_flags = ("--nats-static-headers=env:prod", "--nats-meta-headers-prefix=m-")
    oversized_bytes = 64 * 1024

    def addressing(self, prefix: str) -> tuple[str, ...]:
        return addressing(prefix)

    def be_impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nats_sink, "ANSWER_SECONDS", 1.0)
        monkeypatch.setattr(bronze_buses.nats, "CONNECT_SECONDS", 1)

    @pytest.fixture
    def peer(self, nats_server: Endpoint) -> Peer:
        return peer_at(nats_server.url, (reach(nats_server.port),))

    @pytest.fixture
    def own_peer(self, start_nats: StartNats) -> Peer:
        server = start_nats()
        return peer_at(server.url, (reach(server.port),), server=server)

    @pytest.fixture
    def small_peer(self, start_nats: StartNats) -> Peer:
        server = start_nats(config="max_payload: 64KB")
        return peer_at(server.url, (reach(server.port),), server=server)

    @pytest.fixture
    def password_peer(self, start_nats: StartNats) -> Peer:
        server = start_nats("--user", "writer", "--pass", "correct-horse")
        return peer_at(
            server.url,
            (reach(server.port), "--nats-user=writer", "--nats-pass=correct-horse"),
            wrong_flags=(reach(server.port), "--nats-user=writer", "--nats-pass=battery-staple"),
            secrets=("correct-horse", "battery-staple"),
            options=("--nats-user", "--nats-pass"),
            reading={"user": "writer", "password": "correct-horse"},
        )

    @pytest.fixture
    def tls_peer(self, start_nats: StartNats, certificates: Certificates) -> Peer:
        server = start_tls(start_nats, certificates)
        trusting = (reach(server.port, "tls"), f"--nats-tls-ca-file={certificates.ca_file}")
        return peer_at(
            server.url,
            trusting,
            wrong_flags=(trusting[0], f"--nats-tls-ca-file={certificates.other_ca_file}"),
            options=("--nats-tls-ca-file",),
            reading={"tls": client_context(certificates)},
        )


def start_tls(start_nats: StartNats, certificates: Certificates, *, ask_clients: bool = False) -> NatsServer:
    verify = f'verify: true, ca_file: "{certificates.ca_file}",' if ask_clients else ""
    files = f'cert_file: "{certificates.server_cert_file}", key_file: "{certificates.server_key_file}"'
    return start_nats(config=f"tls: {{ {verify} {files} }}")


def client_context(certificates: Certificates) -> Any:
    import ssl  # noqa: PLC0415

    context = ssl.create_default_context(cafile=str(certificates.ca_file))
    context.load_cert_chain(certificates.client_cert_file, certificates.client_key_file)
    return context


def backend(*flags: str) -> Backend:
    made: Backend = backend_of(*flags)
    return made


async def opening_error(made: Backend) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        async with made.open(Route(made.rules())):
            pass
    return caught.value


async def test_creates_the_stream_for_all_subjects_and_knows_its_window(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(
        reach(server.port),
        "--nats-stream=S",
        "--nats-subject=base",
        "--nats-subject-template=x.{{exchange}}.{{symbol}}",
        "--nats-subject-routing=trade:trades.{{symbol}}",
    )
    async with made.open(Route(made.rules())) as sink:
        assert sink.forgets_ids_after == 120.0
    async with client(server.url) as connected:
        info = await connected.jetstream().stream_info("S")
        assert sorted(info.config.subjects or []) == ["trades.*", "x.*.*"]


async def test_a_stream_that_does_not_take_our_subjects_is_refused(start_nats: StartNats) -> None:
    server = start_nats()
    async with client(server.url) as connected:
        await connected.jetstream().add_stream(StreamConfig(name="S", subjects=["other.>"]))
    error = await opening_error(backend(reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}"))
    assert isinstance(error, Permanent)
    assert "--nats-stream S: the stream does not accept x.*; it accepts other.>" in str(error)


async def test_a_stream_that_overlaps_another_is_refused_with_the_option(start_nats: StartNats) -> None:
    server = start_nats()
    async with client(server.url) as connected:
        await connected.jetstream().add_stream(StreamConfig(name="OTHER", subjects=["x.>"]))
    error = await opening_error(backend(reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}"))
    assert isinstance(error, Permanent)
    assert "--nats-stream S" in str(error)
    assert "overlap" in str(error)


async def test_without_a_stream_the_error_names_the_option(start_nats: StartNats) -> None:
    server = start_nats()
    error = await opening_error(backend(reach(server.port), "--nats-subject=x.{{symbol}}"))
    assert isinstance(error, Permanent)
    assert "no JetStream stream accepts x.*" in str(error)
    assert "--nats-stream" in str(error)


async def test_an_operators_stream_is_found_by_subject(start_nats: StartNats) -> None:
    server = start_nats()
    async with client(server.url) as connected:
        await connected.jetstream().add_stream(StreamConfig(name="MINE", subjects=["x.>"]))
        made = backend(reach(server.port), "--nats-subject=x.{{symbol}}")
        async with made.open(Route(made.rules())) as sink:
            assert not await sink.write(records(made, [trade("A", 1)]))
        assert [price(each) for each in await read_subject(connected, "x.A")] == [1]


async def test_a_server_without_jetstream_is_named_as_the_cause(start_nats: StartNats) -> None:
    server = start_nats(jetstream=False)
    for more in ((), ("--nats-stream=S",)):
        error = await opening_error(backend(reach(server.port), "--nats-subject=x", *more))
        assert isinstance(error, Permanent)
        assert "--nats-jetstream=false" in str(error)


async def test_repeated_ids_are_stored_once(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}")
    async with made.open(Route(made.rules())) as sink:
        batch = records(made, [trade("A", number) for number in range(10)])
        assert not await sink.write(batch)
        assert not await sink.write(batch)
    async with client(server.url) as connected:
        assert [price(each) for each in await read_subject(connected, "x.A")] == list(range(10))


async def test_a_full_stream_is_transient_and_names_the_cause(start_nats: StartNats) -> None:
    server = start_nats()
    async with client(server.url) as connected:
        full = StreamConfig(name="S", subjects=["x.*"], max_msgs=2, discard=DiscardPolicy.NEW)
        await connected.jetstream().add_stream(full)
        made = backend(reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}")
        async with made.open(Route(made.rules())) as sink:
            failures = await sink.write(records(made, [trade("A", number) for number in range(4)]))
            assert [failure.place for failure in failures] == [2, 3]
            assert all(isinstance(failure.error, Transient) for failure in failures)
            assert "maximum messages exceeded" in str(failures[0].error)
            await connected.jetstream().purge_stream("S")
            assert not await sink.write(records(made, [trade("A", 2), trade("A", 3)]))


async def test_a_message_larger_than_the_stream_allows_fails_alone(start_nats: StartNats) -> None:
    server = start_nats()
    async with client(server.url) as connected:
        small = StreamConfig(name="S", subjects=["x.*"], max_msg_size=1000)
        await connected.jetstream().add_stream(small)
        made = backend(reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}")
        async with made.open(Route(made.rules())) as sink:
            batch = [trade("A", 0), event("A", 1, b"x" * 2000), trade("A", 2)]
            failures = await sink.write(records(made, batch))
        assert [(failure.place, type(failure.error)) for failure in failures] == [(1, Permanent)]
        assert [price(each) for each in await read_subject(connected, "x.A")] == [0, 2]


async def test_a_stream_deleted_under_way_is_transient(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}")
    async with made.open(Route(made.rules())) as sink, client(server.url) as connected:
        await connected.jetstream().delete_stream("S")
        failures = await sink.write(records(made, [trade("A", 1)]))
        assert [type(failure.error) for failure in failures] == [Transient]
        assert "no JetStream stream accepts the subject" in str(failures[0].error)


async def test_core_nats_reaches_subscribers_without_a_stream(start_nats: StartNats) -> None:
    server = start_nats(jetstream=False)
    made = backend(reach(server.port), "--nats-jetstream=false", "--nats-subject=x.{{symbol}}")
    async with client(server.url) as connected:
        subscription = await connected.subscribe("x.*")
        await connected.flush()
        async with made.open(Route(made.rules())) as sink:
            assert sink.forgets_ids_after is None
            assert not await sink.write(records(made, [trade("A", number) for number in range(100)]))
        received = [await subscription.next_msg(timeout=60) for _ in range(100)]
    assert [price(Stored(message.data, {})) for message in received] == list(range(100))
    assert received[7].headers == {"payloadCase": "trade", "dataType": "trade", "Nats-Msg-Id": "stream:7"}


async def test_core_nats_notices_a_killed_server(
    start_nats: StartNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_nats(jetstream=False)
    made = backend(reach(server.port), "--nats-jetstream=false", "--nats-subject=x")
    async with made.open(Route(made.rules())) as sink:
        server.kill()
        monkeypatch.setattr(nats_sink, "ANSWER_SECONDS", 1.0)
        with pytest.raises(Disconnected):
            await sink.write(records(made, [trade("A", 1)]))


async def test_a_token_logs_in(start_nats: StartNats) -> None:
    server = start_nats("--auth", "secret-token")
    more = ("--nats-stream=S", "--nats-subject=x.{{symbol}}")
    made = backend(reach(server.port), "--nats-token=secret-token", *more)
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(records(made, [trade("A", 1)]))
    error = await opening_error(backend(reach(server.port), "--nats-token=wrong-token", *more))
    assert isinstance(error, Permanent)
    assert "--nats-token" in str(error)
    assert "wrong-token" not in str(error)


async def test_no_credentials_where_they_are_needed_are_refused(start_nats: StartNats) -> None:
    server = start_nats("--auth", "secret-token")
    error = await opening_error(backend(reach(server.port), "--nats-stream=S", "--nats-subject=x"))
    assert isinstance(error, Permanent)
    assert "--nats-token" in str(error)


async def test_a_server_that_cannot_be_reached_is_told_with_the_reason() -> None:
    nobody = await opening_error(backend(reach(free_port()), "--nats-subject=x", "--nats-stream=S"))
    assert isinstance(nobody, Transient)
    assert "[Errno 111]" in str(nobody)
    nowhere = "--nats-servers=nats://no-such-host.invalid:4222"
    unknown = await opening_error(backend(nowhere, "--nats-subject=x", "--nats-stream=S"))
    assert isinstance(unknown, Transient)
    assert "name" in str(unknown).removeprefix("cannot connect to nats://no-such-host.invalid:4222: ").lower()


async def test_a_credentials_file_logs_in(start_nats: StartNats, tmp_path: Path) -> None:
    operator, account, user = (new_key(prefix) for prefix in OPERATOR_ACCOUNT_USER)
    system = new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    account_jwt = signed(
        operator,
        account,
        {
            "type": "account",
            "limits": {"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1,
                       "payload": -1, "wildcards": True, "mem_storage": -1, "disk_storage": -1, "streams": -1,
                       "consumer": -1},
        },
    )  # fmt: skip
    system_jwt = signed(operator, system, {"type": "account"})
    operator_jwt = signed(operator, operator, {"type": "operator"})
    server = start_nats(
        config=f"operator: {operator_jwt}\nresolver: MEMORY\n"
        f"system_account: {name_of(system)}\n"
        f"resolver_preload: {{ {name_of(account)}: {account_jwt}, {name_of(system)}: {system_jwt} }}\n"
    )
    unlimited = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
    credentials = tmp_path / "user.creds"
    user_jwt = signed(account, user, unlimited)
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{bytes(user.seed).decode()}\n------END USER NKEY SEED------\n"
    )
    more = (reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}")
    made = backend(*more, f"--nats-creds-file={credentials}")
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(records(made, [trade("A", 1)]))
    broken = tmp_path / "broken.creds"
    broken.write_text("nothing of use")
    error = await opening_error(backend(*more, f"--nats-creds-file={broken}"))
    assert isinstance(error, Permanent)
    assert "--nats-creds-file" in str(error)


OPERATOR_ACCOUNT_USER = (
    nkeys.PREFIX_BYTE_OPERATOR,
    nkeys.PREFIX_BYTE_ACCOUNT,
    nkeys.PREFIX_BYTE_USER,
)


def new_key(prefix: int) -> Any:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), prefix)))


def name_of(key: Any) -> str:
    return bytes(key.public_key).decode()


def signed(issuer: Any, subject: Any, claims: dict[str, Any]) -> str:
    """Make the JWT that NATS knows: header, claims and an Ed25519 signature."""

    def encoded(part: bytes) -> str:
        return base64.urlsafe_b64encode(part).rstrip(b"=").decode()

    header = json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode()
    body = {
        "jti": os.urandom(8).hex(),
        "iat": int(time.time()),
        "iss": name_of(issuer),
        "name": "test",
        "sub": name_of(subject),
        "nats": {"version": 2, **claims},
    }
    text = f"{encoded(header)}.{encoded(json.dumps(body).encode())}"
    return f"{text}.{encoded(issuer.sign(text.encode()))}"


async def test_mutual_tls_needs_the_client_certificate(
    start_nats: StartNats, certificates: Certificates
) -> None:
    server = start_tls(start_nats, certificates, ask_clients=True)
    more = ("--nats-stream=S", "--nats-subject=x.{{symbol}}", f"--nats-tls-ca-file={certificates.ca_file}")
    with_certificate = (
        f"--nats-tls-cert-file={certificates.client_cert_file}",
        f"--nats-tls-key-file={certificates.client_key_file}",
    )
    made = backend(reach(server.port), "--nats-tls", *more, *with_certificate)
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(records(made, [trade("A", 1)]))
    error = await opening_error(backend(reach(server.port), "--nats-tls", *more))
    assert "--nats-tls-cert-file" in str(error)


async def test_line_breaks_in_values_cannot_break_headers(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(
        reach(server.port), "--nats-stream=S", "--nats-subject=x.{{symbol}}", "--nats-meta-headers-prefix=m-"
    )
    nasty = event("A", 1, b"data", data_type="a\r\nX: y", meta={"k": "v\r\nNats-Msg-Id: z", "a: b\n": "c"})
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(records(made, [nasty, headed_event()]))
    async with client(server.url) as connected:
        (stored,) = await read_subject(connected, "x.A")
    assert stored.headers == {
        "payloadCase": "trade",
        "dataType": "a%0D%0AX: y",
        "Nats-Msg-Id": "stream:1",
        "m-k": "v%0D%0ANats-Msg-Id: z",
        "m-a%3A%20b%0A": "c",
    }


async def test_takes_the_next_server_when_the_first_is_down(start_nats: StartNats) -> None:
    server = start_nats()
    made = backend(
        f"--nats-servers=127.0.0.1:1,127.0.0.1:{server.port}",
        "--nats-stream=S",
        "--nats-subject=x.{{symbol}}",
    )
    async with made.open(Route(made.rules())) as sink:
        assert not await sink.write(records(made, [trade("A", 1)]))


@pytest.mark.parametrize("way", [("--nats-stream=S", "--nats-batching=off"), ("--nats-jetstream=false",)])
async def test_a_subject_that_the_user_may_not_publish_to_is_named(
    start_nats: StartNats, monkeypatch: pytest.MonkeyPatch, way: tuple[str, ...]
) -> None:
    monkeypatch.setattr(nats_sink, "ANSWER_SECONDS", 1.0)
    allowed = 'publish: ["$JS.API.>", "x.A"], subscribe: ["_INBOX.>"]'
    server = start_nats(
        config=f"authorization: {{ users: [ {{ user: w, password: p, permissions: {{ {allowed} }} }} ] }}"
    )
    made = backend(reach(server.port), "--nats-user=w", "--nats-pass=p", "--nats-subject=x.{{symbol}}", *way)
    async with made.open(Route(made.rules())) as sink:
        failures = await sink.write(records(made, [trade(symbol, 1) for symbol in "ABAa"]))
    assert [(failure.place, type(failure.error)) for failure in failures] == [(1, Permanent), (3, Permanent)]
    assert "--nats-user" in str(failures[0].error)


@pytest.mark.parametrize(
    ("taken", "subject", "expected"),
    [
        ("x.>", "x.*", True),
        ("x.>", "x", False),
        (">", "x.*.*", True),
        ("x.*", "x.*", True),
        ("x.a", "x.*", False),
        ("x.*", "x.a", True),
        ("x.*", "x.*.*", False),
        ("x.*.*", "x.*", False),
        ("y.>", "x.*", False),
    ],
)
def test_tells_whether_a_stream_covers_a_subject(taken: str, subject: str, expected: bool) -> None:
    assert covers(taken, subject) is expected
