"""A request to a web service, of the few that a bus needs now and then."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from bronze_buses.tls import TlsFiles, client_context

ANSWER_SECONDS = 5.0


def exchange(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    *,
    ca_file: Path | None,
    flags: str,
) -> tuple[int, bytes]:
    """Return status and body of the answer; raise OSError, HTTPException, or Refused if a file is no use.

    `flags` is what the flags of its options begin with. It blocks, and is called in a thread: a client with a
    pool and a session would be too much for a request an hour.
    """
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    connection = http.client.HTTPConnection(host, parts.port, timeout=ANSWER_SECONDS)
    if parts.scheme == "https":
        context = client_context(TlsFiles(tls_ca_file=ca_file), flags)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_SECONDS, context=context)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
