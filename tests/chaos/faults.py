"""What goes wrong: each fault begins, lasts, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.cell import Cell

FREEZES = (5, 20, 60)


async def broker_kill(cell: Cell) -> None:
    await cell.target.kill()
    await asyncio.sleep(1)
    await cell.target.revive()


def freeze(seconds: float) -> Fault:
    async def frozen(cell: Cell) -> None:
        await cell.target.freeze()
        await asyncio.sleep(seconds)
        await cell.target.thaw()

    return frozen


async def slow_link(cell: Cell) -> None:
    assert cell.link is not None
    await cell.link.be_bad(5)


async def sidecar_kill(cell: Cell) -> None:
    cell.note_memory()
    cell.sidecar.kill()
    await asyncio.sleep(0.5)
    await asyncio.to_thread(cell.sidecar.start)


async def sigterm(cell: Cell) -> None:
    cell.note_memory()
    cell.sidecar.terminate()
    await asyncio.to_thread(cell.sidecar.wait)
    await asyncio.to_thread(cell.sidecar.start)


async def store_full(cell: Cell) -> None:
    await cell.target.fill()
    await asyncio.sleep(3)
    await cell.target.make_room()


async def partial(cell: Cell) -> None:
    await cell.target.refuse_some()
    await asyncio.sleep(4)
    await cell.target.refuse_none()


async def poison(cell: Cell) -> None:
    for _ in range(3):
        await cell.publish_poison()
        await asyncio.sleep(0.5)


async def deleted(cell: Cell) -> None:
    # What was stored goes with the destination: it is looked at before, while nothing is on its way.
    async with cell.paused():
        cell.before = await cell.target.stored()
        await cell.target.delete()


Fault = Callable[["Cell"], Awaitable[None]]

FAULTS: dict[str, Fault] = {
    "broker-kill": broker_kill,
    **{f"freeze-{seconds}": freeze(seconds) for seconds in FREEZES},
    "slow-link": slow_link,
    "sidecar-kill": sidecar_kill,
    "sigterm": sigterm,
    "store-full": store_full,
    "partial": partial,
    "poison": poison,
    "deleted": deleted,
}
