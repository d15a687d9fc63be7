"""Connections to Redis: what the library's asyncio and blocking clients have in common."""

from __future__ import annotations

import ssl
from typing import Any

from redis import asyncio as async_redis
from redis import connection as sync_redis
from redis.exceptions import AuthenticationError, NoPermissionError

from bronze_buses.errors import BusError, Refused, Unreachable
from bronze_buses.tls import causes, certificate_fault, tls_error


def encrypting(context: ssl.SSLContext) -> type[async_redis.Connection]:
    """Return a connection class with our TLS context: the library's own also trusts the system's CAs."""

    class Encrypting(async_redis.SSLConnection):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.ssl_context.context = context

    return Encrypting


def encrypting_without_asyncio(context: ssl.SSLContext) -> type[sync_redis.Connection]:
    """Return the same for blocking connections."""

    class Encrypting(sync_redis.SSLConnection):
        def _wrap_socket_with_ssl(self, sock: Any) -> ssl.SSLSocket:
            return context.wrap_socket(sock, server_hostname=self.host)

    return Encrypting


def opening_error(error: Exception, where: str, credentials: str) -> BusError:
    """Return what a failure to connect means.

    `credentials` names the flags that the user and password came from.
    """
    for each in causes(error):
        if isinstance(each, AuthenticationError):
            return Refused(f"{where} refuses the login ({error_text(each)}): check {credentials}")
        if isinstance(each, NoPermissionError):
            return Refused(f"{where} does not grant the user the permissions it needs: {error_text(each)}")
    fault = certificate_fault(error, "--redis-tls")
    if fault:
        return Refused(f"{where}: {fault}")
    if tls := tls_error(error):
        return Unreachable(f"{where}: TLS failed, see --redis-tls: {tls}")
    return Unreachable(f"{where}: {error_text(error)}")


def error_text(error: BaseException) -> str:
    """Return what a server said, with its code: the library strips codes that it knows from the text."""
    code = getattr(error, "status_code", None)
    text = str(error) or type(error).__name__
    return f"{code} {text}" if code and not text.startswith(code) else text
