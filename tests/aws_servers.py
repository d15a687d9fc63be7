"""AWS for tests: an emulator, and proxies before it that fail as AWS does and as networks do.

`TEST_AWS_ENDPOINT_URL` names an emulator that runs already. Otherwise `TEST_SERVERS` decides as for other
servers: LocalStack in a container, or the emulator that `make` installs into `.cache/aws-emulator`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import http.client
import io
import json
import os
import shutil
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import containers
from aiohttp import ClientSession, web
from aws_kinesis_agg.deaggregator import deaggregate_records
from botocore.config import Config as ClientConfig
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import Backend
from bronze_sidecar.telemetry.metrics import Metrics
from servers import HOST, START_SECONDS, Endpoint, NativeServer, Unavailable

VARIABLE = "TEST_AWS_ENDPOINT_URL"
IMAGE = "localstack/localstack:4.9"
IMAGE_PORT = 4566
PROGRAM = Path(__file__).parent.parent / ".cache/aws-emulator/bin/ministack"
REGION = "eu-central-1"
ACCOUNT = "000000000000"
ACCESS_KEY = "AKIAEXAMPLE"
SECRET_KEY = "correct-horse"  # noqa: S105 - the emulators' own, checked only by our proxy

# Passes bytes on. It is a process of its own, so that a test can kill and freeze it and the emulator, which
# keeps everything in memory, stays as it is.
RELAY = """
import asyncio, sys

async def carry(reader, writer):
    try:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def serve(reader, writer):
    try:
        onward = await asyncio.open_connection(sys.argv[2], int(sys.argv[3]))
    except OSError:
        writer.close()
        return
    await asyncio.gather(carry(reader, onward[1]), carry(onward[0], writer))

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(main())
"""


class AwsEmulator(NativeServer):
    """An emulator of Kinesis, SQS and S3."""

    scheme = "http"

    def command(self) -> Sequence[str]:
        settings = (
            f"BIND_HOST={HOST}",
            f"GATEWAY_PORT={self.port}",
            "SERVICES=sqs,kinesis,s3",
            "LOG_LEVEL=ERROR",
        )
        env = shutil.which("env")
        assert env is not None
        return [env, *settings, program()]

    def answers(self) -> bool:
        return _answers(HOST, self.port, "/_ministack/health")


class Relay(NativeServer):
    """A proxy for bytes, which may be killed and frozen in place of the emulator behind it."""

    scheme = "http"

    def __init__(self, directory: Path, *, host: str, port: int) -> None:
        super().__init__(directory)
        self._onward = host, str(port)

    def command(self) -> Sequence[str]:
        return [sys.executable, "-I", "-S", "-c", RELAY, str(self.port), *self._onward]

    def answers(self) -> bool:
        return _answers(HOST, self.port, "/")


def _answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
    except http.client.HTTPException:
        return False
    finally:
        connection.close()


def program() -> str:
    if not PROGRAM.exists():
        raise Unavailable("there is no AWS emulator in .cache/aws-emulator: `make test` installs it")
    return str(PROGRAM)


def provider() -> str:
    """Return `address`, `container` or `native`; raise Unavailable if there is none."""
    if os.environ.get(VARIABLE):
        return "address"
    if containers.serves(IMAGE):
        return "container"
    program()
    return "native"


def description() -> str:
    """Return where the emulator comes from, in a few words."""
    try:
        chosen = provider()
    except (Unavailable, RuntimeError) as error:
        return f"aws: none ({error})"
    details = {"address": f"by {VARIABLE}", "container": f"container {IMAGE}", "native": "native ministack"}
    return f"aws: {details[chosen]}{containers.remark(IMAGE) if chosen == 'native' else ''}"


@contextlib.contextmanager
def shared_emulator(directory: Path) -> Iterator[Endpoint]:
    """Provide an emulator that tests share, for as long as they need it."""
    chosen = provider()
    if chosen == "address":
        yield Endpoint(os.environ[VARIABLE].rstrip("/"), chosen)
    elif chosen == "container":
        yield from _container()
    else:
        server = AwsEmulator(directory)
        try:
            yield Endpoint(server.start().url, chosen)
        finally:
            server.stop()


def _container() -> Iterator[Endpoint]:
    container = containers.container(IMAGE).with_env("SERVICES", "sqs,kinesis,s3")
    with container.with_exposed_ports(IMAGE_PORT) as running:
        host, port = running.get_container_host_ip(), int(running.get_exposed_port(IMAGE_PORT))
        containers.wait_until(lambda: _answers(host, port, "/_localstack/health"), IMAGE, 3 * START_SECONDS)
        yield Endpoint(f"http://{host}:{port}", "container")


def aws_client(service: str, url: str) -> Any:
    """Return a synchronous client, made by another library than the sinks'."""
    return boto3.client(
        service,  # type: ignore[call-overload] # its types know each service by its literal name
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=ClientConfig(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30),
    )


# -- S3


def create_bucket(url: str) -> str:
    """Return the name of a new bucket."""
    name = f"lake-{uuid.uuid4().hex}"
    client = aws_client("s3", url)
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.close()
    return name


def keys_in(url: str, bucket: str, prefix: str = "") -> list[str]:
    """Return the keys of the objects in a bucket."""
    client = aws_client("s3", url)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
    client.close()
    return keys


def delta_options(url: str) -> dict[str, str]:
    """Return what delta-rs needs to know to read a table in a bucket."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ALLOW_HTTP": "true",
    }


# -- a proxy that understands calls


@dataclass
class Call:
    """A call that came to the proxy."""

    operation: str
    body: dict[str, Any]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Records of a call to Kinesis, or messages of one to SQS; empty for other calls."""
        entries: list[dict[str, Any]] = self.body.get("Records") or self.body.get("Entries") or []
        return entries


@dataclass(frozen=True)
class Refusal:
    """An answer in place of the emulator's."""

    code: str
    status: int = 400
    text: str = "refused by the test"


HANG = Refusal("", 0)
"""No answer at all."""
BREAK = Refusal("", -1)
"""The connection is broken off."""
TOO_LARGE = Refusal("", 413)
"""What a gateway says that stands before the service."""

Judge = Callable[[Call], Refusal | None]
EntryJudge = Callable[[dict[str, Any]], bool]


@dataclass
class FaultProxy:
    """Stands before the emulator, and fails as it is told."""

    onward: str
    port: int = 0
    judge: Judge = lambda _: None
    """Says how a whole call fails, if it does."""
    refuses: EntryJudge = lambda _: False
    """Says which entries fail while the rest of their call is stored."""
    checks_signatures: bool = False
    calls: list[Call] = field(default_factory=list)
    """What came to be written."""
    most_at_once: int = 0
    _at_once: int = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        if not raw:
            return web.Response()  # someone asks whether anyone is here
        call = Call(request.headers.get("X-Amz-Target", "").rpartition(".")[2], json.loads(raw))
        refusal = _credential_fault(request, raw) if self.checks_signatures else None
        refusal = refusal or self.judge(call)
        if refusal is HANG:
            await asyncio.Event().wait()
        if refusal is BREAK:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if refusal:
            said = {"__type": refusal.code, "message": refusal.text} if refusal.code else {}
            text = json.dumps(said)
            return web.Response(status=refusal.status, text=text, content_type="application/x-amz-json-1.1")
        if call.entries:
            self.calls.append(call)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            status, answer = await self._pass_on(request, call)
        finally:
            self._at_once -= 1
        return web.Response(status=status, body=answer, content_type="application/x-amz-json-1.1")

    async def _pass_on(self, request: web.Request, call: Call) -> tuple[int, bytes]:
        refused = [index for index, entry in enumerate(call.entries) if self.refuses(entry)]
        kept = [entry for index, entry in enumerate(call.entries) if index not in refused]
        name = "Records" if "Records" in call.body else "Entries"
        if refused and not kept:
            answer: dict[str, Any] = {"Records": []}
            return 200, json.dumps(_with_refused(answer, call, name, refused)).encode()
        body = {**call.body, name: kept} if refused else call.body
        headers = {key: request.headers[key] for key in ("X-Amz-Target", "Content-Type", "Authorization")}
        async with (
            ClientSession() as session,
            session.post(
                self.onward, data=io.BytesIO(json.dumps(body).encode()), headers=headers
            ) as response,
        ):
            raw = await response.read()
            if response.status == http.HTTPStatus.OK and refused:
                raw = json.dumps(_with_refused(json.loads(raw), call, name, refused)).encode()
            return response.status, raw


def _with_refused(answer: dict[str, Any], call: Call, name: str, refused: list[int]) -> dict[str, Any]:
    """Add the entries that were not passed on to the answer about the others."""
    if name == "Entries":
        failed = [
            {
                "Id": call.entries[index]["Id"],
                "SenderFault": False,
                "Code": "InternalError",
                "Message": "no luck",
            }
            for index in refused
        ]
        return {**answer, "Failed": answer.get("Failed", []) + failed}
    for index in refused:
        code = "ProvisionedThroughputExceededException" if index % 2 else "InternalFailure"
        answer["Records"].insert(index, {"ErrorCode": code, "ErrorMessage": "no luck"})
    return {**answer, "FailedRecordCount": len(refused)}


def _credential_fault(request: web.Request, body: bytes) -> Refusal | None:
    """Check a signature, version 4, as AWS does."""
    parts = dict(
        part.strip().split("=", 1)
        for part in request.headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(",")
    )
    access_key, *scope = parts["Credential"].split("/")
    if access_key != ACCESS_KEY:
        return Refusal("UnrecognizedClientException", text="The security token included is invalid.")
    names = parts["SignedHeaders"].split(";")
    lines = [f"{name}:{request.headers[name].strip()}\n" for name in names]
    canonical = "\n".join(
        [
            *(request.method, request.path, request.query_string, "".join(lines)),
            *(parts["SignedHeaders"], hashlib.sha256(body).hexdigest()),
        ]
    )
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", request.headers["X-Amz-Date"], "/".join(scope), digest])
    key = f"AWS4{SECRET_KEY}".encode()
    for word in scope:
        key = hmac.digest(key, word.encode(), "sha256")
    if hmac.new(key, text.encode(), "sha256").hexdigest() != parts["Signature"]:
        return Refusal(
            "InvalidSignatureException", text=f"The signature we calculated for {canonical} differs."
        )
    return None


@contextlib.asynccontextmanager
async def fault_proxy(onward: str) -> AsyncIterator[FaultProxy]:
    """Run a proxy in this process."""
    proxy = FaultProxy(onward)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", proxy.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    proxy.port = runner.addresses[0][1]
    try:
        yield proxy
    finally:
        await runner.cleanup()


# -- a lane


class Waiting:
    """A ticket that remembers what it was told."""

    is_durable = False

    def __init__(self, count: int) -> None:
        self.open = count
        self.failures: list[tuple[str, str]] = []
        self.done = asyncio.Event()

    def stored(self, count: int) -> None:
        self.open -= count
        assert self.open >= 0, "a record was settled twice"
        if self.open == 0:
            self.done.set()

    def failed(self, record: Record, backend: str, reason: str) -> None:
        self.failures.append((record.event.id, reason))
        self.stored(1)


@dataclass
class Delivery:
    """What became of records that a lane carried."""

    failures: list[tuple[str, str]]
    retried: float


async def deliver(
    backend: Backend, records: Sequence[Record], *, chunk: int = 100, **config: Any
) -> Delivery:
    """Carry records by a real lane, and wait until all are settled."""
    metrics = Metrics().lane(backend.name)
    lane = Lane(backend, Config(**({"retry_backoff_ms": 1, "retry_backoff_max_ms": 5} | config)), metrics)
    running = asyncio.create_task(lane.run())
    tickets = []
    try:
        for start in range(0, len(records), chunk):
            part = list(records[start : start + chunk])
            tickets.append(Waiting(len(part)))
            lane.put(tickets[-1], part, sum(len(each.event.envelope) for each in part))
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            for ticket in tickets:
                await ticket.done.wait()
        assert (lane.events, lane.bytes) == (0, 0)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    failures = [failure for ticket in tickets for failure in ticket.failures]
    return Delivery(failures, metrics.retried._value.get())


# -- reading


def events_in(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of Kinesis' records; Amazon's library takes aggregated ones apart."""
    # It takes what a function of Lambda is given.
    given = [
        {
            "kinesisSchemaVersion": "1.0",
            "sequenceNumber": record["SequenceNumber"],
            "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"].timestamp(),
            "partitionKey": record["PartitionKey"],
            "data": base64.b64encode(record["Data"]),
        }
        for record in records
    ]
    found = [each["kinesis"] for each in deaggregate_records([{"kinesis": each} for each in given])]
    return [{"PartitionKey": each["partitionKey"], "Data": base64.b64decode(each["data"])} for each in found]


# -- options


def reach(
    service: str, url: str, *, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY
) -> tuple[str, ...]:
    """Return the options that reach an emulator."""
    return (
        f"--{service}-region={REGION}",
        f"--{service}-endpoint-url={url}",
        f"--{service}-access-key={access_key}",
        f"--{service}-secret-key={secret_key}",
    )
