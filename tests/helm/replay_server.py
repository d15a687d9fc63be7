"""Stands in for the replay server of a pod: publishes until it is told to stop, then flushes."""

from __future__ import annotations

import asyncio
import json
import os
import signal

from bronze_client import connect

STOPPING = "stopping"


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with connect(
        os.environ["BRONZE_SIDECAR_ADDRESS"], source="replay/1", stream_id="replay"
    ) as publisher:
        published = 0
        has_stopped = False
        # Once more after it is told, so that something is on its way then.
        while not has_stopped:
            has_stopped = stop.is_set()
            for _ in range(50):
                published += publisher.publish(trade(published))
            await asyncio.sleep(0.005)
        waiting = publisher.stats.accepted - publisher.stats.acknowledged
        print(STOPPING, flush=True)
        await publisher.flush(timeout=30)
        await publisher.close(ended=False)
    print(json.dumps({"published": published, "waiting": waiting, "dropped": publisher.stats.dropped}))


def trade(number: int) -> dict[str, object]:
    return {
        "type": "trade",
        "exchange": "bitmex",
        "symbol": "XBTUSD",
        "id": str(number),
        "price": 1,
        "amount": 1,
        "side": "buy",
        "timestamp": "2024-01-01T00:00:00.000Z",
        "localTimestamp": "2024-01-01T00:00:00.000Z",
    }


if __name__ == "__main__":
    asyncio.run(main())
