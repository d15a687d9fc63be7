"""Connections to sidecars, each shared by all streams of an event loop that can use it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio

from bronze_client.options import Options

CHANNEL_OPTIONS = (
    # A peer that is gone without a word is noticed within half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Both sides limit events and credits; a second limit would only get in the way.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # The sidecar is near, whatever the environment says about proxies.
    ("grpc.enable_http_proxy", 0),
    # Otherwise a new channel would inherit the pauses of the last one; we make our own.
    ("grpc.use_local_subchannel_pool", 1),
)

Key: TypeAlias = tuple[asyncio.AbstractEventLoop, str, "tuple[bytes | None, ...] | None"]
"""A loop, an address, and what the files of TLS hold: whoever agrees in all of them may share."""

_channels: dict[Key, SharedChannel] = {}


class SharedChannel:
    """One HTTP/2 connection. Whoever takes it with `share` releases it once."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self.users = 0
        _, address, certificates = key
        if certificates is None:
            self.grpc = grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(*certificates)
            self.grpc = grpc.aio.secure_channel(address, credentials, CHANNEL_OPTIONS)

    def retire(self) -> None:
        """Let whoever shares next have another connection: nothing comes over this one."""
        if _channels.get(self._key) is self:
            del _channels[self._key]

    async def release(self) -> None:
        """Give it back; the last one closes it."""
        self.users -= 1
        # gRPC would make a pause of its own before it tries to connect again.
        if not self.users or self.grpc.get_state() == grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            self.retire()
        if not self.users:
            await self.grpc.close()


def share(options: Options) -> SharedChannel:
    """Return the connection for these options in this loop. Raise OSError if a file cannot be read."""
    key = asyncio.get_running_loop(), options.address or "", certificates(options)
    channel = _channels.get(key)
    if channel is None:
        channel = _channels[key] = SharedChannel(key)
    channel.users += 1
    return channel


def certificates(options: Options) -> tuple[bytes | None, ...] | None:
    """Read the files that TLS needs: authority, key, certificate. Raise OSError if one cannot be read."""
    if not options.is_encrypted:
        return None
    files = (options.tls_ca_file, options.tls_key_file, options.tls_cert_file)
    return tuple(Path(file).read_bytes() if file else None for file in files)
