"""The life of the process: open the lanes, serve, and stop in order. Begin reading here.

A producer's batch comes in through `ingest.server`, becomes events in `ingest.intake` (JSON through
`mapping`), gets its addresses from `routing.route`, waits in a `delivery.lane` for each back end, and is
written by a sink of `sinks`. When all lanes are done with it, its `ingest.session` acknowledges it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import resource
import signal
from typing import Any

import grpc
from bronze_cli.values import UNIX, is_loopback
from bronze_client._generated.bronze.sidecar.v1 import sidecar_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from bronze_sidecar.configuration.bounds import MEBIBYTE, OWN_MEMORY, request_bytes
from bronze_sidecar.configuration.config import Config
from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.delivery.spool import left_behind
from bronze_sidecar.errors import Permanent
from bronze_sidecar.ingest.dead_letter_file import DeadLetterFile
from bronze_sidecar.ingest.failures import Failures
from bronze_sidecar.ingest.server import SERVICE, SidecarService
from bronze_sidecar.sinks import BACKENDS
from bronze_sidecar.sockets import unix_sockets
from bronze_sidecar.status.page import StatusPage
from bronze_sidecar.status.producer_gauges import ProducerGauges
from bronze_sidecar.status.snapshot import Snapshot
from bronze_sidecar.tap.service import TapService
from bronze_sidecar.telemetry.admin import Admin
from bronze_sidecar.telemetry.logs import logger
from bronze_sidecar.telemetry.metrics import Metrics, resident_bytes

OTHER_CALLS = 32
FILE_LIMIT = 65_536
TRIM_SECONDS = 5.0
SAVE_SECONDS = 10.0
WORTH_TRIMMING = 16 * MEBIBYTE
# As glibc numbers them; together they are what it may keep of memory that was freed.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_FOR_WRITES = 32 * MEBIBYTE
EXIT_FAILED, EXIT_UNDELIVERED, EXIT_FORCED = 1, 3, 130


class Sidecar:
    """One running process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics()
        self.metrics.show_bounds(config, [backend.name for backend in config.backends])
        self.lanes = [Lane(backend, config, self.metrics.lane(backend.name)) for backend in config.backends]
        self._dead_letters = (
            DeadLetterFile(config.dead_letter_file, config.dead_letter_max_bytes, self.metrics)
            if config.dead_letter_file
            else None
        )
        self._failures = Failures(self._dead_letters.put if self._dead_letters else None, self.metrics)
        for lane in self.lanes:
            lane.on_lost = self._failures.lost
        self.service = SidecarService(config, self.lanes, self.metrics, self._failures)
        self._tap = TapService(self.lanes, self._failures, is_on=config.tap)
        self.metrics.registry.register(ProducerGauges(lambda: self.service.sessions))
        self.snapshot = Snapshot(config, self.lanes, self.service, self._failures, self.metrics)
        self._health = health.HealthServicer()
        self._log = logger()
        self.serving = asyncio.Event()
        """Set once producers can connect."""
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    async def run(self) -> int:
        """Serve until told to stop; return the exit status."""
        _raise_file_limit()
        keep_memory_for_writes()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number.name)
        for lane in self.lanes:
            try:
                await lane.open_disk()
            except Permanent as error:
                self._log.error("cannot publish", backend=lane.name, reason=str(error))
                return EXIT_FAILED
        await asyncio.to_thread(self._warn_of_queues_left)
        lanes = [asyncio.create_task(lane.run(), name=f"lane {lane.name}") for lane in self.lanes]
        stop = asyncio.create_task(self._stop.wait())
        watching = [
            asyncio.create_task(each)
            for each in (self._watch_readiness(), self._trim_memory(), self.snapshot.history.run())
        ]
        server = self._server()
        admin = None
        try:
            with unix_sockets(self.config.listen, self.config.socket_mode) as show:
                page = StatusPage(self.snapshot.facts)
                admin = await Admin(self.metrics, self.snapshot, page).start(self.config.admin_listen)
                self._listen(server)
                await server.start()
                show()
                self.serving.set()
                self._log.info(
                    "serving", listen=list(self.config.listen), backends=[lane.name for lane in self.lanes]
                )
                self._warn_of_what_others_can_see()
                if not self.lanes:
                    self._log.warning(
                        "PUBLISHING IS OFF: no back end is configured, so every event is acknowledged and"
                        " discarded; `bronze-sidecar help options` lists what a back end needs"
                    )
                # What exists by now lives as long as the process; collecting it again and again is waste.
                gc.freeze()
                await asyncio.wait({stop, *lanes}, return_when=asyncio.FIRST_COMPLETED)
                if not self._stop.is_set():
                    return self._lane_ended(lanes)
                return await self._drain(server)
        except OSError as error:
            self._log.error("cannot listen", reason=str(error))
            return EXIT_FAILED
        finally:
            await server.stop(0)
            if admin:
                admin.close()
            await _end(stop, *watching, *lanes)
            self._failures.close()
            if self._dead_letters:
                await asyncio.to_thread(self._dead_letters.close)

    def _warn_of_queues_left(self) -> None:
        """Tell operators of what is on disk for back ends that do not spill any more."""
        spilling = {lane.name for lane in self.lanes if lane.spilling}
        others = [each.name for each in BACKENDS if each.name not in spilling]
        for path, what in left_behind(self.config.spool_dir, others) if self.config.spool_dir else ():
            self._log.warning(
                "a queue on disk is left that no back end uses; what is in it is not delivered",
                queue=str(path),
                holds=what,
                remedy=f"run with --{path.stem}-when-full=spill until it is empty, or move it away",
            )

    def _warn_of_what_others_can_see(self) -> None:
        for backend in self.config.backends:
            for option in backend.exposed_secrets():
                self._log.warning("a secret is sent without encryption; use TLS", option=option)

    def _on_signal(self, name: str) -> None:
        if self._stop.is_set():
            self._log.warning("stopping at once", signal=name)
            self._stop_now.set()
        else:
            self._log.info("stopping", signal=name, grace_seconds=self.config.grace_seconds)
            self._stop.set()

    def abandon(self) -> None:
        """Stop at once: whoever watched over the process is gone."""
        self._stop.set()
        self._stop_now.set()

    def _lane_ended(self, lanes: list[asyncio.Task[None]]) -> int:
        """Report the back end that can never work."""
        for lane, task in zip(self.lanes, lanes, strict=True):
            if task.done() and (error := task.exception()):
                if not isinstance(error, Permanent):
                    raise error
                self._log.error("cannot publish", backend=lane.name, reason=str(error))
        return EXIT_FAILED

    async def _drain(self, server: grpc.aio.Server) -> int:
        """Refuse new batches, deliver what was accepted, and end the streams when they know."""
        self.snapshot.stopping = True
        await self._health.enter_graceful_shutdown()
        self.service.drain()
        self._tap.close()
        for lane in self.lanes:
            lane.hurry()
        delivered = asyncio.create_task(self._deliver_the_rest(server))
        now = asyncio.create_task(self._stop_now.wait())
        await asyncio.wait({delivered, now}, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        undelivered = {lane.name: count for lane in self.lanes if (count := lane.unsafe_events())}
        on_disk = {lane.name: lane.spilling.events for lane in self.lanes if lane.spilling}
        if any(on_disk.values()):
            self._log.info("events wait on disk for the next start", events=on_disk)
        if undelivered:
            self._log.error(
                "stopped with events that were not delivered; they are not acknowledged, and only a producer"
                " that still runs will send them again",
                undelivered=undelivered,
            )
        else:
            self._log.info("drained")
        if self._stop_now.is_set():
            delivered.cancel()
            return EXIT_FORCED
        return EXIT_UNDELIVERED if undelivered else 0

    async def _deliver_the_rest(self, server: grpc.aio.Server) -> None:
        """Return when producers have heard of everything and nothing is left, or there is no more time."""
        grace = self.config.grace_seconds
        streams_ended = asyncio.create_task(server.stop(grace))
        # Producers may be gone; what was taken from them is delivered all the same.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                # A batch may still be on its way in, a slice at a time.
                while self.service.is_taking or any(self._must_wait_for(lane) for lane in self.lanes):
                    for lane in filter(self._must_wait_for, self.lanes):
                        await lane.wait_until_empty()
                    await asyncio.sleep(0.01)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SAVE_SECONDS):
                for lane in self.lanes:
                    await lane.save()
        await streams_ended

    @staticmethod
    def _must_wait_for(lane: Lane) -> bool:
        """Whether a lane still delivers; what can be kept on disk need not wait for a bus that is away."""
        return bool(lane.events) and not (lane.spilling and lane.state != "ready")

    async def _watch_readiness(self) -> None:
        """Let gRPC health say SERVING once every back end has been reached."""
        await asyncio.gather(*(lane.connected.wait() for lane in self.lanes))
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._log.info("ready")

    async def _trim_memory(self) -> None:
        """Return memory when queues that were full are empty again; glibc alone keeps most of it."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        kept = OWN_MEMORY
        while trim:
            await asyncio.sleep(TRIM_SECONDS)
            if resident_bytes() > kept + WORTH_TRIMMING and not any(lane.events for lane in self.lanes):
                # In a thread, for it takes some milliseconds.
                await asyncio.to_thread(trim, 0)
                kept = max(OWN_MEMORY, resident_bytes())
            kept = max(OWN_MEMORY, min(kept, resident_bytes()))

    def _server(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            options=[
                # What a batch may have can be received; an event that is too large is then refused by itself.
                ("grpc.max_receive_message_length", request_bytes(self.config.max_event_bytes)),
                ("grpc.max_send_message_length", -1),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.so_reuseport", int(self.config.workers > 1)),
                ("grpc.server_handshake_timeout_ms", 10_000),
                ("grpc.max_connection_idle_ms", 300_000),
            ],
            # Also calls whose request is still on its way; health checks find room beside the streams.
            maximum_concurrent_rpcs=self.config.max_streams + OTHER_CALLS,
        )
        server.add_generic_rpc_handlers((self.service.handler(), self._tap.handler()))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        # Importing the module registered the service's descriptor, which reflection answers from.
        assert sidecar_pb2.DESCRIPTOR.services_by_name  # noqa: S101
        reflection.enable_server_reflection(names, server)
        return server

    def _listen(self, server: grpc.aio.Server) -> None:
        for address in self.config.listen:
            if is_loopback(address) or self.config.insecure:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._credentials())
            if not address.startswith(UNIX):
                self._log.info("listening", address=f"{address.rpartition(':')[0]}:{port}")

    def _credentials(self) -> grpc.ServerCredentials:
        config = self.config
        assert config.tls_cert_file is not None  # noqa: S101 - checked with the configuration
        assert config.tls_key_file is not None  # noqa: S101
        client_ca = config.tls_client_ca_file.read_bytes() if config.tls_client_ca_file else None
        return grpc.ssl_server_credentials(
            [(config.tls_key_file.read_bytes(), config.tls_cert_file.read_bytes())],
            root_certificates=client_ca,
            require_client_auth=client_ca is not None,
        )


def _raise_file_limit() -> None:
    """Allow as many open files as may be had: connections that do nothing must not keep others out."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_LIMIT if most == resource.RLIM_INFINITY else min(most, FILE_LIMIT)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def keep_memory_for_writes() -> None:
    """Let glibc keep what the buffers of a write leave, for the next one takes as much.

    Otherwise it would be returned each time. To get it back, page by page, was a seventh of what an event for
    Kafka cost.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(M_TRIM_THRESHOLD, KEPT_FOR_WRITES)
        mallopt(M_MMAP_THRESHOLD, KEPT_FOR_WRITES)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they have ended; what they raise has been seen or does not matter any more."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        # More than once: `wait_for` of Python 3.11 loses a cancellation that comes together with the result.
        _, pending = await asyncio.wait(pending, timeout=1)
    await asyncio.gather(*tasks, return_exceptions=True)
