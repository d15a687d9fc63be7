"""Producers that go on and on while a test looks at the sidecar."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from bronze_client import PublishError, connect_sync
from buses import trade

PAUSE_SECONDS = 0.05


@contextlib.contextmanager
def steady(
    address: str,
    producers: int = 1,
    message: Callable[[int], bytes] = trade,
    *,
    each_second: int = 100,
    name: str = "exchange",
) -> Iterator[None]:
    """Have producers publish at a pace, in a thread of their own, until the block ends."""
    stop = threading.Event()

    def produce() -> None:
        with contextlib.ExitStack() as stack:
            # What became of their events is not what such a test asks.
            stack.enter_context(contextlib.suppress(PublishError))
            publishers = [
                stack.enter_context(
                    connect_sync(
                        address,
                        stream_id=f"{name}-{number}",
                        source=f"{name}/{number}",
                        origin="realtime",
                        close_timeout=0.1,
                    )
                )
                for number in range(1, producers + 1)
            ]
            position = 0
            while not stop.wait(PAUSE_SECONDS):
                for _ in range(max(1, int(each_second * PAUSE_SECONDS))):
                    for publisher in publishers:
                        publisher.publish(message(position))
                    position += 1

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
