"""Producers that go on and on while a test looks at the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

from bronze_client import PublishError, connect
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

    async def produce(number: int) -> None:
        options = {"stream_id": f"{name}-{number}", "source": f"{name}/{number}", "origin": "realtime"}
        with contextlib.suppress(PublishError):
            async with connect(address, close_timeout=0.1, **options) as publisher:  # type: ignore[arg-type]
                position = 0
                while not stop.is_set():
                    for _ in range(max(1, int(each_second * PAUSE_SECONDS))):
                        publisher.publish(message(position))
                        position += 1
                    await asyncio.sleep(PAUSE_SECONDS)

    async def produce_all() -> None:
        await asyncio.gather(*(produce(number) for number in range(1, producers + 1)))

    thread = threading.Thread(target=asyncio.run, args=(produce_all(),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
