"""Asks sentinels which server is the primary."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bronze_buses.errors import BusError, Refused, Unreachable
from bronze_buses.redis import opening_error
from redis.asyncio.connection import Connection
from redis.exceptions import RedisError

from bronze_sidecar.errors import Permanent, Transient
from bronze_sidecar.sinks.redis.link import ask, close, pack

if TYPE_CHECKING:
    from bronze_sidecar.sinks.redis.options import Redis

SENTINEL_SECONDS = 2.0
"""How long a sentinel may take before the next one is asked."""

Connect = Callable[[str, int], Connection]


async def find_primary(options: Redis, connect: Connect) -> tuple[str, int]:
    """Return the primary's host and port, as the first sentinel says that knows it."""
    faults: list[BusError] = []
    for address in options.sentinels or ():
        try:
            return await _ask_one(address, options.sentinel_name or "", connect)
        except BusError as fault:
            faults.append(fault)
    reasons = "; ".join(map(str, faults))
    if all(isinstance(fault, Refused) for fault in faults):
        raise Permanent(reasons)
    raise Transient(reasons)


async def _ask_one(address: str, name: str, connect: Connect) -> tuple[str, int]:
    where = f"the sentinel at {address}"
    host, _, port = address.rpartition(":")
    connection = connect(host.strip("[]"), int(port))
    try:
        async with asyncio.timeout(SENTINEL_SECONDS):
            await connection.connect()  # type: ignore[no-untyped-call]
            answer = await ask(connection, pack(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.encode()))
    except TimeoutError as error:
        raise Unreachable(f"{where} does not answer") from error
    except (RedisError, OSError) as error:
        login = "--redis-sentinel-username and --redis-sentinel-password"
        raise opening_error(error, where, login) from error
    finally:
        await close(connection)
    if not answer:
        raise Refused(f"{where} knows no primary named '{name}': check --redis-sentinel-name")
    return answer[0].decode(), int(answer[1])
