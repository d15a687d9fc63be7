"""Whether the sidecar of this environment is alive, found out with next to no imports.

A container engine asks every few seconds, on nodes that may have nothing to spare. So the answer that is
nearly always given costs little more than Python itself; what is not plain goes through `health.py`, which
reads every source of options and says what is wrong.
"""

import socket
from collections.abc import Mapping, Sequence

DEFAULT_ADDRESS = "127.0.0.1:9464"
# Each flag is read as the variable that it beats.
FLAGS = {"--admin-listen": "SIDECAR_ADMIN_LISTEN", "--config": "SIDECAR_CONFIG"}
TIMEOUT_SECONDS = 5
STATUS_LINE_LIMIT = 1024


def plainly_alive(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether it answers; False if that takes a closer look."""
    address = plain_address(arguments, environ)
    return address is not None and fault_at(address) is None


def fault_at(address: str) -> str | None:
    """Return why the sidecar with this admin address is not alive; None if it is."""
    # Connecting to the wildcard address reaches this machine.
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_SECONDS) as connection:
            connection.sendall(
                f"GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()
            )
            status = _status(connection)
    except (OSError, OverflowError) as error:
        return f"nothing answers at {address}: {error}."
    if status is None:
        return f"{address} does not answer as a sidecar does."
    return None if status == "200" else f"{address} answers with status {status}."


def _status(connection: socket.socket) -> str | None:
    line = b""
    while b"\n" not in line and len(line) < STATUS_LINE_LIMIT:
        more = connection.recv(STATUS_LINE_LIMIT)
        if not more:
            break
        line += more
    words = line.partition(b"\n")[0].split(None, 2)
    is_http = len(words) > 1 and words[0].startswith(b"HTTP/1.")
    return words[1].decode(errors="replace") if is_http else None


def plain_address(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the admin address that flags and environment give, if it is plain what it is."""
    flags = _plain_flags(arguments)
    if flags is None:
        return None
    given = {**environ, **flags}
    file = given.get("SIDECAR_CONFIG")
    address = given.get("SIDECAR_ADMIN_LISTEN") or (_address_in(file) if file else DEFAULT_ADDRESS)
    host, _, port = (address or "").rpartition(":")
    return address if host and port.isascii() and port.isdigit() else None


def _plain_flags(arguments: Sequence[str]) -> dict[str, str] | None:
    """Return values by variable; None if there is any flag but ours, each once and with a value."""
    given: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if not equals:
            value = next(words, "")
        if flag not in FLAGS or FLAGS[flag] in given or not value or value.startswith("-"):
            return None
        given[FLAGS[flag]] = value
    return given


def _address_in(file: str) -> str | None:
    """Find the address in a YAML file without reading YAML: one plain line, or nothing that may be meant."""
    try:
        with open(file, encoding="utf-8") as content:  # noqa: PTH123 - pathlib is one of the imports
            lines = [line for line in content if "admin" in line.lower() or "\\" in line]
    except (OSError, ValueError):
        return None
    if not lines:
        return DEFAULT_ADDRESS
    key, _, value = lines[0].partition(": ")
    return value.strip() if len(lines) == 1 and key == "admin_listen" else None
