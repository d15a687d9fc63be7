"""The gRPC call by which an operator on the same machine looks at what passes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

import grpc
from bronze_client.schema import TapRequest, TapResponse
from google.protobuf.message import DecodeError

from bronze_sidecar.delivery.lane import Lane
from bronze_sidecar.ingest.dead_letters import DeadLetter
from bronze_sidecar.ingest.failures import Failures
from bronze_sidecar.ingest.server import SERVICE, Context
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.tap.view import View

MOST_VIEWS = 4
SEND_SECONDS = 0.1
"""Many events in one message cost less than one by one."""
_HERE = re.compile(r"unix:.*|ipv4:127\.[\d.]+:\d+|ipv6:(\[|%5B)(::1|::ffff:127\.[\d.]+)(\]|%5D):\d+")


def is_here(peer: str) -> bool:
    """Tell from gRPC's name of a caller whether it is on this machine."""
    return _HERE.fullmatch(peer) is not None


class TapService:
    """Lets lanes and failures be seen while somebody looks; costs nothing otherwise."""

    def __init__(self, lanes: Sequence[Lane], failures: Failures, *, is_on: bool) -> None:
        self._lanes = lanes
        self._failures = failures
        self._is_on = is_on
        self._views: list[View] = []
        self._stopping = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE, {"Tap": grpc.unary_stream_rpc_method_handler(self.tap)}
        )

    def close(self) -> None:
        """End all calls: nobody else would, and the process is stopping."""
        self._stopping.set()

    async def tap(self, request: bytes, context: Context) -> None:
        """Show what passes until the caller ends the call, or the sidecar stops."""
        refusal = self._refusal(context.peer())
        if refusal:
            await context.abort(*refusal)
        try:
            view = View(TapRequest.FromString(request))
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a TapRequest")
        stopping = asyncio.create_task(self._stopping.wait())
        self._watch([*self._views, view])
        try:
            # Empty: whoever gets it knows that from now on nothing is missed.
            await context.write(TapResponse().SerializeToString())
            while not stopping.done():
                await asyncio.wait({stopping}, timeout=SEND_SECONDS)
                if view.has_news:
                    await context.write(view.fetch().SerializeToString())
        finally:
            stopping.cancel()
            self._watch([each for each in self._views if each is not view])

    def _refusal(self, peer: str) -> tuple[grpc.StatusCode, str] | None:
        if not self._is_on:
            return grpc.StatusCode.PERMISSION_DENIED, "--tap=false: this sidecar shows no events"
        if not is_here(peer):
            return grpc.StatusCode.PERMISSION_DENIED, "events are shown on the sidecar's own machine alone"
        if len(self._views) >= MOST_VIEWS:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_VIEWS} look already"
        return None

    def _watch(self, views: list[View]) -> None:
        """Have lanes and failures seen by these."""
        self._views = views
        for lane in self._lanes:
            lane.on_stored = self._seen_by(lane) if views else None
        self._failures.watch = self._failed if views else None

    def _seen_by(self, lane: Lane) -> Callable[[Sequence[Record]], None]:
        def stored(records: Sequence[Record]) -> None:
            for view in self._views:
                view.stored(lane.route, lane.name, records)

        return stored

    def _failed(self, letter: DeadLetter) -> None:
        for view in self._views:
            view.failed(letter)
