"""The sidecar as the process of a container: the first one there, within the container's memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bronze_client import PublishError, connect
from buses import NatsBus, assert_complete, trade
from configurations import MINIMAL, without
from conftest import missing
from servers import HOST, NatsServer, Unavailable, free_port
from sidecar_process import SidecarProcess, sidecar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

# The command in front stays outside, and passes on how the first process inside ended.
ISOLATED = (
    shutil.which("unshare") or "unshare",
    *("--user", "--map-root-user", "--pid", "--fork", "--kill-child"),
)
MEBIBYTE = 1 << 20
BATCH = 1000


class FirstProcess(SidecarProcess):
    """Runs as process 1 of a namespace, where no signal ends a process that does not handle it."""

    def command(self) -> Sequence[str]:
        return [*ISOLATED, *super().command()]

    @property
    def pid_inside(self) -> int:
        """Its number out here."""
        (pid,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(pid)


@pytest.fixture
def namespaces() -> None:
    """Skip where no process can be the first one."""
    try:
        subprocess.run([*ISOLATED, "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        missing(Unavailable(f"there are no process namespaces here: {error}"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_as_the_first_process_it_delivers_what_it_has_and_ends(
    namespaces: None, start_nats: Callable[..., NatsServer], number: signal.Signals
) -> None:
    bus = NatsBus(start_nats())
    with sidecar(*bus.options(), kind=FirstProcess) as process:
        assert isinstance(process, FirstProcess)
        process.wait_until_ready()
        # Nobody is there any more to take the end of the stream.
        async with connect(process.address, stream_id="s", close_timeout=0.1) as publisher:
            bus.server.freeze()
            for position in range(3000):
                publisher.publish(trade(position))
            while process.metric("bronze_events_received_total") < 3000:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            os.kill(process.pid_inside, number)
            bus.server.thaw()
            assert await asyncio.to_thread(process.wait) == 0
            await publisher.flush(timeout=60)
    await assert_complete(bus, {"s": 3000}, duplicates_allowed=False)


def five_that_are_away() -> list[str]:
    nowhere = f"{HOST}:{free_port()}"
    given = (
        *("--kafka-brokers", nowhere, "--nats-servers", nowhere, "--redis-port", nowhere.partition(":")[2]),
        *("--redis-host", HOST, "--kinesis-endpoint-url", f"http://{nowhere}", "--sqs-endpoint-url"),
        *(f"http://{nowhere}", "--kinesis-access-key=a", "--kinesis-secret-key=b"),
        *("--sqs-access-key=a", "--sqs-secret-key=b"),
    )
    return [*(flag for flags in MINIMAL.values() for flag in without(flags, *given)), *given]


async def test_five_back_ends_that_are_away_with_full_queues_fit_into_512_mebibytes() -> None:
    """The chart's limit, with as many events for each as a queue takes by default."""
    full = 100_000
    bounds = ("--memory-limit=512MiB", f"--max-queue-events={full}", "--grace-seconds=0")
    with sidecar(*five_that_are_away(), *bounds) as process:

        async def fill() -> None:
            async with connect(
                process.address, stream_id="s", buffer_events=2 * full, close_timeout=0.0
            ) as publisher:
                for position in range(2 * full):
                    publisher.publish(trade(position))
                # A batch that does not fit as a whole waits outside.
                while process.metric("bronze_queue_events") < 5 * (full - BATCH):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                assert publisher.stats.acknowledged == 0

        with pytest.raises(PublishError, match="not acknowledged"):
            await fill()
        assert process.metric("bronze_queue_events") <= 5 * full
        assert process.resident_bytes() < 512 * MEBIBYTE
        assert process.get("/healthz")[0] == 200


COMMON = (
    '"exchange":"bitmex","symbol":"XBTUSD",'
    '"timestamp":"2024-01-01T00:00:00.000Z","localTimestamp":"2024-01-01T00:00:00.000Z"'
)
# What each back end takes, and a message of it.
KINDS = {
    "kafka": ("trade", '{"type":"trade",%s,"id":"%d","price":1,"amount":1,"side":"buy"}'),
    "nats": ("liquidation", '{"type":"liquidation",%s,"id":"%d","price":1,"amount":1,"side":"buy"}'),
    "redis": ("bookTicker", '{"type":"book_ticker",%s,"askAmount":%d,"askPrice":2}'),
    "kinesis": ("derivativeTicker", '{"type":"derivative_ticker",%s,"openInterest":%d,"markPrice":8}'),
    "sqs": ("error", '{"type":"error",%s,"details":"%d","subSequentErrorsCount":1}'),
}


async def test_five_back_ends_that_take_different_events_fit_into_512_mebibytes_too() -> None:
    """No event waits for two of them, so what they hold adds up."""
    filters = [f"--{name}-include-payloads={kind}" for name, (kind, _) in KINDS.items()]
    most = 110_000
    with sidecar(*five_that_are_away(), *filters, "--memory-limit=512MiB", "--grace-seconds=0") as process:
        # A batch that does not fit as a whole waits outside.
        nearly_full = 0.97 * process.metric("bronze_queue_bytes_limit")

        async def fill(name: str) -> None:
            async with connect(
                process.address,
                stream_id=name,
                meta={"note": "x" * 600},
                batch_events=200,
                buffer_events=most,
                buffer_bytes=1 << 30,
                close_timeout=0.0,
            ) as publisher:
                for position in range(most):
                    publisher.publish(KINDS[name][1] % (COMMON, position))
                    if position % BATCH == 0:
                        await asyncio.sleep(0)
                while process.metric("bronze_queue_bytes") < nearly_full:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

        for outcome in await asyncio.gather(*map(fill, KINDS), return_exceptions=True):
            assert isinstance(outcome, PublishError), outcome
        assert process.resident_bytes() < 512 * MEBIBYTE
        assert process.get("/healthz")[0] == 200
